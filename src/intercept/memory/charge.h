/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The steps of an allocation: reserve, let the driver allocate, then enter it or give the
 * reservation back. The steps of a free: take the entry out, let the driver free, then refund it or
 * put the entry back. So the driver never holds memory that is not booked (pools: pool.h), and a
 * process that dies in between leaves the same as one that dies afterwards. */

#include "intercept/memory/books.h"
#include "intercept/resolve/driver.h"

struct charge {
    struct share *share; /* NULL: not booked */
    uint64_t context;
    uint64_t bytes;
    int device;
    enum booking how;
};

/* Where an allocation goes. Both leave `share` NULL when there is nothing to book: no share, or a
 * driver that will refuse the call anyway (no context, unknown device). */
void charge_on_current(struct charge *charge);
void charge_on_device(struct charge *charge, CUdevice device);
void charge_on_stream(struct charge *charge, CUstream stream, bool per_thread);

/* The driver's number of the device of a location, or -1. */
static inline CUdevice location_device(const CUmemLocation *location) {
    switch ((unsigned int) location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location->id;
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN: /* a part of it */
        return location->id & 0xff;
    default:
        return -1;
    }
}

/* Reserves; false when it does not fit: answer CUDA_ERROR_OUT_OF_MEMORY. */
bool charge_reserve(struct charge *charge, uint64_t bytes);

/* The same for memory that will not be on the card. */
bool charge_reserve_spilled(struct charge *charge, uint64_t bytes);

/* Reserves `more` on top; charge_add_free without making room in pools first. */
bool charge_add(struct charge *charge, uint64_t more);
bool charge_add_free(struct charge *charge, uint64_t more);

/* Ends a charge with the driver's result, which it returns. `links` is the context that the memory
 * dies with, 0 when it outlives contexts. */
CUresult charge_settle(struct charge *charge, CUresult result, enum entry_kind kind, uint64_t key,
                       uint64_t links);

struct refund {
    struct share *share; /* NULL: not one of our entries */
    struct entry entry;
};

void refund_begin(struct refund *refund, enum entry_kind kind, uint64_t key);
void refund_begin_pointer(struct refund *refund, CUdeviceptr dptr); /* also one from a pool */
CUresult refund_settle(struct refund *refund, CUresult result);

/* A context may be about to be destroyed, and with it all that was allocated in it. */
struct context_end {
    struct share *share;
    uint64_t context, mark;
};

/* Before the driver may destroy it. */
void context_end_begin(struct context_end *end, uint64_t context);

/* After it. `ended`: it has. */
void context_end_settle(struct context_end *end, bool ended);
