/* SPDX-License-Identifier: Apache-2.0 */

/* Hardware time-slices against an ioctl of our own; whether a real driver heeds them, no test here
 * says. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "intercept/compute/timeslice.h"

#define ALLOC 0xc030462bUL /* 48 bytes */
#define ALLOC_SHORT 0xc020462bUL
#define RELEASE 0xc0104629UL
#define CONTROL 0xc020462aUL
#define SET 0xa06c0103u
#define GET 0xa06c0104u
#define GROUP 0xa06cu

struct call {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t size, status;
};

static struct {
    int allocs, sets, gets, others, fd;
    uint32_t client, object, status;
    uint64_t slice;
    bool forgets; /* takes every slice and keeps its own */
    int result;
} fake;

static int fake_ioctl(int fd, unsigned long request, ...) {
    va_list args;
    va_start(args, request);
    struct call *call = va_arg(args, struct call *);
    va_end(args);

    if (request != CONTROL) {
        fake.allocs++;
        errno = fake.result < 0 ? EIO : 0;
        return fake.result;
    }
    errno = EAGAIN;
    fake.fd = fd;
    fake.client = call->client;
    fake.object = call->object;
    call->status = fake.status;
    assert_int_equal(call->size, 8);
    if (call->command == SET) {
        fake.sets++;
        if (fake.status == 0 && !fake.forgets)
            fake.slice = *(uint64_t *) (uintptr_t) call->parameters;
    } else if (call->command == GET) {
        fake.gets++;
        *(uint64_t *) (uintptr_t) call->parameters = fake.slice;
    } else {
        fake.others++;
    }
    return 0;
}

static int ask(uint32_t slice, unsigned long request, uint32_t client, uint32_t object,
               uint32_t class) {
    uint32_t argument[12] = {client, client + 1, object, class};

    return timeslice_step(fake_ioctl, slice, 7, request, argument);
}

static int reset(void **state) {
    (void) state;
    /* Groups of the tests before are gone with their clients. */
    for (uint32_t client = 1; client < 20; client++)
        (void) ask(0, RELEASE, client, client, 0);
    memset(&fake, 0, sizeof(fake));
    return 0;
}

static void test_a_group_gets_its_slice(void **state) {
    (void) state;
    assert_int_equal(ask(3000, ALLOC, 1, 0x50, GROUP), 0);
    assert_int_equal(fake.sets, 1);
    assert_int_equal(fake.gets, 1);
    assert_int_equal(fake.slice, 3000);
    assert_int_equal(fake.client, 1);
    assert_int_equal(fake.object, 0x50);
    assert_int_equal(fake.fd, 7);
    /* Also as older drivers are asked; other classes are none of our business. */
    assert_int_equal(ask(3000, ALLOC_SHORT, 2, 0x51, GROUP), 0);
    assert_int_equal(ask(3000, ALLOC, 2, 0x52, 0xa06f), 0);
    assert_int_equal(fake.sets, 2);
    assert_int_equal(fake.others, 0);
}

static void test_nothing_without_the_option(void **state) {
    (void) state;
    assert_int_equal(ask(0, ALLOC, 3, 0x50, GROUP), 0);
    assert_int_equal(fake.allocs, 1);
    assert_int_equal(fake.sets + fake.gets, 0);
    /* Once it is set, the groups that there are get it with the next call. */
    assert_int_equal(ask(500, ALLOC, 3, 0x99, 1), 0);
    assert_int_equal(fake.sets, 1);
    assert_int_equal(fake.object, 0x50);
}

static void test_slices_follow_the_share(void **state) {
    (void) state;
    assert_int_equal(ask(3000, ALLOC, 4, 0x50, GROUP), 0);
    assert_int_equal(ask(3000, ALLOC, 4, 0x51, GROUP), 0);
    assert_int_equal(fake.sets, 2);
    assert_int_equal(ask(3000, ALLOC, 4, 0x99, 1), 0);
    assert_int_equal(fake.sets, 2);
    assert_int_equal(ask(7000, ALLOC, 4, 0x99, 1), 0);
    assert_int_equal(fake.sets, 4);
    assert_int_equal(fake.slice, 7000);
    /* One is gone, then all of the client's. */
    assert_int_equal(ask(7000, RELEASE, 4, 0x50, 0), 0);
    assert_int_equal(ask(1000, ALLOC, 4, 0x99, 1), 0);
    assert_int_equal(fake.sets, 5);
    assert_int_equal(fake.object, 0x51);
    assert_int_equal(ask(1000, RELEASE, 4, 4, 0), 0);
    assert_int_equal(ask(2000, ALLOC, 4, 0x99, 1), 0);
    assert_int_equal(fake.sets, 5);
}

