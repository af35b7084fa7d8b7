/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/report/report.h"

struct buf;

/* Appends /history: what each share has used of each of its devices in the last hour. `namespace`
 * and `pod` (NULL: all) choose. */
void history_page_write(struct report *report, const char *namespace, const char *pod,
                        struct buf *out);
