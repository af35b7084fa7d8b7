/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/dra_watch.h"

#include "base/err.h"
#include "scheduler/daemon/scheduler.h"

bool dra_watch_wanted(const struct scheduler *s) {
    return s->options.dra;
}

static void on_object(struct scheduler *s, enum dra_kind kind, enum kube_event event,
                      struct json object) {
    struct err err;
    if (!s->options.dra)
        return;
    if (dra_see(&s->dra, kind, object, event == KUBE_DELETED, &err) < 0)
        watch_refuse(s, err.text);
    watch_changed(s);
}

#define ROW(kind, one, KIND)                                                                       \
    void dra_##kind##_begin(struct scheduler *s) {                                                 \
        dra_sync_begin(&s->dra, KIND);                                                             \
    }                                                                                              \
    void dra_on_##one(struct scheduler *s, enum kube_event event, struct json object) {            \
        on_object(s, KIND, event, object);                                                         \
    }                                                                                              \
    void dra_##kind##_end(struct scheduler *s) {                                                   \
        dra_sync_end(&s->dra, KIND);                                                               \
    }
ROW(claims, claim, DRA_CLAIMS)
ROW(classes, class, DRA_CLASSES)
ROW(slices, slice, DRA_SLICES)
ROW(pods, pod, DRA_PODS)
ROW(nodes, node, DRA_NODES)

/* ---- its place in the daemon ---- */

static uint64_t now(void *userdata) {
    return scheduler_now(userdata);
}

static bool leads(void *userdata) {
    return scheduler_leads(userdata);
}

static void changed(void *userdata) {
    watch_changed(userdata);
}

int dra_start(struct scheduler *s) {
    s->dra = (struct dra){.state = s->state,
                          .api = s->binder.api,
                          .events = s->events,
                          .quotas = &s->govern.quotas,
                          .now = now,
                          .leads = leads,
                          .changed = changed,
                          .userdata = s};
    return s->options.dra ? dra_init(&s->dra) : 0;
}
