/* SPDX-License-Identifier: Apache-2.0 */
#include "share/ledger.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "share/share_file.h"
#include "share/sigbus_guard.h"

struct ledger {
    int fd;
    struct ledger_file *file;
    uint32_t next; /* the slot with which the next sweep begins */
};

static bool is_ledger(const struct ledger *ledger) {
    const struct ledger_file *file = ledger->file;
    struct stat st;

    return fstat(ledger->fd, &st) == 0 && st.st_size >= (off_t) sizeof(*file) &&
           file->magic == LEDGER_MAGIC && file->version == LEDGER_VERSION &&
           file->devices == LEDGER_DEVICES && file->slots == LEDGER_SLOTS;
}

struct work {
    struct ledger *ledger;
    int (*fn)(struct ledger *, void *, size_t);
    void *arg;
    size_t n;
};

static int run_work(void *arg) {
    struct work *w = arg;

    return is_ledger(w->ledger) ? w->fn(w->ledger, w->arg, w->n) : -EBADMSG;
}

/* Runs `fn` on the mapping; -EBADMSG when the file is no ledger any more, or ends while `fn` reads
 * it. */
static int guarded(struct ledger *ledger, int (*fn)(struct ledger *, void *, size_t), void *arg,
                   size_t n) {
    struct work w = {ledger, fn, arg, n};

    return guard_run(ledger->file, sizeof(*ledger->file), run_work, &w);
}

/* Allocates the part that all processes write on the file system; that of a slot is allocated when
 * it is claimed. */
int ledger_create(const char *path, struct err *err) {
    union {
        struct {
            uint64_t magic;
            uint32_t version, devices, slots;
        } head;
        char whole[offsetof(struct ledger_file, slot)];
    } begin = {.whole = {0}};

    begin.head.magic = LEDGER_MAGIC;
    begin.head.version = LEDGER_VERSION;
    begin.head.devices = LEDGER_DEVICES;
    begin.head.slots = LEDGER_SLOTS;
    return share_file_create(path, &begin, sizeof(begin), sizeof(struct ledger_file), 0666, err);
}

int ledger_open(const char *path, struct ledger **ret, struct err *err) {
    /* Nonblocking: a lease on the file, which a tenant can take, would hold us up for 45 s. */
    _cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct ledger_file *file;
    struct ledger *ledger;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t) sizeof(*file))
        return err_set(err, EBADMSG, "%s is not a ledger", path);
    file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return err_errno(err, errno, "cannot map %s", path);
    ledger = calloc(1, sizeof(*ledger));
    if (!ledger) {
        (void) munmap(file, sizeof(*file));
        return err_errno(err, ENOMEM, "cannot open %s", path);
    }
    guard_install();
    ledger->fd = take_fd(&fd);
    ledger->file = file;
    *ret = ledger;
    return 0;
}

struct ledger *ledger_free(struct ledger *ledger) {
    if (!ledger)
        return NULL;
    (void) munmap(ledger->file, sizeof(*ledger->file));
    (void) close(ledger->fd);
    free(ledger);
    return NULL;
}

static uint32_t slots_in_use(const struct ledger_file *file) {
    uint32_t n = __atomic_load_n(&file->slots_used, __ATOMIC_ACQUIRE);

    return n < LEDGER_SLOTS ? n : LEDGER_SLOTS;
}

static int read_usage(struct ledger *ledger, void *arg, size_t unused) {
    struct ledger_usage *ret = arg;

    (void) unused;
    for (unsigned int d = 0; d < LEDGER_DEVICES; d++) {
        ret->used[d] = ledger_used(ledger->file, d);
        ret->peak[d] = __atomic_load_n(&ledger->file->device[d].peak, __ATOMIC_RELAXED);
        ret->refused[d] = __atomic_load_n(&ledger->file->device[d].refused, __ATOMIC_RELAXED);
        ret->operation[d] = __atomic_load_n(&ledger->file->device[d].sum.hi, __ATOMIC_RELAXED);
    }
    return 0;
}

int ledger_snapshot(struct ledger *ledger, struct ledger_usage *ret) {
    struct ledger_usage usage = {0};
    int r = guarded(ledger, read_usage, &usage, 0);

    if (r == 0)
        *ret = usage;
    return r;
}

