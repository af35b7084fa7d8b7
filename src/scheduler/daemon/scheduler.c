/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/scheduler.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/health.h"
#include "base/log.h"
#include "place/policies/policies.h"
#include "scheduler/cluster/keys.h"
#include "scheduler/daemon/agent_tls.h"
#include "scheduler/daemon/claims_watch.h"
#include "scheduler/daemon/dra_watch.h"
#include "scheduler/daemon/foreign_pods.h"
#include "scheduler/daemon/metrics_apis.h"
#include "scheduler/daemon/mig_claims.h"
#include "scheduler/daemon/mig_watch.h"
#include "scheduler/daemon/stand_back.h"
#include "scheduler/daemon/watch_kinds.h"
#include "scheduler/metrics_api/metrics_api.h"
#include "wire/json.h"

#define TICK_MS 1000
#define DRAIN_MS 3000
#define METRICS_CONNECTIONS 32
#define EVENT_OBJECTS_MAX 16384
#define BEAT_MS 200
#define KEYS_RETRY_MS 2000
#define KEYS_REPAIR_MS 60000
#define DECISION_PATH_MAX 2048
#define BODY_MAX ((size_t) 16 << 20) /* 5,000 names are 160 KB; of 75 MB of nodes 5 MB are kept */

/* Deciding on what was true long ago sends pods to nodes that are gone and tells others that
 * nothing is free; an error makes kube-scheduler come back. */
static void check_watches(struct scheduler *s) {
    watch_check(s);
    bool ready = scheduler_is_ready(s);
    if (s->watches_stale != ready)
        return;
    s->watches_stale = !ready;
    if (ready)
        log_info("the watches are up to date again");
    else
        log_warn("a watch has been broken for %d s; nothing is decided meanwhile",
                 WATCH_STALE_MS / 1000);
}

/* ---- what the parts are given ---- */

/* Called for each Binding that kube-scheduler requests, so the request is recorded here, and in
 * is_caught_up() for the other verbs. */
static bool is_ready(void *userdata) {
    struct scheduler *s = userdata;
    lease_note_asked(&s->lease);
    return scheduler_is_ready(s) && scheduler_leads(s);
}

static int request(void *context, const char *method, const char *path, const char *content_type,
                   const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                   void *userdata, struct err *err) {
    struct scheduler *s = context;
    struct err ignored;
    return kube_request(s->client, method, path, content_type, body, size, timeout_ms, on_response,
                        userdata, NULL, err ? err : &ignored);
}

/* A write that grants capacity. */
struct decision {
    struct scheduler *scheduler;
    kube_response_cb on_response;
    void *userdata;
};

static void on_decided(const struct kube_response *response, void *userdata) {
    const struct decision decision = *(struct decision *) userdata;
    free(userdata);
    decision.scheduler->undecided--;
    decision.on_response(response, decision.userdata);
}

/* As request(), for writes of the leader: executed within LEASE_SETTLE_MS or never, so that the
 * next leader sees the result; the Lease is not released before the response. */
static int decide(void *context, const char *method, const char *path, const char *content_type,
                  const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                  void *userdata, struct err *err) {
    struct scheduler *s = context;
    char bounded[DECISION_PATH_MAX];
    struct err ignored;
    if (strcmp(method, "GET") == 0 || strstr(path, "?timeout="))
        return request(s, method, path, content_type, body, size, timeout_ms, on_response, userdata,
                       err);
    int n = snprintf(bounded, sizeof(bounded), "%s?timeout=%us", path, (unsigned) LEASE_SERVER_S);
    struct decision *decision = calloc(1, sizeof(*decision));
    if (!decision || n < 0 || (size_t) n >= sizeof(bounded)) {
        free(decision);
        return err_errno(err ? err : &ignored, decision ? ENAMETOOLONG : ENOMEM, "cannot write");
    }
    *decision = (struct decision){s, on_response, userdata};
    int r =
        request(s, method, bounded, content_type, body, size,
                timeout_ms < LEASE_SEND_MS ? timeout_ms : LEASE_SEND_MS, on_decided, decision, err);
    if (r < 0)
        free(decision);
    else
        s->undecided++;
    return r;
}

