/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The answers of the metrics APIs as kube-apiserver and the HPA controller read them. Pure. */

#include <stdint.h>

#include "base/buf.h"
#include "scheduler/metrics_api/request.h"
#include "wire/json_write.h"

/* The metrics of the custom API; METRIC(id, name). */
#define POD_METRICS(METRIC)                                                                        \
    METRIC(UTILIZATION, "gpu_utilization")                                                         \
    METRIC(MEMORY_USED, "gpu_memory_used_bytes")                                                   \
    METRIC(MEMORY_RATIO, "gpu_memory_used_ratio")                                                  \
    METRIC(THROTTLED, "gpu_throttled_ratio")

/* Those of the external API. */
#define SUM_METRICS(METRIC)                                                                        \
    METRIC(WAITING_PODS, "gpu_waiting_pods")                                                       \
    METRIC(WANTED_CARDS, "gpu_wanted_cards")                                                       \
    METRIC(USED_CARDS, "gpu_used_cards")                                                           \
    METRIC(USED_MEMORY, "gpu_used_memory_bytes")

#define METRIC_ID(id, name) POD_##id,
enum pod_metric { POD_METRICS(METRIC_ID) POD_METRICS_COUNT };
#undef METRIC_ID
#define METRIC_ID(id, name) SUM_##id,
enum sum_metric { SUM_METRICS(METRIC_ID) SUM_METRICS_COUNT };
#undef METRIC_ID

/* The number of the metric in its enum, or -1. */
int metrics_find(enum metrics_group api, const char *name);

/* An APIResourceList: a constant text. */
void metrics_write_discovery(enum metrics_group api, struct buf *out);

/* A list of values; values are in thousandths, `when` is a Unix time. */
void metrics_list_begin(struct json_writer *w, enum metrics_group api);
void metrics_list_pod(struct json_writer *w, const struct metrics_request *request, const char *pod,
                      int64_t when, uint64_t milli);
void metrics_list_sum(struct json_writer *w, const struct metrics_request *request, int64_t when,
                      uint64_t milli);
void metrics_list_end(struct json_writer *w);

/* A failure as a Status of Kubernetes. */
void metrics_write_status(unsigned code, const char *message, struct buf *out);
