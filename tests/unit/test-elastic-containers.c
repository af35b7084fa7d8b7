/* SPDX-License-Identifier: Apache-2.0 */

/* Several containers of one pod that use the same claim. */

#include "elastic-world.h"

#define CONTAINERS_MAX 3
static const char *const names[CONTAINERS_MAX] = {"main", "aside", "side"};

struct story {
    bool late;      /* the claim waits for its first consumer */
    unsigned pods;  /* that may use it */
    unsigned core;  /* of the claim, in percent */
    unsigned gib;   /* 0: as the core says */
    unsigned n;     /* containers that name it */
    unsigned given; /* core of an ElasticGPU that an administrator has made; 0: there is none */
    unsigned given_gib;
};

static void put_uses(struct buf *out, const struct story *story) {
    for (unsigned i = 0; i < story->n; i++)
        buf_printf(out, "%s\"egpuc.elasticgpu.io/%s\":\"c\"", i ? "," : "", names[i]);
}

static void put_limits(struct buf *out, const struct story *story) {
    buf_puts(out, SLOT);
    for (unsigned i = 1; i < story->n; i++)
        buf_printf(out, "}}},{\"name\":\"%s\",\"resources\":{\"limits\":{" SLOT, names[i]);
}

static void see_class(struct elastic_world *e, const struct story *story) {
    char text[512];
    snprintf(text, sizeof(text),
             "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/%s\",\"bindingMode\":\"%s\","
                                "\"podsPerClaim\":%u}",
             story->core > 99 ? "pgpu" : "qgpu", story->late ? "WaitForFirstConsumer" : "Immediate",
             story->pods);
    see(e, CLAIMS_CLASSES, text);
}

/* The claim as the API server has it: no node is chosen, one is, it is bound. */
static void see_claim(struct elastic_world *e, const struct story *story, const char *version,
                      const char *notes, const char *egpu, const char *phase) {
    char memory[64] = "", text[1024];
    if (story->gib > 0)
        snprintf(memory, sizeof(memory), ",\"elasticgpu.io/gpu-memory\":\"%uGi\"", story->gib);
    snprintf(
        text, sizeof(text),
        "{\"metadata\":{\"name\":\"c\",\"uid\":\"u-c\",\"namespace\":\"d\",\"resourceVersion\":"
        "\"%s\"" GUARD ",\"annotations\":{%s}},\"spec\":{\"elasticGPUClassName\":\"k\",%s"
        "\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":%u%s}}},\"status\":{"
        "\"phase\":\"%s\"}}",
        version, notes, egpu, story->core, memory, phase);
    see(e, CLAIMS_CLAIMS, text);
}

static void see_bound(struct elastic_world *e, const struct story *story, const char *name) {
    char egpu[128];
    snprintf(egpu, sizeof(egpu), "\"elasticGPUName\":\"%s\",", name);
    see_claim(e, story, "9", "\"elasticgpu.io/bind-completed\":\"yes\"", egpu, "Bound");
}

/* What the scheduler makes is shown as it made it. */
static void see_made(struct elastic_world *e, const char *made) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    const char *meta = strstr(made, "\"metadata\":{");
    assert_non_null(meta);
    size_t before = (size_t) (meta - made) + strlen("\"metadata\":{");
    buf_append(&text, made, before);
    buf_puts(&text, "\"uid\":\"u-e\",\"resourceVersion\":\"5\",");
    buf_append(&text, made + before, strlen(made + before) - 1);
    buf_puts(&text, ",\"status\":{\"phase\":\"Bound\"}}");
    see(e, CLAIMS_EGPUS, buf_str(&text));
}

/* One that an administrator has made, and that is the claim's since the node is known, of the very
 * card that the pod was allocated. */
