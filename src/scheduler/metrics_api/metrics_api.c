/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/metrics_api/metrics_api.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/server_time.h"
#include "base/text.h"
#include "scheduler/gates/waiting.h"
#include "scheduler/metrics_api/access.h"
#include "scheduler/metrics_api/answers.h"
#include "wire/client_trust.h"

#define JSON_TYPE "application/json"
#define ANSWER_MAX ((size_t) 64 << 20)

/* A request for values on its way: access, then agents. */
struct values {
    struct values *prev, *next;
    struct metrics_api *api;
    struct http_exchange *exchange;
    struct metrics_request request;
    int metric;
};

struct metrics_api {
    struct metrics_api_options options;
    struct access *access;
    struct client_trust *trust;
    struct values *pending;
    char distrust[256]; /* why no client is trusted; as it was logged */
};

/* ---- values ---- */

static bool memory_in(uint64_t bytes, uint64_t *ret) {
    *ret = bytes * 1000;
    return bytes <= UINT64_MAX / 1000;
}

static bool utilization_of(const struct agents_figures *f, uint64_t *ret) {
    *ret = f->use->core > 0 ? f->use->taken / f->use->core * 10 +
                                  f->use->taken % f->use->core * 10 / f->use->core
                            : 0;
    return f->use->time_known && f->use->core > 0;
}

static bool memory_used_of(const struct agents_figures *f, uint64_t *ret) {
    return memory_in(f->use->memory, ret);
}

static bool memory_ratio_of(const struct agents_figures *f, uint64_t *ret) {
    double ratio =
        f->use->memory_limit > 0 ? (double) f->use->memory / (double) f->use->memory_limit : NAN;
    *ret = ratio >= 0 ? (uint64_t) (ratio * 1000 + 0.5) : 0;
    return ratio >= 0;
}

static bool throttled_of(const struct agents_figures *f, uint64_t *ret) {
    *ret = f->throttled_known ? (uint64_t) (f->throttled * 1000 + 0.5) : 0;
    return f->throttled_known;
}

static bool (*const pod_metrics[POD_METRICS_COUNT])(const struct agents_figures *f,
                                                    uint64_t *ret_milli) = {
    [POD_UTILIZATION] = utilization_of,
    [POD_MEMORY_USED] = memory_used_of,
    [POD_MEMORY_RATIO] = memory_ratio_of,
    [POD_THROTTLED] = throttled_of,
};

/* ---- pods ---- */

static bool is_selected(const struct metrics_request *r, const struct state_pod *pod) {
    return strcmp(pod->namespace, r->namespace) == 0 &&
           (!r->pod[0] || strcmp(r->pod, "*") == 0 || strcmp(r->pod, pod->name) == 0) &&
           label_terms_hold(&r->selector, pod->labels, pod->name);
}

static bool is_placed(const struct state_pod *pod) {
    return pod->stage == POD_BOUND && pod->node && pod->nallocations > 0;
}

static bool find_figures(struct metrics_api *m, const struct state_pod *pod,
                         struct agents_figures *ret) {
    return is_placed(pod) && agents_find(m->options.agents, pod->node->name, pod->uid, ret);
}

/* ---- answers ---- */

static void end_values(struct values *v) {
    DL_DELETE(v->api->pending, v);
    metrics_request_done(&v->request);
    free(v);
}

static void refuse(struct http_exchange *exchange, unsigned code, const char *message) {
    struct buf out = BUF_INIT(ANSWER_MAX);
    metrics_write_status(code, message, &out);
    http_reply(exchange, code, JSON_TYPE, &out);
}

static void refuse_values(struct values *v, unsigned code, const char *message) {
    refuse(v->exchange, code, message);
    end_values(v);
}

static unsigned list_pods(struct values *v, struct json_writer *w) {
    struct metrics_api *m = v->api;
    struct agents_figures figures;
    unsigned n = 0;
    uint64_t milli;
    for (const struct state_pod *pod = m->options.state->pods; pod; pod = pod->hh.next) {
        if (!is_selected(&v->request, pod) || !find_figures(m, pod, &figures) ||
            !pod_metrics[v->metric](&figures, &milli))
            continue;
        metrics_list_pod(w, &v->request, pod->name, figures.when, milli);
        n++;
    }
    return n;
}

struct sum {
    double milli;
    int64_t when; /* of the oldest figure */
    bool unknown; /* what pods use of which the agent does not answer, or tells no time */
};

static void add(struct sum *sum, double milli, int64_t when) {
    sum->milli += milli;
    if (when < sum->when)
        sum->when = when;
}