static int verify(const char *pod_uid, const char *node, const char *text, const char *signature,
                  uint64_t *ret_signer, void *userdata) {
    const struct scheduler *s = userdata;
    struct err err;
    int r = assignment_signer(s->verifier, pod_uid, node, text, signature, ret_signer, &err);
    if (r < 0)
        log_warn("pod %s on node %s: %s", pod_uid, node, err.text);
    return r;
}

static void on_refusal(struct state_pod *pod, const char *reason, uint64_t key, const char *message,
                       void *userdata) {
    struct scheduler *s = userdata;
    const struct event event = event_on_pod(pod->namespace, pod->name, pod->uid, reason, message);
    log_debug("pod %s/%s: %s: %s", pod->namespace, pod->name, reason, message);
    event_writer_note(s->events, &event, key, true, scheduler_now(s));
}

static bool is_known(const struct state_pod *pod, const char *reason, uint64_t key,
                     void *userdata) {
    const struct scheduler *s = userdata;
    const struct event event = event_on_pod(pod->namespace, pod->name, pod->uid, reason, "");
    return event_writer_shows(s->events, &event, key);
}

/* Whether the reason for a waiting pod is still current and needs an Event. */
static bool still_waits(const char *uid, void *userdata) {
    const struct scheduler *s = userdata;
    const struct state_pod *pod = state_pod_find(s->state, uid);
    return pod && pod->stage == POD_PENDING;
}

static void on_no_room(struct state_pod *pod, const struct extender_candidate *candidates, size_t n,
                       uint64_t now_ms, void *userdata) {
    struct scheduler *s = userdata;
    evictor_refused(&s->evictor, pod, candidates, n, now_ms);
}

static bool leads(void *userdata) {
    return scheduler_leads(userdata);
}

/* kube-scheduler learns that a share is free only after the pods are known for which it was freed.
 */
static bool is_caught_up(void *userdata) {
    struct scheduler *s = userdata;
    lease_note_asked(&s->lease);
    if (!scheduler_answers(s))
        return false;
    evictor_catch_up(&s->evictor, scheduler_now(s));
    return true;
}

static void ask_again(void *userdata) {
    struct scheduler *s = userdata;
    requeue_request(&s->requeue);
    dra_ask_again(&s->dra);
    watch_changed(s);
}

/* ---- the signing key, without which a forged assignment cannot be detected ---- */

static void start_keys(struct scheduler *s);

static void on_retry_keys(uv_timer_t *timer) {
    start_keys(timer->data);
}

static bool has_key(const struct signing_verifier *v, uint64_t id) {
    for (unsigned i = 0; i < signing_verifier_count(v); i++)
        if (signing_verifier_id(v, i) == id)
            return true;
    return false;
}

static bool has_more_keys(const struct signing_verifier *than, const struct signing_verifier *v) {
    for (unsigned i = 0; i < signing_verifier_count(v); i++)
        if (!has_key(than, signing_verifier_id(v, i)))
            return true;
    return false;
}

/* The new key is as good as the old one, and the same unless the Secret was deleted or replaced.
 * Another replica may have signed by a key that is new here: pods that it has bound are verified
 * again, and nothing is decided before. */
static void take_keys(struct scheduler *s, struct signing_key *key,
                      struct signing_verifier *verifier) {
    bool more = s->verifier && has_more_keys(s->verifier, verifier);
    signing_key_free(s->key);
    signing_verifier_free(s->verifier);
    s->key = key;
    s->binder.key = key;
    s->verifier = verifier;
    if (more && state_recheck(s->state) > 0)
        watch_relist_holders(s);
}

/* Only the leader reports it, from its current state. */
static bool is_old_key(uint64_t id, void *userdata) {
    const struct scheduler *s = userdata;
    return scheduler_leads(s) && scheduler_is_ready(s) &&
           key_ages_is_old(&s->key_ages, id, scheduler_now(s));
}

