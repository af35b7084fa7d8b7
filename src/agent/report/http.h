/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* /metrics, /healthz, /usage. */

struct err;
struct report;

int web_start(struct report *report, struct err *err);
void web_update(struct report *report); /* the snapshot has changed */
void web_stop(struct report *report);
