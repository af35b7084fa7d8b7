/* SPDX-License-Identifier: Apache-2.0 */

/* Oversubscription of memory: factors, and what they make of amounts. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/scaling.h"

#define GIB ((uint64_t) 1 << 30)

static void factors(void **state) {
    uint32_t f = 0;

    (void) state;
    assert_int_equal(scaling_parse("1", &f), 0);
    assert_int_equal(f, 1000);
    assert_int_equal(scaling_parse("1.5", &f), 0);
    assert_int_equal(f, 1500);
    assert_int_equal(scaling_parse("2.125", &f), 0);
    assert_int_equal(f, 2125);
    assert_int_equal(scaling_parse("16", &f), 0);
    static const char *const bad[] = {"",     "0",  "0.5",    "16.001", "1.", ".5",
                                      "1.5x", "-2", "1.2345", "1000",   " 1", "1,5"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(scaling_parse(bad[i], &f), -EINVAL);
}

/* Whatever is allocated to pods, their physical parts together fit on the card. */
static void physical_parts_fit(void **state) {
    const uint64_t card = 80 * GIB - 12345;
    unsigned int seed = 4;

    (void) state;
    for (int round = 0; round < 2000; round++) {
        uint64_t capacity = scaling_capacity(card, 1000 + (uint32_t) rand_r(&seed) % 4000);
        uint64_t charged = 0, physical = 0;

        for (int pod = 0; pod < 64; pod++) {
            uint64_t bytes = ((uint64_t) rand_r(&seed) << 6) + 1;
            uint32_t factor =
                (uint32_t) rand_r(&seed) % 3 == 0 ? 1000 + (uint32_t) rand_r(&seed) % 4000 : 0;
            uint64_t part = scaling_physical(bytes, card, capacity, factor);
            uint64_t charge = scaling_charge(bytes, part, card, capacity);

            assert_true(part <= bytes && part > 0 && charge >= bytes);
            if (factor == 1000)
                assert_true(part == bytes);
            if (charged + charge > capacity)
                break;
            charged += charge;
            physical += part;
        }
        assert_true(physical <= card);
    }
}

static void nothing_changes_without_scaling(void **state) {
    (void) state;
    assert_true(scaling_capacity(80 * GIB, 1000) == 80 * GIB);
    assert_true(scaling_capacity(80 * GIB, 2000) == 160 * GIB);
    assert_true(scaling_capacity(UINT64_MAX / 2, 16000) <= INT64_MAX);
    assert_true(scaling_physical(GIB, 80 * GIB, 80 * GIB, 4000) == GIB);
    assert_true(scaling_charge(GIB, GIB, 80 * GIB, 80 * GIB) == GIB);
    /* At a factor of 2 the physical part is half; with a setting of 1 it is all, at twice the
     * charge. */
    assert_true(scaling_physical(20 * GIB, 80 * GIB, 160 * GIB, 0) == 10 * GIB);
    assert_true(scaling_physical(20 * GIB, 80 * GIB, 160 * GIB, 4000) == 10 * GIB);
    assert_true(scaling_physical(20 * GIB, 80 * GIB, 160 * GIB, 1000) == 20 * GIB);
    assert_true(scaling_charge(20 * GIB, 20 * GIB, 80 * GIB, 160 * GIB) == 40 * GIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors),
        cmocka_unit_test(physical_parts_fit),
        cmocka_unit_test(nothing_changes_without_scaling),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
