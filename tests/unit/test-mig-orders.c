/* SPDX-License-Identifier: Apache-2.0 */

/* MIG instances on demand: the scheduler's orders, with a cluster whose agents carry them out. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "mig-orders-cluster.h"
#include "scheduler/mig/orders.h"

/* ---- cases ---- */

static void expect_stats(uint64_t made, uint64_t failed, uint32_t waiting, uint64_t ms) {
    struct mig_orders_stats stats;

    mig_orders_stats(c.orders, &stats);
    assert_int_equal(stats.made, made);
    assert_int_equal(stats.failed, failed);
    assert_int_equal(stats.waiting, waiting);
    assert_int_equal(stats.time.sum_ns, ms * 1000000);
}

/* From the request to the instance, its reuse, and its end. */
static void test_life(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    settle();
    assert_int_equal(c.writes, 0);
    show_pod("p", "", "1g.10gb", 1, "");
    turn();
    expect_stats(0, 0, 1, 0);
    settle();
    expect_stats(1, 0, 0, 1000); /* seen in the next pass */
    assert_int_equal(c.writes, 1);
    assert_string_equal(c.reason, "MIGInstanceOrdered");
    assert_string_equal(tell(0), "1g.10gb@6");
    show_pod("p", "a", "1g.10gb", 1, "");
    use(0, 6, true);
    settle();
    /* The next pod of the same profile needs no other one. */
    mig_orders_gone(c.orders, MIG_ORDERS_PODS, "uid-p");
    use(0, 6, false);
    show_pod("q", "", "1g.10gb", 1, "");
    settle();
    assert_string_equal(tell(0), "1g.10gb@6");
    mig_orders_gone(c.orders, MIG_ORDERS_PODS, "uid-q");
    settle();
    assert_string_equal(tell(0), "1g.10gb@6");
    c.now += MIG_IDLE_MS;
    settle();
    assert_string_equal(tell(0), "");
    assert_string_equal(c.cards[0].order + strlen("{\"serial\":"), "4,\"instances\":[]}");
    expect_stats(1, 0, 0, 1000);
}

/* A pod that vanishes before its instance is made, and one that vanishes after it. */
static void test_vanished(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    c.silent = true;
    show_pod("p", "", "3g.40gb", 1, "");
    turn();
    mig_orders_gone(c.orders, MIG_ORDERS_PODS, "uid-p");
    turn();
    assert_non_null(strstr(c.cards[0].order, "\"withdrawn\":true"));
    c.silent = false;
    settle();
    assert_string_equal(tell(0), "");
    assert_null(strstr(c.cards[0].order, "3g"));
    expect_stats(0, 0, 0, 0);
}

/* The room of idle instances that were made by order is taken, of others it is not. */
static void test_room(void **state) {
    struct card *card = add_card("gpu0", "a");
    (void) state;

    card->report.card.instances[card->report.card.ninstances++] = (struct mig_instance){
        .profile = 2, .start = 4, .ncompute = 1, .compute = {{.slices = 2}}}; /* 2g.20gb */
    show_card(card);
    show_node("a", "[]");
    show_pod("p", "", "1g.10gb", 1, "");
    show_pod("q", "", "1g.10gb", 1, "");
    settle();
    assert_string_equal(tell(0), "1g.10gb@0 2g.20gb@4 1g.10gb@6");
    show_pod("p", "a", "1g.10gb", 1, "");
    use(0, 6, true);
    mig_orders_gone(c.orders, MIG_ORDERS_PODS, "uid-q");
    show_pod("r", "", "4g.40gb", 1, "");
    settle();
    assert_string_equal(tell(0), "4g.40gb@0 2g.20gb@4 1g.10gb@6*");
    show_pod("s", "", "7g.80gb", 1, "");
    settle();
    assert_string_equal(c.reason, "MIGNoRoom");
    assert_string_equal(tell(0), "4g.40gb@0 2g.20gb@4 1g.10gb@6*");
}

