/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ResourceSlices (resource.k8s.io/v1) of our driver: the devices of a node as Dynamic Resource
 * Allocation knows them. The agent of the node writes them, the scheduler reads them. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/names.h"
#include "kube/objects/resource_claim.h"
#include "model/gpu_model.h"
#include "wire/json.h"

struct buf;
struct err;

#define RESOURCE_SLICES_PATH "/apis/resource.k8s.io/v1/resourceslices"

/* Kubernetes allows 128, and 64 where one of them has taints, which may come at any time. */
#define SLICE_DEVICES_MAX 64
#define POOL_DEVICES_MAX 512 /* 16 cards that can be divided in 32 ways */
#define SLICE_SETS_MAX 8     /* of a slice, which then has no devices */
#define POOL_SETS_MAX 64     /* GPU_CARDS_MAX of gpu/device.h */
#define SLICE_ENGINES 4      /* kinds of media engines */
#define SLICE_TAINTS_MAX 4   /* of a device */
#define SLICE_TEXT_MAX 65    /* the text of an attribute, terminator included */
#define SLICE_JSON_MAX ((size_t) 256 << 10)

/* Keeps new claims away from a device, or ends pods that use it. */
struct slice_taint {
    char key[DEVICE_ATTRIBUTE_MAX]; /* "domain/name" */
    char value[DEVICE_NAME_MAX];    /* as that of a label */
    bool evicts;                    /* NoExecute; else NoSchedule */
};

/* Parts of a card that devices have in common: a set of counters, or what a device takes of one.
 * Devices that take the same part exclude each other. */
struct slice_counters {
    char name[DEVICE_NAME_MAX]; /* of the set; "": none */
    uint32_t slices;            /* memory slices, as bits */
    uint32_t engines[SLICE_ENGINES];
};

struct slice_device {
    char name[DEVICE_NAME_MAX];
    bool shared; /* shares of it are given out; else only all of it */
    char uuid[SLICE_TEXT_MAX];
    char model[SLICE_TEXT_MAX];
    char profile[SLICE_TEXT_MAX];        /* of a MIG instance; "" */
    char parent[SLICE_TEXT_MAX];         /* of a MIG instance: the UUID of its card; "" */
    char driver_version[SLICE_TEXT_MAX]; /* "": not known */
    uint32_t index;
    int8_t numa;       /* -1: not known */
    bool by_scheduler; /* kube-scheduler allocates it; else aliquot-scheduler */
    uint32_t core;     /* percent of a card */
    uint64_t memory;   /* bytes; Kubernetes counts MiB, so that a rest is not offered */
    bool other;        /* as it was read: it has more than what is here, or lacks some of it */
    struct slice_counters uses;
    uint32_t ntaints;
    struct slice_taint taints[SLICE_TAINTS_MAX];
};

/* The attributes that are texts, each at an offset of a slice_device; "": the device has none. */
struct slice_text_attribute {
    const char *name;
    size_t at;
};
#define SLICE_TEXTS 5
extern const struct slice_text_attribute slice_texts[SLICE_TEXTS];

/* Copies as much of a text as an attribute may have. */
void slice_text(char to[static SLICE_TEXT_MAX], const char *from);

/* All devices of a node, which are in one pool of its name. */
struct slice_pool {
    char node[KUBE_NAME_MAX];
    char node_uid[KUBE_UID_MAX]; /* its slices are deleted with it; "": not known */
    uint64_t generation;         /* raised with every change */
    uint32_t ndevices;
    const struct slice_device *devices;
    uint32_t nsets;
    const struct slice_counters *sets; /* in the first slices, before the devices that use them */
};

/* How many slices the pool has, at least one, and the name of each. */
uint32_t resource_slice_count(const struct slice_pool *pool);
void resource_slice_name(const char *node, uint32_t slice, char ret[static KUBE_NAME_MAX]);

/* Appends a slice, for POST, or with the version (NULL: none) of what it replaces for PUT. */
void resource_slice_encode(const struct slice_pool *pool, uint32_t slice, const char *version,
                           struct buf *out);

enum slice_answer {
    SLICE_AS_WRITTEN,
    SLICE_NO_TAINTS,   /* devices with taints must not be in a slice */
    SLICE_NO_COUNTERS, /* nor must those with counters */
};

/* Compares the API server's answer with the slice that was written. An API server without a feature
 * drops its fields and says nothing. -EOPNOTSUPP with the feature gate in `err`: a device is given
 * out in shares, and the answer has it as a whole one, so that the slice must not stay. Else a
 * value of enum slice_answer, or -EINVAL: it is another object; -ENOMEM. */
int resource_slice_check(const struct slice_pool *pool, uint32_t slice, struct json answer,
                         struct err *err);

/* A slice as it was read. */
struct resource_slice {
    char name[KUBE_NAME_MAX];
    char uid[KUBE_UID_MAX];
    char version[32];
    char node[KUBE_NAME_MAX];
    char pool[KUBE_NAME_MAX];
    uint64_t generation;
    uint64_t nslices; /* of the pool in this generation */
    uint32_t ndevices;
    struct slice_device *devices;
    uint32_t nsets;
    struct slice_counters sets[SLICE_SETS_MAX];
};

/* Reads a slice of our driver. -EINVAL: it is none, is of another driver, or has more devices or
 * longer texts than are written; -ENOMEM. A device without one of our attributes or capacities has
 * none. Free with resource_slice_done(). */
int resource_slice_parse(struct json object, struct resource_slice *ret, struct err *err);
void resource_slice_done(struct resource_slice *slice);

const struct slice_device *resource_slice_find(const struct resource_slice *slice,
                                               const char *device);

/* Whether both have equal members. */
bool slice_device_equal(const struct slice_device *a, const struct slice_device *b);
bool slice_counters_equal(const struct slice_counters *a, const struct slice_counters *b);

/* Whether `have` is that slice of the pool, whatever its generation. */
bool resource_slice_is(const struct slice_pool *pool, uint32_t slice,
                       const struct resource_slice *have);
