/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The tables of `aliquot top`. No I/O. */

#include <stdbool.h>
#include <stddef.h>

#include "cli/top/data.h"
#include "cli/top/times.h"

#define TOP_COLUMNS_MAX 9
#define TOP_NO_BAR (-1)

struct top_column {
    const char *title;
    bool is_number; /* sorted by `key`, the largest first; otherwise by its text */
    bool has_bar;   /* its cells have percents */
    int weight;     /* where the screen is too narrow, the heaviest goes first; 0: never */
    bool has_hour;  /* a line of the last hour; without any there is no column */
};

struct top_cell {
    const char *text;
    double key;
    int percent;                 /* of the bar, or TOP_NO_BAR */
    const struct top_hour *hour; /* NULL: not known, or another column */
};

struct top_row {
    struct top_cell cells[TOP_COLUMNS_MAX];
    /* What tells more: `aliquot explain POD -n NAMESPACE`, or `aliquot inspect VIEW NAME`. */
    const char *pod, *namespace, *view, *name;
    const char *key;  /* what no other row has; NULL: the text of the first cell */
    const char *node; /* of a card or a share; NULL: none */
};

struct top_rows {
    struct top_row *list;
    size_t n;
    char hour[TIMES_CLOCK_SIZE]; /* from when to when the last hour is, such as 13:20-14:20 */
};

const char *top_row_key(const struct top_row *row);

struct top_view {
    const char *name;
    struct top_column columns[TOP_COLUMNS_MAX];
    size_t ncolumns;
    size_t sorted; /* by which column at first */
    size_t (*count)(const struct top_data *data);
    /* Fills as many rows as there are at most, and returns how many. */
    size_t (*fill)(struct top_data *data, struct top_row *rows);
};

enum { TOP_CARDS, TOP_CONTAINERS, TOP_NODES, TOP_WAITING, TOP_VIEWS };
extern const struct top_view top_views[TOP_VIEWS];

/* Whether it shows the figures of `data->at`; otherwise they are those of the reading. */
bool top_view_has_past(const struct top_view *view);

/* The rows of a view that have the filter's text in a cell, sorted. -ENOMEM. */
int top_rows_make(const struct top_view *view, struct top_data *data, const char *filter,
                  size_t sorted, bool reversed, struct top_rows *ret);
void top_rows_done(struct top_rows *rows);
