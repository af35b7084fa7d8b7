/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Credits orphaned memory of containers' ledgers (share/ledger_core.h) according to the driver's
 * figures. For several containers with orphaned memory on a card, the figures show only the sum. A
 * container is then credited what it cannot hold even if all orphaned memory of the others is free:
 * no container gains from memory that another one freed. */

#include <stdbool.h>
#include <stdint.h>

struct audit;
struct slot;
struct slot_device;

/* The driver is going to be asked. */
void orphans_begin(struct audit *a);

/* It has answered, and all processes were named. Returns whether it should be asked again soon. */
bool orphans_end(struct audit *a);

/* Bytes of an account of the ledger (the n-th device's, or its card account) that were orphaned
 * when the driver was asked last. */
uint64_t orphans_of(const struct slot_device *d, uint32_t n, uint32_t account);

/* The figures below are of the last orphans_end(), for the n-th device of a share. */

/* Bytes that the container accounts for by the driver's list or by its ledger, orphaned memory
 * included. The ledger, which the container's programs write, counts up to the share: that amount
 * is allocated to no other pod, whatever the current limit. */
uint64_t orphans_accounted(const struct slot *slot, uint32_t n);

/* Bytes of its orphaned memory that count as held against the container itself, whatever its share:
 * at most what the card has in use beyond its processes, what is certain to be others', and what
 * the container is charged with (card_audit.h). */
uint64_t orphans_held(const struct slot *slot, uint32_t n);
