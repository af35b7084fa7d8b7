/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "scheduler/daemon/stand_back.h"
#include "scheduler/pages/pages.h"
#include "wire/metrics.h"

#define JSON_TYPE "application/json"
#define ANSWER_MAX ((size_t) 64 << 20)

static void observe(struct scheduler *s, enum verb verb, uint64_t start_ns, bool ok) {
    struct verb_stats *stats = &s->stats[verb];
    prom_observe(&stats->latency, uv_hrtime() - start_ns);
    if (ok)
        stats->ok++;
    else
        stats->failed++;
}

/* As extender_filter(). */
typedef int (*verb_answer)(struct scheduler *s, const char *body, size_t len, struct buf *out);

static void put_line(struct buf *out, const char *problem) {
    buf_printf(out, "%s\n", problem);
}

static void put_error(struct buf *out, const char *problem) {
    struct err text;
    (void) err_set(&text, EMSGSIZE,
                   "%s: set nodeCacheCapable: true for this extender, and kube-scheduler sends the "
                   "names of the nodes instead of the nodes",
                   problem);
    extender_error(out, text.text);
}

static int filter(struct scheduler *s, const char *body, size_t len, struct buf *out) {
    return extender_filter(&s->extender, body, len, scheduler_now(s), out);
}

static int prioritize(struct scheduler *s, const char *body, size_t len, struct buf *out) {
    return extender_prioritize(&s->extender, body, len, scheduler_now(s), out);
}

static int preempt(struct scheduler *s, const char *body, size_t len, struct buf *out) {
    return preempt_verb(&s->preempt, body, len, scheduler_now(s), out);
}

/* The answers of prioritize and preempt have no place for an error, so that the HTTP status says
 * it. */
static const struct verb_route {
    verb_answer ask;
    void (*put_body_problem)(struct buf *out, const char *problem);
    unsigned error_status;
    const char *error_type;
} verbs[] = {
    [VERB_FILTER] = {filter, put_error, 200, JSON_TYPE},
    [VERB_PRIORITIZE] = {prioritize, put_error, 400, JSON_TYPE},
    [VERB_PREEMPT] = {preempt, put_line, 400, "text/plain"},
};

static void answer_verb(struct http_exchange *exchange, struct scheduler *s, enum verb verb) {
    const struct verb_route *v = &verbs[verb];
    struct buf answer = BUF_INIT(ANSWER_MAX);
    uint64_t start = uv_hrtime();
    size_t len;
    const char *body = http_body(exchange, &len), *problem = http_body_problem(exchange);
    int r = problem ? -EMSGSIZE : v->ask(s, body, len, &answer);
    if (problem)
        v->put_body_problem(&answer, problem);
    observe(s, verb, start, r == 0);
    http_reply(exchange, r == 0 ? 200 : v->error_status, r == 0 ? JSON_TYPE : v->error_type,
               &answer);
}

static void on_filter(struct http_exchange *exchange, void *userdata) {
    answer_verb(exchange, userdata, VERB_FILTER);
}

static void on_prioritize(struct http_exchange *exchange, void *userdata) {
    answer_verb(exchange, userdata, VERB_PRIORITIZE);
}

static void on_preempt(struct http_exchange *exchange, void *userdata) {
    answer_verb(exchange, userdata, VERB_PREEMPT);
}

struct bind_wait {
    struct scheduler *scheduler;
    struct http_exchange *exchange;
    uint64_t start_ns;
};

static void on_bind_done(const char *error, void *request) {
    struct bind_wait *wait = request;
    struct buf answer = BUF_INIT(ANSWER_MAX);
    extender_error(&answer, error);
    observe(wait->scheduler, VERB_BIND, wait->start_ns, *error == '\0');
    http_reply(wait->exchange, 200, JSON_TYPE, &answer);
    free(wait);
}

static void on_bind(struct http_exchange *exchange, void *userdata) {
    struct scheduler *s = userdata;
    struct bind_wait *wait = calloc(1, sizeof(*wait));
    if (!wait) {
        http_reply_text(exchange, 500, "out of memory\n");
        return;
    }
    *wait = (struct bind_wait){s, exchange, uv_hrtime()};
    size_t len;
    const char *body = http_body(exchange, &len);
    s->binder.done = on_bind_done;
    elastic_bind(&s->elastic, body, len, wait);
}

static void on_healthz(struct http_exchange *exchange, void *userdata) {
    struct scheduler *s = userdata;
    char text[640];
    const char *trouble = watch_trouble(s), *reason = stand_back_reason(s);
    if (*reason)
        (void) snprintf(text, sizeof(text), "%s\n", reason);
    else
        (void) snprintf(text, sizeof(text), "still reading the state of the cluster%s%s\n",
                        *trouble ? ": " : "", trouble);
    http_reply_text(exchange, scheduler_answers(s) ? 200 : 503,
                    scheduler_answers(s) ? "ok\n" : text);
}

/* Alive is not ready: a probe that restarts the daemon must not do so while the API server is away.
 */
static void on_livez(struct http_exchange *exchange, void *userdata) {
    (void) userdata;
    http_reply_text(exchange, 200, "ok\n");
}

static void on_metrics(struct http_exchange *exchange, void *userdata) {
    struct buf page = BUF_INIT(ANSWER_MAX);
    enum prom_format format = metrics_format(exchange);
    scheduler_write_metrics(userdata, format, &page);
    metrics_reply(exchange, format, &page);
}

static void on_shared_metrics(struct http_exchange *exchange, void *userdata) {
    struct buf page = BUF_INIT(ANSWER_MAX);
    enum prom_format format = metrics_format(exchange);
    scheduler_copy_metrics(userdata, format, &page);
    metrics_reply(exchange, format, &page);
}

static void on_status(struct http_exchange *exchange, void *userdata) {
    struct buf page = BUF_INIT(ANSWER_MAX);
    scheduler_write_status(userdata, &page);
    http_reply(exchange, 200, JSON_TYPE, &page);
}

static void on_explain(struct http_exchange *exchange, void *userdata) {
    struct buf page = BUF_INIT(ANSWER_MAX);
    const char *namespace = http_query(exchange, "namespace");
    const char *pod = http_query(exchange, "pod");
    if (!scheduler_leads(userdata))
        http_reply_text(exchange, 503, "another replica acts; it knows why the pod waits\n");
    else if (namespace && pod && scheduler_write_explanation(userdata, namespace, pod, &page))
        http_reply(exchange, 200, JSON_TYPE, &page);
    else
        http_reply_text(exchange, 404, "no pod of that name that asks for a GPU is known\n");
}

const struct http_route scheduler_routes[] = {
    {"POST", "/filter", on_filter},
    {"POST", "/prioritize", on_prioritize},
    {"POST", "/bind", on_bind},
    {"POST", "/preempt", on_preempt},
    {"GET", "/healthz", on_healthz},
    {"GET", "/readyz", on_healthz},
    {"GET", "/livez", on_livez},
    {"GET", "/metrics", on_metrics},
    {"GET", "/status", on_status},
    {"GET", "/explain", on_explain},
    HTTP_ROUTE_END,
};

const struct http_route scheduler_metrics_routes[] = {
    {"GET", "/metrics", on_shared_metrics},
    HTTP_ROUTE_END,
};
