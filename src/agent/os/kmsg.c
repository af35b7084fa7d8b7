/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/os/kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/on_closed.h"

#define RECORD_MAX 8192   /* the kernel's CONSOLE_EXT_LOG_MAX */
#define TURN_MAX 256      /* records read in one turn of the loop */
#define LOG_MAX (1 << 20) /* records of the largest log */
#define FACILITY 8        /* the priority of a record of the kernel itself is below */

struct kmsg {
    int fd;
    uv_poll_t poll;
    uint64_t after, sequence;
    void (*on_xid)(const struct kmsg_xid *x, void *userdata);
    void *userdata;
    struct on_closed on_closed;
};

/* ---- text ---- */

struct text {
    const char *at, *end;
};

static bool take(struct text *t, const char *word) {
    size_t len = strlen(word);

    if ((size_t) (t->end - t->at) < len || memcmp(t->at, word, len) != 0)
        return false;
    t->at += len;
    return true;
}

static int digit_of(char c, unsigned base) {
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 16;

    return digit < (int) base ? digit : -1;
}

static bool take_number(struct text *t, unsigned base, uint64_t max, uint64_t *ret) {
    uint64_t value = 0;
    const char *start = t->at;

    for (; t->at < t->end && digit_of(*t->at, base) >= 0; t->at++) {
        uint64_t digit = (uint64_t) digit_of(*t->at, base);

        if (value > (max - digit) / base)
            return false;
        value = value * base + digit;
    }
    *ret = value;
    return t->at > start;
}

static bool take_u32(struct text *t, unsigned base, uint32_t *ret) {
    uint64_t value;

    if (!take_number(t, base, UINT32_MAX - 1, &value))
        return false;
    *ret = (uint32_t) value;
    return true;
}

/* "DOMAIN:BUS:DEVICE" in hexadecimal, as the driver and NVML write it. */
static bool take_address(struct text *t, struct kmsg_xid *ret) {
    return take_u32(t, 16, &ret->domain) && take(t, ":") && take_u32(t, 16, &ret->bus) &&
           take(t, ":") && take_u32(t, 16, &ret->device);
}

static bool take_xid(struct text *t, struct kmsg_xid *ret) {
    ret->gi = ret->ci = KMSG_WHOLE_CARD;
    return take(t, "NVRM: Xid (PCI:") && take_address(t, ret) &&
           (!take(t, " GPU-I:") || take_u32(t, 10, &ret->gi)) &&
           (!take(t, " GPU-CI:") || take_u32(t, 10, &ret->ci)) && take(t, "): ") &&
           take_u32(t, 10, &ret->xid);
}

/* "6,339,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, ...": priority, sequence number, microseconds,
 * flags, and more fields in later kernels. */
int kmsg_parse(const char *record, size_t len, struct kmsg_xid *ret) {
    struct text t = {record, record + len};
    struct kmsg_xid x = {0};
    uint64_t priority;

    if (!take_number(&t, 10, UINT32_MAX, &priority) || !take(&t, ",") ||
        !take_number(&t, 10, UINT64_MAX, &x.sequence) || !take(&t, ","))
        return -EINVAL;
    t.at = memchr(t.at, ';', (size_t) (t.end - t.at));
    if (!t.at)
        return -EINVAL;
    t.at++;
    if (priority >= FACILITY || !take_xid(&t, &x)) {
        ret->sequence = x.sequence;
        return 0;
    }
    *ret = x;
    return 1;
}

int kmsg_is_of(const struct kmsg_xid *x, const char *pci) {
    struct text t = {pci, pci + strlen(pci)};
    struct kmsg_xid card = {0};

    return take_address(&t, &card) && card.domain == x->domain && card.bus == x->bus &&
           card.device == x->device;
}

/* ---- the log ---- */

/* Returns whether there may be more. */
static bool read_record(struct kmsg *k) {
    char record[RECORD_MAX];
    struct kmsg_xid x;
    ssize_t n = read(k->fd, record, sizeof(record));
    int r;

    /* EPIPE: records were overwritten, and the next read gets the first one that is left. EINVAL:
     * this one is too long, and the next read gets the one after it. */
    if (n < 0 && (errno == EPIPE || errno == EINTR || errno == EINVAL))
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        (void) uv_poll_stop(&k->poll);
        return false;
    }
    r = kmsg_parse(record, (size_t) n, &x);
    if (r < 0 || x.sequence <= k->after)
        return true;
    k->sequence = x.sequence;
    if (r > 0)
        k->on_xid(&x, k->userdata);
    return true;
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct kmsg *k = poll->data;

    (void) events;
    if (status < 0) {
        (void) uv_poll_stop(poll);
        return;
    }
    for (int i = 0; i < TURN_MAX && uv_is_active((uv_handle_t *) poll); i++)
        if (!read_record(k))
            return;
}

int kmsg_start(uv_loop_t *loop, const char *path, uint64_t after,
               void (*on_xid)(const struct kmsg_xid *x, void *userdata), void *userdata,
               struct kmsg **ret, struct err *err) {
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    _cleanup_free_ struct kmsg *k = NULL;
    int r;

    if (fd < 0)
        return err_errno(err, errno, "cannot read %s", path);
    /* The first read gets the oldest record. */
    if (after == 0)
        (void) lseek(fd, 0, SEEK_END);
    k = calloc(1, sizeof(*k));
    if (!k)
        return err_set(err, ENOMEM, "out of memory");
    r = uv_poll_init(loop, &k->poll, fd);
    if (r < 0)
        return err_set(err, -r, "cannot wait for %s", path);
    k->after = k->sequence = after;
    k->on_xid = on_xid;
    k->userdata = userdata;
    k->poll.data = k;
    k->fd = take_fd(&fd);
    (void) uv_poll_start(&k->poll, UV_READABLE, on_readable);
    *ret = take_ptr(k);
    return 0;
}

uint64_t kmsg_last(const char *path) {
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct kmsg_xid x = {0};

    for (size_t i = 0; fd >= 0 && i < LOG_MAX; i++) {
        char record[RECORD_MAX];
        ssize_t n = read(fd, record, sizeof(record));

        if (n == 0 || (n < 0 && errno != EPIPE && errno != EINTR && errno != EINVAL))
            break;
        if (n > 0)
            (void) kmsg_parse(record, (size_t) n, &x);
    }
    return x.sequence;
}

uint64_t kmsg_sequence(const struct kmsg *k) {
    return k->sequence;
}

static void on_poll_closed(uv_handle_t *handle) {
    struct kmsg *k = handle->data;

    (void) close(k->fd);
    on_closed_free(&k->on_closed, k);
}

void kmsg_close(struct kmsg *k, void (*on_closed)(void *userdata), void *userdata) {
    k->on_closed = (struct on_closed){on_closed, userdata};
    uv_close((uv_handle_t *) &k->poll, on_poll_closed);
}
