/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The address map: every range of memory that the driver knows. */

#include "sim/cuda/cuda.h"

enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_POOL,
    MEMORY_GRAPH,      /* see graph_memory.h */
    MEMORY_IPC,        /* of another process, by cuIpcOpenMemHandle */
    MEMORY_IMPORTED,   /* of another process, by a pool or as external memory */
    MEMORY_HOST,       /* allocated by the driver */
    MEMORY_REGISTERED, /* the program's own */
    MEMORY_RESERVED,   /* addresses only; see vmm.c for what is mapped there */
};

struct shared;

struct memory {
    CUdeviceptr base;
    size_t size;
    enum memory_kind kind;
    int device;
    CUcontext context;
    CUmemoryPool pool;
    unsigned int flags;
    unsigned long long id;
    void *mappings;            /* MEMORY_RESERVED */
    struct graph_alloc *graph; /* MEMORY_GRAPH */
    struct managed *managed;   /* MEMORY_MANAGED */
    struct shared *shared;     /* other processes may hold it, too */
    unsigned int opened;       /* MEMORY_IPC: how often */
};

/* Zeroed host memory, allocated on first access. NULL when no addresses are left. */
void *memory_reserve(size_t bytes);
void memory_unreserve(void *p, size_t bytes);

/* The contents need not be kept. */
void memory_discard(void *p, size_t bytes);

/* Takes the bytes from the device (where the kind lives on one), reserves and registers them. */
CUresult memory_new(enum memory_kind kind, CUcontext ctx, int device, size_t bytes,
                    struct memory **ret);

/* Registers a range that exists. -ENOMEM. */
int memory_add(const struct memory *m, struct memory **ret);

/* The range that an address lies in; NULL if none. The result stays valid until it is freed, which
 * a correct program does not do while it uses it. Takes cuda_lock. */
struct memory *memory_find(CUdeviceptr p);

/* The same, of the memory of that kind that begins at the address. */
struct memory *memory_at(CUdeviceptr base, enum memory_kind kind);

/* Makes device memory sharable with other processes: the same bytes at the same address. */
CUresult memory_share(struct memory *m);

/* Maps and registers a part of what another process shares; closes `shared` when it fails. */
CUresult memory_adopt(enum memory_kind kind, CUcontext ctx, const struct shared *shared,
                      size_t offset, size_t bytes, struct memory **ret);

/* The memory of a share that this process has opened as MEMORY_IPC, or created; NULL if none.
 * Takes cuda_lock. */
struct memory *memory_opened(const uint64_t id[2]);

/* True when all `bytes` from `p` are in one range that the device may access. */
bool memory_covers(CUdeviceptr p, size_t bytes);

/* True for memory of this process alone: its pages may be replaced. */
bool memory_is_private(const struct memory *m);

/* True when cuMemFree and cuMemFreeAsync may free it. */
bool memory_is_freeable(const struct memory *m);

/* Unregisters; the caller does the rest and frees `m`. */
void memory_remove(struct memory *m);

/* Frees a range of any kind but RESERVED and REGISTERED, and credits its bytes. */
void memory_free(struct memory *m);

/* Frees all memory of a context that ends. */
void memory_release_context(CUcontext ctx);
