/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/placement_policies.h"
#include "place-world.h"
#include "place/workload/stranded.h"

/* What each policy chooses on nodes that can be worked out by hand, and what the model learns. */

#define WORD(id, word) word,
static const char *const policies[] = {PLACEMENT_POLICIES(WORD, WORD, WORD)};
#undef WORD
#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static bool asked[POLICIES]; /* which of them have chosen cards in these tests */

/* The cards of the first ask, 0 where it does not fit. */
static uint64_t cards_of(const char *policy, struct place_plan *plan, const struct world *w) {
    struct place_result result;
    const struct place_policy *p = place_policy_find(policy);
    for (size_t i = 0; i < POLICIES; i++)
        asked[i] |= strcmp(policies[i], policy) == 0;
    return place_on_node(p, plan, &w->node, &result) == PLACE_OK ? result.cards[0] : 0;
}

/* ---- the simple ones ---- */

static void test_names(void **state) {
    (void) state;
    size_t n = 0;
    for (; place_policy_at(n); n++)
        assert_ptr_equal(place_policy_find(policies[n]), place_policy_at(n));
    assert_int_equal(n, POLICIES);
    assert_null(place_policy_at(1000));
    assert_null(place_policy_find("worst-fit"));
    assert_null(place_policy_find(""));
}

static void test_first_fit(void **state) {
    (void) state;
    struct world a, b;
    struct pod pod;
    make_node(&a, 0, CORES(96), 3, (uint32_t[]){20, 100, 50});
    make_node(&b, 1, CORES(8), 3, (uint32_t[]){20, 0, 50});
    struct place_plan *plan = make_pod(&pod, NULL, 1, 30, CORES(4));
    assert_int_equal(cards_of("first-fit", plan, &a), 1 << 1);
    assert_int_equal(cards_of("first-fit", plan, &b), 1 << 2);
    assert_true(score_of("first-fit", plan, &a) > score_of("first-fit", plan, &b));
}

static void test_best_fit(void **state) {
    (void) state;
    struct world a, b, c;
    struct pod pod;
    make_node(&a, 0, CORES(96), 3, (uint32_t[]){100, 40, 50});
    make_node(&b, 1, CORES(96), 3, (uint32_t[]){100, 40, 0});   /* fewer cards left */
    make_node(&c, 2, CORES(64), 3, (uint32_t[]){100, 100, 40}); /* much less CPU left */
    struct place_plan *plan = make_pod(&pod, NULL, 1, 30, CORES(4));
    assert_int_equal(cards_of("best-fit", plan, &a), 1 << 1);
    assert_true(score_of("best-fit", plan, &b) > score_of("best-fit", plan, &a));
    assert_true(score_of("best-fit", plan, &c) > score_of("best-fit", plan, &a));
}

static void test_binpack(void **state) {
    (void) state;
    struct world a, b, c;
    struct pod pod;
    make_node(&a, 0, CORES(96), 3, (uint32_t[]){100, 60, 40});
    make_node(&b, 1, CORES(96), 1, (uint32_t[]){50});
    make_node(&c, 2, CORES(96), 1, (uint32_t[]){100});
    struct place_plan *plan = make_pod(&pod, NULL, 1, 30, CORES(4));
    assert_int_equal(cards_of("binpack", plan, &a), 1 << 2);
    /* The fuller card, then a card that is not idle. */
    assert_true(score_of("binpack", plan, &a) > score_of("binpack", plan, &b));
    assert_true(score_of("binpack", plan, &b) > score_of("binpack", plan, &c));
}

static void test_spread(void **state) {
    (void) state;
    struct world a, b;
    struct pod pod;
    make_node(&a, 0, CORES(96), 2, (uint32_t[]){40, 60});
    make_node(&b, 1, CORES(96), 4, (uint32_t[]){60, 60, 50, 60});
    struct place_plan *plan = make_pod(&pod, NULL, 1, 30, CORES(4));
    assert_int_equal(cards_of("spread", plan, &a), 1 << 1);
    assert_true(score_of("spread", plan, &b) > score_of("spread", plan, &a));
}

