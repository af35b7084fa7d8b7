/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Dialects: the resource names under which a container can ask for a part of a GPU, and the one
 * internal request that all of them mean. A dialect is a row of dialects.def. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/annotation.h"

#define RESOURCE_CORE "elasticgpu.io/gpu-core"     /* percent of a card; 100 = one whole card */
#define RESOURCE_MEMORY "elasticgpu.io/gpu-memory" /* bytes */
#define RESOURCE_COUNT "elasticgpu.io/gpu-count"   /* cards, of each of which the rest is asked */
#define RESOURCE_TFLOPS "elasticgpu.io/gpu-tflops" /* FP16 TFLOPS of a card, not percent */
#define RESOURCE_SLOT "elasticgpu.io/slot"         /* carrier: makes kubelet call the plugin */
#define RESOURCE_QGPU_CORE "tke.cloud.tencent.com/qgpu-core"

/* The compute of a card, in percent. */
#define CORE_PER_CARD 100

/* How many containers without a share of compute fit on a card (one slot each). */
#define SLOTS_PER_CARD 64

/* Replicas of a card for which the configuration of the node has no number: the example of NVIDIA's
 * documentation has ten. */
#define REPLICAS_PER_CARD 10
#define REPLICAS_MAX 1024 /* of one card */

/* The replicas of a card that aliquot-scheduler gives out, by section `sharing` of the node's
 * configuration. All 0: there are none. */
struct card_replicas {
    uint32_t count;   /* at least 2 */
    bool as_cards;    /* under the name of whole cards, so that nvidia.com/gpu requests them */
    bool one_at_most; /* a container gets one at most */
    bool with_core;   /* each has its part of the compute, too */
};

/* Equal for equal replicas only. */
static inline uint32_t card_replicas_code(const struct card_replicas *r) {
    return r->count << 3 | (uint32_t) r->as_cards << 2 | (uint32_t) r->one_at_most << 1 |
           (uint32_t) r->with_core;
}

/* The meaning of a number. Totals are divided by the number of cards. */
enum quantity_kind {
    QUANTITY_CORE,           /* percent, total: below 100, or whole cards */
    QUANTITY_CORE_EACH,      /* percent of each card */
    QUANTITY_CORE_OFFLINE,   /* percent, not guaranteed: unused time */
    QUANTITY_TFLOPS,         /* of each card */
    QUANTITY_MEMORY,         /* of each card, in units; total where there is a QUANTITY_SPLIT */
    QUANTITY_MEMORY_PERCENT, /* of each card */
    QUANTITY_MEMORY_RATIO,   /* percent, total */
    QUANTITY_BOTH,           /* percent, total, of compute and of memory */
    QUANTITY_CARDS,          /* cards; whole ones where nothing says how much of each */
    QUANTITY_SPLIT,          /* cards over which the totals are divided */
    QUANTITY_REPLICAS,       /* of one card: see struct card_replicas */
    QUANTITY_PRIORITY,       /* 0: as all others; more: after them */
    QUANTITY_KINDS,
};

/* Projects whose tools read annotations and variables of pods (kube/objects/dialect_export.h). */
enum export_kind {
    EXPORT_NONE,
    EXPORT_ELASTIC,
    EXPORT_GPUSHARE,
    EXPORT_GPU_MANAGER,
    EXPORT_HAMI,
    EXPORT_KOORDINATOR,
    EXPORT_KAI,
    EXPORT_KINDS,
};

