/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The options about GPU time that `aliquot run` and `aliquot limits set` have in common. */

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"
#include "share/compute_policies.h"
#include "share/limits.h"

#define COMPUTE_UNSET UINT32_MAX

/* Each as given, or COMPUTE_UNSET. */
struct compute_options {
    uint32_t core, weight, ceiling;
    const char *policy; /* NULL: not given */
};

#define COMPUTE_OPTIONS_NONE                                                                       \
    { COMPUTE_UNSET, COMPUTE_UNSET, COMPUTE_UNSET, NULL }

#define COMPUTE_OPTIONS_OPTIONS(terms)                                                             \
    {"core",    'c',                                                                               \
     "PERCENT", "share of each GPU's time, 1 to 100 (default: what others leave)",                 \
     opt_u32,   &(terms).core},                                                                    \
        {"policy",                                                                                 \
         'p',                                                                                      \
         "POLICY",                                                                                 \
         "compute policy: " COMPUTE_POLICY_WORDS                                                   \
         " (default: fixed with --core, best-effort without)",                                     \
         opt_string,                                                                               \
         &(terms).policy},                                                                         \
        {"weight", 0,                                                                              \
         "N",      "weight in weighted and weak, 1 to 100 (default: as --core)",                   \
         opt_u32,  &(terms).weight},                                                               \
    {                                                                                              \
        "ceiling", 0, "PERCENT", "limit up to which it borrows idle time (default 100)", opt_u32,  \
            &(terms).ceiling                                                                       \
    }

#define COMPUTE_OPTIONS_HELP                                                                       \
    "Policies: fixed gives --core and never more, even alone; burst guarantees it and lends idle " \
    "time;\n"                                                                                      \
    "weighted and weak divide by weight the time that guarantees leave, over all such runs or "    \
    "over "                                                                                        \
    "those that\n"                                                                                 \
    "compute now; online takes all that it needs of the rest, best-effort shares the rest, "       \
    "offline\n"                                                                                    \
    "comes last.\n"

/* -EINVAL with a text that names the option. */
int compute_options_check(const struct compute_options *terms, struct err *err);

/* Sets the given ones; the others stay. -EINVAL when the result is contradictory. */
int compute_options_apply(const struct compute_options *terms, struct share_device *device,
                          struct err *err);
