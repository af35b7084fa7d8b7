/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text in columns, as wide as their longest cell. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct err;

#define TABLE_COLUMNS_MAX 72 /* a node has up to 64 cards */

/* --no-headers: no row of titles is made. */
extern bool table_no_titles;

struct table {
    size_t columns;
    size_t hidden; /* of them, the last ones, which are not printed */
    size_t rows;
    size_t room;
    char **cells; /* rows * columns, owned */
    int error;    /* 0 or the positive errno of the first failure; later calls do nothing */
};

/* Starts a row of empty cells. */
void table_row(struct table *t);

/* A row of titles, one for each column, unless there are to be none. */
void table_titles(struct table *t, const char *const *titles);

/* Sets a cell of the row that was started last. Its text is cleaned (cli/clean.h). */
void table_set(struct table *t, size_t column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prints all rows; widths are counted in code points. 0 or negative errno. */
int table_print(const struct table *t, FILE *out);

/* The same on standard output, with the reason of an error. */
int table_show(const struct table *t, struct err *err);

void table_done(struct table *t);
