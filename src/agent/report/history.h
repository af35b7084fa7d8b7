/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The last hour of each share on each of its devices, in steps of 10 s: a ring of figures of two
 * bytes, in one file that a restarted agent goes on with. A record takes 2,952 bytes, and the file
 * has at most HISTORY_MAX; what is beyond has no history. Steps are numbered since boot
 * (CLOCK_BOOTTIME), so a change of the clock moves none. Records that were not written in a step
 * are free after it: what becomes of a slot need not be told. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/shares/nonce.h"

struct err;

#define HISTORY_STEP_MS 10000u
#define HISTORY_STEPS 360u
#define HISTORY_MAX 800u
#define HISTORY_UNKNOWN UINT16_MAX

struct history_step {
    uint16_t memory;    /* in units of the record, rounded up */
    uint16_t taken;     /* ms of the device's time in this step; a step can take a little longer */
    uint16_t entitled;  /* ms that it would have got, by what it could get at the end */
    uint16_t throttled; /* ms that its threads waited, together; at most 65,534 */
};

struct history_record {
    char nonce[NONCE_LEN]; /* of the slot; "": the record is free */
    uint32_t device;       /* which one of the share */
    uint32_t reserved;
    uint64_t last; /* number of the newest step; step n is steps[n % HISTORY_STEPS] */
    uint64_t unit; /* bytes */
    /* Totals at the end of the newest step, in ns; UINT64_MAX: not known. */
    uint64_t taken;
    uint64_t throttled;
    struct history_step steps[HISTORY_STEPS];
};

/* What a step ends with. */
struct history_figures {
    uint64_t memory;    /* bytes; UINT64_MAX: not known */
    uint64_t most;      /* bytes that it can be: decides the unit */
    uint64_t taken;     /* ns since the share began; UINT64_MAX: not known */
    uint64_t throttled; /* the same */
    uint32_t entitled;  /* parts per million of the device */
};

struct history {
    struct history_file *file; /* NULL: there is none */
    int fd;
    uint32_t records; /* of the file */
    uint32_t at;      /* where the last search ended: shares are asked for in one order */
};

/* Opens the file, or begins it again if it is of another layout. */
int history_open(struct history *h, const char *path, struct err *err);
void history_close(struct history *h);

/* The history of a share on its n-th device; NULL: there is none. */
const struct history_record *history_find(struct history *h, const char *nonce, uint32_t device);

/* The step of an age, 0 for the newest; `age` below HISTORY_STEPS. */
const struct history_step *history_at(const struct history_record *r, uint32_t age);

/* Whether something is known of a step. */
bool history_known(const struct history_step *step);

/* Writes the step `number`, unless it is written; those between it and the newest are not known. */
void history_put(struct history *h, const char *nonce, uint32_t device, uint64_t number,
                 const struct history_figures *now);

/* Step `number` is written: what has no record of it is gone. */
void history_end_step(struct history *h, uint64_t number);
