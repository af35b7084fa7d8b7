/* SPDX-License-Identifier: Apache-2.0 */

/* MIG instances on demand for claims: of cards whose instances the scheduler gives out. */

#include "mig-orders-cluster.h"

/* What the scheduler has given out, and what it is told to leave; by card and slice. */
static bool taken[CARDS][8], leaving[CARDS][8];
static const char *waiting; /* UID of the claim that waits; NULL: none */

static unsigned card_of(const char *gpu) {
    for (unsigned i = 0; i < c.ncards; i++)
        if (strcmp(c.cards[i].name, gpu) == 0)
            return i;
    fail_msg("no card %s", gpu);
    return 0;
}

static bool waits(void *self, const struct mig_pod *claim) {
    (void) self;
    return waiting && strcmp(claim->uid, waiting) == 0;
}

static bool is_taken(void *self, const char *gpu, const struct mig_place *place) {
    (void) self;
    return taken[card_of(gpu)][place->start];
}

static uint32_t count_free(void *self, const char *node, const struct mig_name *profile) {
    uint32_t n = 0;

    (void) self;
    for (unsigned i = 0; i < c.ncards; i++) {
        const struct mig_card *card = &c.cards[i].report.card;

        for (uint32_t k = 0; strcmp(c.cards[i].node, node) == 0 && k < card->ninstances; k++)
            n += mig_name_equal(&card->profiles[card->instances[k].profile].name, profile) &&
                 !taken[i][card->instances[k].start] && !leaving[i][card->instances[k].start];
    }
    return n;
}

static void leave(void *self, const char *gpu, const struct mig_place *place, bool leaves) {
    (void) self;
    if (leaves)
        assert_false(taken[card_of(gpu)][place->start]);
    leaving[card_of(gpu)][place->start] = leaves;
}

static int begin(void **state) {
    memset(taken, 0, sizeof(taken));
    memset(leaving, 0, sizeof(leaving));
    waiting = NULL;
    world.claims = true;
    world.waits = waits;
    world.is_taken = is_taken;
    world.count_free = count_free;
    world.leave = leave;
    return setup(state);
}

static struct card *add_shared_card(const char *name, const char *node) {
    struct card *card = add_card(name, node);

    card->report.shares = true;
    show_card(card);
    show_node(node, "[{\"key\":\"gpu\",\"effect\":\"NoSchedule\"}]");
    return card;
}

static void want(const char *uid, const char *profile) {
    char class[] = "class";
    struct mig_pod claim = {.constraints = class};
    struct mig_name name;

    text_copy(claim.uid, sizeof(claim.uid), uid);
    text_copy(claim.namespace, sizeof(claim.namespace), "team");
    text_copy(claim.name, sizeof(claim.name), uid);
    assert_int_equal(mig_name_parse(profile, &name, NULL), 0);
    mig_needs_add(&claim.needs, &name, 1);
    waiting = uid;
    assert_int_equal(mig_orders_want(c.orders, &claim), 0);
}

static uint32_t start_of_only(unsigned i) {
    assert_int_equal(c.cards[i].report.card.ninstances, 1);
    return c.cards[i].report.card.instances[0].start;
}

/* The claim gets it: from then on it is reserved, whether a container uses it or not. */
static void serve_claim(unsigned i) {
    taken[i][start_of_only(i)] = true;
    waiting = NULL;
    settle();
}

static void expect_stats(uint64_t made, uint64_t failed, uint32_t waits_for) {
    struct mig_orders_stats stats;

    mig_orders_stats(c.orders, &stats);
    assert_int_equal(stats.made, made);
    assert_int_equal(stats.failed, failed);
    assert_int_equal(stats.waiting, waits_for);
}

/* One is made, for one claim; it stays while the claim has it, and goes when it is idle. */
static void test_life(void **state) {
    (void) state;
    add_shared_card("gpu-a", "a");
    want("one", "1g.10gb");
    settle();
    assert_string_equal(c.reason, "MIGInstanceOrdered");
    uint32_t start = start_of_only(0);
    want("one", "1g.10gb");
    settle();
    assert_int_equal(start_of_only(0), start);
    expect_stats(1, 0, 0);
    serve_claim(0);
    c.now += 3 * MIG_IDLE_MS;
    settle();
    assert_int_equal(start_of_only(0), start);
    assert_false(leaving[0][start]);
    taken[0][start] = false;
    settle();
    c.now += 2 * MIG_IDLE_MS;
    c.silent = true;
    turn();
    assert_true(leaving[0][start]);
    c.silent = false;
    settle();
    assert_int_equal(c.cards[0].report.card.ninstances, 0);
}

/* An idle instance gives room to a claim, and one that another claim has does not. */
static void test_room(void **state) {
    (void) state;
    add_shared_card("gpu-a", "a");
    want("one", "1g.10gb");
    settle();
    serve_claim(0);
    want("two", "7g.80gb");
    settle();
    assert_string_equal(c.reason, "MIGNoRoom");
    taken[0][start_of_only(0)] = false;
    settle();
    assert_string_equal(tell(0), "7g.80gb@0");
}

/* Cards whose instances kubelet gives out make none for claims. */
static void test_cards_of_kubelet(void **state) {
    (void) state;
    add_card("gpu-a", "a");
    show_node("a", "[]");
    want("one", "1g.10gb");
    settle();
    assert_int_equal(c.writes, 0);
}

/* A claim that is gone before its instance is made takes the order back. */
static void test_vanished(void **state) {
    (void) state;
    add_shared_card("gpu-a", "a");
    c.silent = true;
    want("one", "1g.10gb");
    turn();
    assert_int_equal(c.writes, 1);
    waiting = NULL;
    turn();
    c.silent = false;
    settle();
    assert_int_equal(c.cards[0].report.card.ninstances, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life, begin, teardown),
        cmocka_unit_test_setup_teardown(test_room, begin, teardown),
        cmocka_unit_test_setup_teardown(test_cards_of_kubelet, begin, teardown),
        cmocka_unit_test_setup_teardown(test_vanished, begin, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