/* The rank decides between equals, and nothing exceeds the range that the scheduler can take. */
static void test_scores(void **state) {
    (void) state;
    static struct place_card cards[PLACE_CARDS_MAX];
    struct place_node node = {.cards = cards, .ncards = PLACE_CARDS_MAX, .rank = 99999};
    struct place_model *m = place_model_new();
    struct pod pod;
    node.cpu = node.cpu_free = UINT64_MAX / 2;
    for (uint32_t c = 0; c < PLACE_CARDS_MAX; c++)
        cards[c] = card_with(100);
    for (int known = 0; known < 2; known++) {
        for (size_t i = 0; place_policy_at(i); i++) {
            for (uint32_t n = 0; n <= PLACE_CARDS_MAX; n += 16) {
                struct place_result last, first;
                make_pod(&pod, m, n, 100, CORES(1));
                node.rank = 99999;
                assert_int_equal(place_on_node(place_policy_at(i), &pod.plan, &node, &last), 0);
                node.rank = 0;
                assert_int_equal(place_on_node(place_policy_at(i), &pod.plan, &node, &first), 0);
                assert_true(first.score > last.score);
                assert_true(first.score <= PLACE_SCORE_MAX && last.score >= -PLACE_SCORE_MAX);
            }
        }
        arrive(m, 40, 1, 100, CORES(4));
        arrive(m, 40, 64, 100, CORES(4));
    }
    place_model_free(m);
}

/* ---- FGD ---- */

/* Half of the pods ask 60 % of a card, a quarter a whole card, a quarter CPU only. */
static void typical(struct place_model *m) {
    arrive(m, 20, 1, 60, CORES(4));
    arrive(m, 10, 1, 100, CORES(4));
    arrive(m, 10, 0, 0, CORES(4));
    place_model_learn(m);
}

static void test_fragments(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world w;
    struct pod pod;
    typical(m);
    make_node(&w, 0, CORES(32), 2, (uint32_t[]){100, 50});
    struct place_plan *plan = make_pod(&pod, m, 1, 50, CORES(4));
    /* 500 are too small for both kinds of GPU pods; of no use to the third is all. */
    assert_true(place_model_next(m, plan, &w.node, NULL) == 0.5 * 500 + 0.25 * 500 + 0.25 * 1500);
    struct place_amount holds[PLACE_CARDS_MAX] = {{CARD / 2, 50, 0}};
    /* Now 500 twice: no shape can use anything. */
    assert_true(place_model_next(m, plan, &w.node, holds) == 1000);
    /* Without CPU none can either. */
    w.node.cpu_free = CORES(3);
    assert_true(place_model_next(m, plan, &w.node, NULL) == 1500);
    place_model_free(m);
}

static void test_fgd(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world a, b;
    struct pod pod;
    typical(m);
    make_node(&a, 0, CORES(32), 2, (uint32_t[]){100, 100});
    make_node(&b, 1, CORES(32), 2, (uint32_t[]){100, 50});
    struct place_plan *plan = make_pod(&pod, m, 1, 50, CORES(4));
    assert_int_equal(cards_of("fgd", plan, &b), 1 << 1);
    assert_true(score_of("fgd", plan, &b) > score_of("fgd", plan, &a));
    place_model_free(m);
}

/* ---- ESC ---- */