static void see_given(struct elastic_world *e, const struct story *story) {
    const char *card = state_pod_find(e->w->state, "p")->allocations[0].device.uuid;
    char text[512];
    snprintf(text, sizeof(text),
             "{" META("s", "5") EGPU_GUARD
             "},\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":%u,"
             "\"elasticgpu.io/gpu-memory\":\"%uGi\"},\"qGPU\":{"
             "\"gpuName\":\"%s\"},\"claimRef\":{\"namespace\":\"d\","
             "\"name\":\"c\",\"uid\":\"u-c\"}},\"status\":{"
             "\"phase\":\"Bound\"}}",
             story->given, story->given_gib, card);
    see(e, CLAIMS_EGPUS, text);
    see_bound(e, story, "s");
}

/* The API server's answer to the request that is the oldest, and what the watches show then. */
static void serve(struct elastic_world *e, const struct story *story) {
    const struct asked *asked = &e->w->asked[0];
    _cleanup_buf_ struct buf body = BUF_INIT(0);
    bool select = strstr(asked->path, "/elasticgpuclaims/c") &&
                  strstr(buf_str(&asked->body), "\"elasticgpu.io/selected-node\":\"n\"");
    bool make = strcmp(asked->method, "POST") == 0 && strstr(asked->path, "/elasticgpus");
    buf_append(&body, asked->body.data, asked->body.len);
    if (strstr(asked->path, "/elasticgpuclaims/c"))
        assert_true(select || strstr(asked->path, "/status")); /* it is not given up */
    for (size_t i = 1; select && i < e->w->nasked; i++)
        assert_null(strstr(buf_str(&asked[i].body), "selected-node")); /* nor chosen twice */
    respond(e->w, 0, 201, false, NULL);
    if (select && story->given)
        see_given(e, story);
    else if (select)
        see_claim(e, story, "2", "\"elasticgpu.io/selected-node\":\"n\"", "", "Pending");
    if (make) {
        see_made(e, buf_str(&body));
        see_bound(e, story, "egpu-u-c");
    }
    elastic_run(&e->elastic);
}

static void serve_all(struct elastic_world *e, const struct story *story) {
    for (unsigned i = 0; e->w->nasked > 0; i++) {
        assert_in_range(i, 0, 20);
        serve(e, story);
    }
}

/* Whether the pod of the story gets to the node. */
static bool play(struct elastic_world *e, const struct story *story) {
    _cleanup_buf_ struct buf uses = BUF_INIT(0), limits = BUF_INIT(0);
    put_uses(&uses, story);
    put_limits(&limits, story);
    see_class(e, story);
    see_claim(e, story, "1", "", "", "Pending");
    if (!story->late)
        run(e);
    serve_all(e, story);
    see_pod_of(e, "p", buf_str(&limits), NULL, buf_str(&uses));
    e->w->annotations = buf_str(&uses);
    bool fits = strcmp(filter(e->w, "p", buf_str(&limits), "\"n\""), "n") == 0;
    e->w->annotations = NULL;
    if (!fits)
        return false;
    bind_by(e, "p");
    serve_all(e, story);
    assert_string_equal(e->w->bind_answer, "");
    return true;
}

/* Each container has the same of the same cards; returns the core of each. */
static uint32_t core_of_each(struct elastic_world *e, const struct story *story) {
    const struct state_pod *pod = state_pod_find(e->w->state, "p");
    uint32_t cards = story->core > 99 ? story->core / 100 : 1;
    assert_int_equal(pod->nallocations, story->n * cards);
    for (uint32_t i = 0; i < pod->nallocations; i++) {
        const struct state_allocation *a = &pod->allocations[i], *b = &pod->allocations[i % cards];
        assert_string_equal(a->container, names[i / cards]);
        assert_string_equal(a->device.uuid, b->device.uuid);
        assert_int_equal(a->device.core, b->device.core);
        assert_int_equal(a->device.memory, b->device.memory);
    }
    return pod->allocations[0].device.core;
}

