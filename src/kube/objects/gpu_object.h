/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The GPU object (gpus.elasticgpu.io/v1alpha1, cluster scope): one per card. The agent of the node
 * owns metadata, spec, status.state, status.reason, status.since, status.lastXid and
 * status.capacity; the scheduler owns status.allocatable, status.allocated, status.held,
 * status.heldBy and status.unavailable. The scheduler sets status.state to "Unknown" when the
 * node's agent is gone. Users write the annotation GPU_SET_HEALTHY. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/object_write.h"
#include "kube/objects/pod.h"
#include "model/gpu_link.h"
#include "model/gpu_model.h"

struct buf;

#define GPU_OBJECTS_PATH "/apis/elasticgpu.io/v1alpha1/gpus"
#define GPU_LABEL_NODE "elasticgpu.io/node"
#define GPU_ORDER_MAX 64
#define GPU_LINKS_MAX 64

struct gpu_object {
    char name[KUBE_NAME_MAX];
    char node[KUBE_NAME_MAX]; /* spec.nodeName */
    char owner[KUBE_UID_MAX]; /* UID of the Node that owns it, with which it is deleted; "": none */
    uint32_t index;
    uint64_t memory; /* bytes, of the whole card */
    uint64_t
        capacity; /* bytes that the node offers of it, in status; at least `memory`; 0: `memory` */
    char uuid[GPU_UUID_MAX];
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
    /* status.overuse: containers that hold more of the card than their share, as
     * "namespace/pod/container", each followed by a blank; as many as fit. */
    char overuse[1024];
    /* status.unattributed: bytes of unattributed memory, which are not allocated. */
    uint64_t unattributed;
    char set_healthy[GPU_ORDER_MAX]; /* of the annotation, as much as fits; "": none; not written */
    char uid[KUBE_UID_MAX];          /* as the API server has it; "": not read */
    bool has_capacity;               /* status.capacity is there and whole */
};

/* Reads a GPU object; -EINVAL when it is none or a field has a wrong type or size. */
int gpu_object_parse(struct json object, struct gpu_object *ret_gpu, struct err *err);

/* The text of the annotation GPU_SET_HEALTHY of a GPU object or a Node, as much as fits. */
void gpu_object_read_order(struct json metadata, char ret[static GPU_ORDER_MAX]);

/* `<IPv4 address>-<two-digit index>`, or with the node's name where `address` is not IPv4. Negative
 * errno (-ENAMETOOLONG) when it does not fit. */
int gpu_object_name(const char *node, const char *address, uint32_t index,
                    char ret_name[static KUBE_NAME_MAX]);

/* Appends the whole object without status, for POST or PUT, or as a merge patch. */
void gpu_object_encode(const struct gpu_object *gpu, struct buf *out);

/* Adds one to `overuse`, if it fits. */
void gpu_object_add_overuse(struct gpu_object *gpu, const char *namespace, const char *pod,
                            const char *container);

/* Appends a merge patch for the status subresource: state, reason, since, lastXid,
 * capacity, overuse and unattributed. */
void gpu_object_encode_status(const struct gpu_object *gpu, struct buf *out);
