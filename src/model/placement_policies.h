/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names of the placement policies: of the annotation, the arguments, the messages, and by
 * scripts/manifests of admission and the CRDs. place_<id> of src/place/policies is the policy. */

#include "base/words.h"

#define PLACEMENT_POLICIES(FIRST, NEXT, LAST)                                                      \
    FIRST(first_fit, "first-fit")                                                                  \
    NEXT(best_fit, "best-fit")                                                                     \
    NEXT(binpack, "binpack")                                                                       \
    NEXT(spread, "spread")                                                                         \
    NEXT(fgd, "fgd")                                                                               \
    LAST(esc, "esc")

#define PLACEMENT_POLICY_WORDS PLACEMENT_POLICIES(WORDS_FIRST, WORDS_NEXT, WORDS_LAST)
