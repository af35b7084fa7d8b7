/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of the agent's samples, and the page of them. */

#include <stddef.h>

#include "wire/metrics.h"

#define METRIC_NAMES_DEFAULT "aliquot,dcgm"

struct buf;
struct err;
struct report;

/* Each names samples of the sets of samples.h; in their order on the page, at most 32. */
extern const struct vocabulary *const agent_vocabularies[];
extern const size_t agent_vocabularies_count;

/* The vocabularies of a list of their names with commas between, as bits by their order. -EINVAL
 * with a text that has the names that there are. */
int metric_names_parse(const char *list, uint32_t *ret, struct err *err);

/* Appends the whole of /metrics. */
void metrics_write(struct report *report, enum prom_format format, struct buf *out);
