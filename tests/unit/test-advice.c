/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/cluster/advice.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static uint64_t memory(uint64_t asks, uint64_t seen, bool refused, double headroom) {
    const struct advice_figures f = {
        .asks_memory = asks, .memory = seen, .core = -1, .throttled = -1, .refused = refused};
    return advice_make(&f, headroom).memory;
}

static uint64_t core(uint64_t asks, double seen, double throttled, double headroom) {
    const struct advice_figures f = {
        .asks_core = asks, .memory = ADVICE_UNKNOWN, .core = seen, .throttled = throttled};
    return advice_make(&f, headroom).core;
}

static void test_memory(void **state) {
    (void) state;
    assert_int_equal(memory(20 * GIB, 5 * GIB + 819 * MIB, false, 0.2), 7 * GIB);
    assert_int_equal(memory(20 * GIB, 5 * GIB, false, 0.2), 6 * GIB);
    assert_int_equal(memory(20 * GIB, 5 * GIB + 1, false, 0.2), 7 * GIB);
    assert_int_equal(memory(20 * GIB, 1 * GIB, false, 0.2), 1280 * MIB);
    assert_int_equal(memory(20 * GIB, 0, false, 0.2), 256 * MIB);
    assert_int_equal(memory(20 * GIB, 4 * GIB - 1, false, 0), 4 * GIB);
    assert_int_equal(memory(20 * GIB, ADVICE_UNKNOWN, true, 0.2), ADVICE_UNKNOWN);
    /* What fills all that it gets is not advised to ask more and more. */
    assert_int_equal(memory(20 * GIB, 20 * GIB, false, 0.2), 20 * GIB);
    assert_int_equal(memory(20 * GIB, 19 * GIB, true, 0.2), 23 * GIB);
    assert_int_equal(memory(20 * GIB, 21 * GIB, false, 0), 21 * GIB);
}

static void test_compute(void **state) {
    (void) state;
    assert_int_equal(core(50, 12, 0, 0.2), 20);
    assert_int_equal(core(50, 0, 0, 0.2), 5);
    assert_int_equal(core(50, 4.1, 0, 0.2), 5);
    assert_int_equal(core(50, 4.2, 0, 0.2), 10);
    assert_int_equal(core(50, 90, 0, 0.2), 100);
    assert_int_equal(core(50, -1, 0.5, 0.2), ADVICE_UNKNOWN);
    assert_int_equal(core(0, 30, 0, 0.2), ADVICE_UNKNOWN);
    /* Throttled for 30 % of the time. */
    assert_int_equal(core(50, 12, 0.3, 0.2), 70);
    assert_int_equal(core(50, 12, 0.04, 0.2), 20);
    assert_int_equal(core(90, 90, 1, 0.2), 100);
}

/* Whatever the figures, no advice is below what was seen. */
static void test_never_below_what_was_seen(void **state) {
    (void) state;
    for (double headroom = 0; headroom < 3; headroom += 0.25)
        for (uint64_t i = 1; i < 400; i++) {
            uint64_t seen = i * 97 * MIB + i;
            assert_true(memory(80 * GIB, seen, false, headroom) >= seen);
            if (i <= 100) {
                assert_true(core(50, (double) i, 0, headroom) >= i);
                assert_true(core(50, (double) i, 0.5, headroom) >= i);
            }
        }
}

static void test_what_is_freed(void **state) {
    (void) state;
    assert_int_equal(advice_freed(50, 20), 30);
    assert_int_equal(advice_freed(20, 50), 0);
    assert_int_equal(advice_freed(20, ADVICE_UNKNOWN), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_compute),
        cmocka_unit_test(test_never_below_what_was_seen),
        cmocka_unit_test(test_what_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
