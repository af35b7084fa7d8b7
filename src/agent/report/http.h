/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* /metrics, /healthz, /readyz, /livez, /usage. */

struct err;
struct report;

int report_http_start(struct report *report, struct err *err);
void report_http_update(struct report *report); /* the snapshot has changed */
void report_http_stop(struct report *report);
