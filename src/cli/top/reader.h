/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Readings one after the other, in a thread of their own: keys are answered while a slow cluster is
 * read. */

#include <stdbool.h>

#include "cli/top/data.h"

struct reader;

typedef int top_read_fn(const struct top_source *source, struct top_data *ret, struct err *err);

#define READER_SAID_MAX 256

/* Rests so long between two readings, and ten times as long as one took if that is more. */
int reader_start(top_read_fn *read, const struct top_source *source, unsigned rest_ms,
                 struct reader **ret, struct err *err);

/* Waits for the end of a reading. What the threads of a process use is taken down at its end, so
 * the reader must not outlive main(). */
void reader_stop(struct reader *reader);

/* Readable when there is news. */
int reader_fd(const struct reader *reader);

/* The latest reading, unless it was taken before; the caller frees what it replaces. Otherwise
 * false. `trouble`: why the last reading failed, or ""; `said`: the last line of what kubectl, or a
 * program by which it logs in, has said since the last reading that came through. */
bool reader_take(struct reader *reader, struct top_data *ret, char trouble[static ERR_TEXT_MAX],
                 char said[static READER_SAID_MAX]);
