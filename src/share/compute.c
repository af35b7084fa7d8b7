/* SPDX-License-Identifier: Apache-2.0 */
#include "share/compute.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "share/compute_policies.h"
#include "share/share_file.h"
#include "share/sigbus_guard.h"

struct compute {
    int fd; /* of the tenant's file */
    struct grants_file *grants;
    struct compute_file *accounts; /* read under a guard only: it may be cut short at any moment */
};

/* What both files begin with. */
struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
};

static const struct head grants_head = {GRANTS_MAGIC, GRANTS_VERSION, sizeof(struct grants_file)};
static const struct head compute_head = {COMPUTE_MAGIC, COMPUTE_VERSION,
                                         sizeof(struct compute_file)};
static const struct head compute_head_least = {COMPUTE_MAGIC, COMPUTE_VERSION, COMPUTE_SIZE_LEAST};

static const char *const policy_names[SHARE_POLICIES] = {
#define NAME(id, word) [SHARE_##id] = word,
    COMPUTE_POLICIES(NAME, NAME, NAME)
#undef NAME
        [SHARE_DEFAULT] = "default",
};

static int create(const char *path, const struct head *head, mode_t mode, struct err *err) {
    return share_file_create(path, head, sizeof(*head), head->size, mode, err);
}

int compute_create(const char *grants_path, const char *compute_path, struct err *err) {
    int r = create(grants_path, &grants_head, 0644, err);

    return r < 0 ? r : create(compute_path, &compute_head, 0666, err);
}

static bool has_head(int fd, const struct head *expected) {
    struct head head;

    return pread(fd, &head, sizeof(head), 0) == (ssize_t) sizeof(head) &&
           head.magic == expected->magic && head.version == expected->version &&
           head.size >= expected->size;
}

static int open_file(const char *path, const struct head *head, struct err *err) {
    _cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t) head->size || !has_head(fd, head))
        return err_set(err, EBADMSG, "%s is damaged or of another version", path);
    return take_fd(&fd);
}

static void *map(int fd, size_t size) {
    void *file = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return file == MAP_FAILED ? NULL : file;
}

int compute_open(const char *grants_path, const char *compute_path, struct compute **ret,
                 struct err *err) {
    _cleanup_close_ int grants_fd = open_file(grants_path, &grants_head, err), fd = -1;
    struct compute *compute;

    if (grants_fd < 0)
        return grants_fd;
    fd = open_file(compute_path, &compute_head_least, err);
    if (fd < 0)
        return fd;
    compute = calloc(1, sizeof(*compute));
    if (!compute)
        return err_errno(err, ENOMEM, "cannot open %s", compute_path);
    guard_install();
    compute->fd = take_fd(&fd);
    compute->grants = map(grants_fd, sizeof(*compute->grants));
    compute->accounts = map(compute->fd, sizeof(*compute->accounts));
    if (!compute->grants || !compute->accounts) {
        int r = err_errno(err, errno, "cannot map %s", compute_path);

        (void) compute_free(compute);
        return r;
    }
    *ret = compute;
    return 0;
}

struct compute *compute_free(struct compute *compute) {
    if (!compute)
        return NULL;
    if (compute->grants)
        (void) munmap(compute->grants, sizeof(*compute->grants));
    if (compute->accounts)
        (void) munmap(compute->accounts, sizeof(*compute->accounts));
    (void) close(compute->fd);
    free(compute);
    return NULL;
}

struct reading {
    const struct compute_file *accounts;
    unsigned int device;
    struct compute_usage usage;
};

/* Values of one moment each, which is all that they ever are. */
static int read_account(void *arg) {
    struct reading *r = arg;
    const struct compute_file *file = r->accounts;
    const struct compute_device *account = &file->device[r->device];

    if (file->magic != COMPUTE_MAGIC || file->version != COMPUTE_VERSION ||
        file->size < COMPUTE_SIZE_LEAST)
        return -EBADMSG;
    r->usage = (struct compute_usage){
        .charged = __atomic_load_n(&account->charged, __ATOMIC_RELAXED),
        .held = __atomic_load_n(&account->held, __ATOMIC_RELAXED),
        .waits = __atomic_load_n(&account->waits, __ATOMIC_RELAXED),
        .running = __atomic_load_n(&account->running, __ATOMIC_RELAXED),
        .longest = __atomic_load_n(&account->longest, __ATOMIC_RELAXED),
        .launches = __atomic_load_n(&account->launches, __ATOMIC_RELAXED),
        .waited = __atomic_load_n(&account->waited, __ATOMIC_RELAXED),
        .corrected = __atomic_load_n(&account->corrected, __ATOMIC_RELAXED),
        .processes = compute_has_processes(file) ? unsettled_count(file) : 0,
    };
    return 0;
}

