/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* GPU.status.allocatable, .allocated, .held, .heldBy and .unavailable: what is still free on a
 * card, which bound pods hold the rest, what is kept for pods that are not there, and why nothing
 * can be had of a healthy card. Computed from the pods, compared with what the API server has
 * after every change and patched where it differs: what another client writes there is repaired. */

#include <stdint.h>

#include "base/buf.h"
#include "scheduler/cluster/api.h"
#include "scheduler/state/state.h"
#include "wire/json.h"

struct gpu_status {
    struct state *state;
    struct api api;
    uint64_t (*now)(void *userdata);
    void *userdata;
    unsigned in_flight;
    uint64_t paid_ms;         /* the patches so far are paid for up to here, see gpu_status.c */
    uint64_t patched, failed; /* counters */
};

/* {"allocatable":{...},"allocated":{...}} as it should be, and "held":[...], "heldBy":"..." and
 * "unavailable":"..." where there is such; keys sorted as the API server sorts them. */
void gpu_status_text(struct state *s, struct state_card *card, struct buf *out);

/* The same out of a GPU object, with nothing else of its status, for state_gpu_seen(). */
void gpu_status_observed(struct json status, struct buf *out);

/* The merge patch that makes the one out of the other. `observed` may be NULL. */
void gpu_status_patch(const char *observed, const char *wanted, struct json_parser *parser,
                      struct buf *out);

/* Compares every card that may have changed and sends what is needed, a bounded number at once. To
 * be called soon after changes; whatever is left over is done at the next call. */
void gpu_status_run(struct gpu_status *p, struct json_parser *parser);
