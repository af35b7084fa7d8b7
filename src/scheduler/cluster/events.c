/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/events.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/event.h"

#define PER_SECOND 10
#define PER_POD_MS 5000
#define TIMEOUT_MS 10000
#define COMPONENT "aliquot-scheduler"

/* Whether the rate allows one more, for this pod and in all. */
static bool may_write(struct events *e, const struct state_pod *pod, uint64_t now_ms) {
    if (pod->event_hash != 0 && now_ms - pod->event_ms < PER_POD_MS)
        return false;
    if (now_ms - e->window_ms >= 1000) {
        e->window_ms = now_ms;
        e->in_window = 0;
    }
    return e->in_window < PER_SECOND;
}

static void on_written(const struct kube_response *response, void *userdata) {
    struct events *e = userdata;
    if (response->status >= 200 && response->status < 300)
        e->written++;
    else
        e->failed++;
}

static void write_event(struct events *e, struct state_pod *pod, const char *reason,
                        const char *message, uint64_t now_ms) {
    const struct event event = {COMPONENT, pod->namespace, pod->name, pod->uid, reason, message};
    _cleanup_buf_ struct buf body = BUF_INIT(16 << 10);
    char path[128];
    event_encode(&event, &body);
    event_path(pod->namespace, path);
    e->in_window++;
    if (buf_error(&body) < 0 || e->api.request(e->api.context, "POST", path, NULL, body.data,
                                               body.len, TIMEOUT_MS, on_written, e, NULL) < 0) {
        e->failed++;
        return;
    }
    pod->event_hash = state_hash(0, message);
    pod->event_ms = now_ms;
}

static void forget_waiting(struct state_pod *pod) {
    free(pod->event_text);
    pod->event_text = NULL;
}

void events_warn(struct events *e, struct state_pod *pod, const char *reason, const char *message,
                 uint64_t now_ms) {
    forget_waiting(pod);
    if (pod->event_hash == state_hash(0, message))
        return;
    if (!e->waiting && may_write(e, pod, now_ms)) {
        write_event(e, pod, reason, message, now_ms);
        return;
    }
    pod->event_reason = reason;
    pod->event_text = strdup(message); /* without memory it is not said, which harms nobody */
    e->waiting = true;
}

/* Of the pods that may have their Event now, the one that has had none for the longest time; NULL:
 * none. Forgets what is waiting for pods that do not wait any more. */
static struct state_pod *next_waiting(struct events *e, struct state *s, uint64_t now_ms) {
    struct state_pod *found = NULL;
    for (struct state_pod *pod = s->open; pod; pod = pod->open_next) {
        if (!pod->event_text)
            continue;
        if (pod->stage != POD_PENDING) {
            forget_waiting(pod);
            continue;
        }
        e->waiting = true;
        if ((!found || pod->event_ms < found->event_ms) && may_write(e, pod, now_ms))
            found = pod;
    }
    return found;
}

void events_flush(struct events *e, struct state *s, uint64_t now_ms) {
    for (unsigned i = 0; i <= PER_SECOND; i++) {
        e->waiting = false;
        struct state_pod *pod = next_waiting(e, s, now_ms);
        if (!pod)
            return;
        write_event(e, pod, pod->event_reason, pod->event_text, now_ms);
        forget_waiting(pod);
    }
}