/* A share goes where the CPU is short anyway: what it takes there would have been left over. */
static void test_esc_takes_what_is_lost(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world a, b;
    struct pod pod;
    arrive(m, 64, 1, 100, CORES(12));
    make_node(&a, 0, CORES(96), 8, (uint32_t[]){100, 100, 100, 100, 100, 100, 100, 100});
    make_node(&b, 1, CORES(14), 8, (uint32_t[]){0, 0, 0, 0, 0, 100, 100, 100});
    struct place_plan *plan = make_pod(&pod, m, 1, 50, CORES(2));
    assert_true(score_of("esc", plan, &b) > score_of("esc", plan, &a));
    /* Of node b one card of three will be used: 2,000 of 3,000 are lost; with the pod 1,500. */
    int64_t before = place_model_expect(m, plan, &b.node, NULL);
    struct place_amount holds[PLACE_CARDS_MAX] = {[5] = {CARD / 2, 50, 0}};
    assert_int_equal(before, 2000 * STRANDED_SCALE);
    assert_int_equal(place_model_expect(m, plan, &b.node, holds), 1500 * STRANDED_SCALE);
    place_model_free(m);
}

static void test_esc_is_deterministic(void **state) {
    (void) state;
    struct place_model *x = place_model_new(), *y = place_model_new();
    struct world a, b, c;
    struct pod pod;
    make_node(&a, 0, CORES(40), 4, (uint32_t[]){100, 30, 70, 100});
    make_node(&b, 0, CORES(40), 4, (uint32_t[]){100, 100, 70, 30}); /* the same cards */
    make_node(&c, 0, CORES(17), 3, (uint32_t[]){10, 60, 100});
    typical(x);
    typical(y);
    (void) place_model_expect(y, make_pod(&pod, y, 1, 30, CORES(2)), &c.node, NULL);
    int64_t one = place_model_expect(x, make_pod(&pod, x, 1, 30, CORES(2)), &a.node, NULL);
    assert_int_equal(one, place_model_expect(y, &pod.plan, &a.node, NULL));
    assert_int_equal(one, place_model_expect(y, &pod.plan, &b.node, NULL));
    assert_in_range(one, 0, 3000 * STRANDED_SCALE);
    /* A short forecast is near, and is made good when there is time again. */
    struct place_model *z = place_model_new();
    typical(z);
    place_model_allow(z, 0);
    int64_t quick = place_model_expect(z, &pod.plan, &a.node, NULL);
    assert_in_range(quick, 0, 3000 * STRANDED_SCALE);
    place_model_allow(z, 1);
    assert_int_equal(place_model_expect(z, &pod.plan, &a.node, NULL), one);
    place_model_free(x);
    place_model_free(y);
    place_model_free(z);
}

/* Half a forecast of what was and a full one of what becomes of it would differ by luck alone. */
static void test_esc_compares_like_with_like(void **state) {
    (void) state;
    int64_t growth[3];
    struct world a;
    struct pod pod;
    make_node(&a, 0, CORES(40), 4, (uint32_t[]){100, 30, 70, 100});
    struct place_amount holds[PLACE_CARDS_MAX] = {[2] = {CARD * 30 / 100, 30, 0}};
    for (uint32_t allowed = 0; allowed < 3; allowed++) {
        struct place_model *m = place_model_new();
        typical(m);
        place_model_allow(m, allowed); /* states: of two */
        make_pod(&pod, m, 1, 30, CORES(2));
        uint64_t looks = place_model_short_estimates(m);
        growth[allowed] = place_model_growth(m, &pod.plan, &a.node, holds);
        assert_int_equal(place_model_short_estimates(m) - looks, 2 - allowed);
        assert_false(place_model_has_time(m));
        int64_t before = place_model_expect(m, &pod.plan, &a.node, NULL);
        int64_t after = place_model_expect(m, &pod.plan, &a.node, holds);
        assert_int_equal(growth[allowed] == after - before, allowed != 1);
        place_model_free(m);
    }
    assert_int_equal(growth[0], growth[1]);
    assert_int_not_equal(growth[1], growth[2]);
}

