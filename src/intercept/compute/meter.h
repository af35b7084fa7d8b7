/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The throttle of one card in one process: which launches wait, and which are measured. Decisions
 * only; waiting, events and the clock are the caller's, so the same code runs in virtual time.
 *
 * A launch is charged first (meter_charge). If that returns true, it may go: no clock, no lock.
 * Otherwise the caller, one thread at a time, calls meter_enter until it returns METER_GO, records
 * the events that meter_opens and meter_launched request, and reports whether that succeeded.
 *
 * A measure is a batch of launches between two events on one stream. It is open from its first
 * event to its second, then closed until both have passed. At most one is open at a time. */

#include <stdbool.h>
#include <stdint.h>

#include "intercept/compute/account.h"
#include "intercept/compute/cost.h"

#define MEASURES_MAX 32

/* What the caller has to do before the launch. */
enum meter_verdict {
    METER_GO,
    METER_WAIT_TIME,   /* wait for the clock, or for the grant to change */
    METER_WAIT_RESULT, /* wait until a measurement is done */
};

/* A launch on its way to the driver. */
struct launch {
    uint64_t stream; /* names the stream; per-thread streams have different names in each thread */
    struct cost *cost;
    uint64_t ns;    /* charged */
    uint64_t place; /* in the account */
    uint64_t held;  /* ns of it in the account's `held`, while it waits */
    uint64_t ahead; /* the meter's `paid` when it was charged, which `place` includes */
};

enum measure_state { MEASURE_FREE, MEASURE_OPEN, MEASURE_CLOSED };

/* A batch between two events. */
struct measure {
    enum measure_state state;
    bool alone;   /* the batch is one launch: its second event is recorded right after it */
    bool stalled; /* the result is overdue, so launches no longer wait for it: the work may wait for
                     a later launch of this process */
    uint64_t stream;
    uint64_t mark;   /* the meter's `charged` before the first launch: puts measures in order, and
                        shows how much was charged since */
    uint64_t others; /* ns that other containers had taken when it was opened */
    uint64_t opened_ns, last_ns;
    uint32_t neighbours;
    uint64_t begun_ns;     /* when its first event was seen to have passed; 0: not yet */
    uint64_t begun_others; /* the grant's `others` at that time */
    uint64_t ran;          /* ns of the card that it has used so far, at least */
    uint64_t paid;         /* ns beyond batch.charged that were charged while it ran */
    struct batch batch;
    /* The caller's. */
    void *begin, *end, *context, *handle;
    bool leaving; /* its context is about to end */
};

struct meter {
    struct account account;
    struct cost_table *costs;
    uint32_t own_rate; /* ppm without an arbiter; 0: no limit */
    /* Counted without a lock: threads that collide lose a little, which only shifts when the next
     * measurement comes. */
    uint64_t charged;
    uint64_t launches;
    uint64_t stream;      /* of the last launch */
    uint64_t turns;       /* launches on another stream than the launch before: grows only while
                             streams alternate */
    uint64_t due;         /* the next measurement begins when `charged` reaches this */
    uint64_t paid;        /* of all measures that are not done */
    uint32_t open;        /* index of the open measure + 1; 0: none */
    uint64_t done_ns;     /* when the last measurement was done */
    uint64_t done_others; /* and what others had taken by then */
    uint64_t turns_seen;  /* `turns` when the last measurement began */
    uint64_t random;
    uint64_t published;        /* how many of `launches` are in `launches` of the account */
    struct compute_work *work; /* of this process in the account; or NULL */
    uint32_t moves;            /* the value last written to `work` */
    struct measure measure[MEASURES_MAX];
};

/* Charges a launch of this kind; true: it may go at once. */
static inline bool meter_charge(struct meter *meter, struct cost *cost, struct launch *launch) {
    uint64_t ns = cost_ns(cost), charged = meter->charged + ns;

    launch->cost = cost;
    launch->ns = ns;
    launch->held = 0;
    launch->ahead = __atomic_load_n(&meter->paid, __ATOMIC_RELAXED);
    launch->place = account_charge(&meter->account, ns);
    meter->charged = charged;
    meter->launches++;
    if (meter->stream != launch->stream) {
        meter->stream = launch->stream;
        meter->turns++;
    }
    return account_passes(&meter->account, launch->place) &&
           __builtin_expect(charged < meter->due && cost->samples >= COST_SAMPLES, 1);
}

/* Takes back the charge of a launch that the driver has refused, and drops the measurement that
 * began with it. */
void meter_refused(struct meter *meter, struct launch *launch);

/* Whether the launch may go now; otherwise *ret_wait_ns is how long to wait (METER_WAIT_RESULT: at
 * most), and *ret_ring whether the bell of the arbiter is to be woken. */
enum meter_verdict meter_enter(struct meter *meter, struct launch *launch, uint64_t now_ns,
                               uint64_t *ret_wait_ns, bool *ret_ring);

/* Lets a launch go for which METER_WAIT_RESULT has timed out. */
void meter_force(struct meter *meter, struct launch *launch, uint64_t now_ns);

/* Whether a measurement begins with this launch: its index, or -1. The caller records its first
 * event now and calls meter_opened, or does nothing if that fails. `one_by_one`: no batches, while
 * a stream of the process is captured. */
int meter_opens(struct meter *meter, const struct launch *launch, bool one_by_one);
void meter_opened(struct meter *meter, int at, const struct launch *launch, uint64_t now_ns);

/* The driver has accepted the launch. Returns the index of the measure whose second event is to be
 * recorded on this stream now, or -1; then meter_closed or meter_dropped. */
int meter_launched(struct meter *meter, const struct launch *launch, uint64_t now_ns);
void meter_closed(struct meter *meter, int at);
void meter_dropped(struct meter *meter, int at);

/* Ends the open measure, if it has launches and is of this stream: returns as meter_launched.
 * Called before a thread waits, for its turn or for the stream. */
int meter_ends(struct meter *meter, uint64_t stream);

/* The oldest closed measure that is not stalled, or -1. */
int meter_oldest(const struct meter *meter);

/* The first event of a closed measure has passed and the second has not: charges the least time
 * that it has used so far. So a process that is killed while its kernel runs has paid for it.
 * Launches of this process do not wait for that part, as the kernel may itself wait for one of
 * them. */
void meter_running(struct meter *meter, int at, uint64_t now_ns);

/* Reports to the arbiter whether there is unsettled work on the card, and credits what the arbiter
 * has charged for it while this process could not. Returns whether there is such work; while there
 * is, to be called at least every COMPUTE_WAIT_NS. */
bool meter_show(struct meter *meter);

/* The closed measure that was opened first, stalled or not; or -1. */
int meter_first(const struct meter *meter);

/* Both events have passed, `elapsed_ns` apart, the second one just now. */
void meter_done(struct meter *meter, int at, uint64_t elapsed_ns, uint64_t now_ns);
