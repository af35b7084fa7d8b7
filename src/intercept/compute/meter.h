/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The gate of one card in one process: who waits, what is measured. Decisions only; waiting, events
 * and the clock are the caller's, so the same code runs in virtual time.
 *
 * A launch is charged first (meter_charge). If that says so, it may go: no clock, no lock. Else the
 * caller, one thread at a time, asks meter_enter until it says "go", records the events that it is
 * told to, and says what became of them. */

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

/* A launch on its way through the gate. */
struct launch {
    uint64_t stream; /* names the stream; per-thread streams have different names in each thread */
    struct cost *cost;
    uint64_t ns;    /* charged */
    uint64_t place; /* in the account */
    uint64_t held;  /* part of the account's `held` */
    uint64_t ahead; /* part of `place` that was the meter's `paid` then */
};

enum measure_state { MEASURE_FREE, MEASURE_OPEN, MEASURE_CLOSED };

/* A batch between two events. */
struct measure {
    enum measure_state state;
    bool alone;   /* of one launch */
    bool stalled; /* did not come when it should have: nobody waits for it any more */
    uint64_t stream;
    uint64_t mark;   /* the meter's `charged` before it */
    uint64_t others; /* the grant's, when it began */
    uint64_t opened_ns, last_ns;
    uint32_t neighbours;
    uint64_t begun_ns;     /* when its first event was seen to have passed; 0: not yet */
    uint64_t begun_others; /* the grant's `others` at that time */
    uint64_t ran;          /* ns of the card that it has had by then, at least */
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
    uint64_t turns;       /* launches that went to another stream than the one before */
    uint64_t due;         /* from here on `charged` asks for a measurement */
    uint64_t paid;        /* of all measures that are not done */
    uint32_t open;        /* index of the open measure + 1; 0: none */
    uint64_t done_ns;     /* when the last measurement was done */
    uint64_t done_others; /* and what others had taken by then */
    uint64_t turns_seen;  /* `turns` when the last measurement began */
    uint64_t random;
    uint64_t published;        /* launches that `launches` of the account knows of */
    struct compute_work *work; /* of this process in the account; or NULL */
    uint32_t moves;            /* what `work` has shown last */
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

/* Takes a launch back that the driver did not do, and the measurement that began with it. */
void meter_refused(struct meter *meter, struct launch *launch);

/* Whether the launch may go now; else how long to wait (METER_WAIT_RESULT: at most). */
enum meter_verdict meter_enter(struct meter *meter, struct launch *launch, uint64_t now_ns,
                               uint64_t *ret_wait_ns, bool *ret_ring);

/* Lets a launch go that was told to wait for a result which did not come. */
void meter_force(struct meter *meter, struct launch *launch, uint64_t now_ns);

/* Whether a measurement begins with this launch: its index, or -1. The caller records its first
 * event now and calls meter_opened, or nothing if that fails. `one_by_one`: no batches now. */
int meter_opens(struct meter *meter, const struct launch *launch, bool one_by_one);
void meter_opened(struct meter *meter, int at, const struct launch *launch, uint64_t now_ns);

/* The launch is with the driver. Returns the index of the measure whose second event is to be
 * recorded on this stream now, or -1; then meter_closed or meter_dropped. */
int meter_launched(struct meter *meter, const struct launch *launch, uint64_t now_ns);
void meter_closed(struct meter *meter, int at);
void meter_dropped(struct meter *meter, int at);

/* Ends the open measure, if it has something and is of this stream: as meter_launched. For whoever
 * is about to wait, in the gate or for the stream. */
int meter_ends(struct meter *meter, uint64_t stream);

/* The oldest measure whose events are both recorded and which is waited for, or -1. */
int meter_oldest(const struct meter *meter);

/* The first event of a closed measure has passed and the second has not: charges what it has taken
 * of the card so far, at least. A process that is killed while its kernel runs has then paid for
 * it. Launches of this process do not wait for that part: the kernel may itself wait for one. */
void meter_running(struct meter *meter, int at, uint64_t now_ns);

/* Shows the arbiter whether there is work on the card whose cost is not settled, and takes back
 * what the arbiter has charged for it while this process could not; so at least every
 * COMPUTE_WAIT_NS while that is true, which it returns. */
bool meter_show(struct meter *meter);

/* The closed measure that was opened first, stalled or not; or -1. */
int meter_first(const struct meter *meter);

/* Both events have passed, so much apart, the second one just now. */
void meter_done(struct meter *meter, int at, uint64_t elapsed_ns, uint64_t now_ns);
