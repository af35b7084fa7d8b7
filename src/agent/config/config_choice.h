/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which entry of a ConfigMap is the configuration of a node: the one that the node's label names;
 * without a label the default; without a default the first of the fallbacks that is possible. Pure.
 */

#include <stddef.h>

struct err;

#define CONFIG_CHOICE_EMPTY (-1) /* no entry: the configuration with NVIDIA's defaults */

struct config_choice {
    const char *default_name; /* NULL: none */
    /* With commas between: "named" (the entry `default`), "single" (the only entry), "empty". */
    const char *fallbacks;
};

/* The index of a name, or CONFIG_CHOICE_EMPTY in *ret. `label` is "" for a node without it.
 * -ENOENT: the text says which names there are. */
int config_choose(const struct config_choice *c, const char *label, const char *const *names,
                  size_t n, int *ret, struct err *err);

/* -EINVAL: a fallback has another name. */
int config_choice_check(const struct config_choice *c, struct err *err);
