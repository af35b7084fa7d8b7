/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent's side of a container's ledger: create it, read it, give back what dead processes held.
 *
 * The tenant can write anything into the file and truncate it at any time. So nothing here trusts
 * it: sizes and indexes are checked on every read, loops are bounded, a truncated file is -EBADMSG,
 * not SIGBUS, and a lease on it is an error, not a wait. But the
 * check whether the owner of a slot lives is linear in the number of locks that the tenant holds on
 * the file: a caller that must not be delayed gives ledger_sweep_for a bound and does not call
 * ledger_processes. The figures are those that the tenant's processes have written; NVML has those
 * of the memory that they hold. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "share/ledger_core.h"

struct ledger;

struct ledger_usage {
    uint64_t used[LEDGER_DEVICES];      /* bytes booked on each device of the share */
    uint64_t peak[LEDGER_DEVICES];      /* the most of `used` since ledger_begin_peaks(); 0: none */
    uint64_t refused[LEDGER_DEVICES];   /* requests refused since the ledger was created */
    uint64_t operation[LEDGER_DEVICES]; /* another one after every change of `used` */
};

struct ledger_process {
    uint32_t slot;
    uint32_t pid; /* in the container's PID namespace, as it wrote it: for display only */
    uint64_t booked[LEDGER_DEVICES];
};

/* Creates a ledger that any user of the container can write, or leaves an existing one as it is (an
 * agent that restarts finds its containers' ledgers in use). The directory must exist. */
int ledger_create(const char *path, struct err *err);

/* Opens a ledger for the calls below. One user (thread) at a time per handle. The first call in a
 * process installs a SIGBUS handler, which passes on every fault that is not in a ledger. */
int ledger_open(const char *path, struct ledger **ret, struct err *err);

/* Returns NULL; accepts NULL. */
struct ledger *ledger_free(struct ledger *ledger);

/* Reads the sums without a lock. -EBADMSG when the file is damaged or truncated; `ret` is then
 * untouched. */
int ledger_snapshot(struct ledger *ledger, struct ledger_usage *ret);

/* Before a container is started: peaks begin with what is booked now. */
void ledger_begin_peaks(struct ledger *ledger);

/* Lists living processes, at most `max`; returns how many were written. -EBADMSG as above. */
int ledger_processes(struct ledger *ledger, struct ledger_process *ret, size_t max);

/* Which file it is. -errno. */
int ledger_file_of(const struct ledger *ledger, dev_t *ret_device, ino_t *ret_inode);

/* Bytes of an account (a device's, or its card account) that were exported by descriptor and are in
 * no slot any more. -EAGAIN: the ledger was in motion; -EBADMSG as above. Bounded. */
int ledger_get_orphaned(struct ledger *ledger, unsigned int account, uint64_t *ret);

/* Credits `bytes` of them. One caller at a time for each ledger. 0, -EBADMSG as above. */
int ledger_credit(struct ledger *ledger, unsigned int account, uint64_t bytes);

/* Books `bytes` that no process has booked as orphaned. Threads and errors likewise. */
int ledger_charge(struct ledger *ledger, unsigned int account, uint64_t bytes);

/* Gives back everything that dead processes had booked; call it when a process of the container has
 * ended, or every 50 ms. Returns the number of slots that held something, -EBADMSG as above. */
int ledger_sweep(struct ledger *ledger);

/* The same, but stops after the slot at which `max_ns` of the thread's CPU time are over; the next
 * call goes on behind it. */
int ledger_sweep_for(struct ledger *ledger, uint64_t max_ns);
