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
#include "scheduler/extender/extender.h"
#include "scheduler/state/state.h"

/* Shorter than any sensible httpTimeout of the extender's configuration, so that kube-scheduler
 * hears our answer and not its own time-out. */
#define BIND_TIMEOUT_MS LEASE_SEND_MS

/* A Binding is decided so long after it was begun: the API server carries it out by then or never.
 */
#define DOUBT_MAX_MS LEASE_SETTLE_MS

/* How long the watch may lag behind a Binding before the API server is asked. */
#define AUDIT_AFTER_MS 5000

/* Called once per bind with the answer for kube-scheduler ("" is success). */
typedef void (*bind_done)(const char *error, void *request);

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
};

int binder_init(
    struct binder *b); /* 0 or -ENOMEM; the fields before `parser` and `done` are given */
void binder_done(struct binder *b);

/* Handles the body of a bind request; `request` is handed to b->done, inside the call or later. */
void binder_bind(struct binder *b, const char *body, size_t len, void *request);

/* What bind is asked for. */
struct bind_target {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char node[KUBE_NAME_MAX];
};

/* bind_plain.c: the state knows no pod of that UID that asks for a share. kube-scheduler hands over
 * each pod with a managed resource name, whatever its quantity, and names that are left to others;
 * so the API server is asked for the pod, and one that asks for nothing gets a Binding without an
 * assignment. Answers as binder_bind(). */
void binder_bind_plain(struct binder *b, const struct bind_target *target, void *request);

/* Appends the Binding; `annotations`: members of a JSON object, or "". */
void binding_encode(const struct bind_target *target, const char *annotations, struct buf *out);

/* The path of a Binding or, with `binding` "", of the pod. */
#define BIND_PATH_MAX 512
void bind_path(const struct bind_target *target, const char *binding,
               char ret[static BIND_PATH_MAX]);

/* To be called about once a second: asks the API server about pods whose Binding is in doubt or
 * long awaited, and lets old promises run out. */
void binder_audit(struct binder *b);
