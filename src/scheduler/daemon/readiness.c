/* SPDX-License-Identifier: Apache-2.0 */

/* What this replica may do now. */

#include "scheduler/daemon/scheduler.h"

uint64_t scheduler_now(const struct scheduler *s) {
    (void) s;
    return uv_hrtime() / 1000000;
}

uint64_t scheduler_clock(void *userdata) {
    return scheduler_now(userdata);
}

static bool are_watches_listed(const struct scheduler *s) {
    bool listed = s->nwatches > 0;
    for (size_t i = 0; i < s->nwatches; i++)
        listed = listed && s->watches[i].synced;
    return listed;
}

static bool are_watches_fresh(const struct scheduler *s) {
    bool fresh = true;
    for (size_t i = 0; i < s->nwatches; i++)
        fresh = fresh && scheduler_now(s) - s->watches[i].fresh_ms < WATCH_STALE_MS;
    return fresh;
}

static bool are_watches_relisted(const struct scheduler *s) {
    bool relisted = true;
    for (size_t i = 0; i < s->nwatches; i++)
        relisted = relisted && !s->watches[i].relisting;
    return relisted;
}

bool scheduler_knows_cluster(const struct scheduler *s) {
    return s->key != NULL && are_watches_listed(s) && are_watches_fresh(s);
}

bool scheduler_has_started(const struct scheduler *s) {
    return s->key != NULL && !s->stopping && are_watches_listed(s);
}

bool scheduler_is_ready(const struct scheduler *s) {
    return scheduler_has_started(s) && are_watches_fresh(s);
}

bool scheduler_answers(const struct scheduler *s) {
    return scheduler_is_ready(s) && !lease_stands_back(&s->lease);
}

bool scheduler_leads(const struct scheduler *s) {
    return !s->stopping && lease_leads(&s->lease) && are_watches_relisted(s) && !s->keys_unread;
}
