/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A card, the programs that compute on it and the arbiter, in virtual time: the gate and the policy
 * of the product, on a machine that is only arithmetic, so that every run gives the same figures.
 *
 * The card gives itself to one process at a time, in slices; a process's work runs in the order in
 * which it came. Events between work carry the card's time, as the driver's do. */

#include <stdbool.h>
#include <stdint.h>

#include "intercept/compute/meter.h"
#include "share/arbitration.h"

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull

#define PROGRAMS_MAX 64
#define ITEMS_MAX 8192
#define KINDS_MAX 8

/* What a process does, over and over: launches of each kind in turn. */
struct program {
    uint64_t kind_ns[KINDS_MAX]; /* what they really cost; up to the first 0 */
    unsigned int jitter_percent; /* how far a launch may differ from that */
    unsigned int depth;          /* launches in flight at most; 1: waits for each */
    uint64_t host_ns;            /* between two launches */
    uint64_t pause_ns;           /* after each round of kinds and a wait for their end */
    uint64_t start_ns, stop_ns;  /* when it runs; stop 0: to the end */
    int streams;                 /* launches go to them in turn; 0: one */
    uint64_t lie_ns; /* a launch of the first kind costs so much where no measurement sees it */
    int container;   /* index of the tenant */
};

struct item {
    bool event;
    uint64_t ns; /* of work; of an event: which */
};

struct process {
    struct program program;
    struct meter meter;
    struct cost_table *costs;
    /* On the card. */
    struct item items[ITEMS_MAX];
    uint64_t head, tail; /* of items */
    uint64_t ran;        /* ns */
    unsigned int in_flight;
    uint64_t launched;
    /* The thread. */
    enum { NEXT, ENTER, BLOCKED, ENDED } phase;
    bool waits_time, waits_result;
    uint64_t wake_ns;
    struct launch launch;
    uint64_t work_ns;
    int kind;
    uint64_t longest_wait, wait_since;
    /* Events of measures. */
    uint64_t begin[MEASURES_MAX], end[MEASURES_MAX];
};

struct world {
    uint64_t now;
    struct grants_file own_grants[PROGRAMS_MAX]; /* of each container */
    struct compute_device account[PROGRAMS_MAX];
    struct arbitration_tenant tenant[PROGRAMS_MAX];
    int tenants;
    struct process *process[PROGRAMS_MAX];
    int processes;
    int on_card; /* the process that has the card, or had it last */
    bool idle;
    uint64_t slice_end, slice_ns, switch_ns, item_end;
    uint64_t card_free;
    uint64_t step_ns; /* when the arbiter looks next */
    bool no_arbiter;
    bool driver_figures; /* the arbiter hears from the driver, once a second */
    uint64_t driver_ns;
    uint64_t random;
};

struct world *world_new(void);
void world_free(struct world *world);

/* A container with a policy; returns its index. */
int world_tenant(struct world *world, enum share_policy policy, uint32_t share, uint32_t weight);
struct process *world_process(struct world *world, int tenant, const struct program *program);

void world_run(struct world *world, uint64_t until_ns);

/* ns of the card that a container has really had. */
uint64_t world_ran(const struct world *world, int tenant);
