/* SPDX-License-Identifier: Apache-2.0 */

/* The owner of a slot: its descriptors, where few are left and where the end of a descriptor ends
 * its lock (overlayfs), and its books. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "child.h"
#include "share/ledger.h"

static char path[64];

static int setup(void **state) {
    struct err err;

    (void) state;
    (void) snprintf(path, sizeof(path), "/tmp/aliquot-ledger-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) < 0 || unlink(path) < 0)
        return -1;
    return ledger_create(path, &err);
}

static int teardown(void **state) {
    (void) state;
    return unlink(path);
}

static size_t open_descriptors(void) {
    size_t n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* How many of the next locks are lost, and the error of those after them (0: none). */
static int locks_lost, lock_error;
/* Whether the file is away from the next lock on. */
static bool vanishes;

int __wrap_fcntl64(int fd, int command, ...);
int __real_fcntl64(int fd, int command, ...);

int __wrap_fcntl64(int fd, int command, ...) {
    va_list arguments;

    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command == F_OFD_SETLK && vanishes) {
        char away[sizeof(path) + 8];

        (void) snprintf(away, sizeof(away), "%s-away", path);
        vanishes = rename(path, away) != 0;
    }
    if (command == F_OFD_SETLK && locks_lost > 0) {
        locks_lost--;
        return 0;
    }
    if (command == F_OFD_SETLK && lock_error != 0) {
        errno = lock_error;
        return -1;
    }
    return __real_fcntl64(fd, command, argument);
}

/* The slot is claimed again with a descriptor that stays open as long as the slot is held. */
static void test_keeps_the_descriptor_that_holds_the_lock(void **state) {
    struct ledger_owner o;
    size_t before;
    int fd;

    (void) state;
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    before = open_descriptors();
    locks_lost = 1;
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(open_descriptors(), before + 1);
    assert_true(fcntl(o.fd, F_GETFD) >= 0);
    assert_true(ledger_slot_alive(fd, o.slot));
    ledger_release(&o);
    assert_false(ledger_slot_alive(fd, o.slot));
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(close(fd), 0);
}

static void test_without_a_second_lock_is_not_claimed(void **state) {
    struct ledger_owner o;
    size_t before;

    (void) state;
    before = open_descriptors();
    locks_lost = 1;
    lock_error = ENOLCK;
    assert_int_equal(ledger_claim(path, &o), -ENOLCK);
    lock_error = 0;
    assert_int_equal(open_descriptors(), before);
}

static void test_a_ledger_that_vanishes_is_not_claimed(void **state) {
    char away[sizeof(path) + 8];
    struct ledger_owner o;
    size_t before = open_descriptors();

    (void) state;
    (void) snprintf(away, sizeof(away), "%s-away", path);
    vanishes = true;
    assert_int_equal(ledger_claim(path, &o), -ENOENT);
    assert_false(vanishes);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(rename(away, path), 0);
}

/* What a dead process had is credited before a refusal, also with a descriptor 0. */
static bool credits_with_descriptor_zero(const void *ledger) {
    struct ledger_owner dead, o;

    if (ledger_claim(ledger, &dead) < 0 || ledger_claim(ledger, &o) < 0 ||
        ledger_reserve(&dead, 0, 80, 0) < 0)
        return false;
    ledger_release(&dead);
    return close(0) == 0 && !ledger_borrowed(&o) && ledger_reserve(&o, 0, 50, 100) == 0 &&
           ledger_used(o.file, 0) == 50 && fcntl(0, F_GETFD) < 0;
}

static void test_the_dead_are_credited_by_any_descriptor(void **state) {
    (void) state;
    child_end(child_start(credits_with_descriptor_zero, path));
}

/* A program may have closed its standard input, and have few descriptors: 0 is one like any other.
 */
static bool uses_descriptor_zero(const void *ledger) {
    const struct rlimit few = {64, 64};
    struct ledger_owner o;
    struct ledger_loan loan;

    if (setrlimit(RLIMIT_NOFILE, &few) < 0 || close(0) < 0)
        return false;
    locks_lost = 1;
    if (ledger_claim(ledger, &o) < 0 || o.fd != 0 || ledger_borrow(&o, NULL, &loan) < 0)
        return false;
    bool kept = loan.fd > 0 && fcntl(loan.fd, F_GETFD) >= 0;
    ledger_return(&loan);
    if (!kept || (o.fd = dup(0)) < 0 || close(0) < 0 || ledger_borrow(&o, NULL, &loan) < 0)
        return false;
    kept = loan.fd == 0 && fcntl(0, F_GETFD) >= 0;
    ledger_return(&loan);
    if (!kept || fcntl(0, F_GETFD) >= 0 || dup2(o.fd, 0) != 0 || close(o.fd) < 0)
        return false;
    o.fd = 0;
    ledger_release(&o);
    return fcntl(0, F_GETFD) < 0;
}

