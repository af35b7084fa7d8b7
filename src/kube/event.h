/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An Event of ours about a pod, as `kubectl describe` shows it. */

#include <stdbool.h>
#include <stdint.h>

struct buf;

struct event {
    const char *component; /* who says it */
    const char *namespace, *pod, *uid;
    const char *reason;
    const char *message;
};

/* What it is about, where that is no pod; `pod` and `uid` of the event are then its name and uid.
 */
struct event_object {
    const char *api_version, *kind;
    const char *namespace; /* "" of an object of the cluster */
    bool normal;           /* no Warning */
};

/* Appends the JSON of a Warning with a name of its own, to be sent to event_path(). Reads the
 * clock. */
void event_encode(const struct event *e, struct buf *out);
void event_encode_about(const struct event *e, const struct event_object *about, struct buf *out);

/* "/api/v1/namespaces/NAMESPACE/events" */
void event_path(const char *namespace, char ret[static 128]);