static unsigned free_of_both(struct elastic_world *e) {
    return free_core(e->w, "n", 0) + free_core(e->w, "n", 1);
}

/* More than half a card, on a node that has it once. */
static void test_room_for_the_claim_is_enough(void **state) {
    struct elastic_world *e = *state;
    const struct story story = {.late = true, .pods = 1, .core = 60, .gib = 8, .n = 2};
    bind_other(e, "x", "92");
    assert_true(play(e, &story));
    assert_int_equal(core_of_each(e, &story), 30);
    assert_int_equal(free_of_both(e), 200 - 92 - 60);
}

static void test_whole_cards(void **state) {
    struct elastic_world *e = *state;
    const struct story story = {.late = true, .pods = 1, .core = 200, .n = 2};
    assert_true(play(e, &story));
    assert_int_equal(core_of_each(e, &story), 50);
    assert_int_equal(free_of_both(e), 0);
}

/* What an administrator has made gives more than was asked: more of the one, of the other, or to
 * more containers. */
static void give_more(struct elastic_world *e, unsigned containers, unsigned core, unsigned gib) {
    const struct story story = {.late = true,
                                .pods = 1,
                                .core = 10,
                                .gib = 4,
                                .n = containers,
                                .given = core * containers,
                                .given_gib = gib * containers};
    assert_true(play(e, &story));
    assert_int_equal(core_of_each(e, &story), core);
    assert_int_equal(state_pod_find(e->w->state, "p")->allocations[0].device.memory, gib * GIB);
    assert_int_equal(free_of_both(e), 200 - core * containers);
}

static void test_more_core_than_was_asked(void **state) {
    give_more(*state, 1, 60, 4);
}

static void test_more_memory_than_was_asked(void **state) {
    give_more(*state, 1, 10, 8);
}

static void test_more_than_was_asked_for_each(void **state) {
    give_more(*state, 2, 10, 4);
}

/* A container that is not there is no user of the claim. */
static void test_a_container_that_is_not_there(void **state) {
    struct elastic_world *e = *state;
    const struct story story = {.late = true, .pods = 1, .core = 60, .n = 1};
#define ABSENT "\"egpuc.elasticgpu.io/absent\":\"c\","
    bind_other(e, "x", "92");
    see_class(e, &story);
    see_claim(e, &story, "1", "", "", "Pending");
    see_pod(e, "p", NULL, ABSENT USES("c"));
    e->w->annotations = ABSENT USES("c");
    assert_string_equal(filter(e->w, "p", SLOT, "\"n\""), "n");
    bind_by(e, "p");
    serve_all(e, &story);
    assert_string_equal(e->w->bind_answer, "");
    assert_int_equal(core_of_each(e, &story), 60);
    assert_int_equal(free_of_both(e), 200 - 92 - 60);
}

/* What an init container has is free again for those that run after it, but not the claim: of
 * several containers, one that runs as long as the pod stands for it. */
static void test_an_init_container_first(void **state) {
    struct elastic_world *e = *state;
    const struct story story = {.late = true, .pods = 1, .core = 60, .n = 1};
#define INIT_FIRST "\"egpuc.elasticgpu.io/first\":\"c\"," USES("c")
#define FIRST_AND_OWN(core)                                                                        \
    SLOT "}}},{\"name\":\"own\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-core\":\"" core     \
         "\"}}}"                                                                                   \
         "],\"initContainers\":[{\"name\":\"first\",\"resources\":{\"limits\":{" SLOT
    bind_other(e, "x", "92");
    see_class(e, &story);
    see_claim(e, &story, "1", "", "", "Pending");
    e->w->annotations = INIT_FIRST;
    see_pod_of(e, "p", FIRST_AND_OWN("50"), NULL, INIT_FIRST);
    assert_non_null(
        strstr(filter(e->w, "p", FIRST_AND_OWN("50"), "\"n\""), "no room for all containers"));
    see_pod_of(e, "q", FIRST_AND_OWN("40"), NULL, INIT_FIRST);
    assert_string_equal(filter(e->w, "q", FIRST_AND_OWN("40"), "\"n\""), "n");
    bind_by(e, "q");
    serve_all(e, &story);
    assert_string_equal(e->w->bind_answer, "");
}

