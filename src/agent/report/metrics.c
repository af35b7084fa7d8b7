/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/metrics.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "agent/report/report.h"
#include "agent/report/samples.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define METRICS_OF own
#define METRICS_FILE "agent/report/metrics.def"
#include "wire/metric_table.h"

#define METRICS_OF dcgm
#define METRICS_FILE "agent/report/metrics-dcgm.def"
#include "wire/metric_table.h"

#define METRICS_OF hami
#define METRICS_FILE "agent/report/metrics-hami.def"
#include "wire/metric_table.h"

#define METRICS_OF legacy
#define METRICS_FILE "agent/report/metrics-hami-legacy.def"
#include "wire/metric_table.h"

#define METRICS_OF manager
#define METRICS_FILE "agent/report/metrics-gpu-manager.def"
#include "wire/metric_table.h"

static const struct vocabulary own = METRIC_VOCABULARY(own, "aliquot");
static const struct vocabulary dcgm = METRIC_VOCABULARY(dcgm, "dcgm");
static const struct vocabulary hami = METRIC_VOCABULARY(hami, "hami");
static const struct vocabulary legacy = METRIC_VOCABULARY(legacy, "hami-legacy");
static const struct vocabulary manager = METRIC_VOCABULARY(manager, "gpu-manager");

const struct vocabulary *const agent_vocabularies[] = {&own, &dcgm, &hami, &legacy, &manager};
const size_t agent_vocabularies_count = COUNT(agent_vocabularies);

static int refuse_name(const char *name, size_t len, struct err *err) {
    _cleanup_buf_ struct buf known = BUF_INIT(0);

    for (size_t i = 0; i < COUNT(agent_vocabularies); i++)
        buf_printf(&known, "%s%s", i > 0 ? ", " : "", agent_vocabularies[i]->name);
    return err_set(err, EINVAL,
                   "--metric-names: '%.*s' is none of the names of metrics that there are: %s",
                   (int) len, name, buf_str(&known));
}

int metric_names_parse(const char *list, uint32_t *ret, struct err *err) {
    uint32_t names = 0;
    const char *item = "";
    size_t len = 0;

    while (text_item(&list, &item, &len)) {
        size_t i = 0;

        while (i < COUNT(agent_vocabularies) &&
               (strlen(agent_vocabularies[i]->name) != len ||
                memcmp(agent_vocabularies[i]->name, item, len) != 0))
            i++;
        if (i == COUNT(agent_vocabularies))
            return refuse_name(item, len, err);
        names |= 1u << i;
    }
    if (names == 0)
        return refuse_name(item, len, err);
    *ret = names;
    return 0;
}

/* Whether the i-th vocabulary is on the page. */
static bool is_chosen(const struct report *report, size_t i) {
    return (report->metric_names & 1u << i) != 0;
}

void metrics_write(struct report *report, enum prom_format format, struct buf *out) {
    struct agent_samples samples;
    uint32_t wanted = 0;

    for (size_t i = 0; i < COUNT(agent_vocabularies); i++)
        for (size_t k = 0; is_chosen(report, i) && k < agent_vocabularies[i]->nmetrics; k++)
            wanted |= 1u << agent_vocabularies[i]->metrics[k].set;
    if (agent_samples_collect(report, wanted, &samples) < 0)
        out->error = ENOMEM;
    for (size_t i = 0; i < COUNT(agent_vocabularies); i++)
        if (is_chosen(report, i))
            vocabulary_write(agent_vocabularies[i], samples.sets, format, out);
    prom_end(out, format);
    agent_samples_done(&samples);
}
