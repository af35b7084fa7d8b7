/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The extender's filter and prioritize as functions from JSON to JSON over the state.
 * kube-scheduler asks filter for every pod with a GPU request, prioritize when more than one node
 * is left, and bind (bind.h) for the winner, possibly while it filters the next pod already. So the
 * likely winner is promised its share here and now, or two pods would be sent to the same free
 * share.
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

/* How long a promise without a Binding counts. A bind normally comes within milliseconds; one that
 * comes later than this is placed again. */
#define TENTATIVE_TTL_MS 5000

/* A pod that no node can take, or whose request makes no sense; `pod` may be forgotten afterwards.
 * `key` is the same as long as what the message says is, but for its figures; 0: no such key. */
typedef void (*extender_refusal)(struct state_pod *pod, const char *reason, uint64_t key,
                                 const char *message, void *userdata);

/* Whether a refusal with that key needs no message, because the one given before is still shown. */
typedef bool (*extender_known)(const struct state_pod *pod, const char *reason, uint64_t key,
                               void *userdata);

struct extender_candidate;

/* None of these nodes has room for the pod, and no promise is in the way. */
typedef void (*extender_no_room)(struct state_pod *pod, const struct extender_candidate *candidates,
                                 size_t n, uint64_t now_ms, void *userdata);

/* What kube-scheduler is told while ready() says no; it asks again. */
#define EXTENDER_NOT_READY                                                                         \
    "aliquot-scheduler is still reading the state of the cluster, or another replica hands over "  \
    "to this one; trying again"

/* So many nodes does filter name at most, the best ones. Our scores outweigh all others together,
 * so the pod goes to the best node anyhow, and kube-scheduler is spared scoring, and sending back,
 * those that cannot be it. When it comes again with the pod, something that we do not know of
 * (another extender, a plugin) did not take those: then it is named all, as is who asks about nodes
 * that do not exist yet. */
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
    const char *(*trouble)(void *userdata); /* why it is not, "" where nothing says; may be NULL */
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
