/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/step.h"
#include "wire/http.h"

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

/* NULL: not known. */
static const char *label_text(const void *at, enum metric_kind kind, char number[static 24]) {
    uint64_t value = 0;

    if (kind == METRIC_TEXT)
        return *(const char *const *) at;
    if (kind == METRIC_TEXT_ARRAY)
        return at;
    if (!read_integer(at, kind, &value))
        return NULL;
    (void) snprintf(number, 24, "%" PRIu64, value);
    return number;
}

static void put_labels(const struct vocabulary *v, unsigned set, const char *sample,
                       struct buf *out) {
    struct prom_label labels[METRIC_LABELS_MAX];
    char numbers[METRIC_LABELS_MAX][24];
    size_t n = 0;

    for (size_t i = 0; i < v->nlabels; i++) {
        const struct metric_label *l = &v->labels[i];

        if (l->set != set)
            continue;
        assert(n < METRIC_LABELS_MAX);
        labels[n] = (struct prom_label){
            l->name, label_text(sample + l->value.offset, l->value.kind, numbers[n])};
        n += labels[n].value != NULL;
    }
    prom_labels(out, labels, n);
}

/* The labels of each sample of the set, one text behind the other with its NUL. */
static void put_all_labels(const struct vocabulary *v, unsigned set,
                           const struct metric_samples *samples, struct buf *out) {
    buf_reset(out);
    for (size_t i = 0; i < samples->count; i++) {
        step_end();
        put_labels(v, set, (const char *) samples->first + i * samples->size, out);
        buf_putc(out, 0);
    }
}

static void put_double(const struct metric *m, double value, const char *labels, struct buf *out) {
    if (!isnan(value))
        prom_double(out, m->name, labels, value);
}

static void put_sample(const struct metric *m, const char *sample, const char *labels,
                       struct buf *out) {
    const void *at = sample + m->figure.offset;
    uint64_t divisor = units[m->unit].divisor, value;

    if (m->figure.kind == METRIC_HISTOGRAM)
        prom_histogram_write(out, m->name, labels, at);
    else if (m->figure.kind == METRIC_DOUBLE)
        put_double(m, *(const double *) at, labels, out);
    else if (!read_integer(at, m->figure.kind, &value))
        return;
    else if (units[m->unit].whole)
        prom_u64(out, m->name, labels, value / divisor);
    else
        put_double(m, (double) value / (double) divisor, labels, out);
}

void vocabulary_write(const struct vocabulary *v, const struct metric_samples *sets,
                      enum prom_format format, struct buf *out) {
    _cleanup_buf_ struct buf all = BUF_INIT(0);

    for (size_t i = 0; i < v->nmetrics; i++) {
        const struct metric *m = &v->metrics[i];
        const struct metric_samples *samples = &sets[m->set];
        const char *labels;

        step_end();
        if (i == 0 || m->set != m[-1].set)
            put_all_labels(v, m->set, samples, &all);
        if (buf_error(&all) < 0) {
            out->error = -buf_error(&all);
            return;
        }
        prom_family(out, format, m->name, m->type, m->help);
        labels = buf_str(&all);
        for (size_t k = 0; k < samples->count; k++, labels += strlen(labels) + 1)
            put_sample(m, (const char *) samples->first + k * samples->size, labels, out);
    }
}

enum prom_format metrics_format(const struct http_exchange *exchange) {
    unsigned open = http_accepts(exchange, "application/openmetrics-text");

    return open > 0 && open >= http_accepts(exchange, "text/plain") ? PROM_OPENMETRICS : PROM_TEXT;
}

void metrics_reply(struct http_exchange *exchange, enum prom_format format, struct buf *page) {
    http_compress(exchange);
    http_reply(exchange, 200, prom_content_type(format), page);
}
