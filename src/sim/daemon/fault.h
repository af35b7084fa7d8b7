/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What goes wrong on a simulated machine: the state of cards, the log of events in the machine's
 * page, and calls that are to fail. No I/O but futex wake-ups. */

#include <stdint.h>

#include "sim/daemon/machine.h"

/* -- cards ----------------------------------------------------------------------------------- */

/* The XID is told, and does to the card and its processes what that XID does. `pid`: only the
 * contexts of this process die of it (0: of all there are on the card). */
void fault_xid(struct sim_machine *m, uint32_t minor, uint32_t xid, pid_t pid);

void fault_ecc(struct sim_machine *m, uint32_t minor, bool uncorrected, uint64_t errors);

/* Off the bus: the contexts there are dead, their memory is free. */
void fault_lose(struct sim_machine *m, uint32_t minor);

/* Does the process (0: any) have a context on the card, or on an instance of it? */
bool fault_in_use(const struct sim_machine *m, uint32_t minor, pid_t pid);

/* Healthy again, as after a reset. -EBUSY while a process has a context there. */
int fault_reset(struct sim_machine *m, uint32_t minor);

/* Makes `bytes` of a card be in use by nobody. -ENOMEM when it has not that many left. */
int fault_pressure(struct sim_machine *m, uint32_t minor, uint64_t bytes);

/* -- calls ----------------------------------------------------------------------------------- */

/* Returns the slot, or -ENOSPC when all are in use. `names`: as in struct sim_fault. */
int fault_arm(struct sim_machine *m, const char *names, const struct fault_rule *rule);

/* Ends every rule whose names are `names` (NULL: all). Returns how many. */
uint32_t fault_release(struct sim_machine *m, const char *names);

/* A client met a name of that slot, which had that generation: what is to become of the call? */
enum sim_fault_action fault_judge(struct sim_machine *m, uint32_t slot, uint32_t generation,
                                  pid_t pid, uint32_t *ret_status);
