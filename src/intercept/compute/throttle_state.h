/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What throttle.c, events.c and wait.c have in common. All of it is in memory that is zeroed in a
 * forked child, so the child starts from the initial state, without the parent's thread. */

#include "intercept/compute/owner.h"
#include "intercept/compute/throttle.h"
#include "intercept/session/lock.h"
#include "share/limits_core.h"

struct card {
    struct lock lock; /* for the meter's measures, and around events in them */
    struct meter meter;
    bool used;
};

enum helper { HELPER_NONE, HELPER_STARTS, HELPER_RUNS, HELPER_IMPOSSIBLE };

struct throttle {
    uint32_t ready;
    struct lock begin_lock;
    bool none;
    int only; /* index in the share of the only card that the program sees; negative: there are
                 several, so the driver is asked */
    uint32_t ndevices;
    uint32_t captures;
    uint32_t helper;               /* futex word */
    uint32_t work;                 /* futex word: there is something to wait for */
    uint32_t progress;             /* futex word: a measurement is done */
    struct compute_file *accounts; /* with places for processes; or NULL */
    struct owner owner;            /* of the helper */
    struct cost_table costs;
    struct compute_device own[LIMITS_DEVICES_MAX]; /* accounts where the share has no file */
    struct card card[LIMITS_DEVICES_MAX];
};

/* wait.c: CLOCK_MONOTONIC in ns. */
uint64_t throttle_clock(void);

/* Sleeps while *word is `value`, at most `ns`. `shared`: other processes change the word. */
void throttle_sleep(const uint32_t *word, uint32_t value, uint64_t ns, bool shared);
void throttle_wake(uint32_t *word, bool shared);

/* events.c: records the first event of a measure, in the context of the stream. The card's lock is
 * held. */
bool events_begin(struct measure *measure, CUstream stream);

/* Records the second. */
bool events_end(struct measure *measure, CUstream stream);

/* The events of the measure were destroyed with their context. */
void events_lost(struct measure *measure);

/* Destroys the events of a measure. */
void events_destroy(struct measure *measure);

/* Whether the measure is done; for a thread of the program. */
bool events_done(struct card *card, int at);

/* Takes the results of measures that are done; true while any is still under way. */
bool events_collect(struct throttle *throttle);

/* Starts the thread that reads the events, and waits until this process has its place in the
 * account. Without the lock of a card. */
void events_start(struct throttle *throttle);

/* Wakes the thread: a measure was closed. */
void events_watch(struct throttle *throttle);
