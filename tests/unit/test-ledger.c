/* SPDX-License-Identifier: Apache-2.0 */

/* The ledger where system calls fail, and beside processes that died in the middle of booking. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "share/ledger.h"

#define BOOKINGS 500000

static char path[64];

static int setup(void **state) {
    struct err err;
    int fd;

    (void) state;
    (void) snprintf(path, sizeof(path), "/tmp/aliquot-ledger-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    (void) close(fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ledger_create(path, &err), 0);
    return 0;
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

/* A system call that succeeds leaves errno as it was. */
static void an_error_of_the_program_is_none_of_the_ledgers(void **state) {
    struct ledger_owner o;

    (void) state;
    errno = ENOSPC;
    assert_int_equal(ledger_claim(path, &o), 0);
    ledger_release(&o);
}

/* The kernel counts a stack that grows, too. */
static __attribute__((noinline)) void grow_stack(void) {
    volatile char pages[64 * 1024];

    for (size_t i = 0; i < sizeof(pages); i += 1024)
        pages[i] = 0;
}

/* A program can have an address space that is limited, and full. */
static void without_address_space_nothing_is_mapped(void **state) {
    const struct ledger_file *file = NULL;
    struct ledger_owner o, second = {.file = NULL};
    struct rlimit before, full;
    struct ledger_loan loan;
    int attached, claimed, borrowed;
    size_t descriptors;

    (void) state;
    assert_int_equal(ledger_claim(path, &o), 0);
    descriptors = open_descriptors();
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    full = (struct rlimit){.rlim_cur = 1, .rlim_max = before.rlim_max};
    grow_stack();
    assert_int_equal(setrlimit(RLIMIT_AS, &full), 0);
    attached = ledger_attach(path, &file);
    claimed = ledger_claim(path, &second);
    borrowed = ledger_borrow(&o, NULL, &loan);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(attached, -ENOMEM);
    assert_int_equal(claimed, -ENOMEM);
    assert_int_equal(borrowed, -ENOMEM);
    assert_int_equal(open_descriptors(), descriptors);
    ledger_release(&o);
}

/* As on overlayfs, where a descriptor holds the slot, and another one what is borrowed. */
static void a_loan_has_a_descriptor_of_its_own(void **state) {
    struct stat ledger, held;
    struct ledger_owner o;
    struct ledger_loan loan;
    size_t descriptors;

    (void) state;
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(o.fd, -1);
    o.fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(o.fd >= 0);
    descriptors = open_descriptors();
    assert_int_equal(ledger_borrow(&o, NULL, &loan), 0);
    assert_int_equal(open_descriptors(), descriptors + 1);
    assert_int_equal(stat(path, &ledger), 0);
    assert_int_equal(fstat(loan.fd, &held), 0);
    assert_int_equal(held.st_ino, ledger.st_ino);
    ledger_return(&loan);
    assert_int_equal(open_descriptors(), descriptors);
    /* A second time it closes nothing that has the number since. */
    assert_int_equal(dup2(o.fd, loan.fd), loan.fd);
    ledger_return(&loan);
    assert_int_equal(close(loan.fd), 0);
    ledger_release(&o);
}

static void a_ledger_that_is_gone_lends_nothing(void **state) {
    struct ledger_owner o, gone;
    struct ledger_loan loan;

    (void) state;
    assert_int_equal(ledger_claim(path, &o), 0);
    gone = o;
    gone.path = "/none";
    assert_int_equal(ledger_borrow(&gone, NULL, &loan), -ENOENT);
    ledger_release(&o);
}

