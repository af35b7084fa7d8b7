/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A container's account of GPU time, one for each card of its share, in nanoseconds of the card.
 * Two files that libaliquot.so shares with the arbiter (agent or `aliquot run`). Depends on libc
 * only.
 *
 *   grants   what the container may take: written by the arbiter, read-only to the tenant
 *   compute  what it has taken: written by all processes of the container, never to be trusted
 *
 * The account: `charged` is the sum of the estimated costs of launches, added at each launch and
 * corrected when the cost has been measured. `filled` is how far it may go: it grows with the clock
 * at the rate of the grant. A launch adds its cost and passes when the value *before* that does not
 * exceed `filled`; so a long kernel runs at once and is paid before the next launch. A launch that
 * must wait has its place already: the old value of `charged`. Each waiter calculates when its turn
 * comes, so launches pass in order and no process has to wake another.
 *
 * No field depends on another: each is read and written on its own, so that a writer may die
 * between any two. All counters only grow and may wrap. Activity shows in counters that move, never
 * in counters that go up and down, which a SIGKILL would leave up.
 *
 * Layout rule as in limits_core.h: nothing moves within a version; `reserved` is zero. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "share/ledger_core.h"

#define COMPUTE_DEVICES 64

#define GRANTS_MAGIC 0x31736e7267715f61ULL
#define GRANTS_VERSION 1

#define COMPUTE_MAGIC 0x31706d6f63715f61ULL
#define COMPUTE_VERSION 1

/* Rates are in parts per million of the card's time. */
#define RATE_WHOLE 1000000u
#define RATE_UNLIMITED UINT32_MAX

/* One card of the share; the index is that of the limits file. */
struct grant_device {
    uint32_t generation; /* futex word: moves when one of the next three changes */
    uint32_t rate;   /* how fast the account fills; RATE_UNLIMITED: launches do not wait for it */
    uint64_t depth;  /* ns; how much unused time the account keeps */
    uint64_t window; /* ns of work that may be queued on the card at once; 0: any amount */
    uint64_t others; /* ns that all other containers on the card have taken (a counter) */
    uint64_t others_at;   /* CLOCK_MONOTONIC of that */
    uint32_t others_rate; /* how fast it goes on, ppm */
    uint32_t neighbours;  /* how many other containers want the card now */
    uint32_t load; /* ppm of the card that it took over the last second, plus 1; 0: not known */
    uint32_t reserved0;
    uint64_t reserved1;
    /* For the arbiter that follows this one: CLOCK_REALTIME in ns of the last launch, 0: not known;
     * and what `charged` has been since, with what the arbiter has added. */
    uint64_t launched_at;
    uint64_t launched_charged;
    uint64_t reserved[6];
};

struct grants_file {
    uint64_t magic;
    uint32_t version;
    uint32_t size; /* of the whole file */
    uint64_t beat; /* moves at least every ARBITER_BEAT_NS while an arbiter is at work */
    uint64_t reserved[13];
    struct grant_device device[COMPUTE_DEVICES];
};

#define ARBITER_BEAT_NS 100000000ull
/* Without a beat for this long, on the reader's clock, there is no arbiter. */
#define ARBITER_GONE_NS 1000000000ull

struct compute_device {
    uint64_t charged; /* ns; the one word that every launch changes */
    uint64_t reserved0[15];
    struct ledger_word filled; /* lo: how far `charged` may go; hi: CLOCK_MONOTONIC of that */
    uint64_t waits;            /* moves while a launch waits, at least every COMPUTE_WAIT_NS */
    uint64_t running;          /* moves while work is on the card, likewise */
    uint64_t longest;          /* ns; the longest single launch of late */
    uint64_t launches;         /* gated launches, in steps */
    uint64_t waited;           /* ns that launches waited, all together */
    uint64_t corrected;        /* ns by which measuring has changed `charged`, up and down */
    uint64_t held;             /* ns of `charged` whose launches still wait; wraps below zero */
    uint64_t reserved[7];
};

/* What one process has on one card and has not settled yet. */
struct compute_work {
    uint32_t moves; /* moves at least every COMPUTE_WAIT_NS while there is such work; 0: none */
    uint32_t ahead; /* us that are charged for it and have not run yet */
    uint64_t added; /* ns that the arbiter charged in the place of the process, which takes them
                       back when it charges them itself */
    uint64_t held;  /* its part of the account's `held` */
};

/* A process has the index of a word of `owner` that it has changed from 0 to the TID of one of its
 * threads. The word is on the robust list of that thread (set_robust_list(2)): when the thread
 * ends, the kernel sets FUTEX_OWNER_DIED in it. A forked child does not inherit it. */
#define COMPUTE_PROCESSES 1024

struct compute_file {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint32_t bell;      /* futex word: rung (moved and woken) when a container begins to wait */
    uint32_t processes; /* every index of `owner` that is in use is below it */
    uint64_t reserved[13];
    struct compute_device device[COMPUTE_DEVICES];
    /* Files of older versions end here. */
    uint32_t owner[COMPUTE_PROCESSES];
    struct compute_work work[COMPUTE_PROCESSES][COMPUTE_DEVICES];
};

#define COMPUTE_SIZE_LEAST offsetof(struct compute_file, owner)

static inline bool compute_has_processes(const struct compute_file *file) {
    return file->size >= sizeof(struct compute_file);
}

/* A dead process launches nothing any more: takes what its waiting launches were charged out of the
 * account. It is below zero where a launch began to wait before the process had its place. */
static inline void compute_release_held(struct compute_file *file, uint32_t process,
                                        uint32_t device) {
    uint64_t held = __atomic_exchange_n(&file->work[process][device].held, 0, __ATOMIC_RELAXED);
    uint64_t all = __atomic_load_n(&file->device[device].held, __ATOMIC_RELAXED);

    if ((int64_t) held <= 0 || (int64_t) held > (int64_t) all)
        return;
    __atomic_fetch_sub(&file->device[device].held, held, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&file->device[device].charged, held, __ATOMIC_RELAXED);
}

/* The longest single sleep of a waiter. */
#define COMPUTE_WAIT_NS 20000000ull

_Static_assert(sizeof(struct grant_device) == 128, "ABI of the grants file");
_Static_assert(offsetof(struct grants_file, device) == 128, "ABI of the grants file");
_Static_assert(sizeof(struct grants_file) == 128 + 64 * 128, "ABI of the grants file");
_Static_assert(offsetof(struct compute_device, filled) == 128, "ABI of the compute file");
_Static_assert(sizeof(struct compute_device) == 256, "ABI of the compute file");
_Static_assert(offsetof(struct compute_file, device) == 128, "ABI of the compute file");
_Static_assert(COMPUTE_SIZE_LEAST == 128 + 64 * 256, "ABI of the compute file");
_Static_assert(sizeof(struct compute_file) == COMPUTE_SIZE_LEAST + 1024 * (4 + 64 * 24),
               "ABI of the compute file");

/* Maps the grants at `path` read-only, until the process ends. The mapping follows the arbiter.
 * Negative errno; -EBADMSG: not such a file of this version. */
int grants_map(const char *path, const struct grants_file **ret);

/* Maps the accounts at `path` for reading and writing, likewise. Fields beyond COMPUTE_SIZE_LEAST
 * exist only if compute_has_processes(). */
int compute_map(const char *path, struct compute_file **ret);
