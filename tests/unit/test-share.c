/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "share/ledger.h"
#include "share/limits.h"

struct fixture {
    char dir[64];
    char limits[96];
    char ledger[96];
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-share-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void) snprintf(f->limits, sizeof(f->limits), "%s/limits", f->dir);
    (void) snprintf(f->ledger, sizeof(f->ledger), "%s/ledger", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    struct err err;

    assert_int_equal(dir_remove(f->dir, &err), 0);
    free(f);
    return 0;
}

static struct share_limits example(void) {
    struct share_limits l = {
        .pod_uid = "u-1", .namespace = "ns", .pod = "p", .container = "c", .ndevices = 2};

    (void) snprintf(l.device[0].uuid, sizeof(l.device[0].uuid), "GPU-a");
    l.device[0].memory_bytes = 1 << 20;
    l.device[0].core_percent = 30;
    (void) snprintf(l.device[1].uuid, sizeof(l.device[1].uuid), "GPU-b");
    return l;
}

static void test_limits_round_trip_and_update(void **state) {
    const struct fixture *f = *state;
    struct share_limits l = example(), back;
    const struct limits_file *mapped;
    struct stat st;
    struct err err;

    assert_int_equal(limits_create(f->limits, &l, &err), 0);
    assert_int_equal(stat(f->limits, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0444);
    assert_int_equal(limits_read(f->limits, &back, &err), 0);
    assert_memory_equal(&l, &back, sizeof(l));

    /* A mapping made before follows updates: the file is written in place. */
    assert_int_equal(limits_map(f->limits, &mapped), 0);
    assert_int_equal(limits_memory(mapped, 0), 1 << 20);
    assert_int_equal(limits_memory(mapped, 1), 0);
    for (uint64_t i = 1; i <= 3; i++) {
        l.device[0].memory_bytes = i << 30;
        assert_int_equal(limits_update(f->limits, &l, &err), 0);
        assert_int_equal(limits_memory(mapped, 0), i << 30);
        assert_int_equal(limits_read(f->limits, &back, &err), 0);
        assert_memory_equal(&l, &back, sizeof(l));
    }
}

static void test_limits_refuses_what_is_none(void **state) {
    const struct fixture *f = *state;
    struct share_limits l = example(), back;
    struct err err;

    assert_int_equal(limits_read(f->limits, &back, &err), -ENOENT);
    assert_int_equal(file_replace(f->limits, "short", 5, 0644, &err), 0);
    assert_int_equal(limits_read(f->limits, &back, &err), -EBADMSG);
    assert_int_equal(limits_update(f->limits, &l, &err), -EBADMSG);
    assert_int_equal(limits_create(f->limits, &l, &err), 0);
    assert_int_equal(chmod(f->limits, 0644), 0);
    {
        _cleanup_close_ int fd = open(f->limits, O_RDWR | O_CLOEXEC);
        uint64_t bad = 0;

        assert_int_equal(pwrite(fd, &bad, sizeof(bad), 0), sizeof(bad));
    }
    assert_int_equal(limits_read(f->limits, &back, &err), -EBADMSG);
    assert_int_equal(limits_update(f->limits, &l, &err), -EBADMSG);
    l.ndevices = LIMITS_DEVICES_MAX + 1;
    assert_int_equal(limits_create(f->limits, &l, &err), -EINVAL);
    l = example();
    memset(l.pod, 'x', sizeof(l.pod));
    assert_int_equal(limits_create(f->limits, &l, &err), -EINVAL);
}

/* A file of an agent that knew nothing of what lies at the end now. */
static void shorten(const char *path) {
    _cleanup_close_ int fd = -1;
    uint32_t size = LIMITS_SIZE_MIN;

    assert_int_equal(chmod(path, 0644), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &size, sizeof(size), offsetof(struct limits_file, size)),
                     sizeof(size));
    assert_int_equal(ftruncate(fd, size), 0);
}

