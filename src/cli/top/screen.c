/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/screen.h"

#include <assert.h>
#include <langinfo.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define GAP 2
#define TEXT_MAX 48 /* columns of a text that is not the last */
#define PERCENT 4   /* "100%" */
#define WIDE 100    /* a screen for long bars */
#define NARROW 60   /* a screen for none */

static const char *const colors[] = {
    [STYLE_PLAIN] = "",        [STYLE_TITLE] = "\033[1m", [STYLE_CHOSEN] = "\033[7m",
    [STYLE_GOOD] = "\033[32m", [STYLE_FULL] = "\033[33m", [STYLE_OVER] = "\033[31m",
};

void screen_begin(struct screen *s, bool is_terminal, int width, int height) {
    const char *no_color = getenv("NO_COLOR");

    buf_reset(&s->out);
    s->width = width > 0 ? width : INT_MAX;
    s->height = height;
    s->is_terminal = is_terminal;
    s->has_color = is_terminal && !(no_color && *no_color);
    s->has_blocks = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    s->line = 0;
}

/* ---- a line ---- */

static void end_line(struct screen *s) {
    if (s->line == 0)
        return;
    int empty = s->width - (s->column - s->blanks);
    if (!s->is_terminal)
        buf_putc(&s->out, '\n');
    else if (s->is_chosen) /* not all terminals mark what they erase */
        buf_printf(&s->out, "%*s\033[0m", empty, "");
    else /* after the last column, it would erase that */
        buf_puts(&s->out, empty > 0 ? "\033[0m\033[K" : "\033[0m");
}

void screen_line(struct screen *s, bool is_chosen) {
    end_line(s);
    s->line++;
    s->column = 0;
    s->blanks = 0;
    s->is_chosen = is_chosen;
    if (s->is_terminal)
        buf_printf(&s->out, "\033[%d;1H\033[0m%s", s->line, is_chosen ? colors[STYLE_CHOSEN] : "");
}

static void put_blanks(struct screen *s, int n) {
    if (s->column >= s->width)
        return;
    n = n < s->width - s->column ? n : s->width - s->column;
    s->blanks += n;
    s->column += n;
}

/* The next character and its columns; what cannot be shown is a '?'. */
static size_t next_char(const char *text, wchar_t *ret, int *ret_width) {
    mbstate_t state = {0};
    size_t n = mbrtowc(ret, text, MB_CUR_MAX, &state);
    int width = n == 0 || n > MB_CUR_MAX ? -1 : wcwidth(*ret);

    *ret_width = width > 0 ? width : 1;
    if (width > 0)
        return n;
    *ret = L'?';
    return n == 0 || n > MB_CUR_MAX ? 1 : n;
}

static int width_of(const char *text) {
    int all = 0, width;
    wchar_t c;

    for (size_t n; *text; text += n, all += width)
        n = next_char(text, &c, &width);
    return all;
}

/* As much as fits into `room` columns. */
static int put_text(struct screen *s, const char *text, int room) {
    int used = 0, width;
    wchar_t c;

    if (*text && room > 0 && s->blanks > 0) {
        buf_printf(&s->out, "%*s", s->blanks, "");
        s->blanks = 0;
    }
    while (*text) {
        size_t n = next_char(text, &c, &width);
        if (used + width > room)
            break;
        if (c == L'?')
            buf_putc(&s->out, '?');
        else
            buf_append(&s->out, text, n);
        text += n;
        used += width;
    }
    s->column += used;
    return used;
}

void screen_put(struct screen *s, const char *text, int width, bool is_right, enum style style) {
    int all = width_of(text), room = s->width - s->column;
    bool is_styled = style != STYLE_PLAIN && !s->is_chosen && s->is_terminal &&
                     (s->has_color || style < STYLE_GOOD);

    if (width > 0 && width < room)
        room = width;
    if (is_right && all < room && width > 0)
        put_blanks(s, room - all);
    if (is_styled)
        buf_puts(&s->out, colors[style]);
    int used = put_text(s, text, is_right && all < room && width > 0 ? all : room);
    if (is_styled)
        buf_puts(&s->out, "\033[0m");
    if (!is_right && width > used)
        put_blanks(s, width - used);
}

size_t screen_fit(const struct screen *s, const char *text) {
    size_t bytes = 0;
    int used = 0, width;
    wchar_t c;

    while (text[bytes]) {
        size_t n = next_char(text + bytes, &c, &width);
        if (used + width > s->width && bytes > 0)
            break;
        bytes += n;
        used += width;
    }
    return bytes;
}

void screen_end(struct screen *s) {
    end_line(s);
    if (s->is_terminal && s->line < s->height)
        buf_printf(&s->out, "\033[%d;1H\033[J", s->line + 1);
    s->line = 0;
}

/* ---- a table ---- */

struct layout {
    int widths[TOP_COLUMNS_MAX]; /* 0: not shown */
    int bar;                     /* columns of a bar without its figure; 0: there is none */
};

static int max_int(int a, int b) {
    return a > b ? a : b;
}

static int wanted_width(const struct top_view *view, const struct top_rows *rows, size_t column,
                        int bar) {
    int width = width_of(view->columns[column].title);

    if (view->columns[column].has_bar)
        return max_int(width, bar + PERCENT);
    for (size_t i = 0; i < rows->n; i++)
        width = max_int(width, width_of(rows->list[i].cells[column].text));
    return column + 1 < view->ncolumns && width > TEXT_MAX ? TEXT_MAX : width;
}