/* A pod that is bound and does not have its instance yet keeps it. */
static void test_bound_and_not_in_use(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    show_pod("p", "", "1g.10gb", 1, "");
    settle();
    show_pod("p", "a", "1g.10gb", 1, "");
    show_pod("q", "", "7g.80gb", 1, "");
    settle();
    assert_string_equal(tell(0), "1g.10gb@6");
    c.now += 2 * MIG_IDLE_MS;
    settle();
    assert_string_equal(tell(0), "1g.10gb@6");
    mig_orders_gone(c.orders, MIG_ORDERS_PODS, "uid-p");
    settle();
    assert_string_equal(tell(0), "7g.80gb@0");
}

/* A restart or another leader, at any time, orders nothing twice. */
static void test_restart(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    show_pod("p", "", "2g.20gb", 1, "");
    c.silent = true;
    turn();
    for (int round = 0; round < 2; round++) {
        c.orders = mig_orders_free(c.orders);
        c.orders = new_orders();
        show_card(&c.cards[0]);
        show_node("a", "[]");
        show_pod("p", "", "2g.20gb", 1, "");
        settle();
        assert_int_equal(c.writes, 1);
        c.silent = false;
    }
    assert_string_equal(tell(0), "2g.20gb@4");
}

static void test_refused_write(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    show_pod("p", "", "1g.10gb", 1, "");
    c.refuse = true;
    turn();
    turn();
    assert_int_equal(c.writes, 2);
    c.refuse = false;
    settle();
    assert_string_equal(tell(0), "1g.10gb@6");
}

/* The agent cannot make it: the pod is told, and gets it on another card. */
static void test_failure(void **state) {
    struct card *card = add_card("gpu0", "a");
    struct mig_order order;
    (void) state;

    show_node("a", "[]");
    c.silent = true;
    show_pod("p", "", "1g.10gb", 1, "");
    turn();
    assert_int_equal(mig_order_parse(card->order, strlen(card->order), &order, NULL), 0);
    card->report.observed = order.serial;
    card->report.nfailures = 1;
    card->report.failures[0] =
        (struct mig_failure){.place = order.list[0].place, .cause = "the driver says no"};
    show_card(card);
    turn();
    assert_string_equal(c.reason, "MIGInstanceNotMade");
    assert_string_equal(c.said,
                        "MIG instance 1g.10gb at 6 of GPU gpu0 was not made: the driver says no");
    assert_null(strstr(card->order, "1g"));
    (void) add_card("gpu1", "b");
    show_node("b", "[]");
    card->report.nfailures = 0;
    c.silent = false;
    settle();
    assert_string_equal(tell(0), "");
    assert_string_equal(tell(1), "1g.10gb@6");
    expect_stats(1, 1, 0, 1000);
}

/* An agent that does not answer. */
static void test_silence(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    c.silent = true;
    show_pod("p", "", "1g.10gb", 1, "");
    turn();
    turn();
    (void) add_card("gpu1", "b");
    show_node("b", "[]");
    c.now += 60000;
    turn();
    turn();
    assert_non_null(strstr(c.cards[0].order, "\"withdrawn\":true"));
    assert_non_null(strstr(c.cards[1].order, "uid-p"));
    expect_stats(0, 1, 1, 0);
}

/* An agent that is dead for long gets one order, one withdrawal, and nothing else. */
static void test_dead_agent(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    c.silent = true;
    show_pod("p", "", "1g.10gb", 1, "");
    for (int i = 0; i < 1000; i++)
        turn();
    assert_int_equal(c.writes, 2);
    c.silent = false;
    settle();
    assert_string_equal(tell(0), "1g.10gb@6");
}

/* An agent that works, and never shows the newest order in time. */
static void test_agent_that_is_behind(void **state) {
    struct card *card = add_card("gpu0", "a");
    char name[16], former[24];
    (void) state;

    show_node("a", "[]");
    for (int i = 0; i < 200; i++) {
        c.silent = true;
        (void) snprintf(name, sizeof(name), "p%d", i);
        (void) snprintf(former, sizeof(former), "uid-p%d", i - 2);
        show_pod(name, "", i % 2 ? "1g.10gb" : "2g.20gb", 1, "");
        if (i >= 2)
            mig_orders_gone(c.orders, MIG_ORDERS_PODS, former);
        turn();
        carry_out(card);
        card->report.observed -= card->report.observed > 0;
        show_card(card);
        show_node("a", "[]");
        assert_string_not_equal(c.reason, "MIGInstanceNotMade");
    }
}