/* A sidecar has its part beside init containers, too. */
static void test_a_sidecar_stands_for_all(void **state) {
    struct elastic_world *e = *state;
    const struct story story = {.late = true, .pods = 1, .core = 60, .n = 1};
#define SIDECAR_AND_INIT(core)                                                                     \
    SLOT "}}}],\"initContainers\":[{\"name\":\"beside\",\"restartPolicy\":\"Always\","             \
         "\"resources\":{"                                                                         \
         "\"limits\":{" SLOT "}}},{\"name\":\"own\",\"resources\":{\"limits\":{"                   \
         "\"elasticgpu.io/gpu-core\":\"" core "\""
    bind_other(e, "x", "92");
    see_class(e, &story);
    see_claim(e, &story, "1", "", "", "Pending");
    e->w->annotations = USES("c") ",\"egpuc.elasticgpu.io/beside\":\"c\"";
    see_pod_of(e, "p", SIDECAR_AND_INIT("80"), NULL, e->w->annotations);
    assert_non_null(strstr(filter(e->w, "p", SIDECAR_AND_INIT("80"), "\"n\""), "no room for all"));
    see_pod_of(e, "q", SIDECAR_AND_INIT("40"), NULL, e->w->annotations);
    assert_string_equal(filter(e->w, "q", SIDECAR_AND_INIT("40"), "\"n\""), "n");
    bind_by(e, "q");
    serve_all(e, &story);
    assert_string_equal(e->w->bind_answer, "");
}

