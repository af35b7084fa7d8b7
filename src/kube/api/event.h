/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An Event about an object, as `kubectl describe` shows it. Events are written by
 * event_writer.h. */

#include <stdbool.h>
#include <stdint.h>

struct buf;

#define EVENT_PATH_MAX 512

struct event {
    const char *component; /* that reports it */
    const char *namespace, *name, *uid;
    const char *api_version, *kind;
    const char *container; /* of the pod, where it is about one; else NULL */
    bool cluster_scoped;   /* the object has no namespace; that of the Event is `namespace` */
    bool normal;           /* no Warning */
    const char *reason;
    const char *message;
};

/* An event about a pod; borrows all. */
static inline struct event event_on_pod(const char *namespace, const char *name, const char *uid,
                                        const char *reason, const char *message) {
    return (struct event){.namespace = namespace,
                          .name = name,
                          .uid = uid,
                          .api_version = "v1",
                          .kind = "Pod",
                          .reason = reason,
                          .message = message};
}

/* Appends the JSON of an Event that was seen `count` times, to be sent to event_path(). Its name
 * depends on component, object, container and reason, so that it is one Event for all its messages.
 * Reads the clock. */
void event_encode(const struct event *e, uint64_t count, struct buf *out);

/* Appends a merge patch for event_object_path(): seen again now, `count` times in all (0: as often
 * as is written), with another message (NULL: the same). */
void event_encode_again(uint64_t count, const char *message, struct buf *out);

/* The collection, and the Event in it. */
void event_path(const char *namespace, char ret[static EVENT_PATH_MAX]);
void event_object_path(const struct event *e, char ret[static EVENT_PATH_MAX]);
