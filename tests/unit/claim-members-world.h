/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* claim-allocation-world.h with all that pods of the extender have: gates and preemption. */

#include "preempt-world.h"

#include "claim-allocation-world.h"
#include "scheduler/gates/gang.h"
#include "scheduler/gates/reservation.h"
#include "scheduler/preemption/evict.h"

struct stage {
    struct dra_world *d;
    struct world *w;
    struct gates gates;
    struct quotas quotas;
    struct gangs gangs;
    struct reservations reservations;
    struct preempt *p;
    struct evictor e;
    unsigned asked; /* for another offer of nodes */
};

static struct stage *stage; /* of the test */

static inline void no_room(struct state_pod *pod, const struct extender_candidate *candidates,
                           size_t n, uint64_t now_ms, void *userdata) {
    (void) userdata;
    evictor_refused(&stage->e, pod, candidates, n, now_ms);
}

static inline void ask_again(void *userdata) {
    (void) userdata;
    stage->asked++;
    dra_ask_again(&stage->d->dra);
}

static inline void add_gate(struct stage *s, const char *name, void *self,
                            bool (*open)(void *, struct state_pod *, uint64_t, struct buf *)) {
    assert_int_equal(gates_add(&s->gates, &(struct gate){name, self, open}, false), 0);
}

static inline void set_up_gates(struct stage *s) {
    s->quotas = (struct quotas){.state = s->w->state};
    s->gangs = (struct gangs){
        .state = s->w->state, .gates = &s->gates, .claims = dra_gang_claims(&s->d->dra)};
    s->reservations = (struct reservations){.state = s->w->state};
    const struct state_selector selector = reservations_selector(&s->reservations);
    assert_int_equal(state_add_selector(s->w->state, &selector), 0);
    add_gate(s, "quota", &s->quotas, quotas_open);
    add_gate(s, "reservation", &s->reservations, reservations_open);
    add_gate(s, "gang", &s->gangs, gangs_open);
    s->w->extender.gates = s->w->binder.gates = s->d->dra.gates = &s->gates;
}

static inline int set_stage(void **state) {
    struct stage *s = calloc(1, sizeof(*s));
    void *d = NULL;
    (void) begin(&d);
    stage = s;
    s->d = d;
    s->w = s->d->w;
    set_up_gates(s);
    s->p = new_preempt(s->w);
    s->p->gates = &s->gates;
    s->e = (struct evictor){.state = s->w->state,
                            .preempt = s->p,
                            .api = {fake_request, s->w},
                            .events = s->w->events,
                            .leads = leads,
                            .changed = changed,
                            .ask_again = ask_again,
                            .now = fake_now,
                            .userdata = s->w};
    s->d->dra.quotas = &s->quotas;
    s->d->dra.no_room = no_room;
    *state = s;
    return 0;
}

static inline int clear_stage(void **state) {
    struct stage *s = *state;
    void *d = s->d;
    evictor_done(&s->e);
    free_preempt(s->p);
    quotas_done(&s->quotas);
    gangs_done(&s->gangs);
    reservations_done(&s->reservations);
    (void) end(&d);
    free(s);
    return 0;
}

/* ---- pods, as the watch shows them ---- */

/* `claims`: names, separated by commas. The others are members of metadata, spec and status, with a
 * comma before each. */
static inline void show_user(struct stage *s, const char *name, const char *claims,
                             const char *meta, const char *spec, const char *status) {
    _cleanup_buf_ struct buf list = BUF_INIT(1 << 16), text = BUF_INIT(1 << 16);
    put_claims(&list, claims);
    buf_printf(&text,
               "{'metadata':{'name':'%s','namespace':'d','uid':'p-%s'%s},"
               "'spec':{'resourceClaims':[%s]%s},'status':{'phase':'Pending'%s}}",
               name, name, meta, buf_str(&list), spec, status);
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] == '\'')
            text.data[i] = '"';
    show_text(s->w, buf_str(&text));
    see(s->d, DRA_PODS, "%s", buf_str(&text));
}

/* Of that priority, and waiting. */
static inline void wait_for(struct stage *s, const char *name, const char *claims, int priority,
                            const char *spec) {
    char all[512];
    (void) snprintf(all, sizeof(all), "," GATED ",'priority':%d%s", priority, spec);
    show_user(s, name, claims, "", all, "");
}

/* On node "n" with a share that it has by a claim of the same name. */
static inline void run_user(struct stage *s, const char *name, const char *results, int priority,
                            const char *labels) {
    char status[1024], meta[256], spec[256];
    (void) snprintf(status, sizeof(status), ALLOCATED("n", "%s", "%s"), results, name, name);
    see_claim(s->d, name, 9, true, SHARE, status);
    (void) snprintf(meta, sizeof(meta), ",'labels':{%s}", labels);
    (void) snprintf(spec, sizeof(spec), ",'priority':%d,'nodeName':'n'", priority);
    show_user(s, name, name, meta, spec, "");
}

static inline struct state_pod *pod_of(struct stage *s, const char *name) {
    char uid[64];
    (void) snprintf(uid, sizeof(uid), "p-%s", name);
    struct state_pod *pod = state_pod_find(s->w->state, uid);
    assert_non_null(pod);
    return pod;
}

/* ---- what is sent ---- */

static inline void answer_events(struct stage *s) {
    event_writer_run(s->w->events, s->w->now);
    for (size_t i = 0; i < s->w->nasked;)
        if (strstr(s->w->asked[i].path, "/events"))
            respond(s->w, i, 201, false, NULL);
        else
            i++;
}

/* The only open request that is not an Event is this one; it is answered. */
static inline void expect(struct stage *s, const char *path, const char *body, int status) {
    answer_events(s);
    for (size_t i = 1; i < s->w->nasked; i++)
        print_message("also open: %s\n", s->w->asked[i].path);
    assert_int_equal(s->w->nasked, 1);
    assert_string_equal(s->w->asked[0].path, path);
    if (!strstr(body_of(s->d, 0), body))
        fail_msg("not in %s: %s", body_of(s->d, 0), body);
    respond(s->w, 0, status, false, NULL);
}

static inline void expect_nothing(struct stage *s) {
    answer_events(s);
    for (size_t i = 0; i < s->w->nasked; i++)
        print_message("open: %s\n", s->w->asked[i].path);
    assert_int_equal(s->w->nasked, 0);
}

static inline void run_evictor(struct stage *s) {
    evictor_run(&s->e, s->w->now += 1000);
}
