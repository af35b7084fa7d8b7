/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The rows of the resources of whole devices: one is made when the first device for it appears, and
 * stays. A row without devices lists none, so kubelet is not offered it. */

#include "agent/backends/whole_names.h"

/* Fills a row. Its texts point into it: it must not move. */
void whole_row_make(struct whole_row *row, const struct whole_rows *m, const char *name);

/* Makes the rows that the devices need and calls `add` with each new one, which lives as long as
 * `m`. A row that `add` does not take (negative errno) is tried again at the next call. */
void whole_rows_update(struct whole_rows *m, const struct gpu_snapshot *s,
                       int (*add)(const struct resource *r, void *userdata), void *userdata);

/* Why the strategy cannot serve the node as it is, for a person; "": it can. */
const char *whole_rows_trouble(const struct whole_rows *m);

/* Frees the rows; kubelet.h may not use them any more. */
void whole_rows_done(struct whole_rows *m);
