/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Faults of a simulated machine: the state of cards, the log of events in the machine's page, and
 * calls that are to fail. No I/O but futex wake-ups. */

#include <stdint.h>

#include "sim/daemon/machine.h"

/* -- cards ----------------------------------------------------------------------------------- */

/* Reports the XID and applies its effect to the card and its processes. `pid`: it ends only the
 * contexts of this process (0: of all on the card). */
void fault_xid(struct sim_machine *m, uint32_t minor, uint32_t xid, pid_t pid);

/* The same, limited to a GPU instance of the card, and to a compute instance of it (UINT32_MAX: to
 * none). -ENOENT: there is no such instance; -EINVAL: the XID takes the card off the bus. */
int fault_xid_instance(struct sim_machine *m, uint32_t minor, uint32_t gi, uint32_t ci,
                       uint32_t xid);

void fault_ecc(struct sim_machine *m, uint32_t minor, bool uncorrected, uint64_t errors);

/* Records a repair of the card's memory, `n` rows or pages of it, which the next reset activates,
 * or that one failed. Reports the XID of it. */
void fault_repair(struct sim_machine *m, uint32_t minor, enum sim_repair what, uint32_t n);

/* A link that leads somewhere goes down, which is reported as XID 74, or up; so does its other end.
 */
void fault_link(struct sim_machine *m, uint32_t minor, uint32_t link, bool down);

/* Takes the card off the bus: its contexts end, their memory is free. */
void fault_lose(struct sim_machine *m, uint32_t minor);

/* True when the process (0: any) has a context on the card, or on an instance of it. */
bool fault_in_use(const struct sim_machine *m, uint32_t minor, pid_t pid);

/* Healthy again, as after a reset. -EBUSY while a process has a context there. */
int fault_reset(struct sim_machine *m, uint32_t minor);

/* A process other than `except` (0: any) that has the card open, 0: none. */
pid_t fault_opener(const struct sim_machine *m, uint32_t minor, pid_t except);

/* Marks `bytes` of a card as used by no process. -ENOMEM when fewer are free. */
int fault_pressure(struct sim_machine *m, uint32_t minor, uint64_t bytes);

/* -- calls ----------------------------------------------------------------------------------- */

/* Returns the slot, or -ENOSPC when all are in use. `names`: as in struct sim_fault. */
int fault_arm(struct sim_machine *m, const char *names, const struct fault_rule *rule);

/* Ends every rule whose names are `names` (NULL: all). Returns how many. */
uint32_t fault_release(struct sim_machine *m, const char *names);

/* A client's call about `card` (UINT32_MAX: none) matched the names of that slot, of that
 * generation. Returns what happens to it. */
enum sim_fault_action fault_judge(struct sim_machine *m, uint32_t slot, uint32_t generation,
                                  pid_t pid, uint32_t card, uint32_t *ret_status);
