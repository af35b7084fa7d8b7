/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fail-malloc.h"
#include "place-world.h"
#include "place/capacity.h"

/* How many nodes pods need, on cases that can be worked out by hand. */

#define PODS 64

struct bench {
    struct pod pods[PODS];
    struct capacity_pod asks[PODS];
    enum place_reason reasons[PODS];
    uint64_t allowed[PODS]; /* of each node */
    uint32_t npods;
    struct capacity_nodes nodes;
    struct world kind;
};

static uint64_t allow(void *self, uint32_t pod, uint32_t node) {
    const struct bench *b = self;
    (void) node;
    return b->allowed[pod];
}

static void begin(struct bench *b, uint32_t ncards) {
    static const uint32_t full[] = {100, 100, 100, 100, 100, 100, 100, 100};
    *b = (struct bench){.nodes = {.allow = allow, .self = b}};
    make_node(&b->kind, 0, CORES(96), ncards, full);
}

static void end(struct bench *b) {
    free(b->nodes.list);
    free(b->nodes.cards);
}

static struct capacity_pod *ask(struct bench *b, uint32_t cards, uint32_t core) {
    struct capacity_pod *ask = &b->asks[b->npods];
    make_pod(&b->pods[b->npods], NULL, cards, core, 0);
    *ask = (struct capacity_pod){.request = &b->pods[b->npods].request, .policy = place_binpack};
    b->allowed[b->npods++] = UINT64_MAX;
    return ask;
}

static void pack(struct bench *b, uint32_t nodes) {
    bool cut_short = false;
    assert_int_equal(
        capacity_pack(b->asks, b->npods, &b->nodes, &b->kind.node, b->reasons, &cut_short), 0);
    assert_int_equal(b->nodes.n, nodes);
    assert_int_equal(b->nodes.ncards, nodes * b->kind.node.ncards);
    assert_false(cut_short);
}

/* Cards, not sums: three shares of 60 % are three cards, though they are 180 % together. */
static void test_cards_are_counted(void **state) {
    struct bench b;
    (void) state;
    begin(&b, 2);
    for (int i = 0; i < 3; i++)
        ask(&b, 1, 60);
    pack(&b, 2);
    struct capacity_left left = capacity_left(&b.nodes);
    assert_int_equal(left.idle, 1);
    assert_int_equal(left.core, 220);
    assert_int_equal(left.memory, 220 * (CARD / 100));
    end(&b);
}

static void test_shares_are_packed(void **state) {
    struct bench b;
    (void) state;
    begin(&b, 4);
    for (int i = 0; i < 16; i++)
        ask(&b, 1, 25);
    ask(&b, 1, 10);
    ask(&b, 4, 100);
    pack(&b, 3);
    for (uint32_t i = 0; i < b.npods; i++)
        assert_int_equal(b.reasons[i], PLACE_OK);
    assert_int_equal(capacity_left(&b.nodes).idle, 3);
    end(&b);
}

/* What no node of the kind takes adds none, and says why. */
static void test_what_fits_nowhere(void **state) {
    struct bench b;
    (void) state;
    begin(&b, 2);
    ask(&b, 3, 100);
    ask(&b, 1, 50);
    ask(&b, 1, 50);
    b.allowed[1] = 0;
    pack(&b, 1);
    assert_int_equal(b.reasons[0], PLACE_TOO_FEW);
    assert_int_equal(b.reasons[1], PLACE_WRONG_GPU);
    assert_int_equal(b.reasons[2], PLACE_OK);
    end(&b);
}

/* Nodes that are there are used first, and without a kind none is added. */
static void test_nodes_that_exist(void **state) {
    struct bench b;
    struct world there;
    (void) state;
    begin(&b, 1);
    make_node(&there, 0, CORES(96), 2, (uint32_t[]){30, 70});
    b.nodes.cards = memcpy(malloc(sizeof(there.cards)), there.cards, sizeof(there.cards));
    b.nodes.list = memcpy(malloc(sizeof(there.node)), &there.node, sizeof(there.node));
    b.nodes.list[0].cards = b.nodes.cards;
    b.nodes.n = 1;
    b.nodes.ncards = 2;
    ask(&b, 1, 30);
    ask(&b, 1, 60);
    ask(&b, 1, 60);
    assert_int_equal(capacity_pack(b.asks, 3, &b.nodes, NULL, b.reasons, NULL), 0);
    assert_int_equal(b.nodes.n, 1);
    assert_int_equal(b.reasons[0], PLACE_OK);
    assert_int_equal(b.reasons[1], PLACE_OK);
    assert_int_equal(b.reasons[2], PLACE_NO_CORE);
    assert_int_equal(b.nodes.cards[0].free.core, 0);
    assert_int_equal(b.nodes.cards[1].free.core, 10);
    assert_int_equal(capacity_pack(b.asks + 2, 1, &b.nodes, &b.kind.node, b.reasons, NULL), 0);
    assert_int_equal(b.nodes.n, 2);
    assert_int_equal(b.nodes.cards[2].free.core, 40);
    assert_int_equal(b.nodes.cards[0].free.core, 0); /* moved with the array */
    end(&b);
}

/* Init containers run before the others: the most of both counts, not the sum. */
static void test_init_containers(void **state) {
    struct bench b;
    (void) state;
    begin(&b, 1);
    ask(&b, 1, 60);
    struct gpu_request *request = &b.pods[0].request;
    request->n = 2;
    request->containers[1] = request->containers[0];
    request->containers[0].phase = CONTAINER_INIT;
    request->containers[0].core = 40;
    ask(&b, 1, 40);
    pack(&b, 1);
    end(&b);
}

static void test_without_memory(void **state) {
    struct bench b;
    (void) state;
    for (size_t at = 1; at <= 2; at++) {
        begin(&b, 2);
        ask(&b, 1, 50);
        fail_malloc_at(at);
        int r = capacity_pack(b.asks, b.npods, &b.nodes, &b.kind.node, b.reasons, NULL);
        assert_true(fail_malloc_end());
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(b.nodes.n, 0);
        end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cards_are_counted), cmocka_unit_test(test_shares_are_packed),
        cmocka_unit_test(test_what_fits_nowhere), cmocka_unit_test(test_nodes_that_exist),
        cmocka_unit_test(test_init_containers),   cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
