/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Readings one after the other, in a thread of their own: keys are answered while a slow cluster is
 * read. */

#include <stdbool.h>

#include "cli/top/data.h"

struct reader;

typedef int top_read_fn(const struct top_source *source, struct top_data *ret, struct err *err);

#define READER_SAID_MAX 256

typedef int top_hours_fn(const struct top_source *source, const char *const *nodes, size_t n,
                         struct top_hours *ret, struct err *err);

/* Rests so long between two readings, and ten times as long as one took if that is more. `hours`
 * may be NULL: there is no last hour. */
int reader_start(top_read_fn *read, top_hours_fn *hours, const struct top_source *source,
                 unsigned rest_ms, struct reader **ret, struct err *err);

#define READER_NODES_MAX 64

/* The nodes of which the last hour is shown; it is read with a later reading, once in ten seconds
 * at most. More than READER_NODES_MAX are left out. */
void reader_want(struct reader *reader, const char *const *nodes, size_t n);

/* Waits for the end of a reading. What the threads of a process use is taken down at its end, so
 * the reader must not outlive main(). */
void reader_stop(struct reader *reader);

/* Readable when there is news. */
int reader_fd(const struct reader *reader);

/* The latest reading, unless it was taken before; the caller frees what it replaces. Its hours are
 * there where they were read since the last one taken. Otherwise false. `trouble`: why the last
 * reading failed, or ""; `said`: the last line of what kubectl, or a program by which it logs in,
 * has said since the last reading that came through. */
bool reader_take(struct reader *reader, struct top_data *ret, char trouble[static ERR_TEXT_MAX],
                 char said[static READER_SAID_MAX]);
