/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/metrics.h"

#include <errno.h>

#include "agent/report/samples.h"
#include "base/buf.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct metric_label own_labels[] = {
#define LABEL METRIC_LABEL_ROW
#define METRIC(...)
#include "agent/report/metrics.def"
};
static const struct metric own_metrics[] = {
#define LABEL(...)
#define METRIC METRIC_ROW
#include "agent/report/metrics.def"
};
static const struct metric_label dcgm_labels[] = {
#define LABEL METRIC_LABEL_ROW
#define METRIC(...)
#include "agent/report/metrics-dcgm.def"
};
static const struct metric dcgm_metrics[] = {
#define LABEL(...)
#define METRIC METRIC_ROW
#include "agent/report/metrics-dcgm.def"
};

static const struct vocabulary own = {own_metrics, COUNT(own_metrics), own_labels,
                                      COUNT(own_labels)};
static const struct vocabulary dcgm = {dcgm_metrics, COUNT(dcgm_metrics), dcgm_labels,
                                       COUNT(dcgm_labels)};

const struct vocabulary *const agent_vocabularies[] = {&own, &dcgm};
const size_t agent_vocabularies_count = COUNT(agent_vocabularies);

void metrics_write(struct report *report, enum prom_format format, struct buf *out) {
    struct agent_samples samples;

    if (agent_samples_collect(report, &samples) < 0)
        out->error = ENOMEM;
    for (size_t i = 0; i < COUNT(agent_vocabularies); i++)
        vocabulary_write(agent_vocabularies[i], samples.sets, format, out);
    prom_end(out, format);
    agent_samples_done(&samples);
}
