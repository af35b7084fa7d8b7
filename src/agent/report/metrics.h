/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct report;
struct buf;

/* Appends the whole of /metrics, in Prometheus text. */
void metrics_write(struct report *report, struct buf *out);
