/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the scheduler serves over HTTP: the verbs of kube-scheduler, and pages about its state. */

#include "scheduler/daemon/scheduler.h"

struct vocabulary;

/* routes.c; metrics_routes has what other hosts may read: sums, and no names of tenants. */
extern const struct http_route scheduler_routes[], scheduler_metrics_routes[];

/* metrics.c: /metrics, in the text format of Prometheus; its names. */
extern const struct vocabulary scheduler_vocabulary;
void scheduler_write_metrics(struct scheduler *s, enum prom_format format, struct buf *out);

/* The same of at most SHARED_PAGE_MS ago. The thread that makes the page answers kube-scheduler,
 * too, and the page is of all pods and cards: clients do not decide how often it is made. */
#define SHARED_PAGE_MS 1000
void scheduler_copy_metrics(struct scheduler *s, enum prom_format format, struct buf *out);

/* status.c: /status, all nodes with GPUs and all pods that request them, as JSON. */
void scheduler_write_status(struct scheduler *s, struct buf *out);

/* explain_page.c: /explain, why one pod is on none of the nodes, as JSON. False: no pod of that
 * name that requests a GPU or uses ResourceClaims is known, and nothing was written. */
bool scheduler_write_explanation(struct scheduler *s, const char *namespace, const char *name,
                                 struct buf *out);
