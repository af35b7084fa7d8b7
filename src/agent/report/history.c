/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/history.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "share/arbitration.h"

#define MAGIC 0x31747368716c615fULL
#define GROWTH 4u /* records that the file gets room for at once */
#define NS_PER_MS 1000000u

struct history_file {
    uint64_t magic;
    uint32_t record_size;
    uint32_t steps;
    struct history_record records[];
};

_Static_assert(sizeof(struct history_record) <= 3072, "3 KiB for each share on each device");

static size_t size_of(uint32_t records) {
    return sizeof(struct history_file) + records * sizeof(struct history_record);
}

/* ---- the file ---- */

static bool is_ours(int fd, off_t size) {
    struct history_file head;

    return size >= (off_t) sizeof(head) && pread(fd, &head, sizeof(head), 0) == sizeof(head) &&
           head.magic == MAGIC && head.record_size == sizeof(struct history_record) &&
           head.steps == HISTORY_STEPS;
}

/* The number of its records, or an error. */
static int begin(int fd) {
    const struct history_file head = {MAGIC, sizeof(struct history_record), HISTORY_STEPS};
    struct stat st;
    size_t records;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!is_ours(fd, st.st_size)) {
        if (ftruncate(fd, 0) < 0 || pwrite(fd, &head, sizeof(head), 0) != sizeof(head))
            return -errno;
        return 0;
    }
    records = ((size_t) st.st_size - sizeof(head)) / sizeof(struct history_record);
    return (int) (records < HISTORY_MAX ? records : HISTORY_MAX);
}

int history_open(struct history *h, const char *path, struct err *err) {
    int records;

    *h = (struct history){.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (h->fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    records = begin(h->fd);
    if (records >= 0) {
        h->records = (uint32_t) records;
        /* Pages behind the end of the file are there when it has grown. */
        h->file = mmap(NULL, size_of(HISTORY_MAX), PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, 0);
        if (h->file != MAP_FAILED)
            return 0;
        records = -errno;
    }
    (void) close(h->fd);
    *h = (struct history){.fd = -1};
    return err_errno(err, -records, "cannot use %s", path);
}

void history_close(struct history *h) {
    if (!h->file)
        return;
    (void) munmap(h->file, size_of(HISTORY_MAX));
    (void) close(h->fd);
    *h = (struct history){.fd = -1};
}

/* Room is reserved: a write into a mapping cannot be refused. */
static bool grow(struct history *h) {
    uint32_t more = HISTORY_MAX - h->records < GROWTH ? HISTORY_MAX - h->records : GROWTH;

    if (more == 0 || posix_fallocate(h->fd, (off_t) size_of(h->records),
                                     (off_t) (more * sizeof(struct history_record))) != 0)
        return false;
    h->records += more;
    return true;
}

/* ---- records ---- */

static struct history_record *find(struct history *h, const char *nonce, uint32_t device) {
    for (uint32_t i = 0; h->file && i < h->records; i++) {
        uint32_t at = (h->at + i) % h->records;
        struct history_record *r = &h->file->records[at];

        if (r->device != device || strncmp(r->nonce, nonce, NONCE_LEN) != 0)
            continue;
        h->at = at + 1;
        return r;
    }
    return NULL;
}

const struct history_record *history_find(struct history *h, const char *nonce, uint32_t device) {
    return find(h, nonce, device);
}

static struct history_record *first_free(struct history *h) {
    for (uint32_t i = 0; i < h->records; i++)
        if (!h->file->records[i].nonce[0])
            return &h->file->records[i];
    if (!grow(h))
        return NULL;
    return first_free(h);
}

static void forget_steps(struct history_record *r) {
    memset(r->steps, 0xff, sizeof(r->steps));
}

static struct history_record *add(struct history *h, const char *nonce, uint32_t device,
                                  uint64_t number) {
    struct history_record *r = h->file ? first_free(h) : NULL;

    if (!r)
        return NULL;
    *r = (struct history_record){.device = device, .last = number, .unit = 1};
    r->taken = r->throttled = UINT64_MAX;
    forget_steps(r);
    memcpy(r->nonce, nonce, NONCE_LEN);
    return r;
}

/* ---- steps ---- */

const struct history_step *history_at(const struct history_record *r, uint32_t age) {
    return &r->steps[(r->last % HISTORY_STEPS + HISTORY_STEPS - age) % HISTORY_STEPS];
}

bool history_known(const struct history_step *step) {
    return step->memory != HISTORY_UNKNOWN || step->taken != HISTORY_UNKNOWN ||
           step->entitled != HISTORY_UNKNOWN || step->throttled != HISTORY_UNKNOWN;
}

/* Steps up to `number` that the agent did not see, and the step itself. */
static void pass(struct history_record *r, uint64_t number) {
    if (r->last > number || number - r->last > HISTORY_STEPS)
        forget_steps(r);
    else
        for (uint64_t n = r->last + 1; n <= number; n++)
            memset(&r->steps[n % HISTORY_STEPS], 0xff, sizeof(r->steps[0]));
}

/* Doubles the unit until `most` can be written in it. */
static void fit(struct history_record *r, uint64_t most) {
    if (r->unit == 0)
        r->unit = 1;
    while (most / r->unit >= HISTORY_UNKNOWN - 1) {
        r->unit *= 2;
        for (uint32_t i = 0; i < HISTORY_STEPS; i++)
            if (r->steps[i].memory != HISTORY_UNKNOWN)
                r->steps[i].memory = (uint16_t) ((r->steps[i].memory + 1) / 2);
    }
}

static uint16_t figure(uint64_t value) {
    return value < HISTORY_UNKNOWN ? (uint16_t) value : HISTORY_UNKNOWN - 1;
}

static uint16_t memory_in(uint64_t bytes, uint64_t unit) {
    return bytes == UINT64_MAX ? HISTORY_UNKNOWN : figure((bytes + unit - 1) / unit);
}

/* A total that has become less was begun again. */
static uint16_t ms_between(uint64_t before, uint64_t now) {
    if (before == UINT64_MAX || now == UINT64_MAX || now < before)
        return HISTORY_UNKNOWN;
    return figure((now - before) / NS_PER_MS);
}

void history_put(struct history *h, const char *nonce, uint32_t device, uint64_t number,
                 const struct history_figures *now) {
    struct history_record *r = find(h, nonce, device);
    struct history_step *step;
    bool next;

    if (r && r->last == number)
        return;
    if (!r)
        r = add(h, nonce, device, number);
    if (!r)
        return;
    pass(r, number);
    fit(r, now->most);
    next = r->last + 1 == number;
    step = &r->steps[number % HISTORY_STEPS];
    step->memory = memory_in(now->memory, r->unit);
    step->taken = next ? ms_between(r->taken, now->taken) : HISTORY_UNKNOWN;
    step->throttled = next ? ms_between(r->throttled, now->throttled) : HISTORY_UNKNOWN;
    step->entitled = figure((uint64_t) now->entitled * HISTORY_STEP_MS / RATE_WHOLE);
    r->taken = now->taken;
    r->throttled = now->throttled;
    r->last = number;
}

void history_end_step(struct history *h, uint64_t number) {
    for (uint32_t i = 0; h->file && i < h->records; i++)
        if (h->file->records[i].last != number)
            h->file->records[i].nonce[0] = 0;
}
