/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of the agent's samples, and the page of them. */

#include <stddef.h>

#include "wire/metrics.h"

struct report;
struct buf;

/* Each names samples of the sets of samples.h; in their order on the page. */
extern const struct vocabulary *const agent_vocabularies[];
extern const size_t agent_vocabularies_count;

/* Appends the whole of /metrics. */
void metrics_write(struct report *report, enum prom_format format, struct buf *out);
