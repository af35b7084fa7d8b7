/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The share that this process runs in, and its bookings. Nothing here happens before the first CUDA
 * or NVML call. All state lies in memory that a forked child finds zeroed, so the child begins
 * anew. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "intercept/memory/allocations.h"
#include "intercept/session/lock.h"
#include "share/ledger_core.h"
#include "share/limits_core.h"

#define ORDINALS_MAX 64
#define POOLS_MAX 256

/* What a memory pool holds, and how much of it is booked. */
struct pool_book {
    uint64_t pool;   /* the driver's handle; where it is of graphs, the device's number */
    uint64_t booked; /* bytes */
    uint64_t live;   /* bytes of allocations that were not freed */
    int device;      /* index in the share, or negative */
    bool known;      /* this book is in use */
    bool gone;       /* the pool was destroyed; its allocations live on */
    bool exported;   /* others may open it */
    bool of_graphs;  /* not a pool of the program's: what the device's graphs have allocated */
};

/* How memory is booked. */
enum booking {
    BOOKED,          /* in our slot; on the card */
    BOOKED_SPILLED,  /* in our slot; not on the card (see spill.h) */
    BOOKED_EXPORTED, /* in the slot of what others may open; on the card */
};

struct share {
    uint32_t viewed;  /* limits are there (or broken) */
    uint32_t claimed; /* and so is our slot (or broken) */
    bool none;        /* no share: everything passes through */
    bool broken;      /* there is a share, but its files cannot be used: refuse */
    bool denied;      /* and they are missing or not the agent's: no use of the driver at all */
    struct lock begin_lock;
    const struct limits_file *limits;
    const struct ledger_file *reader; /* for NVML, in processes without a slot */
    struct ledger_owner owner;
    struct ledger_owner exports; /* once something was exported */
    struct lock handle_lock;     /* one call at a time that refers to memory by a handle */
    struct lock loan_lock;
    struct ledger_loan loan; /* while there are */
    uint64_t imports;
    bool importing;
    uint64_t lingering[LIMITS_DEVICES_MAX]; /* exported and freed, but others have it open */
    uint32_t ndevices;
    bool bounded[LIMITS_DEVICES_MAX]; /* less may be on the card than may be allocated */
    unsigned char uuid[LIMITS_DEVICES_MAX][16];
    uint8_t ordinal[ORDINALS_MAX];  /* 0: not asked yet; index + 1; UINT8_MAX: not of the share */
    uint64_t primary[ORDINALS_MAX]; /* the primary context of each device, once retained */
    struct lock primary_lock[ORDINALS_MAX];
    struct lock heap_lock; /* one change of a context's limits at a time */
    struct lock pool_lock;
    bool pools;       /* there are some */
    bool captures;    /* there was one */
    bool graphs;      /* there are some that allocate */
    bool spilled;     /* there is memory off the card */
    bool pools_dirty; /* memory was freed, and the pool may hold it yet */
    struct pool_book pool[POOLS_MAX];
    struct lock table_lock; /* also of what our slots book */
    struct table table;
    uint64_t tombstones;
};

/* The share with its limits, for questions; NULL when this process is in none. */
struct share *share_view(void);

/* The share with a slot of the ledger, for bookings; NULL when this process is in none. */
extern struct share *share_memory;
struct share *share_claim_slowly(void);

static inline struct share *share_claim(void) {
    struct share *share = __atomic_load_n(&share_memory, __ATOMIC_ACQUIRE);

    if (__builtin_expect(share && __atomic_load_n(&share->claimed, __ATOMIC_ACQUIRE), 1))
        return share->none ? NULL : share;
    return share_claim_slowly();
}

/* Index of a device in the share; -1: it is not part of the share; -2: the driver does not know the
 * device. */
int share_device(struct share *share, CUdevice device);

/* Index of the device with this UUID ("GPU-…"), or -1. */
int share_device_by_uuid(const struct share *share, const char *uuid);

/* Books if it fits; BOOKED_EXPORTED is not for here. Also false for a device that is not part of
 * the share, and when the share is broken. */
bool share_reserve(struct share *share, int device, uint64_t bytes, enum booking how);

/* The same with the table's lock, for what enters the table with it. */
bool share_reserve_locked(struct share *share, int device, uint64_t bytes, enum booking how);

/* Books what is held already, whatever the limit. */
void share_force(struct share *share, int device, uint64_t bytes, enum booking how);

void share_refund(struct share *share, int device, uint64_t bytes, enum booking how);
void share_refund_locked(struct share *share, int device, uint64_t bytes, enum booking how);

/* Turns what is BOOKED into BOOKED_EXPORTED; false: there was no slot for that, it stays as it is.
 * With `descriptor`, call it before the descriptor exists. */
bool share_export(struct share *share, int device, uint64_t bytes, bool descriptor);

/* What was exported by descriptor is gone here, which does not mean that it is gone from the card:
 * it stays booked, in no slot, until the driver's figures show that it is back. */
void share_orphan(struct share *share, int device, uint64_t bytes);

/* The driver's number of a device of the share, or -1. */
int share_ordinal(const struct share *share, int device);

/* The container's truth about a device: limit (0: none), and what all its processes have booked
 * with what the driver holds for them unasked. */
uint64_t share_limit(const struct share *share, int device);
uint64_t share_used(struct share *share, int device);

/* What may be booked in an account of the ledger (a device's, or one of what is on the card); 0: no
 * limit. */
uint64_t share_account_limit(const struct share *share, unsigned int account);

/* What a device of the share with `card` bytes looks like from inside: used <= total; total may be
 * more than the card has. */
void share_figures(struct share *share, int device, uint64_t card, uint64_t *ret_total,
                   uint64_t *ret_used);

/* The ledger for reading, or NULL, and its path. */
const struct ledger_file *share_ledger(struct share *share);
const char *share_ledger_path(void);

/* Where another file of the share lies; false when the path is too long. */
bool share_path(const char *name, char *ret, size_t size);