/* What a pod asks can be made wrong while it runs: its claim is still in use. */
static void test_a_pod_that_is_made_wrong(void **state) {
    struct elastic_world *e = *state;
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    see(e, CLAIMS_EGPUS, EGPU("1", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    bind_user(e, "p", &annotations);
    buf_puts(&annotations, ",\"gpu-fraction\":\"0.5\"");
    see_pod(e, "p", "n", buf_str(&annotations));
    see(e, CLAIMS_CLAIMS, DELETED_CLAIM("3"));
    run(e);
    assert_int_equal(e->w->nasked, 0);
    state_pod_gone(e->w->state, "p");
    elastic_pod(&e->elastic, "p", NULL);
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c", "\"finalizers\":[]", 200);
}

/* Two claims are two shares. */
static void test_two_claims_of_one_pod(void **state) {
    struct elastic_world *e = *state;
    const struct story story = {.late = true, .pods = 1, .core = 10, .gib = 4, .n = 2};
    _cleanup_buf_ struct buf limits = BUF_INIT(0);
    bind_other(e, "x", "92");
    bind_other(e, "y", "85");
    see_class(e, &story);
    see_claim(e, &story, "1", "", "", "Pending");
    see(e, CLAIMS_CLAIMS,
        "{" META("other", "1") ",\"namespace\":\"d\"" GUARD "},\"spec\":{\"elasticGPUClassName\":"
                               "\"k\"," REQUESTS "},\"status\":{\"phase\":\"Pending\"}}");
    put_limits(&limits, &story);
    e->w->annotations = USES("c") ",\"egpuc.elasticgpu.io/aside\":\"other\"";
    see_pod_of(e, "p", buf_str(&limits), NULL, e->w->annotations);
    assert_non_null(
        strstr(filter(e->w, "p", buf_str(&limits), "\"n\""), "no room for all containers"));
    e->w->annotations = USES("c") ",\"egpuc.elasticgpu.io/aside\":\"c\"";
    see_pod_of(e, "q", buf_str(&limits), NULL, e->w->annotations);
    assert_string_equal(filter(e->w, "q", buf_str(&limits), "\"n\""), "n");
}

/* Where others were pushed aside for it, it takes what is kept for it meanwhile. */
static void test_room_that_was_made_for_it(void **state) {
    struct elastic_world *e = *state;
    const struct story story = {.late = true, .pods = 1, .core = 60, .gib = 8, .n = 2};
    bind_other(e, "x", "92");
    bool first = free_core(e->w, "n", 0) == 8;
    struct assigned_device device = {
        .index = first, .core = 60, .memory = 8 * GIB, .physical = 8 * GIB};
    snprintf(device.uuid, sizeof(device.uuid), "GPU-n-%d", first);
    assert_int_equal(state_reserve(e->w->state, "p", "n", &device, 1), 0);
    bind_other(e, "y", "40");
    assert_true(play(e, &story));
    assert_int_equal(core_of_each(e, &story), 30);
    state_unreserve(e->w->state, "p");
    assert_int_equal(free_of_both(e), 200 - 92 - 60 - 40);
}

/* Why it does not fit says what it wants, once. */
static void test_what_it_wants_is_said(void **state) {
    struct elastic_world *e = *state;
    const struct story story = {.late = true, .pods = 1, .core = 60, .gib = 8, .n = 2};
    bind_other(e, "x", "92");
    bind_other(e, "y", "92");
    assert_false(play(e, &story));
    assert_non_null(strstr(e->w->refusal,
                           "main wants 60 % compute and 8 GiB memory of one GPU, aside "
                           "shares its claim; n has free GPU 0: 8 %"));
}

/* ---- random stories: when the claim is bound makes no difference ---- */

struct outcome {
    bool fits;
    uint32_t core;        /* of each container */
    uint64_t memory;      /* of each container */
    unsigned least, most; /* what is free of the two cards */
};

static struct outcome outcome_of(const struct story *story, const char *x, const char *y) {
    void *state = NULL;
    assert_int_equal(begin(&state), 0);
    struct elastic_world *e = state;
    struct outcome o = {0};
    bind_other(e, "x", x);
    bind_other(e, "y", y);
    o.fits = play(e, story);
    if (o.fits) {
        o.core = core_of_each(e, story);
        o.memory = state_pod_find(e->w->state, "p")->allocations[0].device.memory;
        unsigned a = free_core(e->w, "n", 0), b = free_core(e->w, "n", 1);
        o.least = a < b ? a : b;
        o.most = a < b ? b : a;
    }
    while (e->w->nasked > 0)
        respond(e->w, 0, 201, false, NULL);
    assert_int_equal(end(&state), 0);
    return o;
}

static uint32_t next(uint32_t *random, uint32_t below) {
    *random = *random * 1664525 + 1013904223;
    return (*random >> 16) % below;
}

static void test_when_it_is_bound_makes_no_difference(void **unused) {
    unsigned fit = 0, not = 0;
    (void) unused;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        uint32_t random = seed * 2654435761u;
        struct story story = {.pods = 1 + next(&random, 2),
                              .core = 6 + next(&random, 94),
                              .gib = next(&random, 3) * 8,
                              .n = 1 + next(&random, CONTAINERS_MAX)};
        char x[8], y[8];
        snprintf(x, sizeof(x), "%u", 1 + next(&random, 90));
        snprintf(y, sizeof(y), "%u", 1 + next(&random, 90));
        const struct outcome now = outcome_of(&story, x, y);
        story.late = true;
        const struct outcome later = outcome_of(&story, x, y);
        if (now.fits != later.fits || now.core != later.core || now.memory != later.memory ||
            now.least != later.least || now.most != later.most)
            fail_msg("seed %u: %u containers of %u %%: %u %% each or %u %%", seed, story.n,
                     story.core, now.core, later.core);
        fit += now.fits;
        not += !now.fits;
    }
    assert_true(fit >= 50 && not >= 20);
}