/* Why a request cannot be understood. */
enum request_problem {
    REQUEST_OK,
    REQUEST_CORE_STEP, /* 150 */
    REQUEST_CORE_ZERO,
    REQUEST_CORE_RANGE, /* more than 64 cards */
    REQUEST_CORE_EACH_RANGE,
    REQUEST_CARDS_RANGE,
    REQUEST_SPLIT, /* 3 over 2 cards */
    REQUEST_MEMORY_ZERO,
    REQUEST_MEMORY_SMALL, /* a unit is missing */
    REQUEST_MEMORY_RANGE, /* 16Ei */
    REQUEST_PERCENT_RANGE,
    REQUEST_REPLICAS_RANGE,
    REQUEST_TFLOPS_RANGE,
    REQUEST_NOT_A_NUMBER,
    REQUEST_TWICE, /* two names for the same quantity */
    REQUEST_SLOT_ALONE,
    REQUEST_CLAIM_AND_MORE, /* a claim by annotation, and resources beside it */
    REQUEST_SLOT_MISSING, /* nothing asked that kubelet calls a plugin for, and no carrier added */
    REQUEST_SLOT_COUNT,
    REQUEST_TOO_MANY, /* containers */
    REQUEST_SCALING,
    REQUEST_SELECTION, /* an annotation of selection.c */
    REQUEST_FRACTION,  /* KAI's annotations */
    REQUEST_FRACTION_CONTAINER,
    REQUEST_MIG,
    REQUEST_MIXED_DIALECTS, /* in one container: a struct dialect_pair names them */
    REQUEST_PROBLEMS,
};

/* The rows of dialects[]. */
enum dialect_id {
#define DIALECT(id, title, project, flags, tools, prefix, reader) DIALECT_##id,
#include "model/dialects.def"
    DIALECT_COUNT,
};

struct dialect_pair {
    enum dialect_id one, other;
};

/* The parts of a request in annotations. */
enum annotation_part {
    ANNOTATION_FRACTION,  /* of the compute and the memory of a card */
    ANNOTATION_MEMORY,    /* of each card; this or the fraction is the request */
    ANNOTATION_DEVICES,   /* cards; without it one */
    ANNOTATION_CONTAINER, /* the container's name; without it the first one */
    ANNOTATION_PARTS,
};

struct container_request;

struct dialect {
    const char *name; /* for people: "HAMi (nvidia.com/gpu)" */
    bool offered; /* its QUANTITY_CORE is a resource of the agent's: needs no carrier beside it */
    bool zero_is_unset; /* its project takes 0 for "not given" */
    bool memory_is_all; /* compute alone comes with all of the memory, not with as much of it */
    bool replicas; /* cards without an amount are replicas where these have the name of cards */
    bool divides;  /* compute beyond 100 percent, and the memory beside it, over several cards */
    enum export_kind exported;
    const char *prefix; /* of the exported annotations where two dialects share the kind */
    /* Understands a request in annotations, of which `text` has the values (NULL: not there); NULL:
     * the dialect has none. The caller enters the dialect. */
    enum request_problem (*read_annotations)(const char *const text[ANNOTATION_PARTS],
                                             struct container_request *ret);
};

extern const struct dialect dialects[DIALECT_COUNT];

/* A resource of a container. */
struct dialect_quantity {
    enum dialect_id dialect;
    const char *name;
    enum quantity_kind kind;
    uint64_t unit; /* bytes that 1 stands for; else 1 */
};

/* In the order of their dialects. */
extern const struct dialect_quantity dialect_quantities[];
extern const size_t dialect_quantities_count;

/* The request of a pod that is in its annotations and in no resource. */
struct annotated_request {
    enum dialect_id dialect;
    const char *text[ANNOTATION_PARTS]; /* values; NULL: not there */
};

/* When a container runs, which decides what it can hold at the same time as the others. */
enum container_phase {
    CONTAINER_INIT,    /* alone, before the app containers */
    CONTAINER_SIDECAR, /* init container with restartPolicy Always: from its turn to the pod's end
                        */
    CONTAINER_APP,
};

