/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Selling more memory than there is: a card of `memory` bytes is offered with a `capacity` of more,
 * and everybody who buys `bytes` may have a part of them on the card at once (`physical`); the rest
 * is served by managed memory. Pure arithmetic, in which the sum of the physical parts of a card
 * never exceeds the card as long as the sum of the charges does not exceed the capacity. */

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

/* What of the capacity somebody takes who bought `bytes` with that physical part. */
uint64_t scaling_charge(uint64_t bytes, uint64_t physical, uint64_t memory, uint64_t capacity);