static void add_pod(struct values *v, const struct state_pod *pod, struct sum *sum) {
    struct metrics_api *m = v->api;
    struct agents_figures f;
    bool waits = pod_waits(pod);
    if (v->metric == SUM_WAITING_PODS && waits)
        add(sum, 1000, sum->when);
    else if (v->metric == SUM_WANTED_CARDS && waits)
        add(sum, 1000 * pod_wanted_cards(m->options.quotas, pod, uv_hrtime() / 1000000), sum->when);
    if (v->metric == SUM_WAITING_PODS || v->metric == SUM_WANTED_CARDS || !is_placed(pod))
        return;
    if (!find_figures(m, pod, &f)) /* a pod that its agent does not know uses nothing yet */
        sum->unknown = sum->unknown || !agents_know(m->options.agents, pod->node->name);
    else if (v->metric == SUM_USED_CARDS && !f.use->time_known)
        sum->unknown = true;
    else
        add(sum,
            v->metric == SUM_USED_CARDS ? (double) f.use->taken / 1000
                                        : (double) f.use->memory * 1000,
            f.when);
}

/* An HPA would scale down by a sum that lacks some pods; without one it leaves the replicas as they
 * are. */
static void list_sum(struct values *v, struct json_writer *w) {
    struct sum sum = {.when = server_time()};
    for (const struct state_pod *pod = v->api->options.state->pods; pod; pod = pod->hh.next)
        if (is_selected(&v->request, pod))
            add_pod(v, pod, &sum);
    if (!sum.unknown)
        metrics_list_sum(w, &v->request, sum.when, (uint64_t) (sum.milli + 0.5));
}

static void on_figures(void *userdata) {
    struct values *v = userdata;
    struct buf out = BUF_INIT(ANSWER_MAX);
    struct json_writer w = {.out = &out};
    unsigned n = 1;
    metrics_list_begin(&w, v->request.api);
    if (v->request.api == METRICS_API_CUSTOM)
        n = list_pods(v, &w);
    else
        list_sum(v, &w);
    metrics_list_end(&w);
    if (n == 0 && strcmp(v->request.pod, "*") != 0) {
        buf_done(&out);
        refuse_values(v, 404,
                      "there is no such figure of that pod: it has no share, has not been "
                      "reported yet, or its node's agent does not answer");
        return;
    }
    http_reply(v->exchange, 200, JSON_TYPE, &out);
    end_values(v);
}

static bool needs_agents(const struct values *v) {
    return v->request.api == METRICS_API_CUSTOM || v->metric == SUM_USED_CARDS ||
           v->metric == SUM_USED_MEMORY;
}

static void ask(struct values *v) {
    struct metrics_api *m = v->api;
    _cleanup_free_ const char **nodes = NULL;
    size_t n = 0, room = 0;
    int r = 0;
    if (!needs_agents(v)) {
        on_figures(v);
        return;
    }
    for (const struct state_pod *pod = m->options.state->pods; pod && r == 0; pod = pod->hh.next) {
        if (!is_placed(pod) || !is_selected(&v->request, pod))
            continue;
        r = array_reserve(&nodes, &room, n + 1, sizeof(*nodes));
        if (r == 0)
            nodes[n++] = pod->node->name;
    }
    if (r == 0)
        r = agents_ask(m->options.agents, nodes, n, on_figures, v);
    if (r < 0)
        refuse_values(v, 500, "out of memory");
}

static void on_access(enum access_verdict verdict, void *userdata) {
    struct values *v = userdata;
    switch (verdict) {
    case ACCESS_YES:
        ask(v);
        break;
    case ACCESS_NO:
        refuse_values(v, 403,
                      "the user may not read this metric: docs/autoscaling.md has the "
                      "ClusterRoles");
        break;
    case ACCESS_NO_USER:
        refuse_values(v, 401,
                      "the request names no user, or has more groups and extra "
                      "fields than are read");
        break;
    case ACCESS_UNKNOWN:
        refuse_values(v, 503, "the API server does not say whether the user may read this metric");
        break;
    }
}

/* ---- requests ---- */

/* So that one user's questions, which wait for agents, leave room for others and for discovery. */
static bool has_room(const struct metrics_api *m, const struct http_exchange *exchange) {
    const char *user = http_header(exchange, ACCESS_USER);
    const struct values *v;
    unsigned all = 0, of_user = 0;
    DL_FOREACH(m->pending, v) {
        const char *name = http_header(v->exchange, ACCESS_USER);
        all++;
        of_user += user && name && strcmp(user, name) == 0;
    }
    return all < METRICS_VALUES_MAX && of_user < METRICS_VALUES_OF_USER;
}