/* The first slot is like all others: its memory is borrowed while its owner lives. */
static void the_first_slot_lends_too(void **state) {
    struct ledger_owner exports, o;
    struct ledger_loan loan;
    int fd;

    (void) state;
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ledger_claim_exports(path, &exports), 0);
    assert_int_equal(exports.slot, 0);
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(ledger_reserve(&exports, 0, 30, 0), 0);
    assert_int_equal(ledger_borrow(&o, NULL, &loan), 1);
    ledger_release(&exports);
    assert_int_equal(ledger_reclaim_dead(o.file, fd, o.slot), 0);
    assert_int_equal(ledger_used(o.file, 0), 30);
    ledger_return(&loan);
    assert_int_equal(ledger_reclaim_dead(o.file, fd, o.slot), 1);
    assert_int_equal(ledger_used(o.file, 0), 0);
    ledger_release(&o);
    (void) close(fd);
}

/* The sum has what the process booked, and the record of it, and its slot not yet. */
static void what_the_dead_began_is_ended_at_a_restore(void **state) {
    struct ledger_owner restored, dead;
    struct ledger_word *word, old;

    (void) state;
    assert_int_equal(ledger_claim(path, &restored), 0);
    assert_int_equal(ledger_claim(path, &dead), 0);
    assert_int_equal(ledger_reserve(&restored, 0, 60, 0), 0);
    ledger_park(restored.file, restored.slot, 0);
    word = &restored.file->slot[dead.slot].cell[0].booked;
    old = *word;
    assert_int_equal(ledger_reserve(&dead, 0, 50, 0), 0);
    *word = old;
    assert_int_equal(ledger_unpark(restored.file, restored.slot, 0, restored.generation, 0), 1);
    assert_int_equal(ledger_used(restored.file, 0), 110);
    assert_int_equal(ledger_reclaim(restored.file, dead.slot, 0, dead.generation), 50);
    assert_int_equal(ledger_used(restored.file, 0), 60);
    ledger_release(&dead);
    ledger_release(&restored);
}

struct booking {
    struct ledger_owner owner;
    unsigned rounds;
};

