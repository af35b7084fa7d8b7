/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "intercept/memory/allocations.h"

static struct entry entry(uint64_t kind, uint64_t key, uint64_t bytes, uint64_t link) {
    return (struct entry){
        .key = key, .bytes = bytes, .link = link, .refs = 1, .kind = (uint8_t) kind};
}

static void put(struct allocations *t, struct entry e) {
    assert_true(allocations_reserve(t));
    allocations_put(t, &e);
}

static void test_put_find_take(void **state) {
    struct allocations t = {0};
    struct entry e;

    (void) state;
    assert_null(allocations_find(&t, ENTRY_POINTER, 1));
    assert_false(allocations_take(&t, ENTRY_POINTER, 1, &e));
    put(&t, entry(ENTRY_POINTER, 1, 10, 0));
    put(&t, entry(ENTRY_ARRAY, 1, 20, 0));
    assert_int_equal(allocations_find(&t, ENTRY_POINTER, 1)->bytes, 10);
    assert_int_equal(allocations_find(&t, ENTRY_ARRAY, 1)->bytes, 20);
    assert_true(allocations_take(&t, ENTRY_POINTER, 1, &e));
    assert_int_equal(e.bytes, 10);
    assert_null(allocations_find(&t, ENTRY_POINTER, 1));
    allocations_put(&t, &e); /* its room was kept */
    assert_int_equal(t.used, 2);
    assert_int_equal(t.reserved, 0);
}

static void test_contexts_take_their_entries_along(void **state) {
    struct allocations t = {0};
    struct entry e;
    uint64_t sum = 0, others = 0;
    size_t at = 0;

    (void) state;
    for (uint64_t i = 0; i < 1000; i++)
        put(&t, entry(ENTRY_POINTER, i * 512, i, i % 2 ? 0x1000 : 0x2000));
    put(&t, entry(ENTRY_MAPPING, 7, 7, 0x1000)); /* its link is no context */
    allocations_end_context(&t, 0x1000, 1);
    assert_false(allocations_take_linked(&t, 0x1000, &at, &e));
    for (at = 0; allocations_take_linked(&t, 1, &at, &e);) {
        allocations_unreserve(&t);
        /* What others put meanwhile moves entries about. */
        put(&t, entry(ENTRY_GRAPH, ++others, 0, 0));
        sum += e.bytes;
    }
    assert_int_equal(sum, 500 * 500);
    assert_int_equal(t.used, 501 + others);
    assert_non_null(allocations_find(&t, ENTRY_MAPPING, 7));
    for (uint64_t i = 0; i < 1000; i += 2)
        assert_int_equal(allocations_find(&t, ENTRY_POINTER, i * 512)->bytes, i);
}

/* The driver hands out the address of memory that it has freed with its context to another thread,
 * before the entries of the context are removed. */
static void test_an_address_is_used_again_while_its_context_ends(void **state) {
    struct allocations t = {0};
    struct entry e;
    size_t at = 0;

    (void) state;
    put(&t, entry(ENTRY_POINTER, 512, 1, 0x1000));
    allocations_end_context(&t, 0x1000, 1);
    assert_int_equal(allocations_find(&t, ENTRY_POINTER, 512)->bytes, 1);
    put(&t, entry(ENTRY_POINTER, 512, 2, 0x2000));
    assert_true(allocations_take(&t, ENTRY_POINTER, 512, &e));
    assert_int_equal(e.bytes, 2);
    allocations_unreserve(&t);
    assert_true(allocations_take_linked(&t, 1, &at, &e));
    assert_int_equal(e.bytes, 1);
    assert_false(allocations_take_linked(&t, 1, &at, &e));
}

/* The same when it is handed out for memory of another kind. */
static void test_an_address_is_used_again_in_another_way(void **state) {
    static const enum entry_kind kinds[] = {ENTRY_POINTER, ENTRY_POOLED, ENTRY_SHARED};
    struct allocations t = {0};
    struct entry e;

    (void) state;
    assert_false(allocations_take_newest(&t, kinds, 3, 512, &e));
    put(&t, entry(ENTRY_POINTER, 512, 1, 0x1000));
    allocations_end_context(&t, 0x1000, 1);
    put(&t, entry(ENTRY_SHARED, 512, 2, 0x2000));
    allocations_end_context(&t, 0x2000, 3);
    put(&t, entry(ENTRY_POINTER, 512, 3, 0x3000));
    allocations_end_context(&t, 0x3000, 5);
    put(&t, entry(ENTRY_POOLED, 512, 4, 0)); /* its link is no context */
    for (uint64_t bytes = 4; bytes > 0; bytes--) {
        assert_true(allocations_take_newest(&t, kinds, 3, 512, &e));
        assert_int_equal(e.bytes, bytes);
        allocations_unreserve(&t);
    }
    assert_int_equal(t.used, 0);
}

