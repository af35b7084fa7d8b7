/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/watch.h"

#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "scheduler/daemon/scheduler.h"
#include "scheduler/mig/orders.h"

#define PROJECT_DELAY_MS 50
#define RETRY_MAX_MS 5000

static void on_project(uv_timer_t *timer) {
    struct scheduler *s = timer->data;
    if (!scheduler_leads(s))
        return;
    if (scheduler_is_ready(s))
        elastic_run(&s->elastic);
    if (scheduler_is_ready(s) && s->options.dra)
        dra_run(&s->dra);
    gpu_status_run(&s->gpu_status, s->parser);
    if (!scheduler_is_ready(s))
        return;
    mig_orders_run(s->mig, scheduler_now(s));
    mig_orders_run(s->mig_claims, scheduler_now(s));
    evictor_run(&s->evictor, scheduler_now(s));
    drainer_run(&s->drainer);
    requeue_run(&s->requeue, scheduler_now(s));
}

/* Several events that come together are projected together. */
void watch_changed(struct scheduler *s) {
    if (!uv_is_active((uv_handle_t *) &s->project))
        uv_timer_start(&s->project, on_project, PROJECT_DELAY_MS, 0);
}

void watch_has_changed(void *userdata) {
    watch_changed(userdata);
}

/* An object that cannot be read leaves the state as it was; the API server does not send such. */
void watch_refuse(struct scheduler *s, const char *why) {
    s->objects_refused++;
    log_warn("watch: %s", why);
}

static void on_begin(void *userdata) {
    const struct watch *w = userdata;
    if (w->kind->handlers->begin)
        w->kind->handlers->begin(w->scheduler);
}

static void on_object(enum kube_event event, struct json object, void *userdata) {
    const struct watch *w = userdata;
    w->kind->handlers->object(w->scheduler, event, object);
}

static void on_end(void *userdata) {
    struct watch *w = userdata;
    struct scheduler *s = w->scheduler;
    if (w->kind->handlers->end)
        w->kind->handlers->end(s);
    bool was_ready = scheduler_is_ready(s);
    w->synced = true;
    w->relisting = false;
    w->trouble[0] = '\0';
    w->fresh_ms = scheduler_now(s);
    if (!was_ready && scheduler_is_ready(s))
        log_info("ready: %u GPUs, %u nodes, %u pods with GPU requests", HASH_COUNT(s->state->cards),
                 HASH_COUNT(s->state->nodes), HASH_COUNT(s->state->pods));
    watch_changed(s);
}

static void on_trouble(const char *text, unsigned retry_ms, void *userdata) {
    struct watch *w = userdata;
    (void) snprintf(w->trouble, sizeof(w->trouble), "%s", text);
    log_warn("watch: %s; trying again in %u ms", text, retry_ms);
}

static const struct kube_reflector_handlers handlers = {on_begin, on_object, on_end, on_trouble};

int watch_start(struct scheduler *s, const struct watch_kind *kinds, struct err *err) {
    s->nwatches = 0;
    for (const struct watch_kind *kind = kinds; kind->path; kind++) {
        if (kind->wanted && !kind->wanted(s))
            continue;
        const struct kube_reflector_options options = {.path = kind->path,
                                                       .query = kind->query,
                                                       .retry_max_ms = RETRY_MAX_MS,
                                                       .may_be_absent = kind->optional};
        struct watch *w = &s->watches[s->nwatches++];
        *w = (struct watch){.scheduler = s, .kind = kind};
        int r = kube_reflector_start(s->client, &options, &handlers, w, &w->reflector, err);
        if (r < 0)
            return r;
    }
    return 0;
}

void watch_stop(struct scheduler *s) {
    for (size_t i = 0; i < s->nwatches; i++)
        kube_reflector_stop(s->watches[i].reflector);
}

const char *watch_trouble(const struct scheduler *s) {
    for (size_t i = 0; i < s->nwatches; i++)
        if (s->watches[i].trouble[0] && !kube_reflector_is_synced(s->watches[i].reflector))
            return s->watches[i].trouble;
    return "";
}

void watch_relist_holders(struct scheduler *s) {
    for (size_t i = 0; i < s->nwatches; i++) {
        struct watch *w = &s->watches[i];
        if (!w->reflector || !w->kind->holds)
            continue;
        w->relisting = true;
        kube_reflector_relist(w->reflector);
    }
}

void watch_check(struct scheduler *s) {
    for (size_t i = 0; i < s->nwatches; i++) {
        struct watch *w = &s->watches[i];
        if (w->synced && kube_reflector_is_synced(w->reflector))
            w->fresh_ms = scheduler_now(s);
    }
}