static void on_keys(struct signing_key *key, struct signing_verifier *verifier, const char *error,
                    void *userdata) {
    struct scheduler *s = userdata;
    struct err err;
    bool first = s->key == NULL;
    s->keys_ms = scheduler_now(s);
    s->keys_unread = s->keys_unread && (error || s->keys_late);
    s->keys_late = false;
    if (error) {
        log_error("%s; trying again", error);
        if (first)
            uv_timer_start(&s->retry_keys, on_retry_keys, KEYS_RETRY_MS, 0);
        return;
    }
    take_keys(s, key, verifier);
    if (!first)
        return;
    log_info("signing key is ready");
    if (watch_start(s, watch_kinds, &err) < 0) {
        log_error("cannot watch the cluster: %s", err.text);
        uv_stop(s->loop);
    }
}

static void start_keys(struct scheduler *s) {
    s->keys_ms = UINT64_MAX; /* under way */
    const struct api api = {request, s};
    keys_start(&api, s->options.name_space, is_old_key, on_keys, s);
}

/* Reads the stored key again: puts back what was deleted, takes over what was changed, takes out
 * what is old. */
static void repair_keys(struct scheduler *s) {
    uint64_t now_ms = scheduler_now(s);
    if (!scheduler_leads(s) || !scheduler_is_ready(s))
        s->key_ages = (struct key_ages){0};
    if (s->keys_ms == UINT64_MAX ||
        now_ms - s->keys_ms < (s->keys_unread ? KEYS_RETRY_MS : KEYS_REPAIR_MS))
        return;
    if (scheduler_leads(s) && scheduler_is_ready(s))
        key_ages_note(&s->key_ages, s->verifier, signing_key_id(s->key), s->state, now_ms);
    start_keys(s);
}

/* ---- one of several replicas acts ---- */

/* On a node with several replicas only one has the port, and only that one can be asked. */
static bool is_able(void *userdata) {
    const struct scheduler *s = userdata;
    return s->http && scheduler_is_ready(s);
}

static unsigned open_requests(void *userdata) {
    const struct scheduler *s = userdata;
    unsigned n = s->undecided;
    for (const struct state_pod *pod = s->state->open; pod; pod = pod->open_next)
        n += pod->stage == POD_BINDING || pod->stage == POD_IN_DOUBT;
    return n;
}

static void on_acquired(void *userdata) {
    struct scheduler *s = userdata;
    watch_relist_holders(s);
    s->keys_unread = true;
    s->keys_late = s->keys_ms == UINT64_MAX;
    if (!s->keys_late)
        start_keys(s);
}

static void on_lost(void *userdata) {
    struct scheduler *s = userdata;
    s->key_ages = (struct key_ages){0};
    dra_lost(&s->dra);
    /* Assumed allocations expire, and Bindings in doubt are read back, as always. */
    govern_lost(s);
}

static const struct lease_handlers lease_handlers = {is_able, open_requests, on_acquired, on_lost};

/* Another replica on this node may have the port until it ends. */
static int serve_if_free(struct scheduler *s, const struct http_options *http,
                         struct http_server **server, bool *taken, struct err *err) {
    if (*server || s->stopping || !http->listen)
        return 0;
    int r = http_server_start(s->loop, http, server, err);
    if (r == 0)
        log_info("listening on %s", http->listen);
    else if (r == -EADDRINUSE && !*taken)
        log_info("%s is taken, by another replica it seems; waiting for it", http->listen);
    *taken = r == -EADDRINUSE;
    return *taken ? 0 : r;
}

static int listen_if_free(struct scheduler *s, struct err *err) {
    const struct http_options http = {.listen = s->options.listen,
                                      .tls_cert = s->options.tls_cert,
                                      .tls_key = s->options.tls_key,
                                      .routes = s->options.routes,
                                      .userdata = s,
                                      .max_body = BODY_MAX,
                                      .keep = args_keep};
    const struct http_options metrics = {.listen = s->options.metrics_listen,
                                         .routes = s->options.metrics_routes,
                                         .userdata = s,
                                         .max_connections = METRICS_CONNECTIONS};
    int r = serve_if_free(s, &http, &s->http, &s->port_taken, err);
    return r < 0 ? r : serve_if_free(s, &metrics, &s->metrics_http, &s->metrics_port_taken, err);
}

