/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What this room keeps for the process, behind the share (session/session.h). Each part belongs to
 * the file that its comment names; only books, pools and exports are used by several. */

#include "intercept/memory/allocations.h"
#include "intercept/session/session.h"

/* books.c */
struct books {
    struct lock lock; /* of the table, and of what this process books in its slots */
    struct allocations table;
    uint64_t marks; /* numbers given to entries that wait for the end of a call of the driver */
};

/* export.c */
struct exports {
    struct lock lock;
    struct ledger_owner owner; /* the slot of exported memory, once there is some */
    struct ledger_loan loan;   /* keeps the slots of the memory that this process has opened */
    bool lent;                 /* the loan is in force */
    uint64_t imports;
    uint64_t lingering[LIMITS_DEVICES_MAX]; /* bytes freed here that other processes have open */
};

/* context.c */
struct contexts {
    uint64_t primary[ORDINALS_MAX]; /* the primary context of each device, once retained */
    struct lock lock[ORDINALS_MAX];
};

#define POOLS_MAX 256

/* What a memory pool holds, and how much of it is booked. */
struct pool_book {
    uint64_t pool;   /* the driver's handle; with of_graphs, the driver's number of the device */
    uint64_t booked; /* bytes */
    uint64_t live;   /* bytes of allocations that were not freed */
    int device;      /* index in the share, or negative */
    bool known;      /* this book is in use */
    bool gone;       /* the pool was destroyed; its allocations live on */
    bool exported;   /* other processes may open it */
    bool of_graphs;  /* not a pool of the program: what the graphs of the device have allocated */
};

/* pool.c */
struct pools {
    struct lock lock;
    bool used;     /* there is a pool */
    bool captures; /* there was a capture */
    bool graphs;   /* graphs may allocate */
    bool dirty;    /* memory was freed, and its pool may hold it yet */
    struct pool_book book[POOLS_MAX];
};

struct holdings {
    struct share share; /* the first: the address of a share is that of its holdings */
    struct books books;
    struct exports exports;
    struct contexts contexts;
    struct lock handle_lock; /* vmm.c: one call at a time that refers to memory by a handle */
    struct lock heap_lock;   /* heap.c: one change of the limits of a context at a time */
    bool spilled;            /* spill.c: there is memory off the card */
    struct pools pools;
};

static inline struct holdings *holdings_of(struct share *share) {
    return (struct holdings *) (void *) share;
}

static inline struct books *books_of(struct share *share) {
    return &holdings_of(share)->books;
}

static inline struct exports *exports_of(struct share *share) {
    return &holdings_of(share)->exports;
}

static inline struct pools *pools_of(struct share *share) {
    return &holdings_of(share)->pools;
}