/* While an agent restarts its cards are Unknown: nothing is ordered elsewhere, unless it takes too
 * long. */
static void test_agent_restarts(void **state) {
    (void) state;
    for (int made = 0; made < 2; made++) {
        c.ncards = 0;
        mig_orders_free(c.orders);
        c.orders = new_orders();
        (void) add_card("gpu0", "a");
        show_node("a", "[]");
        c.silent = made == 0;
        show_pod("p", "", "1g.10gb", 1, "");
        turn();
        turn();
        (void) add_card("gpu1", "b");
        show_node("b", "[]");
        text_copy(c.cards[0].state, sizeof(c.cards[0].state), "Unknown");
        show_card(&c.cards[0]);
        c.silent = true;
        settle();
        assert_non_null(strstr(c.cards[0].order, "uid-p"));
        assert_string_equal(c.cards[1].order, "");
        c.now += 60000;
        turn();
        assert_null(strstr(c.cards[0].order, "uid-p"));
        assert_non_null(strstr(c.cards[1].order, "uid-p"));
    }
}

/* Several instances come from one node, and from several of its cards. */
static void test_several(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    (void) add_card("gpu1", "b");
    (void) add_card("gpu2", "b");
    show_node("a", "[]");
    show_node("b", "[]");
    show_pod("p", "", "7g.80gb", 2, "");
    settle();
    assert_string_equal(tell(0), "");
    assert_string_equal(tell(1), "7g.80gb@0");
    assert_string_equal(tell(2), "7g.80gb@0");
    show_pod("q", "", "7g.80gb", 2, "");
    settle();
    assert_string_equal(c.reason, "MIGNoRoom");
    assert_string_equal(tell(0), "");
}

/* All idle instances of several cards give room to one pod. */
static void test_room_of_many(void **state) {
    (void) state;
    for (unsigned i = 0; i < 4; i++) {
        char name[8];

        (void) snprintf(name, sizeof(name), "gpu%u", i);
        (void) add_card(name, "a");
    }
    show_node("a", "[]");
    for (unsigned i = 0; i < 4; i++) {
        char name[8];

        (void) snprintf(name, sizeof(name), "s%u", i);
        show_pod(name, "", "1g.10gb", 7, "");
        settle();
    }
    for (unsigned i = 0; i < 4; i++) {
        char uid[16];

        assert_int_equal(c.cards[i].report.card.ninstances, 7);
        (void) snprintf(uid, sizeof(uid), "uid-s%u", i);
        mig_orders_gone(c.orders, MIG_ORDERS_PODS, uid);
    }
    show_pod("p", "", "7g.80gb", 4, "");
    settle();
    for (unsigned i = 0; i < 4; i++)
        assert_string_equal(tell(i), "7g.80gb@0");
}

/* Nodes that kube-scheduler would not take. */
static void test_nodes(void **state) {
    static const char taint[] = "[{\"key\":\"gpu\",\"value\":\"yes\",\"effect\":\"NoSchedule\"}]";
    (void) state;
    (void) add_card("gpu0", "a");
    (void) add_card("gpu1", "b");
    show_node("a", taint);
    show_node("b", "[]");
    show_pod("p", "", "1g.10gb", 1, ",\"nodeSelector\":{\"zone\":\"a\"}");
    c.now += 1000;
    mig_orders_run(c.orders, c.now);
    assert_int_equal(c.writes, 0);
    assert_string_equal(c.reason, "");
    show_pod("p", "", "1g.10gb", 1,
             ",\"nodeSelector\":{\"zone\":\"a\"},\"tolerations\":[{\"key\":\"gpu\",\"operator\":"
             "\"Equal\",\"value\":\"yes\"}]");
    c.full = true;
    mig_orders_run(c.orders, c.now += 1000);
    assert_int_equal(c.writes, 0);
    c.full = false;
    mig_orders_run(c.orders, c.now += 1000);
    assert_int_equal(c.writes, 1);
    assert_non_null(strstr(c.cards[0].order, "uid-p"));
}

/* Another pod was faster: the one that waits gets an instance of its own. */
static void test_taken_by_another(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    show_pod("p", "", "1g.10gb", 1, "");
    settle();
    show_pod("other", "a", "1g.10gb", 1, "");
    use(0, 6, true);
    settle();
    assert_string_equal(tell(0), "1g.10gb@4 1g.10gb@6*");
    show_pod("q", "", "1g.10gb.me", 1, "");
    settle();
    assert_non_null(strstr(tell(0), "1g.10gb+me@"));
}

