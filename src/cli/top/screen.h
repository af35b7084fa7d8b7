/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lines of text that fit a screen, as the bytes that draw them. No I/O. */

#include <stdbool.h>

#include "base/buf.h"
#include "cli/top/views.h"

enum style { STYLE_PLAIN, STYLE_TITLE, STYLE_CHOSEN, STYLE_GOOD, STYLE_FULL, STYLE_OVER };

struct screen {
    struct buf out;
    int width, height;
    bool is_terminal; /* otherwise plain lines */
    bool has_color, has_blocks;
    int line;       /* that is drawn, from 1 */
    int column;     /* of it, how many are used */
    bool is_chosen; /* the whole line is marked */
    int blanks;     /* that are drawn when something follows */
};

/* Asks the locale and NO_COLOR. Width 0: no bound. */
void screen_begin(struct screen *s, bool is_terminal, int width, int height);

void screen_line(struct screen *s, bool is_chosen); /* begins the next line */
/* Text in so many columns, cut or filled up; 0: as it comes. Control characters become '?'. */
void screen_put(struct screen *s, const char *text, int width, bool is_right, enum style style);
/* How many bytes of the text fit into a line. */
size_t screen_fit(const struct screen *s, const char *text);
void screen_end(struct screen *s); /* nothing below the last line */

/* Titles and rows of a view in the lines from now on: `lines` of them, from row `first` on.
 * `chosen`: the row that is marked; SIZE_MAX: none. `sorted`: whose title is marked. */
void screen_table(struct screen *s, const struct top_view *view, const struct top_rows *rows,
                  size_t first, size_t lines, size_t chosen, size_t sorted);
