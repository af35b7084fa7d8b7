/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The share that this process runs in: its limits, its devices, its slot of the ledger. Nothing
 * here happens before the first CUDA or NVML call. All state is in memory that is zeroed in a
 * forked child, so the child starts from the initial state. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "intercept/session/lock.h"
#include "share/ledger_core.h"
#include "share/limits_core.h"

#define ORDINALS_MAX 64

struct share {
    uint32_t viewed;  /* the limits are mapped (or broken) */
    uint32_t claimed; /* and a slot of the ledger is claimed (or broken) */
    bool none;        /* this process is in no share: all calls pass through */
    bool broken;      /* the files of the share cannot be used: allocations are refused */
    bool denied;      /* they are missing or not the agent's: no use of the driver at all */
    struct lock begin_lock;
    const struct limits_file *limits;
    const struct ledger_file *reader; /* for NVML, in processes without a slot */
    struct ledger_owner owner;
    uint32_t ndevices;
    bool bounded[LIMITS_DEVICES_MAX]; /* less may be on the card than may be allocated */
    unsigned char uuid[LIMITS_DEVICES_MAX][16];
    uint8_t ordinal[ORDINALS_MAX]; /* 0: not known yet; index + 1; UINT8_MAX: not of the share */
};

/* The per-process state of the layers above follows the share in the same mapping. They define its
 * total size at link time, and a static broken share for a process without memory for the mapping:
 * it refuses what cannot be booked. */
extern const size_t share_state_bytes;
extern struct share *const share_out_of_memory;

/* The share with its limits, for queries; NULL when this process is in none. */
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

/* The driver's number of a device of the share, or -1. */
int share_ordinal(const struct share *share, int device);

/* The container's figures for a device, bytes: the limit (0: none), and the use, which is what all
 * its processes have booked, with the driver's overhead. */
uint64_t share_limit(const struct share *share, int device);
uint64_t share_used(struct share *share, int device);

/* The limit of an account of the ledger (of a device, or its card account), bytes; 0: none. */
uint64_t share_account_limit(const struct share *share, unsigned int account);

/* The figures that a container is shown of a device with `card` bytes: used <= total; total may be
 * more than the card has. */
void share_figures(struct share *share, int device, uint64_t card, uint64_t *ret_total,
                   uint64_t *ret_used);

/* The ledger for reading, or NULL, and its path. */
const struct ledger_file *share_ledger(struct share *share);
const char *share_ledger_path(void);

/* The path of another file of the share; false when it is too long. */
bool share_path(const char *name, char *ret, size_t size);