int compute_read(const struct compute *compute, unsigned int device, struct compute_usage *ret) {
    struct reading reading = {.accounts = compute->accounts, .device = device};
    int r = device < COMPUTE_DEVICES
                ? guard_run(compute->accounts, sizeof(*compute->accounts), read_account, &reading)
                : -EBADMSG;

    if (r == 0)
        *ret = reading.usage;
    return r;
}

struct charging {
    struct compute_file *accounts;
    unsigned int device;
    uint64_t ns;
};

static int charge(void *arg) {
    const struct charging *c = arg;

    __atomic_fetch_add(&c->accounts->device[c->device].charged, c->ns, __ATOMIC_RELAXED);
    return 0;
}

void compute_charge(struct compute *compute, unsigned int device, uint64_t ns) {
    struct charging charging = {compute->accounts, device, ns};

    (void) guard_run(compute->accounts, sizeof(*compute->accounts), charge, &charging);
}

struct settling {
    struct compute_file *accounts;
    unsigned int device;
    struct unsettled *unsettled;
    uint64_t now_ns;
};

static int step_unsettled(void *arg) {
    struct settling *s = arg;

    unsettled_step(s->unsettled, s->accounts, s->device, s->now_ns);
    return 0;
}

void compute_settle(struct compute *compute, unsigned int device, struct unsettled *unsettled,
                    uint64_t now_ns) {
    struct settling settling = {compute->accounts, device, unsettled, now_ns};

    (void) guard_run(compute->accounts, sizeof(*compute->accounts), step_unsettled, &settling);
}

void compute_grant(struct compute *compute, unsigned int device,
                   const struct compute_grant *grant) {
    struct grant_device *line = &compute->grants->device[device];
    bool moved =
        line->rate != grant->rate || line->depth != grant->depth || line->window != grant->window;

    __atomic_store_n(&line->others, grant->others, __ATOMIC_RELAXED);
    __atomic_store_n(&line->others_at, grant->others_at, __ATOMIC_RELAXED);
    __atomic_store_n(&line->others_rate, grant->others_rate, __ATOMIC_RELAXED);
    __atomic_store_n(&line->neighbours, grant->neighbours, __ATOMIC_RELAXED);
    if (!moved)
        return;
    __atomic_store_n(&line->rate, grant->rate, __ATOMIC_RELAXED);
    __atomic_store_n(&line->depth, grant->depth, __ATOMIC_RELAXED);
    __atomic_store_n(&line->window, grant->window, __ATOMIC_RELAXED);
    __atomic_fetch_add(&line->generation, 1, __ATOMIC_RELEASE);
    (void) syscall(SYS_futex, &line->generation, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void compute_load(struct compute *compute, unsigned int device, uint32_t ppm) {
    __atomic_store_n(&compute->grants->device[device].load, ppm + 1, __ATOMIC_RELAXED);
}

void compute_keep_launch(struct compute *compute, unsigned int device,
                         const struct compute_launch *launch) {
    struct grant_device *line = &compute->grants->device[device];

    __atomic_store_n(&line->launched_at, launch->at_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&line->launched_charged, launch->charged, __ATOMIC_RELAXED);
}

void compute_kept_launch(const struct compute *compute, unsigned int device,
                         struct compute_launch *ret) {
    const struct grant_device *line = &compute->grants->device[device];

    ret->at_ns = __atomic_load_n(&line->launched_at, __ATOMIC_RELAXED);
    ret->charged = __atomic_load_n(&line->launched_charged, __ATOMIC_RELAXED);
}

void compute_beat(struct compute *compute) {
    __atomic_fetch_add(&compute->grants->beat, 1, __ATOMIC_RELEASE);
}

uint32_t *compute_bell(struct compute *compute) {
    return &compute->accounts->bell;
}

int compute_bell_value(const struct compute *compute, uint32_t *ret) {
    uint32_t value;

    if (pread(compute->fd, &value, sizeof(value), offsetof(struct compute_file, bell)) !=
        (ssize_t) sizeof(value))
        return -EBADMSG;
    *ret = value;
    return 0;
}

const char *share_policy_name(enum share_policy policy) {
    return (unsigned int) policy < SHARE_POLICIES ? policy_names[policy]
                                                  : policy_names[SHARE_DEFAULT];
}

int share_policy_parse(const char *name, enum share_policy *ret) {
    for (unsigned int i = 0; i < SHARE_POLICIES; i++)
        if (strcmp(policy_names[i], name) == 0) {
            *ret = (enum share_policy) i;
            return 0;
        }
    return -EINVAL;
}
