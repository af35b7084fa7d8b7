/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether processes on a card use the library: whether they have mapped their container's ledger.
 */

#include <stdbool.h>
#include <stdint.h>

struct audit;
struct slot;

/* Whether the process owns a living slot of its container's ledger. */
bool audit_knows(struct audit *a, struct slot *slot, uint32_t pid);

/* Whether the driver's PIDs are certainly the agent's. */
bool audit_pids_fit(const struct audit *a);