/* A pod that kube-scheduler may be binding to an idle instance just now: neither its age nor
 * another pod destroys that. A pod with scheduling gates is not such a pod, nor one that stays
 * unbound. */
static void test_undecided(void **state) {
    static const char *const gates[] = {"", ",\"schedulingGates\":[{\"name\":\"x\"}]"};
    char text[512];
    (void) state;

    for (int gated = 0; gated < 2; gated++) {
        c.ncards = 0;
        mig_orders_free(c.orders);
        c.orders = new_orders();
        (void) add_card("gpu0", "a");
        show_node("a", "[]");
        show_pod("z", "", "1g.10gb", 1, "");
        settle();
        mig_orders_gone(c.orders, MIG_ORDERS_PODS, "uid-z");
        settle();
        c.now += MIG_IDLE_MS;
        (void) snprintf(text, sizeof(text),
                        "{\"metadata\":{\"name\":\"r\",\"namespace\":\"team\",\"uid\":\"uid-r\"},"
                        "\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{"
                        "\"nvidia.com/mig-1g.10gb\":\"1\"}}}]%s}}",
                        gates[gated]);
        show(MIG_ORDERS_PODS, text);
        show_pod("q", "", "7g.80gb", 1, "");
        settle();
        if (gated) {
            assert_string_equal(tell(0), "7g.80gb@0");
            continue;
        }
        assert_string_equal(tell(0), "1g.10gb@6");
        assert_string_equal(c.reason, "MIGNoRoom");
        c.now += 60000;
        settle();
        assert_string_equal(tell(0), "7g.80gb@0");
    }
}

/* ---- many pods without room ---- */

static void fill_node(void) {
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    show_pod("p", "", "7g.80gb", 1, "");
    settle();
    show_pod("p", "a", "7g.80gb", 1, "");
    use(0, 0, true);
    settle();
}

/* One search is enough for pods with equal requests, and there is one pass in a second. */
static void test_many_alike(void **state) {
    char name[16];
    (void) state;

    fill_node();
    for (int i = 0; i < 100; i++) {
        (void) snprintf(name, sizeof(name), "p%d", i);
        show_pod(name, "", "7g.80gb", 1, "");
    }
    c.searches = c.notes = 0;
    mig_orders_run(c.orders, c.now += 1000);
    assert_int_equal(c.searches, 1);
    assert_int_equal(c.notes, 100);
    mig_orders_run(c.orders, c.now += 999);
    assert_int_equal(c.searches, 1);
    mig_orders_run(c.orders, c.now += 1);
    assert_int_equal(c.searches, 2);
}

/* Others take turns. */
static void test_many_kinds(void **state) {
    char name[16], more[64];
    (void) state;

    fill_node();
    for (int i = 0; i < 20; i++) {
        (void) snprintf(name, sizeof(name), "p%d", i);
        (void) snprintf(more, sizeof(more), ",\"tolerations\":[{\"key\":\"key-%d\"}]", i);
        show_pod(name, "", "7g.80gb", 1, more);
    }
    c.searches = c.notes = 0;
    for (unsigned pass = 0; pass < 6; pass++) {
        mig_orders_run(c.orders, c.now += 1000);
        assert_int_equal(c.searches, 8 * (pass + 1));
    }
    assert_int_equal(c.notes, 20);
}

/* ---- orders that are not enough any more ---- */

/* An idle instance that was counted goes to another pod. */
static void test_counted_instance_taken(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    show_node("a", "[]");
    show_pod("z", "", "1g.10gb", 1, "");
    settle();
    mig_orders_gone(c.orders, MIG_ORDERS_PODS, "uid-z");
    settle();
    show_pod("p", "", "1g.10gb", 2, "");
    settle();
    assert_string_equal(tell(0), "1g.10gb@4 1g.10gb@6");
    show_pod("q", "a", "1g.10gb", 1, "");
    use(0, 6, true);
    settle();
    assert_string_equal(tell(0), "1g.10gb@4 1g.10gb@5 1g.10gb@6*");
    /* It has all now: nothing more is ordered for it. */
    c.writes = 0;
    settle();
    assert_int_equal(c.writes, 0);
}

