/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The extender's filter and prioritize as functions from JSON to JSON over the state.
 * kube-scheduler calls filter for every pod with a GPU request, prioritize when more than one node
 * is left, and bind (bind.h) for the selected node, possibly while it filters the next pod. So
 * filter or prioritize makes an assumed allocation on the likely node; otherwise two pods could be
 * sent to the same free share.
 *
 * Protocol: k8s.io/kube-scheduler extender/v1. Its keys are Go field names without case. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "place/place.h"
#include "scheduler/extender/args.h"
#include "scheduler/extender/gate.h"
#include "scheduler/state/state.h"

struct json_parser;

/* Lifetime of an assumed allocation without a Binding. bind normally follows within milliseconds;
 * after this time the pod is placed again. */
#define ASSUMED_TTL_MS 5000

/* A pod that fits no node, or with an invalid request; `pod` may be freed afterwards. `key` is
 * equal for messages that differ only in figures; 0: none. */
typedef void (*extender_refusal)(struct state_pod *pod, const char *reason, uint64_t key,
                                 const char *message, void *userdata);

/* Whether a refusal with that key needs no message, because the one given before is still shown. */
typedef bool (*extender_known)(const struct state_pod *pod, const char *reason, uint64_t key,
                               void *userdata);

struct extender_candidate;

/* None of these nodes has room for the pod, even without assumed allocations. */
typedef void (*extender_no_room)(struct state_pod *pod, const struct extender_candidate *candidates,
                                 size_t n, uint64_t now_ms, void *userdata);

/* What filter writes into `requeue.reason` of a pod that no gate holds (then it is the gate's
 * name): no node has room, none of the cluster has a GPU that could take the pod, or kube-scheduler
 * decides: some have room, or its own filters have left out those that could. */
#define REFUSED_NO_ROOM "no-room"
#define REFUSED_NO_GPU "no-gpu"
#define REFUSED_ELSEWHERE "other"

/* The error while ready() is false; kube-scheduler retries. */
#define EXTENDER_NOT_READY                                                                         \
    "aliquot-scheduler is still reading the state of the cluster, or another replica hands over "  \
    "to this one; trying again"

/* Maximum number of nodes in the response of filter: the best ones. The extender's scores outweigh
 * all others, so the pod goes to the best node anyway, and kube-scheduler need not score and send
 * the rest. When a pod comes again, another extender or plugin has rejected these: then the
 * response has all nodes, as for requests about nodes that do not exist yet. */
#define EXTENDER_LIST 161

struct extender_candidate {
    struct state_node *node;
    struct state_head *head; /* of `node` */
    const char *name;
    struct json object; /* the Node as it was given; invalid where nodes are asked by name */
    enum place_reason reason;
    int64_t score;
};

struct extender {
    struct state *state;
    bool (*ready)(void *userdata);          /* whether the state is complete */
    const char *(*trouble)(void *userdata); /* why it is not, "" without a reason; may be NULL */
    extender_refusal on_refusal;            /* may be NULL */
    extender_known known;                   /* may be NULL: nothing is */
    extender_no_room on_no_room;            /* may be NULL */
    void *userdata;
    const struct gates *gates; /* may be NULL */
    struct json_parser *parser;
    struct extender_candidate *candidates; /* memory that is kept from call to call */
    size_t candidates_size;
};

/* 0 or -ENOMEM; the fields before `parser` are the caller's to fill in. */
int extender_init(struct extender *e);
void extender_done(struct extender *e);

/* Both append a complete answer to `out` in every case. Negative when the answer is an error: the
 * request was not understood, or the time is not right. */
int extender_filter(struct extender *e, const char *body, size_t len, uint64_t now_ms,
                    struct buf *out);
int extender_prioritize(struct extender *e, const char *body, size_t len, uint64_t now_ms,
                        struct buf *out);

/* {"Error":"..."} as bind answers; "" is success. */
void extender_error(struct buf *out, const char *text);