/* A share in TFLOPS is the share that it is of the cards that are there. */
static void test_tflops_as_shape(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world w;
    struct pod pod;
    make_node(&w, 0, CORES(96), 1, (uint32_t[]){100});
    make_pod(&pod, m, 1, 0, CORES(4));
    pod.request.containers[0].tflops = 60;
    assert_int_equal(place_shape_of(&pod.plan).core, 0);
    for (uint32_t id = 0; id < 4; id++) { /* three of 120, one of 300, one that is too slow */
        w.cards[0].tflops = id < 3 ? 120 : 300;
        w.node.model = id < 3;
        place_model_node(m, id, &w.node);
    }
    w.cards[0].tflops = 50;
    w.node.model = 2;
    place_model_node(m, 4, &w.node);
    assert_int_equal(place_shape_of(&pod.plan).core, (3 * 50 + 20) / 4);
    pod.plan.models = 1;
    assert_int_equal(place_shape_of(&pod.plan).core, 20);
    place_model_free(m);
}

/* Whatever little has been learned: a share goes beside another one, on the node as on the card. */
static void test_esc_prefers_used_cards(void **state) {
    (void) state;
    static const uint32_t cores[] = {20, 30, 50, 60, 80, 100};
    struct world w, other;
    struct pod pod;
    for (size_t i = 0; i < sizeof(cores) / sizeof(cores[0]); i++) {
        struct place_model *m = place_model_new();
        for (uint32_t n = 0; n < 20; n++) {
            make_node(&w, 1, CORES(95), 2, (uint32_t[]){100, 80});
            make_node(&other, 0, CORES(96), 2, (uint32_t[]){100, 100});
            struct place_plan *plan = make_pod(&pod, m, 1, 20, CORES(1));
            assert_int_equal(cards_of("esc", plan, &w), 1 << 1);
            assert_true(score_of("esc", plan, &w) > score_of("esc", plan, &other));
            arrive(m, 1, 1, 20, CORES(1));
            arrive(m, 1, 1, cores[i], CORES(1));
        }
        place_model_free(m);
    }
}

/* Kinds of cards are forgotten with what was learned: there is always room for those of today. */
static void test_kinds_are_given_back(void **state) {
    (void) state;
    struct stranded *s = stranded_new();
    struct workload *w = malloc(sizeof(*w));
    assert_non_null(w);
    workload_init(w);
    for (uint32_t k = 0; k < 2 * STRANDED_KINDS_MAX; k++)
        (void) stranded_kind(s, k % 64, k);
    assert_int_equal(stranded_kind(s, 1, CARD), STRANDED_KINDS_MAX - 1);
    stranded_learn(s, w);
    assert_int_equal(stranded_kind(s, 1, CARD), 0);
    assert_int_equal(stranded_kind(s, 2, CARD), 1);
    free(w);
    stranded_free(s);
}

/* Who knows nothing places like best-fit, or like the scheduler's simple policy. */
static void test_young(void **state) {
    (void) state;
    static const char *const learned[] = {"fgd", "esc"}, *const like[] = {"best-fit", "binpack"};
    struct place_model *m = place_model_new();
    struct world a, b;
    struct pod pod;
    make_node(&a, 0, CORES(96), 3, (uint32_t[]){100, 40, 50});
    make_node(&b, 1, CORES(96), 3, (uint32_t[]){100, 40, 0});
    assert_false(place_model_knows(NULL));
    arrive(m, 15, 1, 50, CORES(4));
    assert_false(place_model_knows(m));
    for (int i = 0; i < 4; i++) {
        struct place_plan *plan = make_pod(&pod, i & 1 ? m : NULL, 1, 30, CORES(4));
        assert_int_equal(score_of(learned[i / 2], plan, &a), score_of(like[i / 2], plan, &a));
        assert_int_equal(score_of(learned[i / 2], plan, &b), score_of(like[i / 2], plan, &b));
        assert_int_equal(cards_of(learned[i / 2], plan, &a), 1 << 1);
    }
    uint32_t epoch = place_model_epoch(m);
    arrive(m, 1, 1, 50, CORES(4));
    assert_true(place_model_knows(m));
    assert_int_not_equal(place_model_epoch(m), epoch);
    place_model_free(m);
}

/* ---- the workload ---- */

