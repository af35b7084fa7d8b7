/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "child.h"
#include "share/ledger.h"
#include "share/limits.h"
#include "share/orphaned.h"

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
    assert_int_equal(ledger_sweep(ledger), 1);
    assert_int_equal(ledger_snapshot(ledger, &usage), 0);
    assert_int_equal(usage.used[0], 0);
    assert_true(usage.operation[0] != operation);
    assert_int_equal(ledger_processes(ledger, process, 4), 0);
    ledger_free(ledger);
}

/* Books 10 bytes of device 0 and 30 that others can open. */
static bool book_and_export(const void *path) {
    struct ledger_owner own, exports;

    return ledger_claim(path, &own) == 0 && ledger_reserve(&own, 0, 10, 0) == 0 &&
           ledger_claim_exports(path, &exports) == 0 && ledger_reserve(&exports, 0, 30, 0) == 0;
}

static pid_t start_exporter(const char *path) {
    return child_start(book_and_export, path);
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
    child_end(pid);
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

    /* No process borrows from the dead. */
    pid = start_exporter(f->ledger);
    child_end(pid);
    assert_int_equal(ledger_borrow(&o, &own_exports, &loan), 0);
    assert_int_equal(ledger_sweep(ledger), 2); /* whatever else is open */
    ledger_return(&loan);
    assert_int_equal(ledger_used(o.file, 0), 71);
    ledger_release(&later);
    ledger_release(&own_exports);
    ledger_release(&o);
    ledger_free(ledger);
}

/* An exporter of start_exporter() that has made a descriptor. */
static void end_exporter_with_descriptor(struct ledger_file *file, const char *path) {
    pid_t pid = start_exporter(path);

    for (uint32_t slot = 0; slot < file->slots_used; slot++)
        if (file->slot[slot].pid == (uint32_t) pid && file->slot[slot].flags & LEDGER_EXPORTS)
            ledger_note_descriptors(&(struct ledger_owner){.file = file, .slot = slot});
    child_end(pid);
}

static uint64_t orphaned_of(struct ledger *ledger) {
    uint64_t bytes = UINT64_MAX;

    assert_int_equal(ledger_get_orphaned(ledger, 0, &bytes), 0);
    return bytes;
}

static void test_ledger_orphans_what_went_by_descriptor(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner o, exports, other;
    struct ledger *ledger;
    struct err err;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_open(f->ledger, &ledger, &err), 0);
    assert_int_equal(ledger_claim(f->ledger, &o), 0);
    assert_int_equal(ledger_reserve(&o, 0, 5, 0), 0);
    assert_int_equal(orphaned_of(ledger), 0);

    /* The end of the maker credits what it had for itself only. */
    end_exporter_with_descriptor(o.file, f->ledger);
    assert_int_equal(ledger_sweep(ledger), 2);
    assert_int_equal(ledger_used(o.file, 0), 35);
    assert_int_equal(orphaned_of(ledger), 30);
    assert_int_equal(ledger_sweep(ledger), 0);
    assert_int_equal(ledger_reserve(&o, 0, 70, 100), -ENOMEM);

    /* Its slots are free, and who takes them takes nothing over and frees nothing. */
    assert_int_equal(ledger_claim(f->ledger, &other), 0);
    assert_int_equal(other.slot, o.slot + 1);
    end_exporter_with_descriptor(o.file, f->ledger);
    assert_int_equal(ledger_claim_exports(f->ledger, &exports), 0);
    assert_int_equal(ledger_sweep(ledger), 1);
    assert_int_equal(orphaned_of(ledger), 60);
    assert_int_equal(ledger_used(o.file, 0), 65);

    /* An owner that lives gives up what it has freed. */
    assert_int_equal(ledger_reserve(&exports, 0, 20, 0), 0);
    assert_int_equal(ledger_orphan(&exports, 0, 12), 0);
    assert_int_equal(ledger_orphan(&exports, 0, 100), 0); /* never more than it has */
    assert_int_equal(orphaned_of(ledger), 80);
    assert_int_equal(ledger_used(o.file, 0), 85);
    assert_int_equal(ledger_refund(&exports, 0, 20), 0); /* and has nothing any more */
    assert_int_equal(ledger_used(o.file, 0), 85);

    /* The driver's figures credit. */
    assert_int_equal(ledger_credit(ledger, 0, 50), 0);
    assert_int_equal(orphaned_of(ledger), 30);
    assert_int_equal(ledger_reserve(&o, 0, 65, 100), 0);
    assert_int_equal(ledger_credit(ledger, 0, 30), 0);
    assert_int_equal(orphaned_of(ledger), 0);
    assert_int_equal(ledger_used(o.file, 0), 70);

    /* And book, whatever the limit; a sum does not wrap. */
    assert_int_equal(ledger_charge(ledger, 0, 50), 0);
    assert_int_equal(orphaned_of(ledger), 50);
    assert_int_equal(ledger_used(o.file, 0), 120);
    assert_int_equal(ledger_credit(ledger, 0, UINT64_MAX), 0);
    assert_int_equal(ledger_used(o.file, 0), 0);
    assert_int_equal(ledger_charge(ledger, LEDGER_DEVICES, 1), -EINVAL);
    ledger_release(&exports);
    ledger_release(&other);
    ledger_release(&o);
    ledger_free(ledger);
}

