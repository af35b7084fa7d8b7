/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/clean.h"

bool table_no_titles;

#define GAP 2 /* blanks between columns */

void table_row(struct table *t) {
    if (t->error)
        return;
    if (t->rows == t->room) {
        size_t room = t->room ? 2 * t->room : 16;
        char **cells = realloc(t->cells, room * t->columns * sizeof(*cells));
        if (!cells) {
            t->error = ENOMEM;
            return;
        }
        t->cells = cells;
        t->room = room;
    }
    memset(&t->cells[t->rows * t->columns], 0, t->columns * sizeof(*t->cells));
    t->rows++;
}

void table_set(struct table *t, size_t column, const char *format, ...) {
    if (t->error)
        return;
    char **cell = &t->cells[(t->rows - 1) * t->columns + column];
    free(*cell);

    va_list ap;
    va_start(ap, format);
    if (vasprintf(cell, format, ap) < 0) {
        *cell = NULL;
        t->error = ENOMEM;
    } else {
        (void) clean_text(*cell, false);
    }
    va_end(ap);
}

void table_titles(struct table *t, const char *const *titles) {
    if (table_no_titles)
        return;
    table_row(t);
    for (size_t i = 0; i < t->columns; i++)
        table_set(t, i, "%s", titles[i]);
}

static size_t width_of(const char *text) {
    size_t width = 0;
    for (; text && *text; text++)
        width += ((unsigned char) *text & 0xc0) != 0x80;
    return width;
}

int table_print(const struct table *t, FILE *out) {
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    if (t->error)
        return -t->error;
    for (size_t i = 0; i < t->rows * t->columns; i++) {
        size_t width = width_of(t->cells[i]);
        if (width > widths[i % t->columns])
            widths[i % t->columns] = width;
    }

    for (size_t row = 0; row < t->rows; row++) {
        size_t blanks = 0; /* put before the next cell only, so that no line ends in blanks */
        for (size_t column = 0; column < t->columns - t->hidden; column++) {
            const char *text = t->cells[row * t->columns + column];
            if (text && *text) {
                fprintf(out, "%*s%s", (int) blanks, "", text);
                blanks = 0;
            }
            blanks += widths[column] - width_of(text) + GAP;
        }
        fputc('\n', out);
    }
    return ferror(out) ? -EIO : 0;
}

void table_done(struct table *t) {
    for (size_t i = 0; i < t->rows * t->columns; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table){.columns = t->columns};
}

int table_show(const struct table *t, struct err *err) {
    int r = table_print(t, stdout);

    return r < 0 ? err_errno(err, -r, "cannot print") : 0;
}
