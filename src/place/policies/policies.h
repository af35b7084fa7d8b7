/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* All placement policies. What each is good for: docs/placement.md. Those that learn (fgd, esc)
 * place like best-fit while the plan has no model or the model has seen too little. */

#include <stddef.h>

#include "place/place.h"

extern const struct place_policy place_first_fit; /* the first card of the first node with room */
extern const struct place_policy place_best_fit;  /* the node with least CPU and cards left over */
extern const struct place_policy place_spread;    /* the emptiest node, the emptiest card */
extern const struct place_policy place_fgd;       /* least growth of fragments, one step ahead */
extern const struct place_policy place_esc;       /* least expected stranded capacity, at prices */

/* Of the scheduler: predictable where few pods have been seen to learn from. */
#define PLACE_DEFAULT_POLICY (&place_binpack)

/* NULL: there is none of that name. */
const struct place_policy *place_policy_find(const char *name);

/* By number, from 0; NULL behind the last. */
const struct place_policy *place_policy_at(size_t i);
