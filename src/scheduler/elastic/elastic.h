/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between the claims controller (src/claims, a pure model) and the scheduler: it finds room for
 * claims by the same placement as for pods, keeps what every ElasticGPU gives as reserved
 * capacity of the state, gives pods that use claims their amounts and their cards, and carries out
 * the writes.
 */

#include <stdbool.h>
#include <stdint.h>

#include "claims/claims.h"
#include "scheduler/cluster/api.h"
#include "scheduler/extender/bind.h"
#include "scheduler/extender/gate.h"
#include "scheduler/gates/quota.h"
#include "scheduler/state/state.h"

struct elastic_making;
struct elastic_wait;
struct elastic_growth;
struct elastic_node;

struct elastic {
    struct state *state;
    struct api api;
    struct binder *binder;
    struct event_writer *events; /* NULL: none are written */
    struct quotas *quotas;       /* NULL: claims are held by none */
    uint64_t (*now)(void *userdata);
    void (*changed)(void *userdata); /* elastic_run() is to be called soon */
    /* A claim waits for a MIG instance, and none is free; NULL: none is made on demand. */
    void (*want_instance)(void *userdata, const struct egpu_claim *claim, const char *profile);
    void *userdata;
    struct claims *claims;
    struct elastic_making *makings; /* holds of ElasticGPUs that are being made */
    struct elastic_wait *waits;     /* binds that wait for claims */
    struct elastic_growth *growths; /* pods whose assignment is being rewritten */
    struct elastic_node *nodes;     /* uthash by name: labels */
    bool undrawn;                   /* a bound pod's claim was not known yet */
    uint64_t draw_ms;               /* checked again then */
    uint64_t pass_ms;               /* when the last pass was */
    bool unheld;                    /* a card of an ElasticGPU was not there */
    uint64_t held_ms;               /* time of their last check, complete or partial */
    unsigned hold_turn;             /* which part that was */
    unsigned mps_turn;              /* number of the claim whose turn to be served is next */
    uint64_t writes, failed;        /* counters */
    /* The claim that room is searched for; NULL: none. */
    const struct egpu_claim *sought;
    struct gpu_request request;
    struct place_plan plan;
};

/* 0 or -ENOMEM; the fields before `claims` are given. Adds a selector to the state. */
int elastic_init(struct elastic *e);
void elastic_done(struct elastic *e);

/* Of the watch of pods; `pod` NULL: the pod with that uid is gone. */
void elastic_pod(struct elastic *e, const char *uid, const struct pod *pod);

/* From the watch of nodes: the labels for nodeAffinity and allowedTopologies. NULL `labels`: no
 * labels, or the node is gone. 0 or -ENOMEM. */
int elastic_node(struct elastic *e, const char *name, struct json labels);
/* Whether the claim's class lets it be made there. */
bool elastic_may_be_on(const struct elastic *e, const struct egpu_claim *claim,
                       const struct state_node *node);
/* From the watch of GPU objects, after the state has seen it: the order that its card is to be
 * under MPS. */
void elastic_gpu(struct elastic *e, struct json object);
/* A full list has been shown. */
void elastic_nodes_end(struct elastic *e);

/* One pass of the controller; on the leader, when all watches are synced. */
void elastic_run(struct elastic *e);

/* The gate of pods that use claims; also fills in what they ask. */
bool elastic_gate_open(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why);

/* As binder_bind(), for a pod that may be the first to use a claim: the node is written on it, and
 * the bind goes on when the claim is bound. */
void elastic_bind(struct elastic *e, const char *body, size_t len, void *request);

/* Answers every bind that waits for a claim with that error. */
void elastic_waits_refuse(struct elastic *e, const char *why);

/* Logs it and writes an Event about a claim; kind and version of the note are set here. */
void elastic_note_claim(struct elastic *e, struct claims_note note);

/* The id of the reserved capacity behind an ElasticGPU. */
#define ELASTIC_ID_MAX (KUBE_NAME_MAX + 16)
void elastic_id(const char *egpu, char ret[static ELASTIC_ID_MAX]);
