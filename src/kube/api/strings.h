/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lists of strings in API objects, kept. */

#include <stdbool.h>
#include <stdint.h>

#include "wire/json.h"

#define STRINGS_MAX 64

/* A few strings, owned. */
struct strings {
    uint32_t n;
    char **v;
};

/* Adds the strings of an array, or the members of an object as "key=value"; those beyond
 * STRINGS_MAX, which is more than is written in practice, are not read. 0 or -ENOMEM. */
int strings_read(struct json list, struct strings *ret);

/* Adds one; the same. */
int strings_add(struct strings *s, const char *text);

bool strings_have(const struct strings *s, const char *text);
void strings_done(struct strings *s);