static void on_discovery(struct http_exchange *exchange, enum metrics_group api) {
    struct buf out = BUF_INIT(ANSWER_MAX);
    metrics_write_discovery(api, &out);
    http_reply(exchange, 200, JSON_TYPE, &out);
}

static void start_values(struct metrics_api *m, struct http_exchange *exchange,
                         struct metrics_request *request, int metric) {
    struct values *v = malloc(sizeof(*v));
    if (!v) {
        metrics_request_done(request);
        refuse(exchange, 500, "out of memory");
        return;
    }
    *v = (struct values){.api = m, .exchange = exchange, .request = *request, .metric = metric};
    DL_APPEND(m->pending, v);
    access_check(m->access, exchange, &v->request, on_access, v);
}

static void on_request(struct http_exchange *exchange, void *userdata) {
    struct metrics_api *m = userdata;
    struct metrics_request request;
    struct err err;
    const char *labels = http_query(exchange, "metricLabelSelector");
    int r =
        metrics_request_read(http_path(exchange), http_query(exchange, "labelSelector"), &request);
    if (r == 0 && request.discovery) {
        on_discovery(exchange, request.api);
        metrics_request_done(&request);
        return;
    }
    if (client_trust_check(m->trust, http_tls_session(exchange), &err) < 0) {
        refuse(exchange, 401, err.text);
    } else if (r < 0) {
        refuse(exchange,
               r == -EINVAL   ? 400
               : r == -ENOENT ? 404
                              : 500,
               r == -EINVAL   ? "the label selector cannot be understood"
               : r == -ENOENT ? "there is no such path"
                              : "out of memory");
    } else if (metrics_find(request.api, request.metric) < 0) {
        refuse(exchange, 404, "there is no metric of that name");
    } else if (labels && *labels) {
        refuse(exchange, 400,
               "these metrics have no labels to select by: leave "
               "metric.selector out");
    } else if (!m->options.ready(m->options.userdata)) {
        refuse(exchange, 503, "still reading the state of the cluster");
    } else if (!has_room(m, exchange)) {
        refuse(exchange, 429, "too many requests of this user, or of all, wait for an answer");
    } else {
        start_values(m, exchange, &request, metrics_find(request.api, request.metric));
        return;
    }
    if (r == 0)
        metrics_request_done(&request);
}

const struct http_route metrics_api_routes[] = {
    {"GET", "/apis/" METRICS_CUSTOM "/*", on_request},
    {"GET", "/apis/" METRICS_EXTERNAL "/*", on_request},
    HTTP_ROUTE_END,
};

void metrics_api_trust(struct metrics_api *m, struct json data) {
    static const char unknown[] = "ConfigMap kube-system/extension-apiserver-authentication has no "
                                  "requestheader-client-ca-file: is the aggregation layer of the "
                                  "API server configured?";
    _cleanup_json_ struct json_parser *parser = NULL;
    const char *bundle = json_string(json_get(data, "requestheader-client-ca-file"));
    const char *names = json_string_or(json_get(data, "requestheader-allowed-names"), "[]");
    struct json list;
    struct err err;
    int r = bundle ? json_open(names, strlen(names), &parser, &list, &err)
                   : err_set(&err, ENOENT, "%s", unknown);
    if (r < 0)
        list = (struct json){0};
    int set = client_trust_set(m->trust, bundle ? bundle : "", list, r < 0 ? NULL : &err);
    bool failed = r < 0 || set < 0;
    if (failed && strncmp(m->distrust, err.text, sizeof(m->distrust) - 1) != 0)
        log_warn("metrics API: no client is trusted: %s", err.text);
    else if (!failed && m->distrust[0])
        log_info("metrics API: the API server's front proxy is trusted");
    text_copy(m->distrust, sizeof(m->distrust), failed ? err.text : "");
}

/* ---- life ---- */

struct metrics_api *metrics_api_new(const struct metrics_api_options *options) {
    struct metrics_api *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->options = *options;
    m->access = access_new(&options->api);
    m->trust = client_trust_new();
    return m->access && m->trust ? m : metrics_api_free(m);
}

struct metrics_api *metrics_api_free(struct metrics_api *m) {
    struct values *v, *next;
    if (!m)
        return NULL;
    m->access = access_free(m->access);
    m->trust = client_trust_free(m->trust);
    DL_FOREACH_SAFE(m->pending, v, next)
        end_values(v);
    free(m);
    return NULL;
}
