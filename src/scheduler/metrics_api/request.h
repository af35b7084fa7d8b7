/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a path of the metrics APIs asks for. Pure. */

#include <stdbool.h>

#include "kube/api/labels.h"
#include "kube/api/names.h"

#define METRICS_CUSTOM "custom.metrics.k8s.io"
#define METRICS_CUSTOM_VERSION "v1beta2"
#define METRICS_EXTERNAL "external.metrics.k8s.io"
#define METRICS_EXTERNAL_VERSION "v1beta1"
#define METRIC_NAME_MAX 64

enum metrics_group { METRICS_API_CUSTOM, METRICS_API_EXTERNAL };

struct metrics_request {
    enum metrics_group api;
    bool discovery; /* what there is, of that API; the other members are not set */
    char namespace[KUBE_LABEL_MAX];
    char pod[KUBE_NAME_MAX]; /* of the custom metrics; "*": all that the selector selects */
    char metric[METRIC_NAME_MAX];
    struct label_terms selector; /* of pods, by their labels */
};

/* `path` and `selector` are unescaped, `selector` may be NULL. -ENOENT: there is no such path;
 * -EINVAL: the selector cannot be understood; -ENOMEM. Free with metrics_request_done(). */
int metrics_request_read(const char *path, const char *selector, struct metrics_request *ret);
void metrics_request_done(struct metrics_request *r);
