/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct agent;
struct buf;

/* Appends the whole of /metrics, in Prometheus text. */
void metrics_write(struct agent *a, struct buf *out);