/* What containers of every kind ask, some of them of the claim and some, as long as the pod runs,
 * on their own. */
static void put_random(struct buf *limits, struct buf *uses, uint32_t *random) {
    unsigned apps = next(random, 3), inits = next(random, 4);
    buf_puts(limits, SLOT);
    buf_puts(uses, "");
    for (unsigned i = 0; i < apps + inits; i++) {
        bool init = i >= apps, sidecar = init && next(random, 2);
        bool claims = (init && !sidecar) || next(random, 2);
        buf_printf(limits, "}}}%s{\"name\":\"c%u\",%s\"resources\":{\"limits\":{",
                   i == apps ? "],\"initContainers\":[" : ",", i,
                   sidecar ? "\"restartPolicy\":\"Always\"," : "");
        if (claims)
            buf_printf(uses, "\"egpuc.elasticgpu.io/c%u\":\"c\",", i);
        if (claims)
            buf_puts(limits, SLOT);
        else
            buf_printf(limits, "\"elasticgpu.io/gpu-core\":\"%u\"", 1 + next(random, 60));
    }
    buf_puts(uses, USES("c"));
}

/* A pod sent to a node for its future claim has room there when the claim is provisioned. */
static void test_who_is_let_through_gets_there(void **unused) {
    unsigned fit = 0, not = 0;
    (void) unused;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        uint32_t random = seed * 2654435761u;
        const struct story story = {
            .late = true, .pods = 1, .core = 12 + next(&random, 80), .n = 1};
        _cleanup_buf_ struct buf limits = BUF_INIT(0), uses = BUF_INIT(0);
        void *state = NULL;
        char x[8];
        snprintf(x, sizeof(x), "%u", 1 + next(&random, 99));
        put_random(&limits, &uses, &random);
        assert_int_equal(begin(&state), 0);
        struct elastic_world *e = state;
        bind_other(e, "x", x);
        see_class(e, &story);
        see_claim(e, &story, "1", "", "", "Pending");
        e->w->annotations = buf_str(&uses);
        see_pod_of(e, "p", buf_str(&limits), NULL, buf_str(&uses));
        bool fits = strcmp(filter(e->w, "p", buf_str(&limits), "\"n\""), "n") == 0;
        if (fits) {
            bind_by(e, "p");
            serve_all(e, &story);
        }
        if (fits && e->w->bind_answer[0])
            fail_msg("seed %u: %u %% of %s with %s: %s", seed, story.core, buf_str(&uses),
                     buf_str(&limits), e->w->bind_answer);
        fit += fits;
        not += !fits;
        e->w->annotations = NULL;
        assert_int_equal(end(&state), 0);
    }
    assert_true(fit >= 50 && not >= 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_room_for_the_claim_is_enough, begin, end),
        cmocka_unit_test_setup_teardown(test_whole_cards, begin, end),
        cmocka_unit_test_setup_teardown(test_more_core_than_was_asked, begin, end),
        cmocka_unit_test_setup_teardown(test_more_memory_than_was_asked, begin, end),
        cmocka_unit_test_setup_teardown(test_more_than_was_asked_for_each, begin, end),
        cmocka_unit_test_setup_teardown(test_a_container_that_is_not_there, begin, end),
        cmocka_unit_test_setup_teardown(test_an_init_container_first, begin, end),
        cmocka_unit_test_setup_teardown(test_a_sidecar_stands_for_all, begin, end),
        cmocka_unit_test_setup_teardown(test_a_pod_that_is_made_wrong, begin, end),
        cmocka_unit_test_setup_teardown(test_two_claims_of_one_pod, begin, end),
        cmocka_unit_test_setup_teardown(test_room_that_was_made_for_it, begin, end),
        cmocka_unit_test_setup_teardown(test_what_it_wants_is_said, begin, end),
        cmocka_unit_test(test_when_it_is_bound_makes_no_difference),
        cmocka_unit_test(test_who_is_let_through_gets_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
