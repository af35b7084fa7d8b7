/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Oversubscription: a card of `memory` bytes is offered with a larger `capacity`. Of a share of
 * `bytes`, the physical part may be on the card at once; managed memory serves the rest. Pure
 * arithmetic. The physical parts of a card's shares never exceed the card in sum as long as their
 * charges do not exceed the capacity in sum. */

#include <stdint.h>

/* Factors are thousandths. */
#define SCALING_ONE 1000u
#define SCALING_MAX 16000u

/* Reads "1", "1.5", "2.25" from 1 to 16, at most three digits behind the point; -EINVAL. */
int scaling_parse(const char *text, uint32_t *ret);

/* What a card is offered with, in whole MiB: less than it has for a factor below one, which keeps
 * the rest back; all of it for 0. */
uint64_t scaling_capacity(uint64_t memory, uint32_t factor);

/* What of `bytes` may be on the card at once. `factor` is the pod's own setting, 0: that of the
 * node. It can raise the physical part (1: all of it), not lower it. */
uint64_t scaling_physical(uint64_t bytes, uint64_t memory, uint64_t capacity, uint32_t factor);

/* The charge of a share of `bytes` with that physical part: what it takes of the capacity. */
uint64_t scaling_charge(uint64_t bytes, uint64_t physical, uint64_t memory, uint64_t capacity);
