/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The GPU object (gpus.elasticgpu.io/v1alpha1, cluster scope): one for each card and one for each
 * MIG instance. The agent of the node owns metadata, spec, status.state, status.reason,
 * status.since, status.lastXid, status.licence, status.capacity, status.overuse, status.evict,
 * status.maintenance, status.reset, status.unattributed, status.resourceClaims and status.mig; the
 * scheduler owns
 * status.allocatable, status.allocated, status.held, status.heldBy, status.unavailable and the
 * annotation elasticgpu.io/mig-order (mig/order.h). The scheduler sets status.state to "Unknown"
 * when the node's agent is gone. Users write the annotations GPU_SET_HEALTHY, GPU_RESET and
 * GPU_MAINTENANCE.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/object_write.h"
#include "kube/objects/pod.h"
#include "model/dialect.h"
#include "model/dra.h"
#include "model/gpu_link.h"
#include "model/gpu_model.h"

struct buf;

#define GPU_OBJECTS_PATH "/apis/elasticgpu.io/v1alpha1/gpus"
#define GPU_LABEL_NODE "elasticgpu.io/node"
#define GPU_ORDER_MAX 64
#define GPU_LOST_REASON "the driver does not list the card any more" /* status.reason */
#define GPU_LINKS_MAX 64
#define GPU_PROFILE_TEXT_MAX 32

/* spec.mig: of a card that can be in MIG mode, or of a MIG instance. */
struct gpu_object_mig {
    bool enabled, disabled;             /* the mode of a card; both false: not known, or no card */
    char profile[GPU_PROFILE_TEXT_MAX]; /* of an instance, and so are the numbers */
    uint32_t gi, ci;                    /* ids of the GPU instance and of its compute instance */
    uint32_t start, size;               /* placement, in memory slices of the card */
    uint32_t slices;                    /* compute slices */
};

/* Annotations by which users order something of a card, as much as fits; "": none. */
struct gpu_orders {
    char set_healthy[GPU_ORDER_MAX], reset[GPU_ORDER_MAX], maintenance[16];
};

/* status.reset: how the last order of GPU_RESET ended. */
struct gpu_object_reset {
    char order[GPU_ORDER_MAX]; /* the text of the annotation; "": none has ended */
    bool failed;
    char message[256]; /* why it failed */
};

/* status.resourceClaims: of a device that a DRA driver is to publish. */
struct gpu_object_claims {
    enum dra_allocator allocator; /* DRA_NONE: it is in no claims */
    char message[256];            /* why it gets none; "": it can */
};

struct gpu_object {
    char name[KUBE_NAME_MAX];
    char node[KUBE_NAME_MAX]; /* spec.nodeName */
    char owner[KUBE_UID_MAX]; /* UID of the Node that owns it, with which it is deleted; "": none */
    uint32_t index;           /* of the card, also for an instance */
    uint64_t memory;          /* bytes, of the whole device */
    uint64_t
        capacity; /* bytes that the node offers of it, in status; at least `memory`; 0: `memory` */
    bool whole_only;               /* spec.wholeOnly: no share of it is given out, only all of it */
    bool under_mps;                /* spec.underMPS: its containers are clients of MPS */
    bool mps_on_demand;            /* spec.mpsOnDemand: it is put under MPS for claims */
    struct card_replicas replicas; /* spec.replicas */
    bool no_shares;                /* status.capacity is 0: no share of it is given out */
    uint32_t core;                 /* of status.capacity: percent of a card; 0: all of a card */
    char uuid[GPU_UUID_MAX];
    char parent[GPU_UUID_MAX]; /* spec.parent: of an instance, the UUID of its card; "": a card */
    struct gpu_object_mig mig;
    char model[96];
    char path[64];                /* "/dev/nvidia0" */
    int8_t numa;                  /* spec.numaNode; -1: not known */
    uint32_t nlinks;              /* 0: not known how it is connected */
    uint8_t links[GPU_LINKS_MAX]; /* spec.links: enum gpu_link, by the index of the other card */
    char state[16];               /* status.state: "Healthy", "Suspect" ... */
    bool healthy;                 /* it is exactly "Healthy" */
    bool unknown;                 /* it is exactly "Unknown" */
    char reason[256];             /* status.reason: why it is not healthy */
    char since[OBJECT_TIME_SIZE]; /* status.since: of the state; "": not reported */
    uint32_t last_xid;            /* status.lastXid; 0: none */
    char licence[16];             /* status.licence: of a vGPU, "Licensed" or "Unlicensed" */
    /* status.overuse: containers that hold more of the card than their share, as
     * "namespace/pod/container", each followed by a blank; as many as fit. */
    char overuse[1024];
    /* status.evict: pods that are to be evicted from the card, as "namespace/name/uid", each
     * followed by a blank; as many as fit. */
    char evict[1024];
    /* status.maintenance: the order of GPU_MAINTENANCE that the agent follows, from the card's
     * object or its node: "cordon", "drain" or "release"; "": none. */
    char maintenance[16];
    struct gpu_object_reset reset;
    struct gpu_object_claims claims;
    /* status.unattributed: bytes of unattributed memory, which are not allocated. */
    uint64_t unattributed;
    struct gpu_orders orders; /* not written */
    char uid[KUBE_UID_MAX];   /* as the API server has it; "": not read */
    bool has_capacity;        /* status.capacity is there and whole */
};

/* Reads a GPU object; -EINVAL when it is none or a field has a wrong type or size. */
int gpu_object_parse(struct json object, struct gpu_object *ret_gpu, struct err *err);

/* The orders of a GPU object or a Node. */
void gpu_object_read_orders(struct json metadata, struct gpu_orders *ret);

/* `<IPv4 address>-<two-digit index>`, or with the node's name where `address` is not IPv4. Negative
 * errno (-ENAMETOOLONG) when it does not fit. */
int gpu_object_name(const char *node, const char *address, uint32_t index,
                    char ret_name[static KUBE_NAME_MAX]);

/* `<name of the card's object>-gi<gi>-ci<ci>`. Negative errno (-ENAMETOOLONG) when it does not fit.
 */
int gpu_object_instance_name(const char *card, uint32_t gi, uint32_t ci,
                             char ret_name[static KUBE_NAME_MAX]);

/* Appends the whole object without status, for POST or PUT, or as a merge patch. */
void gpu_object_encode(const struct gpu_object *gpu, struct buf *out);

/* Adds one to `overuse`, if it fits. */
void gpu_object_add_overuse(struct gpu_object *gpu, const char *namespace, const char *pod,
                            const char *container);

/* Adds one to `evict`. False: it does not fit. */
bool gpu_object_add_evict(struct gpu_object *gpu, const char *namespace, const char *pod,
                          const char *uid);

/* Appends a merge patch for the status subresource: state, reason, since, lastXid,
 * licence, capacity, overuse, evict, maintenance, reset, resourceClaims and unattributed. */
void gpu_object_encode_status(const struct gpu_object *gpu, struct buf *out);
