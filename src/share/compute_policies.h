/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names of the compute policies: of the annotation, the arguments, the messages, and by
 * scripts/manifests of admission. SHARE_<id> of limits_core.h is the policy. */

#include "base/words.h"

#define COMPUTE_POLICIES(FIRST, NEXT, LAST)                                                        \
    FIRST(FIXED, "fixed")                                                                          \
    NEXT(BURST, "burst")                                                                           \
    NEXT(WEIGHTED, "weighted")                                                                     \
    NEXT(WEAK, "weak")                                                                             \
    NEXT(BEST_EFFORT, "best-effort")                                                               \
    NEXT(ONLINE, "online")                                                                         \
    LAST(OFFLINE, "offline")

/* The names that qGPU has for some of them. */
#define COMPUTE_POLICY_ALIASES(ALIAS)                                                              \
    ALIAS(FIXED, "fixed-share")                                                                    \
    ALIAS(BURST, "burst-share")

#define COMPUTE_POLICY_WORDS COMPUTE_POLICIES(WORDS_FIRST, WORDS_NEXT, WORDS_LAST)
