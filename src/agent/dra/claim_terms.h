/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How a claim's share has its part of the cards' time, by the ShareConfig of class and claim. No
 * I/O. */

#include <stdint.h>

struct err;
struct resource_claim;
struct share_options;
struct slot_terms;

/* The terms of a request of the claim, of `core` percent of a card, 0 to 100 and more. -EINVAL: a
 * ShareConfig is none; -EPERM: the node does not let pods choose its policy. */
int dra_claim_terms(const struct share_options *node, const struct resource_claim *claim,
                    const char *request, uint32_t core, struct slot_terms *ret, struct err *err);
