/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Credits what a ledger has orphaned (share/ledger_core.h) without an agent: while there is any, a
 * thread holds it against NVML's figures. It never ends the process and holds nothing up: a driver
 * that hangs hangs this thread, and one that cannot be asked leaves the memory booked. */

#include "share/ledger.h"
#include "share/limits_core.h"

/* Looks whether there is any in `ledger`, which is the file at `path`, and starts the thread if
 * none runs. Call it often; for one share in a process. */
void orphans_look(struct ledger *ledger, const char *path, const struct share_limits *share);