/* A poll of the driver, with so much orphaned when it begins and so much that nothing explains. */
static uint64_t look(struct orphaned *o, uint64_t bytes, uint64_t rest) {
    orphaned_begin(o, bytes);
    return orphaned_end(o, rest, true);
}

/* While ledgers move, a figure that is too low counts only if eight in a row are. */
static void test_orphaned_in_motion(void **state) {
    const uint64_t gib = 1ull << 30;
    struct orphaned o = {0};

    (void) state;
    for (unsigned int i = 0; i < 64; i++) {
        orphaned_begin(&o, gib);
        assert_int_equal(orphaned_end(&o, i % ORPHANED_POLLS == 0 ? gib : 0, false), 0);
    }
    orphaned_begin(&o, gib);
    assert_int_equal(orphaned_end(&o, gib, true), 0);
    for (unsigned int i = 0; i < ORPHANED_POLLS; i++) {
        orphaned_begin(&o, gib);
        assert_int_equal(orphaned_end(&o, 0, false), i < ORPHANED_POLLS - 1 ? 0 : gib);
    }
}

static void test_orphaned_memory_is_credited_by_figures(void **state) {
    const uint64_t gib = (uint64_t) 1 << 30, noise = ORPHANED_NOISE;
    struct orphaned o = {0};

    (void) state;
    /* Not at the first poll: its figures may be older than the orphan. */
    assert_int_equal(look(&o, 0, 0), 0);
    assert_int_equal(look(&o, gib, 0), 0);
    assert_true(orphaned_is_new(&o));
    assert_int_equal(look(&o, gib, 0), gib);
    assert_false(orphaned_is_new(&o));

    /* What is held stays, however often it is looked at, and what is back of it is credited. */
    o = (struct orphaned){0};
    for (int i = 0; i < 10; i++)
        assert_int_equal(look(&o, 4 * gib, 4 * gib), 0);
    assert_int_equal(look(&o, 4 * gib, gib), 0); /* one figure that is too low is none */
    assert_int_equal(look(&o, 4 * gib, gib), 3 * gib);
    assert_int_equal(look(&o, gib, gib), 0);

    /* Next to it, new ones come and go. */
    assert_int_equal(look(&o, 2 * gib, gib), 0);
    assert_int_equal(look(&o, 3 * gib, gib), gib);
    assert_int_equal(look(&o, 2 * gib, gib), gib);

    /* The last of it is not kept by what a card has in use anyway. */
    assert_int_equal(look(&o, gib, noise), 0);
    assert_int_equal(look(&o, gib, noise), gib);
}

/* Books 80 bytes of device 0. */
static bool book(const void *path) {
    struct ledger_owner o;

    return ledger_claim(path, &o) == 0 && ledger_reserve(&o, 0, 80, 0) == 0;
}

