/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ledger: how much memory of each device every process of a container has booked, exact to the
 * byte under SIGKILL at any instruction. A file mapped by all processes of the container and by the
 * agent. Depends on libc only.
 *
 * For each device one 128-bit word holds the sum *and* a record of the operation that made it:
 * the slot, and the number of the operation in it. Before the word is changed again, the recorded
 * operation is carried out in its slot (by the process that changes the word), so at any moment at
 * most one operation per device is not yet in a slot, and it is known which. There is no lock, and
 * a process may die at any moment.
 *
 * A slot belongs to one instance of the library in one process. The owner holds an
 * open-file-description lock on byte `slot` of the file, by the mapping alone: the kernel drops it
 * at exec and at death, in every PID namespace, and a program that closes all its descriptors does
 * not change that. A forked child inherits the mapping, as it inherits the driver's descriptors,
 * and with them the memory: the slot lives until both have ended or executed another program. The
 * child itself books in a slot of its own. On a stacked file system such as overlayfs a mapping
 * holds another file than the descriptor; there a descriptor stays open, and a process that closes
 * it gives up the slot. A slot whose byte is free has no living owner, and any process may credit
 * what it had booked.
 *
 * Memory that other processes can open outlives its owner while one of them has it open. A process
 * books what it has exported in a second slot, and a process that opens such memory holds a shared
 * lock on byte LEDGER_SLOTS + slot of every such slot, because an import does not tell which slot
 * has it. Such a slot is credited when neither its owner lives nor any process borrows.
 *
 * A descriptor keeps memory, too, in a process that never uses CUDA. What was exported by
 * descriptor is therefore not credited: when its owner frees it, or has ended, it leaves the slot
 * and stays in the device's sum, as *orphaned*. Orphaned is what the sum has and no slot; only the
 * agent, or `aliquot run`, credits it, by the driver's figures. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEDGER_MAGIC 0x3172676c716c615fULL
#define LEDGER_VERSION 1
#define LEDGER_DEVICES 64
#define LEDGER_SLOTS 1024

/* 16 bytes that change as one. Of a device: lo = bytes used, hi = record of the last operation. Of
 * a slot: lo = bytes booked, hi = generation and number of operations done. */
struct ledger_word {
    uint64_t lo;
    uint64_t hi;
} __attribute__((aligned(16)));

struct ledger_device {
    struct ledger_word sum;
    uint64_t refused; /* statistics */
    uint64_t credits; /* changes of orphaned memory alone; numbers their records */
    /* Statistics: the most that `sum` has had since the container was started. 0: nothing yet, or
     * its library is of a version before 0.2, in which the word was reserved. */
    uint64_t peak;
    uint64_t reserved[11];
} __attribute__((aligned(128)));

struct ledger_cell {
    struct ledger_word booked;
    int64_t delta;   /* operand of the operation that the owner is about to record */
    uint64_t parked; /* bytes that have left the device while the process is checkpointed */
};

/* Flags of a slot. */
#define LEDGER_EXPORTS 1u     /* for memory that others can open */
#define LEDGER_DESCRIPTORS 2u /* some of it by descriptor: orphaned, not credited, at the end */

struct ledger_slot {
    uint32_t pid; /* for display */
    uint32_t flags;
    uint32_t pidns; /* in which PID namespace: ledger_pidns() of the owner; 0: not known */
    uint32_t reserved0;
    uint64_t reserved[6];
    struct ledger_cell cell[LEDGER_DEVICES];
};

struct ledger_file {
    uint64_t magic;
    uint32_t version;
    uint32_t devices;
    uint32_t slots;
    uint32_t slots_used; /* no slot from here on was ever claimed */
    uint64_t reserved[13];
    struct ledger_device device[LEDGER_DEVICES];
    struct ledger_slot slot[LEDGER_SLOTS];
};

_Static_assert(sizeof(struct ledger_device) == 128, "ABI of the ledger");
_Static_assert(sizeof(struct ledger_slot) == 64 + 32 * LEDGER_DEVICES, "ABI of the ledger");
_Static_assert(offsetof(struct ledger_file, device) == 128, "ABI of the ledger");
_Static_assert(offsetof(struct ledger_file, slot) == 128 + 128 * LEDGER_DEVICES,
               "ABI of the ledger");

/* In the ledger, a device's second account: what of its memory may be on the card at once, where
 * that is less than may be allocated (`physical_bytes` of the limits, whatever the limit in force).
 * There is one for each device of a share with as many devices as leave room for it. */
static inline bool ledger_has_card_account(uint64_t physical_bytes, uint32_t devices) {
    return physical_bytes > 0 && devices <= LEDGER_DEVICES / 2;
}

static inline unsigned int ledger_card_account(uint32_t device) {
    return (unsigned int) (LEDGER_DEVICES - 1 - device);
}

/* What a process needs to book. A forked child must forget its copy of this and claim a slot of its
 * own. */
struct ledger_owner {
    struct ledger_file *file;
    const char *path;
    int fd; /* -1 where the mapping holds the lock */
    uint32_t slot;
    uint16_t generation;
};

/* Maps the ledger at `path` and claims a slot in it. `path` is kept and must live as long as the
 * owner. -EBADMSG: not a ledger of this version; -EUSERS: no slot is free. */
int ledger_claim(const char *path, struct ledger_owner *ret);

/* Claims a second slot, for memory that others can open. */
int ledger_claim_exports(const char *path, struct ledger_owner *ret);

