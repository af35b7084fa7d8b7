/* SPDX-License-Identifier: Apache-2.0 */
#include "share/ledger.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"

struct ledger {
    int fd;
    struct ledger_file *file;
    uint32_t next; /* the slot with which the next sweep begins */
};

/* The ledger that this thread is reading now, and the way out when its file has shrunk under it. */
static _Thread_local struct {
    const struct ledger *ledger;
    sigjmp_buf out;
} guard;

static struct sigaction previous_sigbus;

static void on_sigbus(int signal, siginfo_t *info, void *context) {
    uintptr_t fault = (uintptr_t) info->si_addr;
    uintptr_t start = guard.ledger ? (uintptr_t) guard.ledger->file : 0;

    if (start && fault >= start && fault < start + sizeof(struct ledger_file))
        siglongjmp(guard.out, 1);
    if (previous_sigbus.sa_flags & SA_SIGINFO)
        previous_sigbus.sa_sigaction(signal, info, context);
    else
        (void) sigaction(SIGBUS, &previous_sigbus,
                         NULL); /* the instruction faults again, to the old end */
}

/* Again at each open, since a program may have set a handler of its own since. */
static void install_guard(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction now;

    (void) sigemptyset(&action.sa_mask);
    (void) pthread_mutex_lock(&mutex);
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction != on_sigbus) {
        previous_sigbus = now;
        (void) sigaction(SIGBUS, &action, NULL);
    }
    (void) pthread_mutex_unlock(&mutex);
}

static bool is_ledger(const struct ledger *ledger) {
    const struct ledger_file *file = ledger->file;
    struct stat st;

    return fstat(ledger->fd, &st) == 0 && st.st_size >= (off_t) sizeof(*file) &&
           file->magic == LEDGER_MAGIC && file->version == LEDGER_VERSION &&
           file->devices == LEDGER_DEVICES && file->slots == LEDGER_SLOTS;
}

/* Runs `fn` on the mapping; -EBADMSG when the file is no ledger any more, or ends while `fn` reads
 * it. */
static int guarded(struct ledger *ledger, int (*fn)(struct ledger *, void *, size_t), void *arg,
                   size_t n) {
    int r;

    if (sigsetjmp(guard.out, 1) != 0) {
        guard.ledger = NULL;
        return -EBADMSG;
    }
    guard.ledger = ledger;
    r = is_ledger(ledger) ? fn(ledger, arg, n) : -EBADMSG;
    guard.ledger = NULL;
    return r;
}

static int fill_new(int fd, const char *path, struct err *err) {
    /* The beginning of struct ledger_file; the whole would be 2 MiB on the stack. */
    const struct {
        uint64_t magic;
        uint32_t version, devices, slots;
    } head = {LEDGER_MAGIC, LEDGER_VERSION, LEDGER_DEVICES, LEDGER_SLOTS};
    size_t len = offsetof(struct ledger_file, slots_used);

    if (ftruncate(fd, sizeof(struct ledger_file)) < 0 || pwrite(fd, &head, len, 0) != (ssize_t) len)
        return err_errno(err, errno, "cannot write %s", path);
    /* Whatever the umask: the container's processes may run as any user. */
    return fchmod(fd, 0666) < 0 ? err_errno(err, errno, "cannot chmod %s", path) : 0;
}

int ledger_create(const char *path, struct err *err) {
    char temp[4096];
    _cleanup_close_ int fd = -1;
    int r;

    if (access(path, F_OK) == 0)
        return 0;
    if (snprintf(temp, sizeof(temp), "%s.new", path) >= (int) sizeof(temp))
        return err_errno(err, ENAMETOOLONG, "cannot create %s", path);
    (void) unlink(temp);
    fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot create %s", temp);
    r = fill_new(fd, temp, err);
    /* Under its name only when it is whole: a half-written ledger would refuse its container for
     * ever. */
    if (r == 0 && rename(temp, path) < 0)
        r = err_errno(err, errno, "cannot create %s", path);
    if (r < 0)
        (void) unlink(temp);
    return r;
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
    install_guard();
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
        ret->refused[d] = __atomic_load_n(&ledger->file->device[d].refused, __ATOMIC_RELAXED);
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

static uint64_t cpu_time(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static int sweep(struct ledger *ledger, void *arg, size_t unused) {
    const uint64_t *max_ns = arg;
    uint64_t start = max_ns ? cpu_time() : 0;
    uint32_t n = slots_in_use(ledger->file);
    int found = 0;

    (void) unused;
    ledger_settle(ledger->file);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = ledger->next < n ? ledger->next : 0;

        ledger->next = slot + 1;
        found += ledger_reclaim_if_dead(ledger->file, ledger->fd, slot);
        if (max_ns && cpu_time() - start >= *max_ns)
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
