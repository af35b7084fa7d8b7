/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/scheduler.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "scheduler/keys.h"
#include "wire/json.h"

#define TICK_MS 1000
#define STALE_MS 5000 /* a watch may be broken for that long */
#define KEYS_RETRY_MS 2000
#define KEYS_REPAIR_MS 60000
#define BODY_MAX ((size_t) 16 << 20) /* 5,000 names are 160 KB; whole nodes are refused anyway */

uint64_t scheduler_now(const struct scheduler *s) {
    (void) s;
    return uv_hrtime() / 1000000;
}

static bool has_started(const struct scheduler *s) {
    return s->key != NULL && !s->stopping && watch_has_started(s);
}

bool scheduler_is_ready(const struct scheduler *s) {
    return has_started(s) && watch_is_fresh(s, STALE_MS);
}

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
        log_warn("a watch has been broken for %d s; nothing is decided meanwhile", STALE_MS / 1000);
}

/* ---- what the parts are given ---- */

static bool is_ready(void *userdata) {
    return scheduler_is_ready(userdata);
}

static uint64_t now(void *userdata) {
    return scheduler_now(userdata);
}

static int request(void *context, const char *method, const char *path, const char *content_type,
                   const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                   void *userdata, struct err *err) {
    struct scheduler *s = context;
    struct err ignored;
    return kube_request(s->client, method, path, content_type, body, size, timeout_ms, on_response,
                        userdata, NULL, err ? err : &ignored);
}

static int verify(const char *pod_uid, const char *node, const char *text, const char *signature,
                  void *userdata) {
    const struct scheduler *s = userdata;
    struct err err;
    int r = assignment_verify(s->verifier, pod_uid, node, text, signature, &err);
    if (r < 0)
        log_warn("pod %s on node %s: %s", pod_uid, node, err.text);
    return r;
}

static void on_refusal(struct state_pod *pod, const char *reason, const char *message,
                       void *userdata) {
    struct scheduler *s = userdata;
    log_debug("pod %s/%s: %s: %s", pod->namespace, pod->name, reason, message);
    events_warn(&s->events, pod, reason, message, scheduler_now(s));
}

/* ---- the signing key comes first: without it no bound pod can be told from a forged one ---- */

static void start_keys(struct scheduler *s);

static void on_retry_keys(uv_timer_t *timer) {
    start_keys(timer->data);
}

/* The new key is as good as the old one, and the same unless somebody has deleted the Secret. */
static void take_keys(struct scheduler *s, struct signing_key *key,
                      struct signing_verifier *verifier) {
    signing_key_free(s->key);
    signing_verifier_free(s->verifier);
    s->key = key;
    s->binder.key = key;
    s->verifier = verifier;
}

static void on_keys(struct signing_key *key, struct signing_verifier *verifier, const char *error,
                    void *userdata) {
    struct scheduler *s = userdata;
    struct err err;
    bool first = s->key == NULL;
    s->keys_ms = scheduler_now(s);
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
    if (watch_start(s, &err) < 0) {
        log_error("cannot watch the cluster: %s", err.text);
        uv_stop(s->loop);
    }
}

static void start_keys(struct scheduler *s) {
    s->keys_ms = UINT64_MAX; /* under way */
    const struct api api = {request, s};
    keys_start(&api, s->options.name_space, on_keys, s);
}

/* ---- timers and signals ---- */

static void on_tick(uv_timer_t *timer) {
    struct scheduler *s = timer->data;
    if (!has_started(s))
        return;
    check_watches(s);
    binder_audit(&s->binder);
    events_flush(&s->events, s->state, scheduler_now(s));
    if (s->keys_ms != UINT64_MAX && scheduler_now(s) - s->keys_ms >= KEYS_REPAIR_MS)
        start_keys(s); /* puts back what somebody has deleted */
    projection_run(&s->projection, s->parser);
    wake_run(&s->wake, scheduler_now(s));
}

static void on_signal(uv_signal_t *signal, int number) {
    struct scheduler *s = signal->data;
    (void) number;
    s->stopping = true;
    uv_stop(s->loop);
}

static void start_timers(struct scheduler *s) {
    uv_loop_t *loop = s->loop;
    (void) uv_timer_init(loop, &s->tick);
    (void) uv_timer_init(loop, &s->project);
    (void) uv_timer_init(loop, &s->retry_keys);
    (void) uv_signal_init(loop, &s->on_term);
    (void) uv_signal_init(loop, &s->on_int);
    s->tick.data = s->project.data = s->retry_keys.data = s;
    s->on_term.data = s->on_int.data = s;
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    uv_signal_start(&s->on_term, on_signal, SIGTERM);
    uv_signal_start(&s->on_int, on_signal, SIGINT);
}

/* ---- start and end ---- */

static int make_parts(struct scheduler *s, struct err *err) {
    const struct api api = {request, s};
    s->state = state_new(verify, s);
    s->parser = json_parser_new();
    if (!s->state || !s->parser)
        return err_errno(err, ENOMEM, "cannot start");
    s->extender = (struct extender){.state = s->state,
                                    .ready = is_ready,
                                    .on_refusal = on_refusal,
                                    .userdata = s,
                                    .gates = &s->gates};
    s->binder = (struct binder){.state = s->state,
                                .api = api,
                                .now = now,
                                .ready = is_ready,
                                .userdata = s,
                                .gates = &s->gates};
    s->events = (struct events){.api = api};
    s->wake = (struct wake){.state = s->state,
                            .api = api,
                            .gates = &s->gates,
                            .name_space = s->options.name_space};
    s->projection = (struct projection){.state = s->state, .api = api, .now = now, .userdata = s};
    if (extender_init(&s->extender) < 0 || binder_init(&s->binder) < 0)
        return err_errno(err, ENOMEM, "cannot start");
    return 0;
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

int scheduler_start(struct scheduler *s, uv_loop_t *loop, const struct scheduler_options *options,
                    struct err *err) {
    const struct http_options http = {.listen = options->listen,
                                      .tls_cert = options->tls_cert,
                                      .tls_key = options->tls_key,
                                      .routes = scheduler_routes,
                                      .userdata = s,
                                      .max_body = BODY_MAX};
    *s = (struct scheduler){.loop = loop, .options = *options};
    int r = make_parts(s, err);
    if (r == 0)
        r = connect_api(s, err);
    if (r == 0)
        r = http_server_start(loop, &http, &s->http, err);
    if (r < 0)
        return r;
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
    http_server_close(s->http);
    if (s->client)
        kube_client_close(s->client, NULL, NULL);
    (void) uv_run(s->loop, UV_RUN_NOWAIT);
    uv_handle_t *own[] = {(uv_handle_t *) &s->tick, (uv_handle_t *) &s->project,
                          (uv_handle_t *) &s->retry_keys, (uv_handle_t *) &s->on_term,
                          (uv_handle_t *) &s->on_int};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (own[i]->loop)
            close_handle(own[i], NULL);
    (void) uv_run(s->loop, UV_RUN_DEFAULT);
    extender_done(&s->extender);
    binder_done(&s->binder);
    s->state = state_free(s->state);
    s->parser = json_parser_free(s->parser);
    s->key = signing_key_free(s->key);
    s->verifier = signing_verifier_free(s->verifier);
}