static bool has_hours(const struct top_rows *rows, size_t column) {
    for (size_t i = 0; i < rows->n; i++)
        if (rows->list[i].cells[column].hour)
            return true;
    return false;
}

static long sum_of(const struct layout *l, size_t n) {
    long sum = -GAP;

    for (size_t i = 0; i < n; i++)
        sum += l->widths[i] > 0 ? l->widths[i] + GAP : 0;
    return sum;
}

/* The heaviest column that is shown; 0: only the first one is left. */
static size_t heaviest(const struct top_view *view, const struct layout *l) {
    size_t found = 0;

    for (size_t i = 1; i < view->ncolumns; i++)
        if (l->widths[i] > 0 && view->columns[i].weight > view->columns[found].weight)
            found = i;
    return found;
}

/* The last column, a text, can be cut to what is left for it, if that says anything. */
static bool can_be_cut(const struct top_view *view, const struct layout *l, int width) {
    size_t last = view->ncolumns - 1;

    assert(view->ncolumns > 0);
    if (view->columns[last].is_number || l->widths[last] == 0)
        return false;
    return sum_of(l, last) + GAP + TEXT_MAX / 4 <= width;
}

static void make_layout(const struct screen *s, const struct top_view *view,
                        const struct top_rows *rows, struct layout *l) {
    size_t drop;

    l->bar = s->width >= WIDE ? 11 : s->width >= NARROW ? 6 : 0;
    for (size_t i = 0; i < view->ncolumns; i++)
        l->widths[i] = view->columns[i].has_hour ? (has_hours(rows, i) ? TOP_HOUR_POINTS : 0)
                                                 : max_int(wanted_width(view, rows, i, l->bar), 1);
    while (sum_of(l, view->ncolumns) > s->width && !can_be_cut(view, l, s->width) &&
           (drop = heaviest(view, l)) > 0)
        l->widths[drop] = 0;
}

static enum style style_of(int percent) {
    return percent > 90 ? STYLE_OVER : percent > 70 ? STYLE_FULL : STYLE_GOOD;
}

static void put_bar(struct screen *s, const struct top_cell *cell, const struct layout *l,
                    int width) {
    int cells = l->bar - 1, filled = (cell->percent * cells + 50) / 100;
    char bar[64] = "";
    size_t at = 0;

    if (cell->percent == TOP_NO_BAR || l->bar == 0) {
        screen_put(s, cell->text, width, true, STYLE_PLAIN);
        return;
    }
    filled = filled < cells ? filled : cells;
    for (int i = 0; i < cells && at + 4 < sizeof(bar); i++) {
        const char *part = s->has_blocks ? (i < filled ? "█" : "░") : (i < filled ? "#" : ".");
        memcpy(bar + at, part, strlen(part) + 1);
        at += strlen(part);
    }
    screen_put(s, bar, l->bar, false, style_of(cell->percent));
    screen_put(s, cell->text, width - l->bar, true, STYLE_PLAIN);
}

/* Whether the column is shown. */
static bool begin_column(struct screen *s, const struct layout *l, size_t i) {
    if (l->widths[i] > 0 && s->column > 0)
        put_blanks(s, GAP);
    return l->widths[i] > 0;
}

/* Eighths of a line, the last point at the right. */
static void put_hour(struct screen *s, const struct top_hour *hour) {
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    const char *const *levels = s->has_blocks ? blocks : letters;
    char line[4 * TOP_HOUR_POINTS + 1] = "";
    size_t at = 0;

    for (int i = 0; hour && i < TOP_HOUR_POINTS; i++) {
        uint8_t percent = hour->percent[i];
        int level = percent == 0 ? 0 : (percent * 8 + 99) / 100 - 1;
        const char *part = percent == TOP_HOUR_UNKNOWN ? " " : levels[level];
        memcpy(line + at, part, strlen(part) + 1);
        at += strlen(part);
    }
    screen_put(s, line, TOP_HOUR_POINTS, false, STYLE_PLAIN);
}

static void put_row(struct screen *s, const struct top_view *view, const struct layout *l,
                    const struct top_row *row, bool is_chosen) {
    screen_line(s, is_chosen);
    for (size_t i = 0; i < view->ncolumns; i++) {
        if (!begin_column(s, l, i))
            continue;
        if (view->columns[i].has_bar)
            put_bar(s, &row->cells[i], l, l->widths[i]);
        else if (view->columns[i].has_hour)
            put_hour(s, row->cells[i].hour);
        else
            screen_put(s, row->cells[i].text, l->widths[i], view->columns[i].is_number,
                       STYLE_PLAIN);
    }
}

static void put_titles(struct screen *s, const struct top_view *view, const struct top_rows *rows,
                       const struct layout *l, size_t sorted) {
    screen_line(s, false);
    for (size_t i = 0; i < view->ncolumns; i++)
        if (begin_column(s, l, i))
            screen_put(s, view->columns[i].has_hour ? rows->hour : view->columns[i].title,
                       l->widths[i],
                       view->columns[i].is_number && !(view->columns[i].has_bar && l->bar > 0) &&
                           !view->columns[i].has_hour,
                       i == sorted ? STYLE_CHOSEN : STYLE_TITLE);
}

void screen_table(struct screen *s, const struct top_view *view, const struct top_rows *rows,
                  size_t first, size_t lines, size_t chosen, size_t sorted) {
    struct layout l;

    make_layout(s, view, rows, &l);
    put_titles(s, view, rows, &l, sorted);
    for (size_t i = first; i < rows->n && i - first < lines; i++)
        put_row(s, view, &l, &rows->list[i], i == chosen);
}
