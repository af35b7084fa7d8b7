/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/claims_watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "scheduler/daemon/mig_claims.h"
#include "scheduler/daemon/scheduler.h"

static void gone(struct scheduler *s, enum claims_kind kind, struct json object) {
    const char *namespace = json_string(JSON_PATH(object, "metadata", "namespace"));
    const char *name = json_string(JSON_PATH(object, "metadata", "name"));
    char key[KUBE_LABEL_MAX + KUBE_NAME_MAX];
    snprintf(key, sizeof(key), "%s%s%s", namespace ? namespace : "", namespace ? "/" : "",
             name ? name : "");
    claims_gone(s->elastic.claims, kind, key);
}

static void on_object(struct scheduler *s, enum claims_kind kind, enum kube_event event,
                      struct json object) {
    struct err err;
    if (event == KUBE_DELETED)
        gone(s, kind, object);
    else if (claims_seen(s->elastic.claims, kind, object, &err) < 0)
        watch_refuse(s, err.text);
    watch_changed(s);
}

#define HANDLERS(kind, KIND)                                                                       \
    WATCH_HANDLERS(elastic_##kind, claims_sync_begin(s->elastic.claims, KIND),                     \
                   on_object(s, KIND, event, object), claims_sync_end(s->elastic.claims, KIND))
HANDLERS(egpus, CLAIMS_EGPUS)
HANDLERS(claims, CLAIMS_CLAIMS)
HANDLERS(classes, CLAIMS_CLASSES)

/* ---- its place in the daemon ---- */

static void want_instance(void *userdata, const struct egpu_claim *claim, const char *profile) {
    mig_claims_want(userdata, claim, profile);
}

int elastic_start(struct scheduler *s) {
    const struct gate gate = {"claims", &s->elastic, elastic_gate_open};
    s->elastic = (struct elastic){.state = s->state,
                                  .api = s->binder.api,
                                  .binder = &s->binder,
                                  .events = s->events,
                                  .quotas = &s->govern.quotas,
                                  .now = scheduler_clock,
                                  .changed = watch_has_changed,
                                  .want_instance = want_instance,
                                  .userdata = s};
    int r = elastic_init(&s->elastic);
    return r < 0 ? r : gates_add(&s->gates, &gate, true);
}
