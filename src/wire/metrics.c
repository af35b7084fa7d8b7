/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const struct {
    uint64_t divisor;
    bool whole;
} units[] = {
#define EXACT false
#define WHOLE true
#define UNIT(id, text, divisor, rounding) [METRIC_##id] = {divisor, rounding},
    METRIC_UNITS(UNIT)
#undef UNIT
};

struct labels {
    struct prom_label list[METRIC_LABELS_MAX];
    char numbers[METRIC_LABELS_MAX][24]; /* text of those that are numbers */
    size_t n;
};

/* False where the figure is not known. */
static bool read_integer(const void *at, enum metric_kind kind, uint64_t *ret) {
    switch (kind) {
    case METRIC_BOOL:
        *ret = *(const bool *) at;
        return true;
    case METRIC_U32:
        *ret = *(const uint32_t *) at;
        return *ret != METRIC_UNKNOWN_32;
    case METRIC_U64:
        *ret = *(const uint64_t *) at;
        return *ret != METRIC_UNKNOWN_64;
    default:
        return false;
    }
}

static const char *label_text(const void *at, enum metric_kind kind, char number[static 24]) {
    uint64_t value = 0;

    if (kind == METRIC_TEXT)
        return *(const char *const *) at;
    if (kind == METRIC_TEXT_ARRAY)
        return at;
    (void) read_integer(at, kind, &value);
    (void) snprintf(number, 24, "%" PRIu64, value);
    return number;
}

static void read_labels(const struct vocabulary *v, unsigned set, const char *sample,
                        struct labels *ret) {
    ret->n = 0;
    for (size_t i = 0; i < v->nlabels; i++) {
        const struct metric_label *l = &v->labels[i];

        if (l->set != set)
            continue;
        assert(ret->n < METRIC_LABELS_MAX);
        ret->list[ret->n] = (struct prom_label){
            l->name,
            label_text(sample + l->value.offset, l->value.kind, ret->numbers[ret->n]),
        };
        ret->n++;
    }
}

static void put_double(const struct metric *m, double value, const struct labels *labels,
                       struct buf *out) {
    if (!isnan(value))
        prom_double(out, m->name, labels->list, labels->n, value);
}

static void put_sample(const struct metric *m, const char *sample, const struct labels *labels,
                       struct buf *out) {
    const void *at = sample + m->figure.offset;
    uint64_t divisor = units[m->unit].divisor, value;

    if (m->figure.kind == METRIC_HISTOGRAM)
        prom_histogram_write(out, m->name, labels->list, labels->n, at);
    else if (m->figure.kind == METRIC_DOUBLE)
        put_double(m, *(const double *) at, labels, out);
    else if (!read_integer(at, m->figure.kind, &value))
        return;
    else if (units[m->unit].whole)
        prom_u64(out, m->name, labels->list, labels->n, value / divisor);
    else
        put_double(m, (double) value / (double) divisor, labels, out);
}

void vocabulary_write(const struct vocabulary *v, const struct metric_samples *sets,
                      struct buf *out) {
    struct labels labels;

    for (size_t i = 0; i < v->nmetrics; i++) {
        const struct metric *m = &v->metrics[i];
        const struct metric_samples *samples = &sets[m->set];

        prom_family(out, m->name, m->type, m->help);
        for (size_t k = 0; k < samples->count; k++) {
            const char *sample = (const char *) samples->first + k * samples->size;

            read_labels(v, m->set, sample, &labels);
            put_sample(m, sample, &labels, out);
        }
    }
}
