/* SPDX-License-Identifier: Apache-2.0 */

/* The most that Prometheus has of each share, by Aliquot's own metrics (docs/metrics.md). */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cluster/prometheus.h"
#include "cli/cluster/recommend.h"

#define STEP_S 300 /* of subqueries, and of rates */
#define QUERY_MAX 384

struct asking {
    struct recommend *recommend;
    void (*take)(struct row *row, struct seen *seen, double value);
};

/* A Prometheus that does not honour the labels of its targets renames them. */
static const char *label(struct json labels, const char *renamed, const char *own) {
    return json_string_or(json_get(labels, renamed), json_string_or(json_get(labels, own), ""));
}

static void take_sample(void *arg, struct json labels, double value) {
    const struct asking *asking = arg;
    struct seen *seen = recommend_find(
        asking->recommend, label(labels, "exported_pod_uid", "pod_uid"),
        label(labels, "exported_container", "container"), label(labels, "exported_uuid", "uuid"));

    if (seen && value >= 0)
        asking->take(asking->recommend->rows[seen->row], seen, value);
}

static double most(double a, double b) {
    return a > b ? a : b;
}

static void take_booked(struct row *row, struct seen *seen, double value) {
    (void) row;
    seen->booked = most(seen->booked, value);
    seen->has_figures = true;
}

static void take_overhead(struct row *row, struct seen *seen, double value) {
    (void) row;
    seen->overhead = most(seen->overhead, value);
}

static void take_driver(struct row *row, struct seen *seen, double value) {
    (void) row;
    seen->driver = most(seen->driver, value);
}

/* To a thousandth of a percent: a rate that Prometheus extrapolates is not exactly 0.3, and would
 * be rounded up to 31 percent. */
static void take_core(struct row *row, struct seen *seen, double value) {
    double percent = value * (double) seen->device_core;
    row->figures.core = most(row->figures.core, nearbyint(percent * 1000) / 1000);
}

static void take_throttled(struct row *row, struct seen *seen, double value) {
    (void) seen;
    row->figures.throttled = most(row->figures.throttled, value);
}

static void take_refused(struct row *row, struct seen *seen, double value) {
    (void) seen;
    row->figures.refused |= value > 0;
}

/* So many points were there, with a step between two of them. */
static void take_points(struct row *row, struct seen *seen, double value) {
    uint64_t seconds = value > 1 ? (uint64_t) (value - 1) * STEP_S : 0;

    (void) seen;
    row->seconds = seconds > row->seconds ? seconds : row->seconds;
}

static void take_core_points(struct row *row, struct seen *seen, double value) {
    uint64_t seconds = value > 1 ? (uint64_t) (value - 1) * STEP_S : 0;

    (void) seen;
    row->core_seconds = seconds > row->core_seconds ? seconds : row->core_seconds;
}

/* An agent that is replaced gives a share another series, with the labels of the other target (its
 * pod, its address): all series of a share are one. */
#define OF_SHARE                                                                                   \
    "max by (pod_uid, container, uuid, exported_pod_uid, exported_container, exported_uuid) "

/* %u: the seconds of the range. */
static const struct question {
    const char *query;
    void (*take)(struct row *row, struct seen *seen, double value);
} questions[] = {
    {OF_SHARE "(max_over_time(aliquot_container_memory_used_bytes[%us]))", take_booked},
    {OF_SHARE "(max_over_time(aliquot_container_memory_peak_bytes[%us]))", take_booked},
    {OF_SHARE "(max_over_time(aliquot_container_memory_overhead_bytes[%us]))", take_overhead},
    {OF_SHARE "(max_over_time(aliquot_container_memory_driver_bytes[%us]))", take_driver},
    {"max_over_time(" OF_SHARE "(rate(aliquot_container_gpu_seconds_total[5m]))[%us:5m])",
     take_core},
    {"avg_over_time(" OF_SHARE
     "(clamp_max(rate(aliquot_container_throttled_seconds_total[5m]), 1))[%us:5m])",
     take_throttled},
    {OF_SHARE "(increase(aliquot_container_memory_refused_total[%us]))", take_refused},
    {"count_over_time(" OF_SHARE "(aliquot_container_memory_used_bytes)[%us:5m])", take_points},
    {"count_over_time(" OF_SHARE "(rate(aliquot_container_gpu_seconds_total[5m]))[%us:5m])",
     take_core_points},
};

int recommend_ask_prometheus(struct recommend *r, const struct recommend_options *o,
                             struct err *err) {
    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
        struct asking asking = {r, questions[i].take};
        char query[QUERY_MAX], range[16];
        const char *at = strstr(questions[i].query, "%u");
        (void) snprintf(range, sizeof(range), "%" PRIu32, o->range_seconds);
        (void) snprintf(query, sizeof(query), "%.*s%s%s", (int) (at - questions[i].query),
                        questions[i].query, range, at + 2);
        int result = prometheus_query(o->prometheus, query, take_sample, &asking, err);
        if (result < 0)
            return result;
    }
    for (uint32_t i = 0; i < r->nseen; i++) {
        const struct seen *seen = &r->seen[i];
        struct row *row = r->rows[seen->row];
        uint64_t bytes = (uint64_t) most(seen->booked + seen->overhead, seen->driver);
        row->silent += !seen->has_figures;
        if (seen->has_figures &&
            (row->figures.memory == ADVICE_UNKNOWN || bytes > row->figures.memory))
            row->figures.memory = bytes;
    }
    return 0;
}
