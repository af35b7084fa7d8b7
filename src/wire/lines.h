/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Cuts a stream of bytes that arrives in any pieces into lines. */

#include <stddef.h>

#include "base/buf.h"

struct line_splitter {
    struct buf part; /* the beginning of an incomplete line */
};

void line_splitter_init(struct line_splitter *s, size_t max_line);
void line_splitter_reset(struct line_splitter *s);
void line_splitter_done(struct line_splitter *s);

/*
 * Calls on_line for each line that is complete, without its '\n'. Stops at the first negative
 * answer and returns it; -EMSGSIZE for a line longer than max_line, -ENOMEM. Returns 0 otherwise.
 */
int line_splitter_feed(struct line_splitter *s, const char *data, size_t size,
                       int (*on_line)(const char *line, size_t size, void *user), void *user);