static void test_a_context_that_is_not_destroyed_keeps_its_entries(void **state) {
    struct allocations t = {0};
    struct entry e;
    size_t at = 0;

    (void) state;
    put(&t, entry(ENTRY_POINTER, 512, 1, 0x1000));
    allocations_end_context(&t, 0x1000, 1);
    allocations_keep_context(&t, 0x1000, 1);
    assert_int_equal(allocations_find(&t, ENTRY_POINTER, 512)->bytes, 1);
    assert_false(allocations_take_linked(&t, 1, &at, &e));
    assert_true(allocations_take_linked(&t, 0x1000, &at, &e));
}

/* A context with many allocations ends in no time: one walk, not one for each. */
static void test_a_large_context_ends_in_one_walk(void **state) {
    struct allocations t = {0};
    struct entry e;
    size_t at = 0;
    int found = 0;
    clock_t start;

    (void) state;
    for (uint64_t i = 0; i < 100000; i++)
        put(&t, entry(ENTRY_POINTER, i * 512, i, 0x1000));
    start = clock();
    for (; allocations_take_linked(&t, 0x1000, &at, &e); found++)
        allocations_unreserve(&t);
    assert_int_equal(found, 100000);
    assert_true(clock() - start < 2 * CLOCKS_PER_SEC);
}

static bool has_bytes(const struct entry *e, const void *arg) {
    return e->kind == ENTRY_BINDING && e->bytes == *(const uint64_t *) arg;
}

static void test_entries_are_found_by_what_they_say(void **state) {
    uint64_t object = 7, none = 8;
    struct allocations t = {0};
    struct entry e;
    int found = 0;

    (void) state;
    assert_null(allocations_find_if(&t, has_bytes, &object));
    for (uint64_t i = 0; i < 300; i++)
        put(&t, entry(i % 3 ? ENTRY_POINTER : ENTRY_BINDING, i, i % 2 ? 7 : 9, 0));
    assert_int_equal(allocations_find_if(&t, has_bytes, &object)->bytes, 7);
    assert_false(allocations_take_if(&t, has_bytes, &none, &e));
    while (allocations_take_if(&t, has_bytes, &object, &e)) {
        assert_int_equal(e.kind, ENTRY_BINDING);
        allocations_unreserve(&t);
        found++;
    }
    assert_int_equal(found, 50);
    assert_int_equal(t.used, 250);
}

/* Against the simplest thing that does the same. */
static void test_random_operations_match_an_array(void **state) {
    static uint64_t truth[4096];
    struct allocations t = {0};
    uint64_t seed = 88172645463325252ULL;
    size_t count = 0;

    (void) state;
    for (int i = 0; i < 400000; i++) {
        uint64_t key;
        struct entry e;

        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        key = seed % 4096;
        if (truth[key]) {
            assert_true(allocations_take(&t, ENTRY_POINTER, key << 21, &e));
            assert_int_equal(e.bytes, truth[key]);
            allocations_unreserve(&t);
            truth[key] = 0;
            count--;
        } else {
            assert_null(allocations_find(&t, ENTRY_POINTER, key << 21));
            truth[key] = (seed >> 20) + 1;
            put(&t, entry(ENTRY_POINTER, key << 21, truth[key], 0));
            count++;
        }
        assert_int_equal(t.used, count);
        assert_int_equal(t.reserved, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_find_take),
        cmocka_unit_test(test_contexts_take_their_entries_along),
        cmocka_unit_test(test_an_address_is_used_again_while_its_context_ends),
        cmocka_unit_test(test_an_address_is_used_again_in_another_way),
        cmocka_unit_test(test_a_context_that_is_not_destroyed_keeps_its_entries),
        cmocka_unit_test(test_a_large_context_ends_in_one_walk),
        cmocka_unit_test(test_entries_are_found_by_what_they_say),
        cmocka_unit_test(test_random_operations_match_an_array),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