static void test_limits_older_and_newer(void **state) {
    const struct fixture *f = *state;
    struct share_limits l = example(), back;
    const struct limits_file *mapped;
    struct err err;

    l.more[1].overhead_bytes = 5;
    l.more[1].physical_bytes = 7;
    assert_int_equal(limits_create(f->limits, &l, &err), 0);
    assert_int_equal(limits_map(f->limits, &mapped), 0);
    assert_int_equal(limits_overhead(mapped, 1), 5);
    assert_int_equal(limits_physical(mapped, 1), 7);
    assert_int_equal(limits_physical(mapped, 0), 0);
    l.more[1].overhead_bytes = 6;
    assert_int_equal(limits_update(f->limits, &l, &err), 0);
    assert_int_equal(limits_overhead(mapped, 1), 6);
    limits_unmap(mapped);

    shorten(f->limits);
    assert_int_equal(limits_map(f->limits, &mapped), 0);
    assert_int_equal(limits_overhead(mapped, 1), 0);
    assert_int_equal(limits_memory(mapped, 0), 1 << 20);
    l.device[0].memory_bytes = 2 << 20;
    assert_int_equal(limits_update(f->limits, &l, &err), 0);
    assert_int_equal(limits_memory(mapped, 0), 2 << 20);
    assert_int_equal(limits_read(f->limits, &back, &err), 0);
    assert_int_equal(back.more[1].overhead_bytes, 0);
    limits_unmap(mapped);

    /* A later agent's file, which goes on where ours ends. */
    {
        struct limits_file file = {
            .magic = LIMITS_MAGIC, .version = LIMITS_VERSION, .size = sizeof(file) + 100};
        char longer[sizeof(file) + 100] = {0};

        file.more[0][3].overhead_bytes = 9;
        memcpy(longer, &file, sizeof(file));
        assert_int_equal(file_replace(f->limits, longer, sizeof(longer), 0644, &err), 0);
        assert_int_equal(limits_read(f->limits, &back, &err), 0);
        assert_int_equal(back.more[3].overhead_bytes, 9);
        file.version++;
        memcpy(longer, &file, sizeof(file));
        assert_int_equal(file_replace(f->limits, longer, sizeof(longer), 0644, &err), 0);
        assert_int_equal(limits_read(f->limits, &back, &err), -EBADMSG);
    }
}

static void test_ledger_books_to_the_byte(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner o;
    struct ledger *ledger;
    struct ledger_usage usage;
    struct ledger_process process[4];
    uint64_t operation;
    struct err err;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_claim(f->ledger, &o), 0);
    assert_int_equal(ledger_open(f->ledger, &ledger, &err), 0);
    assert_int_equal(ledger_reserve(&o, 0, 60, 100), 0);
    assert_int_equal(ledger_reserve(&o, 0, 41, 100), -ENOMEM);
    assert_int_equal(ledger_reserve(&o, 0, 40, 100), 0);
    assert_int_equal(ledger_reserve(&o, 0, 1, 100), -ENOMEM);
    assert_int_equal(ledger_reserve(&o, 0, UINT64_MAX, 100), -ENOMEM);
    assert_int_equal(ledger_reserve(&o, 0, UINT64_MAX, 0), -ENOMEM);
    assert_int_equal(ledger_reserve(&o, 0, INT64_MAX, 100), -ENOMEM);
    assert_int_equal(ledger_reserve(&o, 5, 1000, 0), 0);
    assert_int_equal(ledger_used(o.file, 0), 100);

    assert_int_equal(ledger_snapshot(ledger, &usage), 0);
    assert_int_equal(usage.used[0], 100);
    assert_int_equal(usage.used[5], 1000);
    assert_int_equal(usage.refused[0], 5);
    assert_int_equal(ledger_processes(ledger, process, 4), 1);
    assert_int_equal(process[0].pid, getpid());
    assert_int_equal(process[0].booked[0], 100);
    assert_int_equal(ledger_has_process(ledger, (uint32_t) getpid(), 0), 1);
    assert_int_equal(ledger_has_process(ledger, (uint32_t) getpid(), ledger_pidns()), 1);
    assert_int_equal(ledger_has_process(ledger, (uint32_t) getpid(), ledger_pidns() + 1), 0);
    assert_int_equal(ledger_has_process(ledger, (uint32_t) getpid() + 1, 0), 0);
    operation = usage.operation[0];

    assert_int_equal(ledger_sweep(ledger), 0); /* the living keep what they have */
    assert_int_equal(ledger_refund(&o, 0, 100), 0);
    assert_int_equal(ledger_refund(&o, 5, 1000), 0);
    assert_int_equal(ledger_used(o.file, 0), 0);
    /* Creating it again leaves it alone. */
    assert_int_equal(ledger_reserve(&o, 0, 7, 100), 0);
    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_used(o.file, 0), 7);
    ledger_release(&o);
    assert_int_equal(ledger_has_process(ledger, (uint32_t) getpid(), 0), 0); /* not a living one */
    assert_int_equal(ledger_sweep(ledger), 1);
    assert_int_equal(ledger_snapshot(ledger, &usage), 0);
    assert_int_equal(usage.used[0], 0);
    assert_true(usage.operation[0] != operation);
    assert_int_equal(ledger_processes(ledger, process, 4), 0);
    ledger_free(ledger);
}