static void test_results_are_the_drivers(void **state) {
    (void) state;
    assert_int_equal(ask(3000, ALLOC, 5, 0x50, GROUP), 0);
    assert_int_equal(errno, 0); /* not what our own calls left */
    fake.result = -1;
    assert_int_equal(ask(3000, ALLOC, 5, 0x51, GROUP), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(fake.sets, 1);
    /* Another kind of call, or one without an argument. */
    fake.result = 0;
    assert_int_equal(timeslice_step(fake_ioctl, 3000, 7, 0xc030642bUL, &fake.allocs), 0);
    assert_int_equal(timeslice_step(fake_ioctl, 3000, 7, ALLOC, NULL), 0);
    assert_int_equal(fake.sets, 1);
}

/* Must come last: the refusal is for good. */
static void test_a_refusal_is_final_and_silent(void **state) {
    (void) state;
    fake.forgets = true;
    assert_int_equal(ask(3000, ALLOC, 6, 0x50, GROUP), 0);
    assert_int_equal(fake.sets, 1);
    assert_int_equal(ask(3000, ALLOC, 6, 0x51, GROUP), 0);
    assert_int_equal(ask(4000, ALLOC, 6, 0x52, GROUP), 0);
    assert_int_equal(fake.sets, 1);
    assert_int_equal(fake.allocs, 3);
}

static void share(struct limits_file *file, uint32_t n, const uint32_t *percent, uint64_t options) {
    memset(file, 0, sizeof(*file));
    file->size = sizeof(*file);
    for (uint32_t i = 0; i < n; i++) {
        file->copy[0].device[i].core_percent = percent[i];
        file->more[0][i].options = options;
    }
}

static void test_length_of_a_slice(void **state) {
    static struct limits_file file;

    (void) state;
    share(&file, 1, (const uint32_t[]){30}, LIMITS_HARDWARE_SLICES);
    assert_int_equal(timeslice_of(&file, 1), 3000);
    share(&file, 1, (const uint32_t[]){1}, LIMITS_HARDWARE_SLICES);
    assert_int_equal(timeslice_of(&file, 1), 250);
    share(&file, 1, (const uint32_t[]){100}, LIMITS_HARDWARE_SLICES);
    assert_int_equal(timeslice_of(&file, 1), 10000);
    share(&file, 1, (const uint32_t[]){4000000000}, LIMITS_HARDWARE_SLICES);
    assert_int_equal(timeslice_of(&file, 1), 10000);
    share(&file, 1, (const uint32_t[]){0}, LIMITS_HARDWARE_SLICES);
    assert_int_equal(timeslice_of(&file, 1), 0);
    share(&file, 1, (const uint32_t[]){30}, 0);
    assert_int_equal(timeslice_of(&file, 1), 0);
    assert_int_equal(timeslice_of(&file, 0), 0);
    share(&file, 2, (const uint32_t[]){30, 30}, LIMITS_HARDWARE_SLICES);
    assert_int_equal(timeslice_of(&file, 2), 3000);
    share(&file, 2, (const uint32_t[]){30, 40}, LIMITS_HARDWARE_SLICES);
    assert_int_equal(timeslice_of(&file, 2), 0);
    /* An older file ends before the option. */
    share(&file, 1, (const uint32_t[]){30}, LIMITS_HARDWARE_SLICES);
    file.size = LIMITS_SIZE_MIN;
    assert_int_equal(timeslice_of(&file, 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_group_gets_its_slice, reset),
        cmocka_unit_test_setup(test_nothing_without_the_option, reset),
        cmocka_unit_test_setup(test_slices_follow_the_share, reset),
        cmocka_unit_test_setup(test_results_are_the_drivers, reset),
        cmocka_unit_test_setup(test_length_of_a_slice, reset),
        cmocka_unit_test_setup(test_a_refusal_is_final_and_silent, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
