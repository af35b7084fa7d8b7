/* SPDX-License-Identifier: Apache-2.0 */

/* XIDs in the kernel's log. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/os/kmsg.h"
#include "base/err.h"

static int parse(const char *text, struct kmsg_xid *ret) {
    return kmsg_parse(text, strlen(text), ret);
}

static void test_xids(void **state) {
    struct kmsg_xid x;

    (void) state;
    assert_int_equal(parse("6,339,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, "
                           "name=python, GPU has fallen off the bus.\n",
                           &x),
                     1);
    assert_int_equal(x.sequence, 339);
    assert_int_equal(x.domain, 0);
    assert_int_equal(x.bus, 0x3b);
    assert_int_equal(x.device, 0);
    assert_int_equal(x.gi, KMSG_WHOLE_CARD);
    assert_int_equal(x.ci, KMSG_WHOLE_CARD);
    assert_int_equal(x.xid, 79);
    /* Fields that later kernels add, and the dictionary after the text. */
    assert_int_equal(parse("3,340,1,c,caller=T12;NVRM: Xid (PCI:0001:ff:1f): 48, DBE\n"
                           " SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n",
                           &x),
                     1);
    assert_int_equal(x.domain, 1);
    assert_int_equal(x.bus, 0xff);
    assert_int_equal(x.device, 0x1f);
    assert_int_equal(x.xid, 48);
    assert_int_equal(parse("3,341,1,-;NVRM: Xid (PCI:0000:3b:00 GPU-I:07): 94, x", &x), 1);
    assert_int_equal(x.gi, 7);
    assert_int_equal(x.ci, KMSG_WHOLE_CARD);
    assert_int_equal(parse("3,341,1,-;NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 31, x", &x),
                     1);
    assert_int_equal(x.gi, 1);
    assert_int_equal(x.ci, 2);
}

/* A tenant's text must not take a card out. */
static void test_others(void **state) {
    static const char *const others[] = {
        "12,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, by a process\n",
        "8,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, by a process\n",
        "6,1,1,-;comm NVRM: Xid (PCI:0000:3b:00): 79, not at the start\n",
        "6,1,1,-;first\n NVRM: Xid (PCI:0000:3b:00): 79, in the dictionary\n",
        "6,1,1,-;NVRM: Xid (PCI:0000:3b:00): \n",
        "6,1,1,-;NVRM: Xid (PCI:0000:3b:00): x79\n",
        "6,1,1,-;NVRM: Xid (PCI:0000:3b:00):79\n",
        "6,1,1,-;NVRM: Xid (PCI:0000:3b): 79\n",
        "6,1,1,-;NVRM: Xid (PCI:0000:zz:00): 79\n",
        "6,1,1,-;NVRM: Xid (PCI:0000:3b:00 GPU-I:): 79\n",
        "6,1,1,-;NVRM: Xid (PCI:0000:3b:00): 99999999999999999999\n",
        "6,1,1,-;NVRM: Xid (PCI:0000:3b:00): 4294967295\n",
        "6,1,1,-;nvidia: module verification failed\n",
        "6,1,1,-;",
    };
    static const char *const none[] = {"", "6", "6,", "6,1", "6,1,1,-", ",1,1,-;x", "x", "6,x,1;y"};
    struct kmsg_xid x;

    (void) state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        x.sequence = 99;
        assert_int_equal(parse(others[i], &x), 0);
        assert_int_equal(x.sequence, 1);
    }
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(parse(none[i], &x), -EINVAL);
}

static void test_addresses(void **state) {
    struct kmsg_xid x;

    (void) state;
    assert_int_equal(parse("6,1,1,-;NVRM: Xid (PCI:0001:3b:02): 79, x", &x), 1);
    assert_true(kmsg_is_of(&x, "00000001:3B:02.0"));
    assert_true(kmsg_is_of(&x, "0001:3b:02.0"));
    assert_false(kmsg_is_of(&x, "00000000:3B:02.0"));
    assert_false(kmsg_is_of(&x, "00000001:3C:02.0"));
    assert_false(kmsg_is_of(&x, "00000001:3B:03.0"));
    assert_false(kmsg_is_of(&x, ""));
    assert_false(kmsg_is_of(&x, "nonsense"));
}

/* ---- the log, as a pipe that keeps the bounds of its writes ---- */

static struct log {
    uv_loop_t loop;
    int write_end;
    char path[64];
    struct kmsg *kmsg;
    uint32_t got[20000];
    size_t ngot;
} l;

static void on_xid(const struct kmsg_xid *x, void *userdata) {
    assert_ptr_equal(userdata, &l);
    assert_true(l.ngot < sizeof(l.got) / sizeof(l.got[0]));
    l.got[l.ngot++] = x->xid;
}

static void write_record(uint64_t sequence, const char *text) {
    char record[256];
    int len =
        snprintf(record, sizeof(record), "6,%llu,1,-;%s\n", (unsigned long long) sequence, text);

    assert_int_equal(write(l.write_end, record, (size_t) len), len);
}