static struct workload *new_workload(void) {
    struct workload *w = malloc(sizeof(*w));
    assert_non_null(w);
    workload_init(w);
    return w;
}

static void test_workload_is_bounded(void **state) {
    (void) state;
    struct workload *w = new_workload();
    struct place_shape shape = {.models = WORKLOAD_ANY_MODEL, .cards = 1, .core = 50};
    for (uint32_t i = 0; i < 100000; i++) {
        shape.cpu = i % 5000;
        workload_add(w, &shape);
    }
    assert_true(w->n <= WORKLOAD_SHAPES_MAX);
    /* What is asked now displaces what was asked long ago. */
    shape.cpu = 7;
    shape.core = 80;
    for (uint32_t i = 0; i < 200000; i++)
        workload_add(w, &shape);
    uint16_t order[4];
    assert_int_equal(workload_typical(w, 95, 4, order), 1);
    assert_int_equal(w->shapes[order[0]].shape.core, 80);
    assert_true(w->total <= 65536);
    /* Out of range is cut to it. */
    shape = (struct place_shape){.cards = UINT32_MAX, .core = UINT32_MAX, .cpu = UINT32_MAX};
    workload_add(w, &shape);
    assert_true(w->by_cards[WORKLOAD_CARDS_MAX] == 1);
    free(w);
}

static const char *name_of(void *self, uint32_t model) {
    static const char *const names[] = {NULL, "NVIDIA A100-SXM4-80GB", "T4"};
    (void) self;
    return model < 3 ? names[model] : NULL;
}

/* In the next run T4 has another number. */
static bool find_other(void *self, const char *name, uint32_t *ret) {
    (void) self;
    *ret = strcmp(name, "T4") == 0 ? 5 : 9;
    return true;
}

static const struct workload_names names = {NULL, name_of, find_other};

static void write_sample(struct workload *w, struct buf *text) {
    struct place_shape shape = {.models = WORKLOAD_ANY_MODEL, .cards = 1, .core = 50, .cpu = 4000};
    workload_add_count(w, &shape, 10);
    shape.models = 1 << 2 | UINT64_C(1) << 40; /* the second has no name, and is forgotten */
    shape.memory = 12345;
    workload_add_count(w, &shape, 20);
    shape.models = 1 << 3; /* has no name: cannot be kept */
    workload_add(w, &shape);
    workload_write(w, &names, text);
    assert_int_equal(buf_error(text), 0);
}

static void test_workload_text(void **state) {
    (void) state;
    struct workload *w = new_workload(), *again = new_workload();
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    write_sample(w, &text);
    assert_string_equal(text.data, "aliquot-workload 1\nmodel T4\n"
                                   "shape 1 50 12345 4000 1 20\nshape 1 50 0 4000 any 10\nend 2\n");
    assert_int_equal(workload_read(again, &names, text.data, text.len), 0);
    assert_int_equal(again->n, 2);
    assert_int_equal(again->total, 30);
    assert_int_equal(again->by_cards[1], 30);
    assert_true(again->shapes[0].shape.models == 1 << 5);
    assert_true(again->shapes[1].shape.models == WORKLOAD_ANY_MODEL);
    free(w);
    free(again);
}

