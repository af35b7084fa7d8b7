/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The Binding: the request by which the API server puts a pod on a node. */

#include "base/buf.h"
#include "kube/objects/pod.h"
#include "scheduler/cluster/lease.h"

/* Shorter than any sensible httpTimeout of the extender's configuration, so that kube-scheduler
 * gets our answer and does not run into its own timeout. */
#define BINDING_TIMEOUT_MS LEASE_SEND_MS

/* What a bind request names. */
struct bind_target {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char node[KUBE_NAME_MAX];
};

/* Called once per bind with the answer for kube-scheduler ("" is success). */
typedef void (*bind_done)(const char *error, void *request);

/* Appends the Binding; `annotations`: members of a JSON object, or "". */
void binding_encode(const struct bind_target *target, const char *annotations, struct buf *out);

/* The path of a subresource of the pod ("/binding", with a query or without) or, with "", of the
 * pod. */
#define BINDING_PATH_MAX 512
void binding_path(const struct bind_target *target, const char *subresource,
                  char ret[static BINDING_PATH_MAX]);
