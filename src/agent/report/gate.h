/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pages that only some clients may read: those with a token of an account that has the right,
 * and aliquot-scheduler by its certificate. */

struct http_exchange;
struct report;

/* Calls `next` when the client of the exchange may read the page, now or later; else answers 401,
 * 403, 429 or 503 with a text that names cause and remedy. */
void report_gate(struct report *report, struct http_exchange *exchange,
                 void (*next)(struct report *report, struct http_exchange *exchange));
