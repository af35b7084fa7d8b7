/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/dra_watch.h"

#include "base/err.h"
#include "scheduler/daemon/scheduler.h"

#define RUN_DELAY_MS 5 /* objects that come together are looked at together */

static void on_run(uv_timer_t *timer) {
    struct scheduler *s = timer->data;
    const uint64_t begun_ms = scheduler_now(s);
    if (scheduler_leads(s) && scheduler_is_ready(s))
        dra_run(&s->dra);
    s->claims_ms = scheduler_now(s) - begun_ms;
}

/* The loop has as much time for others as a run took. */
static void changed(void *userdata) {
    struct scheduler *s = userdata;
    const uint64_t delay_ms = s->claims_ms > RUN_DELAY_MS ? s->claims_ms : RUN_DELAY_MS;
    if (!uv_is_active((uv_handle_t *) &s->claims))
        uv_timer_start(&s->claims, on_run, delay_ms, 0);
    watch_changed(s);
}

bool dra_watch_wanted(const struct scheduler *s) {
    return s->options.dra;
}

static void on_object(struct scheduler *s, enum dra_kind kind, enum kube_event event,
                      struct json object) {
    const uint64_t news = s->dra.news;
    struct err err;
    if (!s->options.dra)
        return;
    if (dra_see(&s->dra, kind, object, event == KUBE_DELETED, &err) < 0)
        watch_refuse(s, err.text);
    if (s->dra.news != news)
        changed(s);
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
                          .changed = changed,
                          .userdata = s};
    if (!s->options.dra)
        return 0;
    s->govern.gangs.claims = dra_gang_claims(&s->dra);
    return dra_init(&s->dra);
}