static int begin_peaks(struct ledger *ledger, void *arg, size_t unused) {
    (void) arg, (void) unused;
    for (unsigned int d = 0; d < LEDGER_DEVICES; d++)
        __atomic_store_n(&ledger->file->device[d].peak, ledger_used(ledger->file, d),
                         __ATOMIC_RELAXED);
    return 0;
}

void ledger_begin_peaks(struct ledger *ledger) {
    (void) guarded(ledger, begin_peaks, NULL, 0);
}

static int read_processes(struct ledger *ledger, void *arg, size_t max) {
    struct ledger_process *ret = arg;
    uint32_t n = slots_in_use(ledger->file);
    int found = 0;

    for (uint32_t slot = 0; slot < n && (size_t) found < max; slot++) {
        if (!ledger_slot_alive(ledger->fd, slot))
            continue;
        ret[found].slot = slot;
        ret[found].pid = __atomic_load_n(&ledger->file->slot[slot].pid, __ATOMIC_RELAXED);
        for (unsigned int d = 0; d < LEDGER_DEVICES; d++)
            ret[found].booked[d] =
                __atomic_load_n(&ledger->file->slot[slot].cell[d].booked.lo, __ATOMIC_RELAXED);
        found++;
    }
    return found;
}

int ledger_processes(struct ledger *ledger, struct ledger_process *ret, size_t max) {
    return guarded(ledger, read_processes, ret, max);
}

int ledger_file_of(const struct ledger *ledger, dev_t *ret_device, ino_t *ret_inode) {
    struct stat st;

    if (fstat(ledger->fd, &st) < 0)
        return -errno;
    *ret_device = st.st_dev;
    *ret_inode = st.st_ino;
    return 0;
}

struct orphaned {
    unsigned int account;
    uint64_t bytes;
    void (*change)(struct ledger_file *file, unsigned int account, uint64_t bytes);
};

static int read_orphaned(struct ledger *ledger, void *arg, size_t unused) {
    struct orphaned *o = arg;

    (void) unused;
    return ledger_read_orphaned(ledger->file, o->account, &o->bytes);
}

int ledger_get_orphaned(struct ledger *ledger, unsigned int account, uint64_t *ret) {
    struct orphaned o = {.account = account};
    int r = account < LEDGER_DEVICES ? guarded(ledger, read_orphaned, &o, 0) : -EINVAL;

    if (r == 0)
        *ret = o.bytes;
    return r;
}

static int change_orphaned(struct ledger *ledger, void *arg, size_t unused) {
    const struct orphaned *o = arg;

    (void) unused;
    o->change(ledger->file, o->account, o->bytes);
    return 0;
}

int ledger_credit(struct ledger *ledger, unsigned int account, uint64_t bytes) {
    struct orphaned o = {account, bytes, ledger_credit_orphaned};

    return account < LEDGER_DEVICES ? guarded(ledger, change_orphaned, &o, 0) : -EINVAL;
}

int ledger_charge(struct ledger *ledger, unsigned int account, uint64_t bytes) {
    struct orphaned o = {account, bytes, ledger_add_orphaned};

    return account < LEDGER_DEVICES ? guarded(ledger, change_orphaned, &o, 0) : -EINVAL;
}

static int sweep(struct ledger *ledger, void *arg, size_t unused) {
    const uint64_t *max_ns = arg;
    uint64_t start = max_ns ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
    uint32_t n = slots_in_use(ledger->file);
    int found = 0;

    (void) unused;
    ledger_settle(ledger->file);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = ledger->next < n ? ledger->next : 0;

        ledger->next = slot + 1;
        found += ledger_reclaim_if_dead(ledger->file, ledger->fd, slot);
        if (max_ns && clock_ns(CLOCK_THREAD_CPUTIME_ID) - start >= *max_ns)
            break;
    }
    return found;
}

int ledger_sweep(struct ledger *ledger) {
    return guarded(ledger, sweep, NULL, 0);
}

int ledger_sweep_for(struct ledger *ledger, uint64_t max_ns) {
    return guarded(ledger, sweep, &max_ns, 0);
}
