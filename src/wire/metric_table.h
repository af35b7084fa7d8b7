/* SPDX-License-Identifier: Apache-2.0 */

/* Defines the tables `id_labels` and `id_metrics` from a .def file (wire/metrics.h), for
 * METRIC_VOCABULARY(). No guard: it is included for each vocabulary, after
 *
 *   #define METRICS_OF id
 *   #define METRICS_FILE "path of the .def file"
 *
 * which it undefines. */

#include "wire/metrics.h"

#define TABLE_NAMED(id, what) id##_##what
#define TABLE_OF(id, what) TABLE_NAMED(id, what)

static const struct metric_label TABLE_OF(METRICS_OF, labels)[] = {
#define LABEL METRIC_LABEL_ROW
#define METRIC(...)
#include METRICS_FILE
};

static const struct metric TABLE_OF(METRICS_OF, metrics)[] = {
#define LABEL(...)
#define METRIC METRIC_ROW
#include METRICS_FILE
};

#undef TABLE_OF
#undef TABLE_NAMED
#undef METRICS_OF
#undef METRICS_FILE
