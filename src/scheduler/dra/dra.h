/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ResourceClaims of our driver, allocated by the scheduler: by the same placement and from the same
 * state as pods of the extender. What is allocated to a claim, by anyone, is reserved capacity of
 * the state.
 *
 * An allocation is three writes, each of which follows from what the API server has: the finalizer
 * of the claim, its status with the allocation, and the removal of the pod's scheduling gate. After
 * a crash between any two, the next leader goes on from there. Objects come in by the watches; the
 * writes go out through `api`. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/event_writer.h"
#include "scheduler/cluster/api.h"
#include "scheduler/extender/extender.h"
#include "scheduler/gates/gang.h"
#include "scheduler/gates/quota.h"
#include "scheduler/state/state.h"
#include "wire/json.h"

struct dra_claim;
struct dra_class;
struct dra_slice;
struct dra_device;
struct dra_pod;
struct dra_node;
struct dra_template;
struct dra_namespace;

enum dra_kind {
    DRA_CLAIMS,
    DRA_CLASSES,
    DRA_SLICES,
    DRA_PODS,
    DRA_NODES,
    DRA_TEMPLATES, /* those with DRA_TEMPLATE_LABEL */
    DRA_KINDS
};

struct dra {
    struct state *state;
    struct api api;
    struct event_writer *events; /* NULL: none are written */
    struct quotas *quotas;       /* NULL: claims are held by none */
    const struct gates *gates;   /* of pods, as for the extender; NULL: none */
    extender_no_room no_room;    /* for pods without room; NULL: none is made */
    uint64_t (*now)(void *userdata);
    bool (*leads)(void *userdata);
    void (*changed)(void *userdata); /* dra_run() is to be called soon */
    void *userdata;
    struct dra_claim *claims;         /* uthash by "namespace/name" */
    struct dra_class *classes;        /* uthash by name */
    struct dra_slice *slices;         /* uthash by name */
    struct dra_device *devices;       /* uthash by UUID and node: what the slices have */
    struct dra_pod *pods;             /* uthash by UID: those that use claims */
    struct dra_node *nodes;           /* uthash by name */
    struct dra_template *templates;   /* uthash by "namespace/name": of pods' requests */
    struct dra_namespace *namespaces; /* uthash by name: those with templates */
    uint64_t news;                    /* counts what was shown and what was written */
    uint64_t devices_version;         /* counts the changes of slices */
    uint64_t taken;                   /* counts what was shown of claims and classes */
    uint64_t classes_taken;           /* its value when a class changed last */
    uint64_t spent;                   /* on selectors, as cel_ask() counts it */
    uint32_t others;                  /* devices that kube-scheduler allocates */
    bool unheld;                      /* the card of an allocated device is not known */
    uint32_t unresolved;              /* such claims for which nothing is reserved */
    uint64_t held_ms;                 /* when all claims were last looked at; 0: that is due */
    /* Of the search that is going on; NULL: none is. */
    const struct state_pod *sought;
    const uint64_t *allowed;                /* by container: bit i: may take cards[i] of the node */
    unsigned in_flight;                     /* writes */
    uint32_t round;                         /* in which each pod that waits has one search */
    uint64_t allocated, taken_back, failed; /* counters */
    struct gpu_request request;             /* scratch of a search */
    struct place_plan plan;
    struct place_result result;
};

/* 0 or -ENOMEM; the fields before `claims` are given. Adds a selector to the state, which keeps
 * pods with claims from then on. */
int dra_init(struct dra *d);
void dra_done(struct dra *d);

/* ---- watch events ---- */

/* Begin and end of a full list. */
void dra_sync_begin(struct dra *d, enum dra_kind kind);
void dra_sync_end(struct dra *d, enum dra_kind kind);

/* An object as it is now, or as it was when it was deleted. 0, or a negative errno with `err`: it
 * cannot be read or kept. */
int dra_see(struct dra *d, enum dra_kind kind, struct json object, bool gone, struct err *err);

/* ---- at work ---- */

/* To be called about once a second on every replica, when all watches are synced: looks again at
 * what claims hold, where a card was not known. */
void dra_tick(struct dra *d);

/* On the leader, when all watches are synced: finds places for the claims of pods that wait, and
 * writes what is to be written. */
void dra_run(struct dra *d);

/* All pods that wait are looked at again. */
void dra_ask_again(struct dra *d);

/* How gangs place their members with claims. */
struct gang_claims dra_gang_claims(struct dra *d);

/* ---- what is shown ---- */

/* Why the claims of the pod wait, as its Event says; "": they do not, or this replica has not
 * searched; NULL: no such pod uses claims. */
const char *dra_why(const struct dra *d, const char *namespace, const char *pod);

/* Calls `each` for all claims for which the last search of a pod found no place, with the reason:
 * "no-room", "held" (by a scheduling gate), "refused" (as long as the objects are as they are) or
 * "missing" (one is not there, or in doubt). */
void dra_waiting_each(const struct dra *d,
                      void (*each)(const char *namespace, const char *reason, void *userdata),
                      void *userdata);

/* This replica does not lead any more. */
void dra_lost(struct dra *d);
