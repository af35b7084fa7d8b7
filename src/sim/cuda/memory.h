/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What addresses mean: every range of memory that the driver knows, by address. */

#include "sim/cuda/cuda.h"

enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_POOL,
    MEMORY_HOST,       /* allocated by the driver */
    MEMORY_REGISTERED, /* the program's own */
    MEMORY_RESERVED,   /* addresses only; see vmm.c for what is mapped there */
};

struct memory {
    CUdeviceptr base;
    size_t size;
    enum memory_kind kind;
    int device;
    CUcontext context;
    CUmemoryPool pool;
    unsigned int flags;
    unsigned long long id;
    void *mappings; /* MEMORY_RESERVED */
};

/* Host memory that costs nothing until it is touched, zeroed. NULL when there are no addresses. */
void *memory_reserve(size_t bytes);
void memory_unreserve(void *p, size_t bytes);

/* Takes the bytes from the device (where the kind lives on one), reserves and registers them. */
CUresult memory_new(enum memory_kind kind, CUcontext ctx, int device, size_t bytes,
                    struct memory **ret);

/* Registers a range that exists. -ENOMEM. */
int memory_add(const struct memory *m, struct memory **ret);

/* The range that an address lies in; NULL if none. The result stays valid until it is freed, which
 * a correct program does not do while it uses it. Takes cuda_lock. */
struct memory *memory_find(CUdeviceptr p);

/* Are all `bytes` from `p` in one range that the device may touch? */
bool memory_covers(CUdeviceptr p, size_t bytes);

/* Unregisters; the caller does the rest and frees `m`. */
void memory_remove(struct memory *m);

/* Frees a range of any kind but RESERVED and REGISTERED, giving back what it cost. */
void memory_free(struct memory *m);

/* All that belongs to a context that ends. */
void memory_release_context(CUcontext ctx);
