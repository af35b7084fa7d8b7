/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/arbitrate.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "cli/run/run_shares.h"
#include "share/arbiter.h"

/* Interval at which shares of killed `aliquot run` processes are noticed. */
#define POLL_S 1

/* In a share's directory: where its arbiter's lock is. */
#define LOCK_LINK "arbiter"

/* Content of the lock file. */
struct lock_page {
    uint32_t changed; /* futex word */
};

/* A share that we arbitrate for. */
struct charge {
    char dir[64];
    struct share_limits limits;
    struct arbiter_member *member;
    bool seen;
    struct charge *prev, *next;
};

static struct {
    struct arbiter *arbiter;
    struct charge *charges;
} arbitrated;

/* ---- the lock ---- */

/* A simulated machine's lock ends with the machine's directory. */
static void lock_path(char *ret, size_t size) {
    const char *sim = getenv("ALIQUOT_SIM_DIR");
    uint32_t machine = run_shares_machine();

    if (sim && machine != 0 && access(sim, W_OK) == 0)
        (void) snprintf(ret, size, "%s/arbiter-%u", sim, (unsigned) geteuid());
    else
        (void) snprintf(ret, size, "/dev/shm/aliquot-arbiter-%u-%08x", (unsigned) geteuid(),
                        machine);
}

/* Only a file of this user is used: another user may have created one of that name. */
static int open_lock(const char *path, int flags, struct lock_page **ret, struct err *err) {
    _cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    struct stat st;
    void *map;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return err_set(err, EPERM, "%s belongs to another user", path);
    if (st.st_size < (off_t) sizeof(struct lock_page) &&
        ftruncate(fd, sizeof(struct lock_page)) < 0)
        return err_errno(err, errno, "cannot write %s", path);
    map = mmap(NULL, sizeof(struct lock_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_errno(err, errno, "cannot map %s", path);
    *ret = map;
    return take_fd(&fd);
}

static int share_lock(struct lock_page **ret, struct err *err) {
    char path[PATH_MAX];

    lock_path(path, sizeof(path));
    return open_lock(path, O_CREAT, ret, err);
}

int arbitrate_name(const char *dir, struct err *err) {
    char path[PATH_MAX], link[96];

    lock_path(path, sizeof(path));
    run_shares_path(dir, LOCK_LINK, link);
    return symlink(path, link) < 0 ? err_errno(err, errno, "cannot make %s", link) : 0;
}

void arbitrate_notice(const char *dir) {
    char path[PATH_MAX] = "", link[96];
    struct lock_page *page;
    _cleanup_close_ int fd = -1;

    if (dir) {
        run_shares_path(dir, LOCK_LINK, link);
        if (readlink(link, path, sizeof(path) - 1) < 0)
            return;
    } else {
        lock_path(path, sizeof(path));
    }
    fd = open_lock(path, 0, &page, NULL);
    if (fd < 0)
        return;
    (void) __atomic_add_fetch(&page->changed, 1, __ATOMIC_RELEASE);
    (void) syscall(SYS_futex, &page->changed, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    (void) munmap(page, sizeof(*page));
}

/* ---- the shares ---- */

static struct charge *find_charge(const char *dir) {
    struct charge *c;

    DL_FOREACH(arbitrated.charges, c)
        if (strcmp(c->dir, dir) == 0)
            return c;
    return NULL;
}

static struct charge *charge_new(const struct run_share *place, const struct share_limits *limits) {
    struct charge *c = calloc(1, sizeof(*c));
    char grants[96], compute[96];

    if (!c)
        return NULL;
    memcpy(c->dir, place->dir, sizeof(c->dir));
    c->limits = *limits;
    run_shares_path(c->dir, "grants", grants);
    run_shares_path(c->dir, "compute", compute);
    if (arbiter_join(arbitrated.arbiter, limits, grants, compute, &c->member, NULL) < 0) {
        free(c);
        return NULL;
    }
    DL_APPEND(arbitrated.charges, c);
    return c;
}

/* A share that is being created has no limits yet; its creator notifies when it is complete. */
static void update_charge(const struct run_share *place, void *userdata) {
    struct charge *c = find_charge(place->dir);
    struct share_limits limits;
    char path[96];

    (void) userdata;
    run_shares_path(place->dir, "limits", path);
    if (place->machine != run_shares_machine() || limits_read(path, &limits, NULL) < 0)
        return;
    if (!c)
        c = charge_new(place, &limits);
    if (!c)
        return;
    c->seen = true;
    if (memcmp(&c->limits, &limits, sizeof(limits)) == 0)
        return;
    c->limits = limits;
    arbiter_change(c->member, &limits);
}

static void update_charges(void) {
    struct charge *c, *next;

    DL_FOREACH(arbitrated.charges, c)
        c->seen = false;
    run_shares_each(update_charge, NULL);
    DL_FOREACH_SAFE(arbitrated.charges, c, next) {
        if (c->seen)
            continue;
        DL_DELETE(arbitrated.charges, c);
        arbiter_leave(c->member);
        free(c);
    }
}

/* ---- the thread ---- */

static void *run_arbiter(void *unused) {
    struct lock_page *page;
    int fd = share_lock(&page, NULL);

    (void) unused;
    if (fd < 0)
        return NULL;
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return NULL;
    if (arbiter_start(&arbitrated.arbiter, NULL) < 0)
        return NULL;
    for (;;) {
        const struct timespec wait = {.tv_sec = POLL_S};
        uint32_t changed = __atomic_load_n(&page->changed, __ATOMIC_ACQUIRE);

        update_charges();
        (void) syscall(SYS_futex, &page->changed, FUTEX_WAIT, changed, &wait, NULL, 0);
    }
}

int arbitrate_begin(struct err *err) {
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    struct lock_page *page;
    _cleanup_close_ int fd = share_lock(&page, err);
    int r;

    if (fd < 0)
        return fd;
    (void) munmap(page, sizeof(*page));
    (void) sigfillset(&all);
    (void) sigdelset(&all, SIGBUS);
    (void) pthread_attr_init(&attr);
    (void) pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    r = pthread_create(&thread, &attr, run_arbiter, NULL);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void) pthread_attr_destroy(&attr);
    return r == 0 ? 0 : err_errno(err, r, "cannot start a thread");
}
