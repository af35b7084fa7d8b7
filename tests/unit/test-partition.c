/* SPDX-License-Identifier: Apache-2.0 */

/* The best set of linked cards, against all partitions one by one. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/backends/partition.h"

#define CASES 400
#define DEVICES 8

struct brute {
    const struct partition_case *c;
    uint32_t sets[DEVICES], nsets;
    uint32_t most, best_set; /* of the partitions: the sum, then the score of the set */
};

static uint32_t pairs(const struct partition_case *c, uint32_t set) {
    uint32_t sum = 0;

    for (uint32_t a = 0; a < c->n; a++)
        for (uint32_t b = a + 1; b < c->n; b++)
            if ((set >> a & 1) && (set >> b & 1))
                sum += c->score[a][b];
    return sum;
}

static void judge(struct brute *b) {
    uint32_t sum = 0, best = 0, small = 0;
    bool served = false;

    for (uint32_t i = 0; i < b->nsets; i++) {
        uint32_t score = pairs(b->c, b->sets[i]);

        sum += score;
        small += (uint32_t) __builtin_popcount(b->sets[i]) < b->c->size;
        if ((uint32_t) __builtin_popcount(b->sets[i]) != b->c->size ||
            (b->sets[i] & b->c->must) != b->c->must)
            continue;
        served = true;
        best = score > best ? score : best;
    }
    if (!served || small > 1 || sum < b->most || (sum == b->most && best < b->best_set))
        return;
    b->most = sum;
    b->best_set = best;
}

/* Each device goes into one of the sets before, or begins another one. */
static void enumerate(struct brute *b, uint32_t device) {
    if (device == b->c->n) {
        judge(b);
        return;
    }
    for (uint32_t i = 0; i <= b->nsets && i < DEVICES; i++) {
        bool new = i == b->nsets;

        if (!new && (uint32_t) __builtin_popcount(b->sets[i]) == b->c->size)
            continue;
        b->sets[i] |= 1U << device;
        b->nsets += new;
        enumerate(b, device + 1);
        b->nsets -= new;
        b->sets[i] &= ~(1U << device);
    }
}

/* The best sum with this set in the partition. */
static uint32_t best_around(const struct partition_case *c, uint32_t set) {
    struct partition_case only = *c;
    struct brute b = {.c = &only};

    only.must = set;
    enumerate(&b, 0);
    return b.most;
}

/* Scores as those of links: few values, many of them equal. */
static void make_case(struct partition_case *c) {
    static const uint32_t scores[] = {10, 20, 40, 60, 100, 200, 600};

    *c = (struct partition_case){.n = 1 + (uint32_t) rand() % DEVICES};
    c->size = 1 + (uint32_t) rand() % c->n;
    for (uint32_t a = 0; a < c->n; a++)
        for (uint32_t b = a + 1; b < c->n; b++)
            c->score[a][b] = scores[rand() % 7];
    for (uint32_t i = (uint32_t) rand() % (c->size + 1); i > 0; i--)
        c->must |= 1U << (uint32_t) rand() % c->n;
}

static void as_all_partitions(void **state) {
    (void) state;
    srand(1);
    for (int i = 0; i < CASES; i++) {
        struct partition_case c;
        struct brute b = {.c = &c};
        uint32_t set;

        make_case(&c);
        enumerate(&b, 0);
        set = partition_choose(&c);
        assert_int_equal(__builtin_popcount(set), c.size);
        assert_int_equal(set & c.must, c.must);
        assert_int_equal(best_around(&c, set), b.most);
        assert_int_equal(pairs(&c, set), b.best_set);
    }
}

/* Two boards of four: the pair that is linked best would leave two single cards. */
static void sets_for_others(void **state) {
    struct partition_case c = {.n = 4, .size = 2};

    (void) state;
    c.score[0][1] = 300;
    c.score[0][2] = c.score[1][3] = 200;
    c.score[2][3] = 10;
    assert_int_equal(partition_choose(&c), 1U << 0 | 1U << 2);
    c.must = 1U << 3;
    assert_int_equal(partition_choose(&c), 1U << 1 | 1U << 3);
    c.score[2][3] = 200;
    c.must = 0;
    assert_int_equal(partition_choose(&c), 1U << 0 | 1U << 1);
}

static void limits(void **state) {
    struct partition_case c = {.n = PARTITION_MAX, .size = 4};

    (void) state;
    for (uint32_t a = 0; a < PARTITION_MAX; a++)
        for (uint32_t b = a + 1; b < PARTITION_MAX; b++)
            c.score[a][b] = a % 4 == b % 4 ? 600 : 10;
    assert_int_equal(partition_choose(&c), 0x1111);
    c.must = 1U << 15 | 1U << 3;
    assert_int_equal(partition_choose(&c), 0x8888);
    c.must = 0x1f;
    assert_int_equal(partition_choose(&c), 0); /* more than are wanted */
    c = (struct partition_case){.n = 1, .size = 1};
    assert_int_equal(partition_choose(&c), 1);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_all_partitions),
        cmocka_unit_test(sets_for_others),
        cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
