/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sentences for people: why a pod waits, with the numbers of each GPU. They go into an Event of
 * ours on the pod; the reasons per node that kube-scheduler shows are few and fixed, because it
 * joins all different ones into one message. */

#include <stddef.h>

#include "scheduler/extender/extender.h"

#define EXPLAIN_MAX 1024 /* the API server cuts an Event's message there */

/* `selection` may be NULL in both. Shows the nodes that are closest to fitting the pod, independent
 * of their order; for nodes with cards of the wrong model it shows the models. */
void explain_no_fit(struct state *s, const struct gpu_request *request,
                    const struct gpu_selection *selection,
                    const struct extender_candidate *candidates, size_t n,
                    char out[static EXPLAIN_MAX]);
/* The same as long as the sentence is, but for its figures and the nodes in it. */
uint64_t explain_key(const struct gpu_request *request, const struct gpu_selection *selection,
                     const struct extender_candidate *candidates, size_t n);
/* The pod's request as text. */
void explain_wants(const struct gpu_request *request, char out[static EXPLAIN_MAX]);

void explain_malformed(const struct pod *pod, char out[static EXPLAIN_MAX]);
