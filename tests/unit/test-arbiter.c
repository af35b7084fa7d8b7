/* SPDX-License-Identifier: Apache-2.0 */

/* The arbiter's thread, against accounts that behave and accounts that do not. */

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "share/arbiter.h"

#define CARD "GPU-00000000-0000-4000-8000-000000000001"
#define BOUND_MS 5000

struct tenant {
    char grants_path[128], compute_path[128];
    const struct grants_file *grants;
    struct compute_file *accounts;
    struct share_limits limits;
    struct arbiter_member *member;
};

static char dir[64];
static struct arbiter *arbiter;

/* A kernel before Linux 5.16. */
static bool without_waitv;
static uint32_t refused;
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
    if (number == SYS_futex_waitv && without_waitv) {
        (void) __atomic_add_fetch(&refused, 1, __ATOMIC_RELEASE);
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

static uint64_t now_ns(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static void pause_ms(long ms) {
    const struct timespec t = {.tv_nsec = ms * 1000000};

    (void) nanosleep(&t, NULL);
}

static void tenant_join_cards(struct tenant *t, const char *name, enum share_policy policy,
                              uint32_t core, uint32_t cards) {
    memset(t, 0, sizeof(*t));
    (void) snprintf(t->grants_path, sizeof(t->grants_path), "%s/%s-grants", dir, name);
    (void) snprintf(t->compute_path, sizeof(t->compute_path), "%s/%s-compute", dir, name);
    assert_int_equal(compute_create(t->grants_path, t->compute_path, NULL), 0);
    assert_int_equal(grants_map(t->grants_path, &t->grants), 0);
    assert_int_equal(compute_map(t->compute_path, &t->accounts), 0);
    t->limits.ndevices = cards;
    for (uint32_t i = 0; i < cards; i++) {
        memcpy(t->limits.device[i].uuid, CARD, sizeof(CARD));
        t->limits.device[i].uuid[0] = (char) (CARD[0] + (char) i);
        t->limits.device[i].core_percent = core;
        t->limits.device[i].policy = (uint8_t) policy;
    }
    assert_int_equal(
        arbiter_join(arbiter, &t->limits, t->grants_path, t->compute_path, &t->member, NULL), 0);
}

static void tenant_join(struct tenant *t, const char *name, enum share_policy policy,
                        uint32_t core) {
    tenant_join_cards(t, name, policy, core, 1);
}

static uint32_t rate(const struct tenant *t) {
    return __atomic_load_n(&t->grants->device[0].rate, __ATOMIC_ACQUIRE);
}

static void charge(struct tenant *t, uint64_t ns) {
    (void) __atomic_fetch_add(&t->accounts->device[0].charged, ns, __ATOMIC_RELAXED);
    (void) __atomic_fetch_add(&t->accounts->device[0].waits, 1, __ATOMIC_RELAXED);
}

static void ring(struct tenant *t) {
    (void) __atomic_fetch_add(&t->accounts->bell, 1, __ATOMIC_RELEASE);
    (void) syscall(SYS_futex, &t->accounts->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Waits, while the given tenants keep wanting the card, until `t` is granted `low` to `high`. */
static uint64_t wait_for_rate(struct tenant *const *busy, size_t n, const struct tenant *t,
                              uint32_t low, uint32_t high) {
    uint64_t start = now_ns();

    while (rate(t) < low || rate(t) > high) {
        for (size_t i = 0; i < n; i++)
            charge(busy[i], 1000000);
        pause_ms(2);
        if (now_ns() - start > BOUND_MS * 1000000ull)
            fail_msg("rate %u, wanted %u to %u", rate(t), low, high);
    }
    return now_ns() - start;
}

static int setup(void **state) {
    (void) state;
    (void) snprintf(dir, sizeof(dir), "/tmp/test-arbiter-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return arbiter_start(&arbiter, NULL);
}

/* Returns when the thread knows. */
static int setup_without_waitv(void **state) {
    int r;

    refused = 0;
    without_waitv = true;
    r = setup(state);
    while (r == 0 && __atomic_load_n(&refused, __ATOMIC_ACQUIRE) == 0)
        pause_ms(1);
    return r;
}

static int teardown(void **state) {
    (void) state;
    arbiter = arbiter_stop(arbiter);
    without_waitv = false;
    return dir_remove(dir, NULL);
}

static void test_a_share_is_granted_at_once(void **state) {
    struct tenant a;

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    assert_in_range(rate(&a), 299000, 301000);
    assert_true(a.grants->beat > 0);
}

static void test_the_heart_beats_while_nothing_happens(void **state) {
    struct tenant a;
    uint64_t before, start;

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    before = __atomic_load_n(&a.grants->beat, __ATOMIC_ACQUIRE);
    start = now_ns();
    while (__atomic_load_n(&a.grants->beat, __ATOMIC_ACQUIRE) < before + 5)
        pause_ms(5);
    /* Five beats; the bound is that of a reader who gives the arbiter up. */
    assert_in_range((now_ns() - start) / 1000000, 250, 5 * ARBITER_GONE_NS / 1000000);
}

static void test_lent_time_is_given_back_when_the_bell_rings(void **state) {
    struct tenant a, b;
    struct tenant *const one[] = {&a}, *const both[] = {&a, &b};
    uint64_t took;

    (void) state;
    tenant_join(&a, "a", SHARE_BURST, 30);
    tenant_join(&b, "b", SHARE_BURST, 70);
    (void) wait_for_rate(one, 1, &a, 990000, RATE_UNLIMITED);
    charge(&b, 1000000);
    ring(&b);
    took = wait_for_rate(both, 2, &a, 250000, 350000);
    assert_in_range(took / 1000000, 0, 100);
    (void) wait_for_rate(both, 2, &b, 650000, 750000);
}

static void test_a_change_takes_effect(void **state) {
    struct tenant a;

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    a.limits.device[0].core_percent = 60;
    arbiter_change(a.member, &a.limits);
    (void) wait_for_rate(NULL, 0, &a, 599000, 601000);
    a.limits.device[0].core_percent = 10;
    arbiter_change(a.member, &a.limits);
    (void) wait_for_rate(NULL, 0, &a, 99000, 101000);
}

static void test_who_leaves_frees_his_part(void **state) {
    struct tenant a, b;
    struct tenant *const both[] = {&a, &b}, *const one[] = {&a};

    (void) state;
    tenant_join(&a, "a", SHARE_WEIGHTED, 0);
    tenant_join(&b, "b", SHARE_WEIGHTED, 0);
    (void) wait_for_rate(both, 2, &a, 490000, 510000);
    b.member = arbiter_leave(b.member);
    (void) wait_for_rate(one, 1, &a, 990000, RATE_UNLIMITED);
}

static void test_a_truncated_account_harms_nobody_else(void **state) {
    struct tenant a, b;
    struct tenant *const busy[] = {&b};
    struct arbiter_view view;
    uint64_t start = now_ns();

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    tenant_join(&b, "b", SHARE_BURST, 30);
    assert_int_equal(truncate(a.compute_path, 0), 0);
    do {
        arbiter_view(a.member, 0, &view);
        pause_ms(2);
    } while (!view.damaged && now_ns() - start < BOUND_MS * 1000000ull);
    assert_true(view.damaged);
    (void) wait_for_rate(busy, 1, &b, 690000, RATE_UNLIMITED);
    assert_in_range(rate(&a), 299000, 301000);
    /* It may come back. */
    assert_int_equal(truncate(a.compute_path, sizeof(struct compute_file)), 0);
    b.member = arbiter_leave(b.member);
    a.member = arbiter_leave(a.member);
}

static void test_any_numbers_in_an_account(void **state) {
    struct tenant a, b;
    struct tenant *const busy[] = {&b};
    unsigned seed = 7;

    (void) state;
    tenant_join(&a, "a", SHARE_BURST, 30);
    tenant_join(&b, "b", SHARE_BURST, 70);
    for (int i = 0; i < 200; i++) {
        uint64_t *words = (uint64_t *) &a.accounts->device[0];

        for (size_t w = 0; w < sizeof(a.accounts->device[0]) / 8; w++)
            words[w] = (uint64_t) rand_r(&seed) << 33 | (uint64_t) rand_r(&seed) << 2;
        ring(&a);
        charge(&b, 1000000);
        pause_ms(1);
    }
    /* Whatever it says, the other has what is his. */
    (void) wait_for_rate(busy, 1, &b, 650000, RATE_UNLIMITED);
}

/* A bell that rings all the time for nothing. */
static void test_noise_costs_little(void **state) {
    struct arbiter_stats before, after;
    struct tenant a;
    uint64_t start;

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    arbiter_stats(arbiter, &before);
    start = now_ns();
    while (now_ns() - start < 500000000u)
        ring(&a);
    arbiter_stats(arbiter, &after);
    assert_in_range(after.rings - before.rings, 1, 20);
    assert_in_range(after.turns - before.turns, 1, 100);
}

/* Nor one of a container that computes on one of its cards and rings for the other. */
static void test_noise_of_the_active_costs_little(void **state) {
    struct arbiter_stats before, after;
    struct tenant a;
    uint64_t start;

    (void) state;
    tenant_join_cards(&a, "a", SHARE_FIXED, 30, 2);
    arbiter_stats(arbiter, &before);
    start = now_ns();
    while (now_ns() - start < 500000000u) {
        charge(&a, 1000);
        ring(&a);
    }
    arbiter_stats(arbiter, &after);
    assert_in_range(after.rings - before.rings, 1, 100);
    assert_in_range(after.turns - before.turns, 1, 300);
}

static void test_more_bells_than_can_be_slept_on(void **state) {
    static struct tenant t[140];
    struct arbiter_stats stats;
    uint64_t start;
    char name[16];

    (void) state;
    for (int i = 0; i < 140; i++) {
        (void) snprintf(name, sizeof(name), "t%d", i);
        tenant_join(&t[i], name, SHARE_BEST_EFFORT, 0);
    }
    arbiter_stats(arbiter, &stats);
    start = stats.rings;
    /* The last one that joined is heard, too. */
    charge(&t[139], 1000);
    ring(&t[139]);
    for (int i = 0; i < BOUND_MS && stats.rings == start; i++) {
        pause_ms(1);
        arbiter_stats(arbiter, &stats);
    }
    assert_true(stats.rings > start);
}

static void wait_for_charge(const struct tenant *t, uint64_t ns) {
    uint64_t start = now_ns();

    while (__atomic_load_n(&t->accounts->device[0].charged, __ATOMIC_RELAXED) < ns) {
        pause_ms(2);
        assert_true(now_ns() - start < BOUND_MS * 1000000ull);
    }
}

static uint64_t last_launch(const struct tenant *t) {
    struct arbiter_view view;

    arbiter_view(t->member, 0, &view);
    return view.launched;
}

/* Until the arbiter knows of a later launch than at `since`. */
static uint64_t wait_for_launch(const struct tenant *t, uint64_t since) {
    uint64_t start = now_ns();

    while (last_launch(t) <= since) {
        pause_ms(1);
        assert_true(now_ns() - start < BOUND_MS * 1000000ull);
    }
    return last_launch(t);
}

static void wait_for_steps(uint64_t n) {
    struct arbiter_stats stats;

    arbiter_stats(arbiter, &stats);
    for (n += stats.steps; stats.steps < n; arbiter_stats(arbiter, &stats))
        pause_ms(2);
}

static void start_again(struct tenant *t) {
    arbiter = arbiter_stop(arbiter);
    assert_int_equal(arbiter_start(&arbiter, NULL), 0);
    assert_int_equal(
        arbiter_join(arbiter, &t->limits, t->grants_path, t->compute_path, &t->member, NULL), 0);
}

static void forget_launch(const struct tenant *t) {
    static const struct grant_device nothing;
    off_t at = offsetof(struct grants_file, device) + offsetof(struct grant_device, launched_at);
    int fd = open(t->grants_path, O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &nothing, 2 * sizeof(nothing.launched_at), at),
                     2 * sizeof(nothing.launched_at));
    (void) close(fd);
}

static void test_the_last_launch(void **state) {
    uint64_t before = clock_ns(CLOCK_REALTIME), first, later;
    struct tenant a;

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    wait_for_steps(2);
    assert_int_equal(last_launch(&a), 0);
    charge(&a, 1000);
    first = wait_for_launch(&a, 0);
    assert_true(first >= before && first <= clock_ns(CLOCK_REALTIME));
    wait_for_steps(2);
    assert_int_equal(last_launch(&a), first);
    /* Known to the next arbiter. */
    start_again(&a);
    wait_for_steps(2);
    assert_int_equal(last_launch(&a), first);
    charge(&a, 1000);
    later = wait_for_launch(&a, first);
    /* A launch without an arbiter. */
    charge(&a, 1000);
    start_again(&a);
    (void) wait_for_launch(&a, later);
    /* An arbiter of a version that does not keep it: not known. */
    arbiter = arbiter_stop(arbiter);
    forget_launch(&a);
    start_again(&a);
    wait_for_steps(2);
    assert_int_equal(last_launch(&a), 0);
}

static void test_what_the_driver_saw_is_charged(void **state) {
    struct tenant a;
    uint64_t launched;

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    /* The first figure is where it begins. */
    arbiter_driver(a.member, 0, 1);
    charge(&a, 1000);
    wait_for_steps(2);
    launched = last_launch(&a);
    arbiter_driver(a.member, 0, 5000000001);
    wait_for_charge(&a, 4999990000);
    wait_for_steps(2);
    assert_int_equal(last_launch(&a), launched); /* that is no launch */
    start_again(&a);
    wait_for_steps(2);
    assert_int_equal(last_launch(&a), launched);
}

static void test_who_is_stopped_or_dead_is_charged(void **state) {
    struct tenant a;

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    a.accounts->processes = 2;
    __atomic_store_n(&a.accounts->work[1][0].moves, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&a.accounts->owner[1], 4711, __ATOMIC_RELEASE);
    wait_for_charge(&a, 100000000);
    assert_int_equal(last_launch(&a), 0);
    __atomic_store_n(&a.accounts->owner[1], FUTEX_OWNER_DIED, __ATOMIC_RELEASE);
    for (int i = 0; i < BOUND_MS && __atomic_load_n(&a.accounts->owner[1], __ATOMIC_ACQUIRE); i++)
        pause_ms(1);
    assert_int_equal(a.accounts->owner[1], 0);
    assert_int_equal(a.accounts->work[1][0].moves, 0);
}

/* A file of an older version, or one that was cut where the processes begin. */
static void test_an_account_without_processes(void **state) {
    struct tenant a, b;
    struct tenant *const busy[] = {&b};
    struct arbiter_view view;

    (void) state;
    tenant_join(&a, "a", SHARE_FIXED, 30);
    tenant_join(&b, "b", SHARE_BURST, 30);
    assert_int_equal(truncate(a.compute_path, COMPUTE_SIZE_LEAST), 0);
    (void) wait_for_rate(busy, 1, &b, 690000, RATE_UNLIMITED);
    arbiter_view(a.member, 0, &view);
    assert_false(view.damaged);
    a.member = arbiter_leave(a.member);
    a.accounts->size = COMPUTE_SIZE_LEAST;
    assert_int_equal(
        arbiter_join(arbiter, &a.limits, a.grants_path, a.compute_path, &a.member, NULL), 0);
    assert_int_equal(compute_map(a.compute_path, &a.accounts), 0);
    assert_false(compute_has_processes(a.accounts));
    charge(&a, 1000);
    (void) wait_for_rate(busy, 1, &b, 690000, RATE_UNLIMITED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_WITHOUT_WAITV(name)                                                                   \
    cmocka_unit_test_setup_teardown(name, setup_without_waitv, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_share_is_granted_at_once),
        TEST(test_the_heart_beats_while_nothing_happens),
        TEST(test_lent_time_is_given_back_when_the_bell_rings),
        TEST(test_a_change_takes_effect),
        TEST(test_who_leaves_frees_his_part),
        TEST(test_a_truncated_account_harms_nobody_else),
        TEST(test_any_numbers_in_an_account),
        TEST(test_the_last_launch),
        TEST(test_what_the_driver_saw_is_charged),
        TEST(test_who_is_stopped_or_dead_is_charged),
        TEST(test_an_account_without_processes),
        TEST(test_noise_costs_little),
        TEST(test_noise_of_the_active_costs_little),
        TEST(test_more_bells_than_can_be_slept_on),
        TEST_WITHOUT_WAITV(test_the_heart_beats_while_nothing_happens),
        TEST_WITHOUT_WAITV(test_lent_time_is_given_back_when_the_bell_rings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