static void on_beat(uv_timer_t *timer) {
    struct scheduler *s = timer->data;
    struct err err;
    authority_tick(&s->endpoints.authority, scheduler_now(s));
    if (listen_if_free(s, &err) < 0) {
        log_error("%s", err.text);
        s->failed = true;
        uv_stop(s->loop);
    }
    lease_run(&s->lease);
}

static void mark_health(struct scheduler *s) {
    if (!s->options.health)
        return;
    int r = health_mark(s->options.health, HEALTH_ALIVE, true);
    int ready = health_mark(s->options.health, HEALTH_READY, scheduler_answers(s));
    if ((r < 0 || ready < 0) && !s->health_fails)
        log_error("cannot write to %s: %s", s->options.health, strerror(r < 0 ? -r : -ready));
    s->health_fails = r < 0 || ready < 0;
}

/* ---- timers and signals ---- */

static void on_tick(uv_timer_t *timer) {
    struct scheduler *s = timer->data;
    mark_health(s);
    if (!scheduler_has_started(s))
        return;
    check_watches(s);
    if (s->options.dra)
        dra_tick(&s->dra);
    metrics_apis_tick(s->metrics_apis);
    agent_tls_tick(s->agent_tls);
    binder_audit(&s->binder);
    workload_store_run(&s->workload, scheduler_now(s), scheduler_leads(s));
    repair_keys(s);
    if (s->profiles.n > 0)
        version_skew_run(&s->skew, scheduler_now(s), scheduler_leads(s));
    stand_back_run(s);
    if (!scheduler_leads(s)) {
        elastic_waits_refuse(&s->elastic, EXTENDER_NOT_READY);
        return;
    }
    foreign_pods_tell(s);
    event_writer_run(s->events, scheduler_now(s));
    if (scheduler_is_ready(s))
        elastic_run(&s->elastic);
    if (scheduler_is_ready(s) && s->options.dra)
        dra_run(&s->dra);
    gpu_status_run(&s->gpu_status, s->parser);
    if (!scheduler_is_ready(s))
        return;
    govern_tick(s);
    mig_orders_run(s->mig, scheduler_now(s));
    mig_orders_run(s->mig_claims, scheduler_now(s));
    evictor_run(&s->evictor, scheduler_now(s));
    drainer_run(&s->drainer);
    requeue_run(&s->requeue, scheduler_now(s));
}

static void on_drained(uv_timer_t *timer) {
    const struct scheduler *s = timer->data;
    uv_stop(s->loop);
}

/* The API server sends requests here until the Services' endpoints are without this replica, and
 * does not ask another one where a connection is refused. */
static void on_released(void *userdata) {
    struct scheduler *s = userdata;
    if (s->metrics_apis)
        uv_timer_start(&s->drain, on_drained, DRAIN_MS, 0);
    else
        uv_stop(s->loop);
}

static void on_signal(uv_signal_t *signal, int number) {
    struct scheduler *s = signal->data;
    (void) number;
    if (s->stopping) {
        uv_stop(s->loop);
        return;
    }
    s->stopping = true;
    mark_health(s);
    lease_release(&s->lease, on_released);
}

static void start_timers(struct scheduler *s) {
    uv_loop_t *loop = s->loop;
    (void) uv_timer_init(loop, &s->beat);
    (void) uv_timer_init(loop, &s->tick);
    (void) uv_timer_init(loop, &s->project);
    (void) uv_timer_init(loop, &s->claims);
    (void) uv_timer_init(loop, &s->retry_keys);
    (void) uv_timer_init(loop, &s->drain);
    (void) uv_signal_init(loop, &s->on_term);
    (void) uv_signal_init(loop, &s->on_int);
    s->beat.data = s->tick.data = s->project.data = s->claims.data = s;
    s->retry_keys.data = s->drain.data = s;
    s->on_term.data = s->on_int.data = s;
    uv_timer_start(&s->beat, on_beat, BEAT_MS, BEAT_MS);
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    uv_signal_start(&s->on_term, on_signal, SIGTERM);
    uv_signal_start(&s->on_int, on_signal, SIGINT);
}

