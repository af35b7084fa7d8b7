/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events on pods and cards of this node, and a line in the agent's log for each that is written. */

struct agent;
struct event_writer;

/* NULL without memory. To be freed with event_writer_free() when the client is closed. */
struct event_writer *tell_start(struct agent *a);

/* `reason` is one word in CamelCase, `message` a sentence. Where tell_start() was not
 * called it is only logged.
 * See kube/api/event_writer.h: what is noted too often is written later, in its latest form. */
void tell_pod(struct agent *a, const char *namespace, const char *pod, const char *uid,
              const char *reason, const char *message);

/* The same about the GPU object of a card. Objects in no namespace have their Events in
 * "default". */
void tell_card(struct agent *a, const char *name, const char *uid, const char *reason,
               const char *message);

/* The same about one container, whose Events are apart from those of the pod's other containers. */
void tell_container(struct agent *a, const char *namespace, const char *pod, const char *uid,
                    const char *container, const char *reason, const char *message);
