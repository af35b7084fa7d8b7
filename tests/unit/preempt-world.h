/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scheduler-world.h with disruption budgets. */

#include "scheduler-world.h"

#include "scheduler/preemption/preempt.h"

static inline struct preempt *new_preempt(struct world *w) {
    struct preempt *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->state = w->state;
    p->ready = fake_ready;
    p->userdata = w;
    assert_int_equal(preempt_init(p), 0);
    return p;
}

static inline void free_preempt(struct preempt *p) {
    preempt_done(p);
    free(p);
}

/* Of the pods of namespace "d" with that label. */
static inline void show_budget(struct world *w, struct preempt *p, const char *key,
                               const char *value, int allowed) {
    char text[512];
    struct json object;
    struct budget budget;
    struct err err;
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"d\"},\"spec\":{\"selector\":"
             "{\"matchLabels\":{\"%s\":\"%s\"}}},\"status\":{\"disruptionsAllowed\":%d}}",
             value, key, value, allowed);
    assert_int_equal(json_parse(w->parser, text, strlen(text), &object, NULL), 0);
    assert_int_equal(budget_parse(object, &budget, &err), 0);
    assert_int_equal(preempt_budget_seen(p, &budget), 0);
}

static inline void label(struct world *w, const char *uid, const char *labels) {
    struct state_pod *pod = state_pod_find(w->state, uid);
    free(pod->labels);
    pod->labels = strdup(labels);
}