static void test_ledger_credits_the_dead_before_refusing(void **state) {
    const struct fixture *f = *state;
    struct ledger_owner o;
    struct err err;
    pid_t pid;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    assert_int_equal(ledger_claim(f->ledger, &o), 0);
    pid = child_start(book, f->ledger);
    assert_int_equal(ledger_reserve(&o, 0, 50, 100), -ENOMEM);
    child_end(pid);
    assert_int_equal(ledger_reserve(&o, 0, 50, 100), 0);
    assert_int_equal(ledger_used(o.file, 0), 50);
    ledger_release(&o);
}

static size_t open_descriptors(void) {
    size_t n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_ledger_says_what_fails_and_what_it_found(void **state) {
    const struct fixture *f = *state;
    const struct ledger_file *file;
    struct ledger_owner o;
    struct err err;
    size_t before;
    int fd;

    assert_int_equal(ledger_claim(f->ledger, &o), -ENOENT);
    assert_int_equal(ledger_attach(f->ledger, &file), -ENOENT);
    assert_int_equal(ledger_lock_parked(f->ledger), -ENOENT);
    assert_int_equal(ledger_create(f->ledger, &err), 0);
    before = open_descriptors();
    assert_int_equal(ledger_attach(f->ledger, &file), 0);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(munmap((void *) (uintptr_t) file, sizeof(*file)), 0);
    assert_int_equal(ledger_claim(f->ledger, &o), 0);
    assert_int_equal(ledger_reserve(&o, 0, 50, 0), 0);
    assert_int_equal(ledger_reserve(&o, 0, 0, 20), 0); /* nothing fits at any limit */
    child_end(child_start(book, f->ledger));
    fd = open(f->ledger, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ledger_reclaim_dead(o.file, fd, o.slot), 1);
    assert_int_equal(ledger_reclaim_dead(o.file, fd, o.slot), 0);
    assert_int_equal(ledger_used(o.file, 0), 50);
    assert_int_equal(close(fd), 0);
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

/* A child that is forked meanwhile has a copy of the descriptor, and can outlive the checkpoint. */
static void test_ledger_unlocks_parked_beside_a_forked_child(void **state) {
    struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const struct fixture *f = *state;
    struct err err;
    int lock, fd;
    pid_t child;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    lock = ledger_lock_parked(f->ledger);
    assert_true(lock >= 0);
    fd = open(f->ledger, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_GETLK, &any), 0);
    assert_int_equal(any.l_type, F_WRLCK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void) pause();
    }
    ledger_unlock_parked(lock);
    any = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_OFD_GETLK, &any), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(any.l_type, F_UNLCK);
    (void) close(fd);
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
    /* A process that found the first owner dead comes late. */
    assert_int_equal(ledger_reclaim(second.file, second.slot, 0, gone.generation), 0);
    assert_int_equal(ledger_used(second.file, 0), 5);
    ledger_release(&second);
}

/* Closing every descriptor does not give the slot up, and a child that outlives its parent keeps
 * it: it has the driver's descriptors, too. */
static void test_ledger_slot_lives_and_dies_with_its_process(void **state) {
    const struct fixture *f = *state;
    _cleanup_close_ int fd = -1;
    struct err err;
    int ready[2];
    pid_t pid, orphan;

    assert_int_equal(ledger_create(f->ledger, &err), 0);
    fd = open(f->ledger, O_RDWR | O_CLOEXEC);
    /* To wait for a child of a child. */
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
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
    assert_true(ledger_slot_alive(fd, 0));
    child_end(orphan);
    assert_false(ledger_slot_alive(fd, 0));
    (void) close(ready[1]);
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

/* A tenant who owns the files can take leases on them: an open waits for 45 s, but not ours. */
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
        cmocka_unit_test_setup_teardown(test_ledger_unlocks_parked_beside_a_forked_child, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_ledger_orphans_what_went_by_descriptor, setup,
                                        teardown),
        cmocka_unit_test(test_orphaned_memory_is_credited_by_figures),
        cmocka_unit_test(test_orphaned_in_motion),
        cmocka_unit_test_setup_teardown(test_ledger_says_what_fails_and_what_it_found, setup,
                                        teardown),
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