static void test_workload_text_is_whole_or_nothing(void **state) {
    (void) state;
    static const char *const bad[] = {
        "",
        "aliquot-workload 2\nend 0\n",
        "aliquot-workload 1\n",
        "aliquot-workload 1\nend 1\n",
        "aliquot-workload 1\nshape 1 50 0 4000 any 0\nend 1\n",
        "aliquot-workload 1\nshape 65 50 0 4000 any 1\nend 1\n",
        "aliquot-workload 1\nshape 1 101 0 4000 any 1\nend 1\n",
        "aliquot-workload 1\nshape 1 50 0 4000 1 1\nend 1\n",
        "aliquot-workload 1\nshape 1 50 0 4000 any\nend 1\n",
        "aliquot-workload 1\nshape 1 50 0 4000 any 1 1\nend 1\n",
        "aliquot-workload 1\nend 0\nend 0\n",
        "aliquot-workload 1\nend 0",
        "aliquot-workload 1\n\n",
    };
    struct workload *w = new_workload(), *old = new_workload();
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    write_sample(w, &text);
    memcpy(old, w, sizeof(*w));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(workload_read(w, &names, bad[i], strlen(bad[i])), -EINVAL);
    for (size_t len = 0; len < text.len; len++)
        assert_int_equal(workload_read(w, &names, text.data, len), -EINVAL);
    assert_memory_equal(w, old, sizeof(*w));
    for (size_t i = 0; i < text.len; i++) {
        text.data[i] ^= 0x11;
        int r = workload_read(w, &names, text.data, text.len);
        assert_true(r == 0 || r == -EINVAL);
        text.data[i] ^= 0x11;
    }
    free(w);
    free(old);
}

static void test_model_is_kept(void **state) {
    (void) state;
    struct place_model *m = place_model_new(), *next = place_model_new();
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct world w;
    struct pod pod;
    typical(m);
    place_model_write(m, &names, &text);
    assert_int_equal(place_model_read(next, &names, "rubbish", 7), -EINVAL);
    assert_false(place_model_knows(next));
    assert_int_equal(place_model_read(next, &names, text.data, text.len), 0);
    make_node(&w, 0, CORES(40), 4, (uint32_t[]){100, 30, 70, 100});
    make_pod(&pod, m, 1, 30, CORES(2));
    assert_int_equal(place_model_expect(m, &pod.plan, &w.node, NULL),
                     place_model_expect(next, &pod.plan, &w.node, NULL));
    place_model_free(m);
    place_model_free(next);
}

/* What several containers ask is one shape. */
static void test_shapes(void **state) {
    (void) state;
    struct gpu_request request = {.n = 3};
    struct place_plan plan;
    request.containers[0] =
        (struct container_request){.phase = CONTAINER_INIT, .cards = 8, .whole = true};
    request.containers[1] =
        (struct container_request){.phase = CONTAINER_APP, .cards = 1, .core = 30, .memory = 100};
    request.containers[2] =
        (struct container_request){.phase = CONTAINER_APP, .cards = 1, .core = 40, .memory = 200};
    place_prepare(&request, &plan);
    struct place_shape shape = place_shape_of(&plan);
    assert_int_equal(shape.cards, 1);
    assert_int_equal(shape.core, 70);
    assert_int_equal(shape.memory, 300);
    request.containers[2].core = 80;
    assert_int_equal(place_shape_of(&plan).cards, 2);
    request.containers[1] =
        (struct container_request){.phase = CONTAINER_APP, .cards = 4, .whole = true};
    assert_int_equal(place_shape_of(&plan).cards, 5);
    request.n = 1;
    assert_int_equal(place_shape_of(&plan).cards, 8);
}

/* The last test: each policy has chosen cards in one of those above. */
static void test_every_policy_is_tested(void **state) {
    (void) state;
    for (size_t i = 0; i < POLICIES; i++)
        if (!asked[i])
            fail_msg("no test of what %s chooses", policies[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_first_fit),
        cmocka_unit_test(test_best_fit),
        cmocka_unit_test(test_binpack),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_fgd),
        cmocka_unit_test(test_esc_takes_what_is_lost),
        cmocka_unit_test(test_esc_is_deterministic),
        cmocka_unit_test(test_esc_compares_like_with_like),
        cmocka_unit_test(test_tflops_as_shape),
        cmocka_unit_test(test_esc_prefers_used_cards),
        cmocka_unit_test(test_kinds_are_given_back),
        cmocka_unit_test(test_young),
        cmocka_unit_test(test_workload_is_bounded),
        cmocka_unit_test(test_workload_text),
        cmocka_unit_test(test_workload_text_is_whole_or_nothing),
        cmocka_unit_test(test_model_is_kept),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_every_policy_is_tested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