/* One of two writes fails. */
static void test_half_written(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    (void) add_card("gpu1", "a");
    show_node("a", "[]");
    show_pod("p", "", "7g.80gb", 2, "");
    mig_orders_run(c.orders, c.now);
    assert_int_equal(c.writes, 2);
    c.cards[1].order[0] = 0;
    mig_orders_written(c.orders, "gpu0", true);
    mig_orders_written(c.orders, "gpu1", false);
    for (unsigned i = 0; i < 2; i++) {
        show_card(&c.cards[i]);
        carry_out(&c.cards[i]);
    }
    settle();
    assert_string_equal(tell(0), "7g.80gb@0");
    assert_string_equal(tell(1), "7g.80gb@0");
}

/* The other half has no room there any more: both are made on another node. */
static void test_half_written_and_no_room(void **state) {
    (void) state;
    (void) add_card("gpu0", "a");
    (void) add_card("gpu1", "a");
    show_node("a", "[]");
    show_pod("p", "", "7g.80gb", 2, "");
    mig_orders_run(c.orders, c.now);
    c.cards[1].order[0] = 0;
    text_copy(c.cards[1].state, sizeof(c.cards[1].state), "Unhealthy");
    mig_orders_written(c.orders, "gpu0", true);
    mig_orders_written(c.orders, "gpu1", false);
    (void) add_card("gpu2", "b");
    (void) add_card("gpu3", "b");
    show_node("b", "[]");
    settle();
    assert_null(strstr(c.cards[0].order, "uid-p"));
    assert_string_equal(tell(2), "7g.80gb@0");
    assert_string_equal(tell(3), "7g.80gb@0");
}

/* The node or its card is cordoned, or the node is full, when the instance has been made. */
static void test_made_where_the_pod_cannot_be(void **state) {
    static const char taint[] = "[{\"key\":\"node.kubernetes.io/unschedulable\","
                                "\"effect\":\"NoSchedule\"}]";
    (void) state;
    for (int way = 0; way < 3; way++) {
        c.ncards = 0;
        c.full_node = "";
        mig_orders_free(c.orders);
        c.orders = new_orders();
        (void) add_card("gpu0", "a");
        show_node("a", "[]");
        show_pod("p", "", "1g.10gb", 1, "");
        settle();
        assert_string_equal(tell(0), "1g.10gb@6");
        (void) add_card("gpu1", "b");
        show_node("b", "[]");
        settle();
        assert_string_equal(tell(1), "");
        if (way == 0)
            show_node("a", taint);
        else if (way == 1)
            c.full_node = "a";
        else
            text_copy(c.cards[0].state, sizeof(c.cards[0].state), "Draining");
        show_card(&c.cards[0]);
        mig_orders_run(c.orders, c.now += 1000);
        assert_non_null(strstr(c.cards[1].order, "uid-p"));
        assert_null(strstr(c.cards[0].order, "uid-p"));
    }
}

/* An order on a node that the pod cannot be on keeps the pod from nothing. */
static void test_foreign_order(void **state) {
    struct card *card = add_card("gpu0", "a");
    (void) state;

    (void) add_card("gpu1", "b");
    text_copy(card->order, sizeof(card->order),
              "{\"serial\":1,\"instances\":[{\"profile\":\"1g.10gb\",\"start\":6,"
              "\"for\":\"uid-p\"}]}");
    carry_out(card);
    show_card(card);
    show_node("a", "[]");
    show_node("b", "[]");
    show_pod("p", "", "1g.10gb", 1, ",\"nodeSelector\":{\"zone\":\"b\"}");
    settle();
    assert_string_equal(tell(1), "1g.10gb@6");
    assert_null(strstr(card->order, "uid-p"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_vanished, setup, teardown),
        cmocka_unit_test_setup_teardown(test_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bound_and_not_in_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dead_agent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_that_is_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_restarts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several, setup, teardown),
        cmocka_unit_test_setup_teardown(test_room_of_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken_by_another, setup, teardown),
        cmocka_unit_test_setup_teardown(test_undecided, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counted_instance_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_written_and_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_made_where_the_pod_cannot_be, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_order, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