/* A child that books 10 bytes of device 0 for itself and 30 that others can open, says so, and
 * waits to be killed. */
static pid_t start_exporter(const char *path) {
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct ledger_owner own, exports;

        if (ledger_claim(path, &own) < 0 || ledger_reserve(&own, 0, 10, 0) < 0 ||
            ledger_claim_exports(path, &exports) < 0 || ledger_reserve(&exports, 0, 30, 0) < 0 ||
            write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            (void) pause();
    }
    (void) close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void) close(ready[0]);
    return pid;
}

static void end_process(pid_t pid) {
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_ledger_keeps_what_is_borrowed(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner o, own_exports, later;
    struct ledger_loan loan, second;
    struct ledger_process process[4];
    struct ledger *ledger;
    struct err err;
    pid_t pid;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_open(f->ledger, &ledger, &err), 0);
    assert_int_equal(ledger_claim(f->ledger, &o), 0);
    assert_int_equal(ledger_claim_exports(f->ledger, &own_exports), 0);
    assert_int_equal(ledger_borrow(&o, &own_exports, &loan), 0);
    ledger_return(&loan);

    /* The owner dies first: what it had for itself is there, what is borrowed stays. */
    pid = start_exporter(f->ledger);
    assert_int_equal(ledger_borrow(&o, &own_exports, &loan), 1);
    assert_false(ledger_borrowed(&own_exports));
    end_process(pid);
    assert_int_equal(ledger_sweep(ledger), 1);
    assert_int_equal(ledger_used(o.file, 0), 30);
    assert_int_equal(ledger_processes(ledger, process, 4), 2); /* ours; the dead is not listed */
    assert_int_equal(ledger_reserve(&o, 0, 71, 100), -ENOMEM);
    assert_int_equal(ledger_claim(f->ledger, &later), 0); /* takes another slot */
    assert_int_equal(ledger_used(o.file, 0), 30);

    /* Who borrows later keeps it too, and the last one lets go. */
    assert_int_equal(ledger_borrow(&o, NULL, &second), 2);
    assert_true(ledger_borrowed(&own_exports));
    ledger_return(&loan);
    assert_int_equal(ledger_sweep(ledger), 0);
    ledger_return(&second);
    assert_int_equal(ledger_reserve(&o, 0, 71, 100), 0);
    assert_int_equal(ledger_used(o.file, 0), 71);

    /* Nobody borrows from the dead. */
    pid = start_exporter(f->ledger);
    end_process(pid);
    assert_int_equal(ledger_borrow(&o, &own_exports, &loan), 0);
    assert_int_equal(ledger_sweep(ledger), 2); /* whatever else is open */
    ledger_return(&loan);
    assert_int_equal(ledger_used(o.file, 0), 71);
    ledger_release(&later);
    ledger_release(&own_exports);
    ledger_release(&o);
    ledger_free(ledger);
}

/* A child that books `bytes` of device 0, says so, and waits to be killed. */
static pid_t start_holder(const char *path, uint64_t bytes) {
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct ledger_owner o;

        if (ledger_claim(path, &o) < 0 || ledger_reserve(&o, 0, bytes, 0) < 0)
            _exit(1);
        if (write(ready[1], "x", 1) != 1)
            _exit(2);
        for (;;)
            (void) pause();
    }
    (void) close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void) close(ready[0]);
    return pid;
}

static void test_ledger_credits_the_dead_before_refusing(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner o;
    struct err err;
    pid_t pid;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_claim(f->ledger, &o), 0);
    pid = start_holder(f->ledger, 80);
    assert_int_equal(ledger_reserve(&o, 0, 50, 100), -ENOMEM);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(ledger_reserve(&o, 0, 50, 100), 0);
    assert_int_equal(ledger_used(o.file, 0), 50);
    ledger_release(&o);
}

