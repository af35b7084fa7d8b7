/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* status.mig of a card's GPU object: compared with what the API server has, and written. */

#include <stdint.h>

#include "base/buf.h"
#include "mig/order.h"

/* A hash of the text; 0: there is none. */
uint64_t mig_status_seen(struct json mig);
uint64_t mig_status_wanted(const struct mig_report *report); /* NULL: none */

/* A merge patch for the status; `report` NULL takes it out. */
void mig_status_patch(const struct mig_report *report, struct buf *out);