/* ---- start and end ---- */

static struct event_writer *new_event_writer(struct scheduler *s) {
    const struct event_writer_options options = {.component = "aliquot-scheduler",
                                                 .request = request,
                                                 .context = s,
                                                 .holds = still_waits,
                                                 .userdata = s,
                                                 .objects_max = EVENT_OBJECTS_MAX};
    return event_writer_new(&options);
}

static const char *trouble(void *userdata) {
    const char *reason = stand_back_reason(userdata);
    return *reason ? reason : watch_trouble(userdata);
}

/* What evicts pods. */
static void make_evictors(struct scheduler *s, struct api deciding) {
    s->preempt = (struct preempt){
        .state = s->state, .ready = is_caught_up, .userdata = s, .gates = &s->gates};
    s->evictor = (struct evictor){.state = s->state,
                                  .preempt = &s->preempt,
                                  .api = deciding,
                                  .events = s->events,
                                  .leads = leads,
                                  .changed = watch_has_changed,
                                  .ask_again = ask_again,
                                  .now = scheduler_clock,
                                  .userdata = s};
    s->drainer = (struct drainer){.api = deciding,
                                  .events = s->events,
                                  .leads = leads,
                                  .now = scheduler_clock,
                                  .userdata = s};
}

static int make_parts(struct scheduler *s, struct err *err) {
    const struct api api = {request, s}, deciding = {decide, s};
    int r;
    s->state = state_new(verify, s);
    s->parser = json_parser_new();
    s->events = new_event_writer(s);
    if (!s->state || !s->parser || !s->events)
        return err_errno(err, ENOMEM, "cannot start");
    s->extender = (struct extender){.state = s->state,
                                    .ready = is_caught_up,
                                    .trouble = trouble,
                                    .on_refusal = on_refusal,
                                    .known = is_known,
                                    .on_no_room = on_no_room,
                                    .userdata = s,
                                    .gates = &s->gates};
    s->binder = (struct binder){.state = s->state,
                                .api = deciding,
                                .now = scheduler_clock,
                                .ready = is_ready,
                                .userdata = s,
                                .gates = &s->gates};
    r = govern_start(s);
    if (r < 0)
        return err_errno(err, -r, "cannot add the gates");
    make_evictors(s, deciding);
    s->requeue = (struct requeue){
        .state = s->state, .api = api, .gates = &s->gates, .name_space = s->options.name_space};
    s->gpu_status =
        (struct gpu_status){.state = s->state, .api = api, .now = scheduler_clock, .userdata = s};
    s->state->policy = s->options.policy ? s->options.policy : PLACE_DEFAULT_POLICY;
    s->workload =
        (struct workload_store){.state = s->state, .api = api, .name_space = s->options.name_space};
    s->lease = (struct lease){.api = api,
                              .name_space = s->options.name_space,
                              .identity = s->options.identity,
                              .own = s->options.kube_scheduler_config != NULL,
                              .now = scheduler_clock,
                              .handlers = &lease_handlers,
                              .userdata = s};
    lease_init(&s->lease);
    r = elastic_start(s);
    if (r < 0)
        return err_errno(err, -r, "cannot add the claims");
    r = dra_start(s);
    if (r < 0)
        return err_errno(err, -r, "cannot add ResourceClaims");
    if (mig_watch_start(s) < 0 || mig_claims_start(s) < 0)
        return err_errno(err, ENOMEM, "cannot order MIG instances");
    if (extender_init(&s->extender) < 0 || binder_init(&s->binder) < 0 ||
        preempt_init(&s->preempt) < 0 || workload_store_init(&s->workload) < 0)
        return err_errno(err, ENOMEM, "cannot start");
    return 0;
}

/* With a kube-scheduler of its own, pods are sent to that one. */
static int know_profiles(struct scheduler *s, struct err *err) {
    const char *path = s->options.kube_scheduler_config;
    s->skew = (struct version_skew){.api = {request, s},
                                    .name_space = s->options.name_space,
                                    .pod = s->options.identity,
                                    .events = s->events};
    version_skew_init(&s->skew);
    return path ? profiles_read(path, &s->profiles, err) : 0;
}