/* A checkpoint: what the process has is credited, and comes back if it fits. */
static void test_ledger_parks_and_brings_back(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner away, other;
    struct err err;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_claim(f->ledger, &away), 0);
    assert_int_equal(ledger_claim(f->ledger, &other), 0);
    assert_int_equal(ledger_reserve(&away, 0, 60, 100), 0);
    ledger_park(other.file, away.slot, 0);
    assert_int_equal(ledger_used(other.file, 0), 0);
    assert_int_equal(ledger_reserve(&other, 0, 50, 100), 0);
    assert_int_equal(ledger_unpark(other.file, away.slot, 0, away.generation, 100), -ENOMEM);
    assert_int_equal(ledger_used(other.file, 0), 50);
    assert_int_equal(ledger_refund(&other, 0, 20), 0);
    assert_int_equal(ledger_unpark(other.file, away.slot, 0, away.generation, 100), 1);
    assert_int_equal(ledger_used(other.file, 0), 90);
    assert_int_equal(ledger_unpark(other.file, away.slot, 0, away.generation, 100), 0); /* once */
    assert_int_equal(ledger_used(other.file, 0), 90);
    assert_int_equal(ledger_refund(&away, 0, 60), 0);
    assert_int_equal(ledger_used(other.file, 0), 30);

    /* What is not there cannot be given back: others' bytes stay booked. */
    assert_int_equal(ledger_refund(&away, 0, 60), 0);
    assert_int_equal(ledger_used(other.file, 0), 30);
    ledger_park(other.file, away.slot, 0);
    assert_int_equal(ledger_unpark(other.file, away.slot, 0, (uint16_t) (away.generation + 1), 0),
                     0); /* nothing was parked */
    assert_int_equal(ledger_reserve(&away, 0, 5, 100), 0);
    ledger_park(other.file, away.slot, 0);
    assert_int_equal(ledger_unpark(other.file, away.slot, 0, (uint16_t) (away.generation + 1), 0),
                     -ESTALE);
    ledger_release(&other);
    ledger_release(&away);
}

static void test_ledger_slot_is_reused_with_a_new_generation(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner first, second, gone;
    struct err err;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_claim(f->ledger, &first), 0);
    assert_int_equal(ledger_reserve(&first, 0, 10, 0), 0);
    gone = first;
    ledger_release(&first);
    assert_int_equal(ledger_claim(f->ledger, &second), 0);
    assert_int_equal(second.slot, gone.slot);
    assert_int_not_equal(second.generation, gone.generation);
    assert_int_equal(ledger_used(second.file, 0), 0);
    gone.file = second.file;
    assert_int_equal(ledger_reserve(&gone, 0, 5, 0), -ESTALE);
    assert_int_equal(ledger_refund(&gone, 0, 10), -ESTALE);
    assert_int_equal(ledger_reserve(&second, 0, 5, 0), 0);
    /* Somebody who judged the first owner dead comes late. */
    assert_int_equal(ledger_reclaim(second.file, second.slot, 0, gone.generation), 0);
    assert_int_equal(ledger_used(second.file, 0), 5);
    ledger_release(&second);
}

/* Neither closing every descriptor nor a child that outlives its parent takes or keeps a slot. */
static void test_ledger_slot_lives_and_dies_with_its_process(void **state) {
    const struct fixture *f = *state;
    _cleanup_close_ int fd = -1;
    struct err err;
    int ready[2];
    char c;
    pid_t pid, orphan;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    fd = open(f->ledger, O_RDWR | O_CLOEXEC);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct ledger_owner o;

        if (ledger_claim(f->ledger, &o) < 0 || ledger_reserve(&o, 0, 5, 0) < 0)
            _exit(1);
        for (int i = 3; i < 64; i++)
            if (i != ready[1])
                (void) close(i);
        orphan = fork();
        if (orphan == 0)
            for (;;)
                (void) pause();
        if (write(ready[1], &orphan, sizeof(orphan)) != (ssize_t) sizeof(orphan))
            _exit(2);
        for (;;)
            (void) pause();
    }
    assert_int_equal(read(ready[0], &orphan, sizeof(orphan)), sizeof(orphan));
    assert_true(ledger_slot_alive(fd, 0));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(ledger_slot_alive(fd, 0));
    assert_int_equal(kill(orphan, SIGKILL), 0);
    (void) close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 0);
    (void) close(ready[0]);
}

static void test_ledger_has_an_end_of_slots(void **state) {
    const struct fixture *f = *state;
    static struct ledger_owner o[LEDGER_SLOTS + 1];
    struct err err;
    int n = 0;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    while (n < 100 && ledger_claim(f->ledger, &o[n]) == 0)
        n++;
    assert_int_equal(n, 100);
    for (int i = 0; i < n; i++)
        assert_int_equal(o[i].slot, i);
    for (int i = 0; i < n; i++)
        ledger_release(&o[i]);
}

