/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text in buffers of fixed size. */

#include <stdbool.h>
#include <stddef.h>

/* A row of a table of texts. */
struct text_pair {
    const char *key, *value;
};

/* Copies as much of `from` as fits into `size` bytes, at least one; `to` is always terminated. The
 * two may overlap. */
void text_copy(char *to, size_t size, const char *from);

/* Whether two secrets are the same, in a time that does not depend on where they differ, but on
 * their lengths. */
bool text_is_same_secret(const char *a, const char *b);

/* Overwrites a secret and frees it. NULL is fine. */
void text_wipe(char *secret);

/* Takes the next item off a list with commas between, as it is written, blanks included: `ret_len`
 * bytes at `ret_item`, which may be none. False at the end of the list, which may be NULL. */
bool text_item(const char **list, const char **ret_item, size_t *ret_len);

/* Whether the list, which may be NULL, has this item. */
bool text_has_item(const char *list, const char *item);
