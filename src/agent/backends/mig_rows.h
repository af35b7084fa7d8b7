/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The rows of the resources of MIG instances: one is made when the first instance for it appears,
 * and stays. A row without instances lists none, so kubelet is not offered it. */

#include "agent/backends/mig.h"

/* Makes the rows that the devices need and calls `add` with each new one, which lives as long as
 * `m`. A row that `add` does not take (negative errno) is tried again at the next call. */
void mig_rows_update(struct mig_rows *m, const struct gpu_snapshot *s,
                     int (*add)(const struct resource *r, void *userdata), void *userdata);

/* Why the strategy cannot serve the node as it is, for a person; "": it can. */
const char *mig_rows_trouble(const struct mig_rows *m);

/* Frees the rows; kubelet.h may not use them any more. */
void mig_rows_done(struct mig_rows *m);