/* A bound cuts a sweep short after a slot; the next call begins behind it. */
static void test_agent_sweeps_in_parts(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner o[3];
    struct ledger_usage usage;
    struct ledger *ledger;
    struct err err;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_open(f->ledger, &ledger, &err), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(ledger_claim(f->ledger, &o[i]), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(ledger_reserve(&o[i], 0, 10, 0), 0);
    ledger_release(&o[0]);
    ledger_release(&o[2]);
    assert_int_equal(ledger_sweep_for(ledger, 0), 1);
    assert_int_equal(ledger_sweep_for(ledger, 0), 0); /* it lives */
    assert_int_equal(ledger_snapshot(ledger, &usage), 0);
    assert_int_equal(usage.used[0], 20);
    assert_int_equal(ledger_sweep_for(ledger, 0), 1);
    ledger_release(&o[1]);
    assert_int_equal(ledger_sweep_for(ledger, 10000000000), 1);
    assert_int_equal(ledger_snapshot(ledger, &usage), 0);
    assert_int_equal(usage.used[0], 0);
    ledger_free(ledger);
}

/* A tenant who owns the files can take leases on them: whoever opens one waits for 45 s, but we. */
static void test_agent_does_not_wait_for_a_lease(void **state) {
    const struct fixture *f = *state;
    struct share_limits l = example(), back;
    struct ledger *ledger;
    struct err err;
    int fd[2];

    (void) signal(SIGIO, SIG_IGN); /* what the holder of a lease is told with */
    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(limits_create(f->limits, &l, &err), 0);
    fd[0] = open(f->ledger, O_RDONLY | O_CLOEXEC);
    fd[1] = open(f->limits, O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(fcntl(fd[i], F_SETLEASE, F_WRLCK), 0);
    assert_int_equal(ledger_open(f->ledger, &ledger, &err), -EAGAIN);
    assert_int_equal(limits_read(f->limits, &back, &err), -EAGAIN);
    assert_int_equal(limits_update(f->limits, &l, &err), -EAGAIN);
    for (size_t i = 0; i < 2; i++)
        (void) close(fd[i]);
    assert_int_equal(ledger_open(f->ledger, &ledger, &err), 0);
    assert_int_equal(limits_read(f->limits, &back, &err), 0);
    ledger_free(ledger);
}

static void test_agent_survives_a_hostile_ledger(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner o;
    struct ledger *ledger;
    struct ledger_usage usage;
    struct ledger_process process[2];
    struct err err;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_claim(f->ledger, &o), 0);
    assert_int_equal(ledger_open(f->ledger, &ledger, &err), 0);

    /* A record of a slot that does not exist, a sum that is too small, an absurd count of slots. */
    assert_int_equal(ledger_reserve(&o, 0, 500, 0), 0);
    o.file->device[0].sum.lo = 3;
    o.file->device[0].sum.hi = UINT64_MAX;
    o.file->device[1].sum.hi = UINT64_MAX >> 1;
    o.file->slots_used = UINT32_MAX;
    ledger_release(&o);
    assert_int_equal(ledger_sweep(ledger), 1);
    assert_int_equal(ledger_snapshot(ledger, &usage), 0);
    assert_int_equal(usage.used[0], 0);
    assert_int_equal(ledger_processes(ledger, process, 2), 0);

    usage.used[0] = 77;
    assert_int_equal(truncate(f->ledger, 4096), 0);
    assert_int_equal(ledger_snapshot(ledger, &usage), -EBADMSG);
    assert_int_equal(usage.used[0], 77);
    assert_int_equal(ledger_sweep(ledger), -EBADMSG);
    assert_int_equal(ledger_processes(ledger, process, 2), -EBADMSG);
    assert_int_equal(truncate(f->ledger, 0), 0);
    assert_int_equal(ledger_sweep(ledger), -EBADMSG);
    assert_int_equal(truncate(f->ledger, sizeof(struct ledger_file)), 0);
    assert_int_equal(ledger_sweep(ledger), -EBADMSG); /* zeros are no ledger */
    ledger_free(ledger);
    assert_int_equal(ledger_claim(f->ledger, &o), -EBADMSG);
    assert_int_equal(truncate(f->ledger, 100), 0);
    assert_int_equal(ledger_open(f->ledger, &ledger, &err), -EBADMSG);
    assert_int_equal(ledger_claim(f->ledger, &o), -EBADMSG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_limits_round_trip_and_update, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits_older_and_newer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits_refuses_what_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ledger_books_to_the_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ledger_keeps_what_is_borrowed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ledger_parks_and_brings_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ledger_credits_the_dead_before_refusing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_ledger_slot_is_reused_with_a_new_generation, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_ledger_slot_lives_and_dies_with_its_process, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_ledger_has_an_end_of_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_sweeps_in_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_does_not_wait_for_a_lease, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_survives_a_hostile_ledger, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