static int connect_api(struct scheduler *s, struct err *err) {
    struct kube_config config = {0};
    int r = kube_config_load(s->options.api_server, s->options.token_file, s->options.ca_file,
                             &config, err);
    if (r < 0)
        return r;
    r = kube_client_new(s->loop, &config, &s->client, err);
    kube_config_done(&config);
    return r;
}

/* All that the API server calls. */
static int start_called(struct scheduler *s, struct err *err) {
    const struct api api = {request, s};
    struct endpoints_options options = {
        .name_space = s->options.name_space,
        .webhook_listen = s->options.webhook_listen,
        .scheduler = s->profiles.n > 0 ? s->profiles.names[0] : NULL,
        .api_listen = s->options.metrics_api_listen,
        .routes = metrics_api_routes,
        .agents = s->options.agent_tls,
    };
    if (options.agents) {
        int r = agent_tls_start(s, &s->agent_tls, err);
        if (r < 0)
            return r;
    }
    if (options.api_listen) {
        int r = metrics_apis_start(s, &s->metrics_apis, err);
        if (r < 0)
            return r;
        options.userdata = metrics_apis_userdata(s->metrics_apis);
    }
    if ((options.webhook_listen || options.api_listen || options.agents) &&
        endpoints_start(&s->endpoints, s->loop, &api, &options) < 0)
        return err_errno(err, ENOMEM, "cannot serve the API server");
    return 0;
}

int scheduler_start(struct scheduler *s, uv_loop_t *loop, const struct scheduler_options *options,
                    struct err *err) {
    static int (*const steps[])(struct scheduler * s, struct err * err) = {
        make_parts, know_profiles, connect_api, start_called, listen_if_free};
    *s = (struct scheduler){.loop = loop, .options = *options};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        int r = steps[i](s, err);
        if (r < 0)
            return r;
    }
    start_timers(s);
    start_keys(s);
    return 0;
}

static void close_handle(uv_handle_t *handle, void *userdata) {
    (void) userdata;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void scheduler_done(struct scheduler *s) {
    watch_stop(s);
    agent_tls_stop(s->agent_tls);
    metrics_apis_stop(s->metrics_apis);
    http_server_close(s->http);
    http_server_close(s->metrics_http);
    endpoints_stop(&s->endpoints);
    if (s->client)
        kube_client_close(s->client, NULL, NULL);
    (void) uv_run(s->loop, UV_RUN_NOWAIT);
    uv_handle_t *own[] = {(uv_handle_t *) &s->beat,       (uv_handle_t *) &s->tick,
                          (uv_handle_t *) &s->project,    (uv_handle_t *) &s->claims,
                          (uv_handle_t *) &s->retry_keys, (uv_handle_t *) &s->drain,
                          (uv_handle_t *) &s->on_term,    (uv_handle_t *) &s->on_int};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (own[i]->loop)
            close_handle(own[i], NULL);
    (void) uv_run(s->loop, UV_RUN_DEFAULT);
    endpoints_done(&s->endpoints);
    metrics_apis_done(take_ptr(s->metrics_apis));
    agent_tls_done(take_ptr(s->agent_tls));
    extender_done(&s->extender);
    binder_done(&s->binder);
    evictor_done(&s->evictor);
    drainer_done(&s->drainer);
    preempt_done(&s->preempt);
    govern_done(s);
    elastic_done(&s->elastic);
    dra_done(&s->dra);
    for (size_t i = 0; i < PROM_FORMATS; i++)
        buf_done(&s->shared_pages[i].text);
    s->mig = mig_orders_free(s->mig);
    s->mig_claims = mig_orders_free(s->mig_claims);
    s->state = state_free(s->state);
    workload_store_done(&s->workload);
    s->parser = json_parser_free(s->parser);
    event_writer_free(take_ptr(s->events));
    s->key = signing_key_free(s->key);
    s->verifier = signing_verifier_free(s->verifier);
}
