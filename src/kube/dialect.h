/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Dialects: the resource names under which a container can ask for a part of a GPU, and the one
 * internal request that all of them mean. A dialect is a row of the table in dialect.c. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESOURCE_CORE "elasticgpu.io/gpu-core"     /* percent of a card; 100 = one whole card */
#define RESOURCE_MEMORY "elasticgpu.io/gpu-memory" /* bytes */
#define RESOURCE_SLOT "elasticgpu.io/slot"         /* carrier: makes kubelet call the plugin */

/* How many containers without a share of compute fit on a card (one slot each). */
#define SLOTS_PER_CARD 64

struct dialect {
    const char *name;     /* "native" */
    const char *core;     /* resource name */
    const char *memory;   /* resource name */
    uint64_t memory_unit; /* bytes that 1 of `memory` stands for */
};

extern const struct dialect dialects[];
extern const size_t dialects_count;

/* When a container runs, which decides what it can hold at the same time as the others. */
enum ask_phase {
    ASK_INIT,    /* alone, before the app containers */
    ASK_SIDECAR, /* init container with restartPolicy Always: from its turn to the pod's end */
    ASK_APP,
};

/* What one container asks: `cards` distinct cards, whole or a share of each. */
struct gpu_ask {
    char container[64];
    enum ask_phase phase;
    uint32_t cards;          /* at least 1 */
    bool whole;              /* then core, memory and what follows them are 0 */
    uint32_t core;           /* percent of each card; 0: no guarantee */
    uint64_t memory;         /* bytes of each card; 0: by memory_percent, else by the compute */
    uint32_t memory_percent; /* of whichever card it gets; 0: not used */
    uint32_t tflops;         /* FP16 TFLOPS of each card, which give its core; 0: not used */
    uint64_t memory_floor;   /* whole cards only: memory asked beside, which they have in sum */
    bool claimed;            /* the amounts are those of an ElasticGPUClaim, to be filled in */
    bool slot;               /* shares without compute: takes one of the slots of each card */
    uint32_t scaling; /* how far its memory may be oversold, in thousandths; 0: as the node does */
};

#define GPU_ASKS_MAX 32

/* What a pod asks: its containers that ask anything, init containers and sidecars in their order,
 * then app containers. */
struct gpu_request {
    uint32_t n;
    struct gpu_ask asks[GPU_ASKS_MAX];
};

/* Why a request cannot be understood; request_problem_text() says it in one fixed sentence. */
enum request_problem {
    REQUEST_OK,
    REQUEST_CORE_STEP, /* 150 */
    REQUEST_CORE_ZERO,
    REQUEST_CORE_RANGE, /* more than 64 cards */
    REQUEST_MEMORY_ZERO,
    REQUEST_MEMORY_RANGE, /* 16Ei */
    REQUEST_NOT_A_NUMBER,
    REQUEST_MIXED_DIALECTS, /* in one container */
    REQUEST_SLOT_ALONE,
    REQUEST_SLOT_MISSING, /* memory only, but admission has not added the carrier */
    REQUEST_SLOT_COUNT,
    REQUEST_TOO_MANY, /* containers */
    REQUEST_SCALING,
    REQUEST_PROBLEMS,
};

/* One resource line of a container: name and quantity as written. */
struct resource_line {
    const char *name;
    const char *quantity;
    size_t quantity_len;
};

/* Understands the resources of one container. `ret` gets everything but container and phase; a
 * container that asks nothing of us gives REQUEST_OK and *ret_asks false. */
enum request_problem dialect_read(const struct resource_line *lines, size_t n, struct gpu_ask *ret,
                                  bool *ret_asks);

/* Whether `name` belongs to any dialect or is the carrier. */
bool dialect_knows(const char *name);

/* "GPU request is malformed: ..."; never NULL. */
const char *request_problem_text(enum request_problem problem);
