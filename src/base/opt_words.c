/* SPDX-License-Identifier: Apache-2.0 */

/* Walks over the words of a table. */

#include <string.h>

#include "base/opt.h"

const struct opt_word *opt_word_next(const struct opt_usage *usage, const struct opt_word *w) {
    size_t stride = usage->stride ? usage->stride : sizeof(*w);

    return (const void *) ((const char *) w + stride);
}

const void *opt_word_find(const struct opt_usage *usage, const char *name) {
    const struct opt_word *w = usage->words;

    while (w->name && strcmp(w->name, name) != 0)
        w = opt_word_next(usage, w);
    return w->name ? w : NULL;
}
