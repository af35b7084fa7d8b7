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

#define HANDLERS(kind, KIND)                                                                       \
    WATCH_HANDLERS(dra_##kind, dra_sync_begin(&s->dra, KIND), on_object(s, KIND, event, object),   \
                   dra_sync_end(&s->dra, KIND))
HANDLERS(claims, DRA_CLAIMS)
HANDLERS(classes, DRA_CLASSES)
HANDLERS(slices, DRA_SLICES)
HANDLERS(pods, DRA_PODS)
HANDLERS(nodes, DRA_NODES)
HANDLERS(templates, DRA_TEMPLATES)

/* ---- its place in the daemon ---- */

static bool leads(void *userdata) {
    return scheduler_leads(userdata);
}

int dra_start(struct scheduler *s) {
    s->dra = (struct dra){.state = s->state,
                          .api = s->binder.api,
                          .events = s->events,
                          .quotas = &s->govern.quotas,
                          .gates = &s->gates,
                          .no_room = s->extender.on_no_room,
                          .now = scheduler_clock,
                          .leads = leads,
                          .changed = watch_has_changed,
                          .userdata = s};
    if (!s->options.dra)
        return 0;
    s->govern.gangs.claims = dra_gang_claims(&s->dra);
    return dra_init(&s->dra);
}