static void *book_and_refund(void *userdata) {
    struct booking *booking = userdata;

    for (int i = 0; i < BOOKINGS; i++) {
        (void) ledger_reserve(&booking->owner, 0, 1, 0);
        (void) ledger_refund(&booking->owner, 0, 1);
        __atomic_fetch_add(&booking->rounds, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void restores_beside_a_process_that_books_succeed(void **state) {
    struct booking booking = {.rounds = 0};
    unsigned restores = 0, restored = 0;
    struct ledger_owner o;
    pthread_t thread;

    (void) state;
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(ledger_claim(path, &booking.owner), 0);
    assert_int_equal(ledger_reserve(&o, 0, 60, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, book_and_refund, &booking), 0);
    while (__atomic_load_n(&booking.rounds, __ATOMIC_RELAXED) < BOOKINGS) {
        ledger_park(o.file, o.slot, 0);
        restored += ledger_unpark(o.file, o.slot, 0, o.generation, 0) == 1;
        restores++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(restored, restores);
    assert_int_equal(ledger_used(o.file, 0), 60);
    ledger_release(&booking.owner);
    ledger_release(&o);
}

/* By which the agent takes the PIDs of a container for those of its own namespace, or not. */
static void a_slot_names_the_pid_namespace_of_its_owner(void **state) {
    struct ledger_owner o;
    struct stat space;

    (void) state;
    assert_int_equal(stat("/proc/self/ns/pid", &space), 0);
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(o.file->slot[o.slot].pidns, space.st_ino);
    ledger_release(&o);
}

static void only_slots_with_an_owner_are_living(void **state) {
    struct ledger_owner first, second;
    uint32_t slots[LEDGER_SLOTS];

    (void) state;
    assert_int_equal(ledger_claim(path, &first), 0);
    assert_int_equal(ledger_claim(path, &second), 0);
    assert_int_equal(ledger_living(second.file, path, slots, LEDGER_SLOTS), 2);
    assert_int_equal(slots[0], first.slot);
    assert_int_equal(slots[1], second.slot);
    assert_int_equal(ledger_living(second.file, path, slots, 1), 1);
    ledger_release(&first);
    assert_int_equal(ledger_living(second.file, path, slots, LEDGER_SLOTS), 1);
    assert_int_equal(slots[0], second.slot);
    ledger_release(&second);
}

static void a_process_without_a_slot_is_refused(void **state) {
    struct flock taken = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = LEDGER_SLOTS - 1};
    struct ledger_owner o;
    size_t descriptors;
    int fd;

    (void) state;
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &taken), 0);
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(o.slot, LEDGER_SLOTS - 1);
    descriptors = open_descriptors();
    assert_int_equal(ledger_claim(path, &(struct ledger_owner){.fd = -1}), -EUSERS);
    assert_int_equal(open_descriptors(), descriptors);
    ledger_release(&o);
    (void) close(fd);
}

static uint64_t peak_of(struct ledger *ledger, unsigned int device) {
    struct ledger_usage usage;

    assert_int_equal(ledger_snapshot(ledger, &usage), 0);
    return usage.peak[device];
}

/* Of all processes together, also of what no process has booked; until the container is restarted.
 */
static void a_peak_stays_when_memory_is_given_back(void **state) {
    struct ledger_owner one, other;
    struct ledger *ledger;

    (void) state;
    assert_int_equal(ledger_open(path, &ledger, NULL), 0);
    assert_int_equal(ledger_claim(path, &one), 0);
    assert_int_equal(ledger_claim(path, &other), 0);
    assert_int_equal(peak_of(ledger, 0), 0);
    assert_int_equal(ledger_reserve(&one, 0, 700, 1000), 0);
    assert_int_equal(ledger_reserve(&other, 0, 200, 1000), 0);
    assert_int_equal(ledger_reserve(&other, 0, 200, 1000), -ENOMEM);
    assert_int_equal(ledger_refund(&one, 0, 600), 0);
    assert_int_equal(ledger_reserve(&one, 0, 100, 1000), 0);
    assert_int_equal(peak_of(ledger, 0), 900);
    assert_int_equal(ledger_charge(ledger, 0, 600), 0);
    assert_int_equal(ledger_credit(ledger, 0, 600), 0);
    assert_int_equal(peak_of(ledger, 0), 1000);
    ledger_park(one.file, one.slot, 0);
    assert_int_equal(peak_of(ledger, 1), 0);
    ledger_begin_peaks(ledger);
    assert_int_equal(peak_of(ledger, 0), 200);
    assert_int_equal(ledger_unpark(one.file, one.slot, 0, one.generation, 0), 1);
    assert_int_equal(peak_of(ledger, 0), 400);
    ledger_release(&one);
    ledger_release(&other);
    (void) ledger_free(ledger);
}

/* What its library does not keep is not known, whatever the agent does. */
static void no_peak_is_made_of_orphaned_memory(void **state) {
    struct ledger_owner o;
    struct ledger *ledger;

    (void) state;
    assert_int_equal(ledger_open(path, &ledger, NULL), 0);
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(ledger_reserve(&o, 0, 900, 0), 0);
    assert_int_equal(ledger_orphan(&o, 0, 600), 0);
    o.file->device[0].peak = 0; /* as a library before 0.2 leaves it */
    assert_int_equal(ledger_credit(ledger, 0, 100), 0);
    assert_int_equal(ledger_charge(ledger, 0, 50), 0);
    assert_int_equal(peak_of(ledger, 0), 0);
    ledger_release(&o);
    (void) ledger_free(ledger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_error_of_the_program_is_none_of_the_ledgers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(without_address_space_nothing_is_mapped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_loan_has_a_descriptor_of_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(a_ledger_that_is_gone_lends_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(the_first_slot_lends_too, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_dead_began_is_ended_at_a_restore, setup, teardown),
        cmocka_unit_test_setup_teardown(restores_beside_a_process_that_books_succeed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_slot_names_the_pid_namespace_of_its_owner, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(only_slots_with_an_owner_are_living, setup, teardown),
        cmocka_unit_test_setup_teardown(a_process_without_a_slot_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_peak_stays_when_memory_is_given_back, setup, teardown),
        cmocka_unit_test_setup_teardown(no_peak_is_made_of_orphaned_memory, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
