/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* GPU time in the reports. */

#include <stdint.h>

struct buf;
struct json_writer;
struct shares;
struct slot;

/* Appends the families of metrics about GPU time. */
void gputime_metrics(struct shares *s, struct buf *out);

/* Puts the members about GPU time into a holder of /usage. */
void gputime_usage(const struct slot *slot, uint32_t device, struct json_writer *w);
