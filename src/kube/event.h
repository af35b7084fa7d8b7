/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An Event of ours about a pod, as `kubectl describe` shows it. */

#include <stdint.h>

struct buf;

struct event {
    const char *component; /* who says it */
    const char *namespace, *pod, *uid;
    const char *reason;
    const char *message;
};

/* Appends the JSON of a Warning with a name of its own, to be sent to event_path(). Reads the
 * clock. */
void event_encode(const struct event *e, struct buf *out);

/* "/api/v1/namespaces/NAMESPACE/events" */
void event_path(const char *namespace, char ret[static 128]);
