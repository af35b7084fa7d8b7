/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The extender's bind: one POST of a Binding that carries the assignment, so that the API server
 * writes node and assignment in one step or not at all. */

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "kube/objects/signing.h"
#include "scheduler/cluster/api.h"
#include "scheduler/cluster/lease.h"
#include "scheduler/extender/binding.h"
#include "scheduler/extender/extender.h"
#include "scheduler/state/state.h"
#include "wire/prom.h"

/* Time after which a Binding is decided: the API server executes it by then or never.
 */
#define DOUBT_MAX_MS LEASE_SETTLE_MS

/* How long the watch may lag behind a Binding before the API server is asked. */
#define AUDIT_AFTER_MS 5000

struct binder {
    struct state *state;
    struct api api;
    const struct signing_key *key; /* NULL until it is there: bind then answers an error */
    uint64_t (*now)(void *userdata);
    bool (*ready)(void *userdata);
    void *userdata;
    const struct gates *gates; /* may be NULL */
    struct json_parser *parser;
    bind_done done;
    struct place_plan plan;
    struct gpu_request request;
    uint64_t doubts, conflicts; /* counters */
    struct prom_histogram
        waits; /* from the creation of a pod to its Binding; init by binder_init() */
};

/* 0 or -ENOMEM; the fields before `parser` and `done` are given. */
int binder_init(struct binder *b);
void binder_done(struct binder *b);

/* Handles the body of a bind request; `request` is handed to b->done, inside the call or later. */
void binder_bind(struct binder *b, const char *body, size_t len, void *request);

/* To be called about once a second: reads pods whose Binding is in doubt or long awaited, and
 * expires old assumed allocations. */
void binder_audit(struct binder *b);