static void write_xid(uint64_t sequence, uint32_t xid) {
    char text[64];

    (void) snprintf(text, sizeof(text), "NVRM: Xid (PCI:0000:3b:00): %u, x", xid);
    write_record(sequence, text);
}

static void open_log(uint64_t after) {
    int ends[2];

    memset(&l, 0, sizeof(l));
    assert_int_equal(uv_loop_init(&l.loop), 0);
    assert_int_equal(pipe2(ends, O_DIRECT | O_CLOEXEC), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
    l.write_end = ends[1];
    (void) snprintf(l.path, sizeof(l.path), "/proc/self/fd/%d", ends[0]);
    assert_int_equal(kmsg_start(&l.loop, l.path, after, on_xid, &l, &l.kmsg, NULL), 0);
    assert_int_equal(close(ends[0]), 0);
}

static void close_log(void) {
    kmsg_close(l.kmsg, NULL, NULL);
    (void) uv_run(&l.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&l.loop), 0);
    (void) close(l.write_end);
}

static void test_reading(void **state) {
    (void) state;
    open_log(0);
    write_record(7, "usb 1-1: new device");
    write_xid(8, 48);
    write_record(9, "usb 1-1: gone");
    while (kmsg_sequence(l.kmsg) < 9)
        (void) uv_run(&l.loop, UV_RUN_ONCE);
    assert_int_equal(l.ngot, 1);
    assert_int_equal(l.got[0], 48);
    close_log();
}

/* The position that the first agent of a boot saves. */
static void test_last(void **state) {
    int ends[2];

    (void) state;
    memset(&l, 0, sizeof(l));
    assert_int_equal(pipe2(ends, O_DIRECT | O_CLOEXEC), 0);
    l.write_end = ends[1];
    (void) snprintf(l.path, sizeof(l.path), "/proc/self/fd/%d", ends[0]);
    assert_int_equal(kmsg_last(l.path), 0);
    write_record(7, "usb 1-1: new device");
    write_xid(8, 48);
    write_record(9, "usb 1-1: gone");
    assert_int_equal(kmsg_last(l.path), 9);
    assert_int_equal(kmsg_last("/nowhere/kmsg"), 0);
    (void) close(ends[0]);
    (void) close(ends[1]);
}

/* After a restart of the agent: nothing twice, and nothing is missing. */
static void test_goes_on(void **state) {
    (void) state;
    open_log(8);
    assert_int_equal(kmsg_sequence(l.kmsg), 8);
    write_xid(7, 13);
    write_xid(8, 48);
    write_xid(9, 79);
    while (kmsg_sequence(l.kmsg) < 9)
        (void) uv_run(&l.loop, UV_RUN_ONCE);
    assert_int_equal(l.ngot, 1);
    assert_int_equal(l.got[0], 79);
    close_log();
}

/* All arrive, and other work of the loop has its turn in between. */
static void test_storm(void **state) {
    const uint64_t total = 10000;
    size_t most = 0;
    uint64_t written = 0;

    (void) state;
    open_log(0);
    (void) fcntl(l.write_end, F_SETFL, O_NONBLOCK | O_DIRECT);
    while (l.ngot < total) {
        size_t before = l.ngot;
        char record[128];

        while (written < total) {
            int len =
                snprintf(record, sizeof(record), "6,%llu,1,-;NVRM: Xid (PCI:0000:3b:00): 31, x\n",
                         (unsigned long long) written + 1);

            if (write(l.write_end, record, (size_t) len) != len)
                break;
            written++;
        }
        (void) uv_run(&l.loop, UV_RUN_NOWAIT);
        most = l.ngot - before > most ? l.ngot - before : most;
    }
    assert_int_equal(kmsg_sequence(l.kmsg), total);
    assert_true(most > 1);
    assert_true(most < total / 10);
    close_log();
}

/* An end of the log ends the reading, without a busy loop and without harm. */
static void test_end(void **state) {
    struct kmsg *none = NULL;
    struct err err;

    (void) state;
    open_log(0);
    write_xid(1, 48);
    (void) close(l.write_end);
    l.write_end = -1;
    (void) uv_run(&l.loop, UV_RUN_DEFAULT); /* ends, since nothing is waited for any more */
    assert_int_equal(l.ngot, 1);
    close_log();

    assert_int_equal(uv_loop_init(&l.loop), 0);
    assert_int_equal(kmsg_start(&l.loop, "/nowhere/kmsg", 0, on_xid, &l, &none, &err), -ENOENT);
    assert_string_equal(err.text, "cannot read /nowhere/kmsg: No such file or directory");
    assert_null(none);
    assert_int_equal(uv_loop_close(&l.loop), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xids),      cmocka_unit_test(test_others),
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_reading),
        cmocka_unit_test(test_last),      cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_storm),     cmocka_unit_test(test_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
