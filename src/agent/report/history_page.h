/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/report/report.h"

struct buf;

/* Pairs of a share and a device on one page: a page is written on the agent's loop. */
#define HISTORY_PAGE_MAX 100u

struct history_query {
    const char *namespace, *pod; /* NULL: all */
    uint64_t skip;               /* so many pairs of them; they have an order while none comes */
};

/* Appends /history: what each share has used of each of its devices in the last hour. */
void history_page_write(struct report *report, const struct history_query *query, struct buf *out);
