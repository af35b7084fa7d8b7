/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events on pods and cards of this node, and a line in the agent's log for each that is written. */

#include <stdbool.h>
#include <uv.h>

struct event_writer;
struct kube_client;

/* All zero: Events are only logged. */
struct pod_events {
    uv_loop_t *loop;
    struct kube_client *client; /* NULL: not yet */
    struct event_writer *writer;
    bool closing; /* the agent stops: nothing is written any more */
};

/* The writer is NULL without memory. To be freed with event_writer_free() when the client is
 * closed. */
void pod_events_start(struct pod_events *p, uv_loop_t *loop);

/* `reason` is one word in CamelCase, `message` a sentence. See kube/api/event_writer.h: what is
 * noted too often is written later, in its latest form. */
void pod_events_pod(struct pod_events *p, const char *namespace, const char *pod, const char *uid,
                    const char *reason, const char *message);

/* The same about the GPU object of a card. Objects in no namespace have their Events in
 * "default". */
void pod_events_card(struct pod_events *p, const char *name, const char *uid, const char *reason,
                     const char *message);

/* The same about a node; its Events have its name as UID, as kubelet's have. */
void pod_events_node(struct pod_events *p, const char *node, const char *reason,
                     const char *message);

/* The same, but that it is no Warning: what another Event of the node says is over. */
void pod_events_node_well(struct pod_events *p, const char *node, const char *reason,
                          const char *message);

/* The same for one container. Events of different containers do not suppress each other. */
void pod_events_container(struct pod_events *p, const char *namespace, const char *pod,
                          const char *uid, const char *container, const char *reason,
                          const char *message);
