/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The options about GPU time that `aliquot run` and `aliquot limits set` have in common. */

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"
#include "share/limits.h"

#define TERM_UNSET UINT32_MAX

/* Each as given, or TERM_UNSET. */
struct terms {
    uint32_t core, weight, ceiling;
    const char *policy; /* NULL: not given */
};

#define TERMS_NONE                                                                                 \
    { TERM_UNSET, TERM_UNSET, TERM_UNSET, NULL }

#define TERMS_OPTIONS(terms)                                                                       \
    {"core",    'c',                                                                               \
     "PERCENT", "part of each GPU's time, 1 to 100 (default: what others leave)",                  \
     opt_u32,   &(terms).core},                                                                    \
        {"policy",                                                                                 \
         'p',                                                                                      \
         "POLICY",                                                                                 \
         "how it shares that time: fixed (default with --core), burst, weighted, weak, "           \
         "best-effort (default without), online, offline",                                         \
         opt_string,                                                                               \
         &(terms).policy},                                                                         \
        {"weight", 0,                                                                              \
         "N",      "against others that share by weight, 1 to 100 (default: as --core)",           \
         opt_u32,  &(terms).weight},                                                               \
    {                                                                                              \
        "ceiling", 0, "PERCENT", "how far it may borrow what others leave (default 100)", opt_u32, \
            &(terms).ceiling                                                                       \
    }

#define TERMS_HELP                                                                                 \
    "Policies: fixed gives --core and never more, even alone; burst guarantees it and lends idle " \
    "time;\n"                                                                                      \
    "weighted and weak divide by weight what the guaranteed leave, over all such runs or over "    \
    "those that\n"                                                                                 \
    "compute now; online takes all that it needs of the rest, best-effort shares the rest, "       \
    "offline\n"                                                                                    \
    "comes last.\n"

/* -EINVAL with a text that names the option. */
int terms_check(const struct terms *terms, struct err *err);

/* Sets what was given; leaves the rest. -EINVAL when the result makes no sense. */
int terms_apply(const struct terms *terms, struct share_device *device, struct err *err);
