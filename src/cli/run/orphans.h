/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Compares a ledger with NVML's figures without an agent, in a thread, while anything is orphaned
 * (share/ledger_core.h) and for a second after the ledger has changed. What is orphaned and back on
 * the card is credited. Memory that a process has left to another one by the driver's own
 * descriptors is in no ledger when the process has ended: what the card has in use beyond the
 * baseline and the ledgers of this user's runs is booked as orphaned, as far as one of the
 * command's processes has a file of the driver open and is not in NVML's list. The thread never
 * ends the process and blocks nothing else: a driver that hangs hangs this thread, and while one
 * does not answer the memory stays booked. */

#include "share/ledger.h"
#include "share/limits_core.h"

/* For one share in a process, before the first poll. `path` is that of the ledger, `baseline` what
 * each device had in use for no listed process before the command; bytes. The caller must be a
 * subreaper. */
void orphans_begin(const char *path, const struct share_limits *share,
                   const uint64_t baseline[static LIMITS_DEVICES_MAX]);

/* Starts the thread if there is something to compare and none runs. Call it often. */
void orphans_poll(struct ledger *ledger);