static void test_uses_any_descriptor(void **state) {
    (void) state;
    child_end(child_start(uses_descriptor_zero, path));
}

/* How often the file is mapped into this process. */
static size_t mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    size_t n = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps))
        n += strstr(line, path) != NULL;
    (void) fclose(maps);
    return n;
}

/* Of a file that is no ledger, or of another version, nothing stays open or mapped. */
static void test_no_ledger_leaves_nothing(void **state) {
    static const size_t at[] = {
        offsetof(struct ledger_file, magic), offsetof(struct ledger_file, version),
        offsetof(struct ledger_file, devices), offsetof(struct ledger_file, slots)};
    size_t before = open_descriptors();

    (void) state;
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        const struct ledger_file *file;
        struct ledger_owner o;
        unsigned char byte;
        int fd = open(path, O_RDWR | O_CLOEXEC);

        assert_int_equal(pread(fd, &byte, 1, (off_t) at[i]), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t) at[i]), 1);
        assert_int_equal(ledger_attach(path, &file), -EBADMSG);
        assert_int_equal(ledger_claim(path, &o), -EBADMSG);
        assert_int_equal(mappings(), 0);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t) at[i]), 1);
        assert_int_equal(close(fd), 0);
        assert_int_equal(open_descriptors(), before);
    }
}

/* Byte by byte. */
static void test_orphaned_memory_is_exact(void **state) {
    struct ledger_owner o;
    uint64_t orphaned;

    (void) state;
    assert_int_equal(ledger_claim(path, &o), 0);
    for (uint64_t bytes = 0; bytes < 3; bytes++) {
        ledger_add_orphaned(o.file, 0, bytes);
        assert_int_equal(ledger_read_orphaned(o.file, 0, &orphaned), 0);
        assert_int_equal(orphaned, bytes);
        assert_int_equal(ledger_used(o.file, 0), bytes);
        ledger_credit_orphaned(o.file, 0, bytes);
        assert_int_equal(ledger_used(o.file, 0), 0);
    }
    ledger_release(&o);
    assert_int_equal(mappings(), 0);
}

/* ---- books ---- */

/* An owner whose slot has another owner meanwhile changes nothing. */
static void test_an_owner_of_the_past_is_refused(void **state) {
    struct ledger_owner o, past;

    (void) state;
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(ledger_reserve(&o, 0, 50, 0), 0);
    past = o;
    past.generation--;
    assert_int_equal(ledger_reserve(&past, 0, 10, 0), -ESTALE);
    assert_int_equal(ledger_refund(&past, 0, 10), -ESTALE);
    assert_int_equal(ledger_orphan(&past, 0, 10), -ESTALE);
    ledger_park(o.file, o.slot, 0);
    assert_int_equal(ledger_unpark(o.file, o.slot, 0, past.generation, 0), -ESTALE);
    assert_int_equal(ledger_unpark(o.file, o.slot, 0, o.generation, 0), 1);
    assert_int_equal(ledger_unpark(o.file, o.slot, 0, o.generation, 0), 0);
    assert_int_equal(ledger_used(o.file, 0), 50);
    assert_int_equal(o.file->device[0].refused, 0);
    ledger_release(&o);
}

/* To the byte, and each refusal is counted once. */
static void test_a_limit_is_exact(void **state) {
    static const struct {
        uint64_t used, bytes, limit;
        int result;
    } rows[] = {
        {0, 100, 100, 0},     {0, 101, 100, -ENOMEM},
        {60, 40, 100, 0},     {60, 41, 100, -ENOMEM},
        {100, 0, 100, 0},     {100, 1, 100, -ENOMEM},
        {60, 1, 50, -ENOMEM}, {60, UINT64_MAX / 4, 0, 0},
        {0, INT64_MAX, 0, 0}, {0, (uint64_t) INT64_MAX + 1, 0, -ENOMEM},
        {1, 1, 1, -ENOMEM},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ledger_owner o;

        assert_int_equal(ledger_claim(path, &o), 0);
        o.file->device[1].refused = 0;
        assert_int_equal(ledger_reserve(&o, 1, rows[i].used, 0), 0);
        assert_int_equal(ledger_reserve(&o, 1, rows[i].bytes, rows[i].limit), rows[i].result);
        assert_int_equal(o.file->device[1].refused, rows[i].result < 0);
        assert_true(ledger_used(o.file, 1) ==
                    rows[i].used + (rows[i].result == 0 ? rows[i].bytes : 0));
        assert_int_equal(ledger_used(o.file, 0), 0);
        ledger_release(&o);
    }
}

