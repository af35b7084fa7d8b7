/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/metrics_api/answers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kube/api/object_write.h"

#define METRIC_NAME(id, name) name,
static const char *const pod_metrics[] = {POD_METRICS(METRIC_NAME)};
static const char *const sum_metrics[] = {SUM_METRICS(METRIC_NAME)};

static const struct {
    const char *group_version, *value_kind, *list_kind, *prefix;
    const char *const *metrics;
    int n;
} apis[] = {
    [METRICS_API_CUSTOM] = {METRICS_CUSTOM "/" METRICS_CUSTOM_VERSION, "MetricValueList",
                            "MetricValueList", "pods/", pod_metrics, POD_METRICS_COUNT},
    [METRICS_API_EXTERNAL] = {METRICS_EXTERNAL "/" METRICS_EXTERNAL_VERSION,
                              "ExternalMetricValueList", "ExternalMetricValueList", "", sum_metrics,
                              SUM_METRICS_COUNT},
};

int metrics_find(enum metrics_group api, const char *name) {
    for (int i = 0; i < apis[api].n; i++)
        if (strcmp(apis[api].metrics[i], name) == 0)
            return i;
    return -1;
}

void metrics_write_discovery(enum metrics_group api, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_put_string(&w, "kind", "APIResourceList");
    json_put_string(&w, "apiVersion", "v1");
    json_put_string(&w, "groupVersion", apis[api].group_version);
    json_array_begin(&w, "resources");
    for (int i = 0; i < apis[api].n; i++) {
        json_object_begin(&w, NULL);
        json_put_stringf(&w, "name", "%s%s", apis[api].prefix, apis[api].metrics[i]);
        json_put_string(&w, "singularName", "");
        json_put_bool(&w, "namespaced", true);
        json_put_string(&w, "kind", apis[api].value_kind);
        json_array_begin(&w, "verbs");
        json_put_string(&w, NULL, "get");
        json_array_end(&w);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    buf_putc(out, '\n');
}

/* ---- values ---- */

static void put_quantity(struct json_writer *w, uint64_t milli) {
    if (milli % 1000 == 0)
        json_put_stringf(w, "value", "%" PRIu64, milli / 1000);
    else
        json_put_stringf(w, "value", "%" PRIu64 "m", milli);
}

static void put_time(struct json_writer *w, int64_t when) {
    char text[OBJECT_TIME_SIZE];
    object_time((time_t) when, text);
    json_put_string(w, "timestamp", text);
}

void metrics_list_begin(struct json_writer *w, enum metrics_group api) {
    json_object_begin(w, NULL);
    json_put_string(w, "kind", apis[api].list_kind);
    json_put_string(w, "apiVersion", apis[api].group_version);
    json_object_begin(w, "metadata");
    json_object_end(w);
    json_array_begin(w, "items");
}

void metrics_list_pod(struct json_writer *w, const struct metrics_request *request, const char *pod,
                      int64_t when, uint64_t milli) {
    json_object_begin(w, NULL);
    json_object_begin(w, "describedObject");
    json_put_string(w, "kind", "Pod");
    json_put_string(w, "namespace", request->namespace);
    json_put_string(w, "name", pod);
    json_put_string(w, "apiVersion", "/v1");
    json_object_end(w);
    json_object_begin(w, "metric");
    json_put_string(w, "name", request->metric);
    json_put_null(w, "selector");
    json_object_end(w);
    put_time(w, when);
    put_quantity(w, milli);
    json_object_end(w);
}

void metrics_list_sum(struct json_writer *w, const struct metrics_request *request, int64_t when,
                      uint64_t milli) {
    json_object_begin(w, NULL);
    json_put_string(w, "metricName", request->metric);
    json_object_begin(w, "metricLabels");
    json_object_end(w);
    put_time(w, when);
    put_quantity(w, milli);
    json_object_end(w);
}

void metrics_list_end(struct json_writer *w) {
    json_array_end(w);
    json_object_end(w);
    buf_putc(w->out, '\n');
}

/* ---- failures ---- */

static const char *reason_of(unsigned code) {
    switch (code) {
    case 400:
        return "BadRequest";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "NotFound";
    case 503:
        return "ServiceUnavailable";
    default:
        return "InternalError";
    }
}

void metrics_write_status(unsigned code, const char *message, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_put_string(&w, "kind", "Status");
    json_put_string(&w, "apiVersion", "v1");
    json_object_begin(&w, "metadata");
    json_object_end(&w);
    json_put_string(&w, "status", "Failure");
    json_put_string(&w, "message", message);
    json_put_string(&w, "reason", reason_of(code));
    json_put_u64(&w, "code", code);
    json_object_end(&w);
    buf_putc(out, '\n');
}