/* From now on what the slot has booked at its owner's end is orphaned. Call it before the first
 * descriptor exists. */
void ledger_note_descriptors(const struct ledger_owner *exports);

/* Whether a process borrows from a slot of ledger_claim_exports. True when that is not known. */
bool ledger_borrowed(const struct ledger_owner *exports);

/* Keeps the memory of other processes booked. Like the lock on a slot it does not survive exec or
 * death, and a forked child has it, too. */
struct ledger_loan {
    void *page;
    int fd; /* -1 where the mapping holds the locks */
};

/* Borrows from every slot of the ledger that holds memory which can be opened, but `exports` (NULL:
 * none is our own). Call it before the memory is opened. Returns the number of those slots, or
 * negative errno; `ret` is written unless it fails. */
int ledger_borrow(const struct ledger_owner *owner, const struct ledger_owner *exports,
                  struct ledger_loan *ret);

void ledger_return(struct ledger_loan *loan);

/* Gives the slot up. What is still booked in it will be credited as that of a dead owner. */
void ledger_release(struct ledger_owner *owner);

/* Books `bytes` on a device if the sum stays within `limit` (0: no limit). When they do not fit,
 * what dead processes hold is reclaimed first. One thread at a time per owner and device. 0;
 * -ENOMEM: refused; -ESTALE: the slot is no longer this owner's (its descriptor was closed): claim
 * again; -EBADMSG: the ledger is damaged. */
int ledger_reserve(const struct ledger_owner *owner, unsigned int device, uint64_t bytes,
                   uint64_t limit);

/* Takes `bytes` off again. Same threading; -ESTALE and -EBADMSG as above. */
int ledger_refund(const struct ledger_owner *owner, unsigned int device, uint64_t bytes);

/* Takes `bytes` out of the slot but not out of the sum: they are orphaned. Same threading and
 * errors. */
int ledger_orphan(const struct ledger_owner *owner, unsigned int device, uint64_t bytes);

/* Maps the ledger at `path` without a slot, for reading only. The mapping is not inherited by
 * children. */
int ledger_attach(const char *path, const struct ledger_file **ret);

/* A number for the caller's PID namespace, unique on this machine; 0: not known (no /proc). */
uint32_t ledger_pidns(void);

/* Lists the slots with a living owner, at most `max`; returns how many. */
size_t ledger_living(const struct ledger_file *file, const char *path, uint32_t *ret_slots,
                     size_t max);

/* Bytes booked on a device by all processes. */
uint64_t ledger_used(const struct ledger_file *file, unsigned int device);

/* The functions below clean up: for the agent, `aliquot run`, and a process about to be refused.
 * `fd` is any descriptor of the ledger file. They also work on a damaged ledger, boundedly. */

/* Whether the slot's owner lives. What a dead one has booked may yet be borrowed. */
bool ledger_slot_alive(int fd, uint32_t slot);

/* Credits what the owner of `generation` had booked in a slot on one device; call it only after the
 * slot was found dead *after* the generation was read. Concurrent and repeated calls are harmless.
 * Returns the bytes credited by this call. */
uint64_t ledger_reclaim(struct ledger_file *file, uint32_t slot, unsigned int device,
                        uint16_t generation);

/* A process is checkpointed: what its slot has booked on a device is credited and noted, to be
 * restored. At most one caller at a time per slot; its owner may go on. */
void ledger_park(struct ledger_file *file, uint32_t slot, unsigned int device);

/* Books again what was parked, if it fits (`limit` 0: in any case). 1; 0: nothing was parked;
 * -ENOMEM: refused; -ESTALE: the slot is another's by now; -EBADMSG: the ledger is damaged. */
int ledger_unpark(struct ledger_file *file, uint32_t slot, unsigned int device, uint16_t generation,
                  uint64_t limit);

/* Waits until no other checkpoint or restore of a process of the container is under way: whether
 * what is parked fits the state of the process is known only to one that is alone. Returns a
 * descriptor for ledger_unlock_parked, or negative errno. */
int ledger_lock_parked(const char *path);
void ledger_unlock_parked(int lock);

/* Which owner a slot has, by counting. */
uint16_t ledger_generation(const struct ledger_file *file, uint32_t slot);

/* Enters in its slot what the latest operation on each device recorded, in case its owner died
 * before that. */
void ledger_settle(struct ledger_file *file);

/* Reclaims the slot, on all devices, if its owner is dead and no process borrows from it, or
 * orphans what it has where some of it was exported by descriptor; whether it had anything. */
bool ledger_reclaim_if_dead(struct ledger_file *file, int fd, uint32_t slot);

/* Bytes of a device's sum that are in no slot. -EAGAIN: the ledger was in motion. */
int ledger_read_orphaned(struct ledger_file *file, unsigned int device, uint64_t *ret);

/* Takes orphaned bytes off the sum, at most what ledger_read_orphaned has just returned. One caller
 * at a time for each ledger. */
void ledger_credit_orphaned(struct ledger_file *file, unsigned int device, uint64_t bytes);

/* Books bytes as orphaned that a device holds and no slot has, whatever the limit. Threads as
 * above. */
void ledger_add_orphaned(struct ledger_file *file, unsigned int device, uint64_t bytes);

/* Reclaims every dead slot but `own` (LEDGER_SLOTS: none is); returns the number of those that held
 * something. */
int ledger_reclaim_dead(struct ledger_file *file, int fd, uint32_t own);