/* A process gives back what it has and no more: the rest of the sum belongs to others. */
static void test_nothing_of_others_is_given_back(void **state) {
    struct ledger_owner o, other;
    uint64_t orphaned;

    (void) state;
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(ledger_claim(path, &other), 0);
    assert_int_equal(ledger_reserve(&o, 0, 50, 0), 0);
    assert_int_equal(ledger_reserve(&other, 0, 30, 0), 0);
    assert_int_equal(ledger_refund(&o, 0, (uint64_t) INT64_MAX + 1), -EBADMSG);
    assert_int_equal(ledger_orphan(&o, 0, (uint64_t) INT64_MAX + 1), -EBADMSG);
    assert_int_equal(ledger_orphan(&o, 0, 20), 0);
    assert_int_equal(ledger_used(o.file, 0), 80);
    assert_int_equal(ledger_read_orphaned(o.file, 0, &orphaned), 0);
    assert_int_equal(orphaned, 20);
    assert_int_equal(ledger_refund(&o, 0, 70), 0);
    assert_int_equal(ledger_used(o.file, 0), 50);
    assert_int_equal(ledger_refund(&o, 0, 70), 0);
    assert_int_equal(ledger_used(o.file, 0), 50);
    ledger_release(&other);
    ledger_release(&o);
}

/* What processes have left on any device is found, and each process counts once. */
static void test_every_dead_process_is_found(void **state) {
    struct ledger_owner dead[3], o;
    uint32_t slots[4] = {0};
    int fd;

    (void) state;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ledger_claim(path, &dead[i]), 0);
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(ledger_reserve(&dead[0], 0, 10, 0), 0);
    assert_int_equal(ledger_reserve(&dead[0], 1, 20, 0), 0);
    assert_int_equal(ledger_reserve(&dead[2], LEDGER_DEVICES - 1, 30, 0), 0);
    assert_int_equal(ledger_reserve(&o, 0, 40, 0), 0);
    assert_int_equal(ledger_living(o.file, path, slots, 4), 4);
    assert_int_equal(slots[3], o.slot);
    assert_int_equal(ledger_living(o.file, path, slots, 2), 2);
    assert_int_equal(slots[1], dead[1].slot);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(ledger_reclaim_dead(o.file, fd, o.slot), 0);
    for (unsigned i = 0; i < 3; i++)
        ledger_release(&dead[i]);
    assert_int_equal(ledger_living(o.file, path, slots, 4), 1);
    assert_int_equal(slots[0], o.slot);
    assert_int_equal(ledger_living(o.file, "/none", slots, 4), 0);
    assert_int_equal(ledger_reclaim_dead(o.file, fd, o.slot), 2);
    assert_int_equal(ledger_reclaim_dead(o.file, fd, o.slot), 0);
    assert_int_equal(ledger_used(o.file, 0), 40);
    assert_int_equal(ledger_used(o.file, 1), 0);
    assert_int_equal(ledger_used(o.file, LEDGER_DEVICES - 1), 0);
    assert_int_equal(close(fd), 0);
    ledger_release(&o);
}

static void test_the_namespace_of_processes_is_read(void **state) {
    char link[64] = "", want[64];

    (void) state;
    assert_true(readlink("/proc/self/ns/pid", link, sizeof(link) - 1) > 0);
    (void) snprintf(want, sizeof(want), "pid:[%u]", ledger_pidns());
    assert_string_equal(link, want);
}

/* Where it cannot be found out, memory is taken for borrowed, and stays. */
static void test_what_cannot_be_read_is_borrowed(void **state) {
    struct ledger_owner o;

    (void) state;
    assert_int_equal(ledger_claim_exports(path, &o), 0);
    assert_false(ledger_borrowed(&o));
    o.path = "/none";
    assert_true(ledger_borrowed(&o));
    ledger_release(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keeps_the_descriptor_that_holds_the_lock, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_without_a_second_lock_is_not_claimed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_ledger_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orphaned_memory_is_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_owner_of_the_past_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_limit_is_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_of_others_is_given_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_dead_process_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_namespace_of_processes_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_read_is_borrowed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_ledger_that_vanishes_is_not_claimed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_the_dead_are_credited_by_any_descriptor, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_uses_any_descriptor, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