/* What one container requests: `cards` distinct cards, whole or a share of each. */
struct container_request {
    char container[64];
    enum container_phase phase;
    uint32_t cards;          /* at least 1; 0 only: another container requests all of its claim */
    bool whole;              /* then core, memory and what follows them are 0 */
    uint8_t driver;          /* of enum driver_capability */
    uint32_t core;           /* percent of each card; 0: no guarantee */
    uint64_t memory;         /* bytes of each card; 0: by memory_percent, else by the compute */
    uint32_t memory_percent; /* of whichever card it gets; 0: not used */
    uint32_t replicas;       /* of the card; 0: not used */
    bool as_replica; /* with `whole`: one replica of each card whose replicas are `as_cards` */
    bool as_cards;   /* a share under a name of whole cards: of none whose replicas have it, too */
    uint32_t tflops; /* FP16 TFLOPS of each card, which give its core; 0: not used */
    uint64_t memory_floor; /* whole cards only: memory requested beside, which they have in sum */
    bool claimed;          /* the amounts are those of an ElasticGPUClaim, to be filled in */
    bool takes_mps;        /* with `claimed`: cards that are under MPS for claims, too */
    bool slot;             /* shares without compute: takes one of the slots of each card */
    bool offline;          /* gets what others leave, unless the pod names another policy */
    uint32_t scaling;      /* oversubscription of its memory, in thousandths; 0: as the node does */
    enum dialect_id dialect; /* of the request */
    uint16_t ordinal;        /* of the container among the init containers, or among the others */
    uint32_t cpus;           /* exclusive CPUs, see struct cpu_memory; 0: none */
};

#define GPU_CONTAINERS_MAX 32

/* What a pod requests: its containers that request anything, init containers and sidecars in their
 * order, then app containers. */
struct gpu_request {
    uint32_t n;
    struct container_request containers[GPU_CONTAINERS_MAX];
};

/* One resource line of a container: name and quantity as written. */
struct resource_line {
    const char *name;
    const char *quantity;
    size_t quantity_len;
};

/* Disables dialects that another plugin of the cluster serves, for the life of the process; to be
 * called before any request is read. `names` has one name of each, separated by commas
 * ("nvidia.com/gpu"; gpu-fraction for KAI's), and disables the whole row. -EINVAL: a name is in no
 * row, or in one that the agent offers itself; nothing is changed. Names of MIG instances
 * (nvidia.com/mig-*) are taken and mean nothing here: only the agent's back end has them. */
struct err;
int dialect_leave(const char *names, struct err *err);
bool dialect_is_left(size_t row);
/* Whether the row of that name is left; false for a name of no row. */
bool dialect_is_left_name(const char *name);
/* Whether aliquot-scheduler gives out replicas under that name: it is nvidia.com/gpu or
 * nvidia.com/gpu.shared, and not left. */
bool dialect_gives_replicas(const char *name);

/* Understands the resources of one container. `ret` gets everything but container, phase, ordinal
 * and scaling; a container that requests no GPU gives REQUEST_OK and *ret_requested false. */
enum request_problem dialect_read(const struct resource_line *lines, size_t n,
                                  struct container_request *ret, bool *ret_requested,
                                  struct dialect_pair *ret_mixed);

/* Whether a container with these lines must get RESOURCE_SLOT beside them. */
bool dialect_needs_slot(const struct resource_line *lines, size_t n);

/* Finds the request in the annotations of a pod: of the first dialect that has one and is not left
 * to others. The texts belong to the annotations. */
bool dialect_find_annotated(annotation_value value, const void *annotations,
                            struct annotated_request *ret);

/* As dialect_read(), for the container that the request is about. */
enum request_problem dialect_read_annotated(const struct annotated_request *request,
                                            struct container_request *ret);

/* The label of a pod that completes the request of a container with these lines, or NULL. The
 * caller adds its value as one more line of that name. */
const char *dialect_label(const struct resource_line *lines, size_t n);

/* The environment variable that gives the memory of a container with these lines, or NULL: the
 * lines request nothing, or an amount of memory. Its value is to be read as one more line of that
 * name. */
const char *dialect_variable(const struct resource_line *lines, size_t n);

/* The bit of an annotation of a known project that has no effect here; 0: `key` is none. */
uint32_t dialect_unserved(const char *key);

/* "annotation KEY has no effect: REASON" for each bit of the set, separated by "; ". */
#define UNSERVED_TEXT_MAX 1024
void dialect_unserved_text(uint32_t set, char ret[static UNSERVED_TEXT_MAX]);

/* Whether `name` belongs to any dialect, is the carrier, or must not be combined with them. */
bool dialect_knows(const char *name);

/* "GPU request is malformed: ..."; never NULL. Valid until the next call of the same thread. */
const char *request_problem_text(enum request_problem problem, struct dialect_pair mixed);
