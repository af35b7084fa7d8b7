/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints: the memory of the process leaves the card, and others of the container may have it;
 * before it comes back it must fit again. What a process has exported stays booked: the driver
 * takes no checkpoint of memory that others have open. The caller is mostly another process. */

#include <errno.h>

#include "intercept/resolve/driver.h"
#include "intercept/session/session.h"

/* `restored`: for each slot the accounts that this restore has booked again, as bits. */
typedef bool slot_fn(struct share *share, uint32_t slot, uint64_t *restored);

_Static_assert(LEDGER_DEVICES <= 64, "accounts as bits of a word");

/* Calls `fn` for the slots of a process of the container until it returns false; false if it did.
 * `pid` is in our PID namespace. */
static bool each_slot(struct share *share, int pid, slot_fn *fn, uint64_t *restored) {
    struct ledger_file *file = share->owner.file;
    uint32_t living[LEDGER_SLOTS], ours = ledger_pidns();
    size_t n = ledger_living(file, share_ledger_path(), living, LEDGER_SLOTS);
    bool go_on = true;

    for (size_t i = 0; i < n && go_on; i++) {
        const struct ledger_slot *slot = &file->slot[living[i]];

        if (__atomic_load_n(&slot->pid, __ATOMIC_RELAXED) == (uint32_t) pid &&
            __atomic_load_n(&slot->pidns, __ATOMIC_RELAXED) == ours &&
            !(__atomic_load_n(&slot->flags, __ATOMIC_ACQUIRE) & LEDGER_EXPORTS))
            go_on = fn(share, living[i], restored);
    }
    return go_on;
}

static void park_accounts(struct share *share, uint32_t slot, uint64_t accounts) {
    for (unsigned int d = 0; d < LEDGER_DEVICES; d++)
        if (accounts >> d & 1 &&
            __atomic_load_n(&share->owner.file->slot[slot].cell[d].booked.lo, __ATOMIC_ACQUIRE) > 0)
            ledger_park(share->owner.file, slot, d);
}

static bool park(struct share *share, uint32_t slot, uint64_t *restored) {
    (void) restored;
    park_accounts(share, slot, UINT64_MAX);
    return true;
}

/* Only what was restored: a process that was not checkpointed has its memory, which stays booked.
 */
static bool park_restored(struct share *share, uint32_t slot, uint64_t *restored) {
    park_accounts(share, slot, restored[slot]);
    return true;
}

static bool unpark(struct share *share, uint32_t slot, uint64_t *restored) {
    uint16_t generation = ledger_generation(share->owner.file, slot);
    int r = 0;

    for (unsigned int d = 0; d < LEDGER_DEVICES && r >= 0; d++) {
        r = ledger_unpark(share->owner.file, slot, d, generation, share_account_limit(share, d));
        if (r > 0)
            restored[slot] |= UINT64_C(1) << d;
    }
    return r >= 0;
}

static struct share *books(void) {
    struct share *share = share_claim();

    return share && !share->broken ? share : NULL;
}

/* Of several callers that checkpoint or restore a process at the same time the driver lets one
 * succeed, which need not be the one that has changed the books. So they run one after another. */
static int lock_parked(const struct share *share) {
    return share ? ledger_lock_parked(share_ledger_path()) : -1;
}

static void unlock_parked(int lock, int saved) {
    if (lock >= 0)
        ledger_unlock_parked(lock);
    errno = saved;
}

/* Without the lock it stays booked. */
CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args) {
    struct share *share = books();
    int saved = errno, lock = lock_parked(share);
    CUresult r = driver.cuCheckpointProcessCheckpoint(pid, args);

    if (r == CUDA_SUCCESS && lock >= 0)
        (void) each_slot(share, pid, park, NULL);
    unlock_parked(lock, saved);
    return r;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
    uint64_t restored[LEDGER_SLOTS] = {0};
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
    struct share *share = books();
    int saved = errno, lock = lock_parked(share);

    if (!share || (lock >= 0 && each_slot(share, pid, unpark, restored)))
        r = driver.cuCheckpointProcessRestore(pid, args);
    if (lock >= 0 && r != CUDA_SUCCESS)
        (void) each_slot(share, pid, park_restored, restored);
    unlock_parked(lock, saved);
    return r;
}
