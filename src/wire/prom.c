/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/prom.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Upper bounds in nanoseconds: 10 us to 10 s, close where an extender's answers lie. */
static const uint64_t answers[PROM_BUCKETS] = {
    10000,    25000,    50000,     100000,    250000,     500000,      750000,  1000000,
    1250000,  1500000,  2000000,   2500000,   3000000,    4000000,     5000000, 7500000,
    10000000, 25000000, 100000000, 250000000, 1000000000, 10000000000,
};

#define S UINT64_C(1000000000)
const uint64_t prom_waits[PROM_BUCKETS] = {
    1 * S,   2 * S,    3 * S,    5 * S,    7 * S,     10 * S,    15 * S,  20 * S,
    30 * S,  45 * S,   60 * S,   90 * S,   120 * S,   180 * S,   300 * S, 600 * S,
    900 * S, 1800 * S, 3600 * S, 7200 * S, 21600 * S, 86400 * S,
};
#undef S

static const uint64_t *bounds_of(const struct prom_histogram *h) {
    return h->bounds ? h->bounds : answers;
}

static void put_escaped(struct buf *out, const char *text, bool quotes) {
    for (const char *c = text; *c; c++) {
        if (*c == '\\')
            buf_puts(out, "\\\\");
        else if (*c == '\n')
            buf_puts(out, "\\n");
        else if (*c == '"' && quotes)
            buf_puts(out, "\\\"");
        else
            buf_putc(out, *c);
    }
}

void prom_family(struct buf *out, enum prom_format format, const char *name, enum prom_type type,
                 const char *help) {
    static const char *const types[] = {"counter", "gauge", "histogram"}, total[] = "_total";
    bool open = format == PROM_OPENMETRICS, counter = open && type == PROM_COUNTER;
    size_t len = strlen(name), suffix = sizeof(total) - 1;
    bool ends = len > suffix && strcmp(name + len - suffix, total) == 0;
    int shown = (int) (counter && ends ? len - suffix : len);

    buf_printf(out, "# HELP %.*s ", shown, name);
    put_escaped(out, help, open);
    buf_printf(out, "\n# TYPE %.*s %s\n", shown, name, counter && !ends ? "unknown" : types[type]);
}

void prom_end(struct buf *out, enum prom_format format) {
    if (format == PROM_OPENMETRICS)
        buf_puts(out, "# EOF\n");
}

const char *prom_content_type(enum prom_format format) {
    static const char *const types[] = {
        [PROM_TEXT] = "text/plain; version=0.0.4; charset=utf-8",
        [PROM_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8",
    };

    return types[format];
}

void prom_labels(struct buf *out, const struct prom_label *labels, size_t nlabels) {
    for (size_t i = 0; i < nlabels; i++) {
        buf_printf(out, "%s%s=\"", i ? "," : "", labels[i].name);
        put_escaped(out, labels[i].value, true);
        buf_putc(out, '"');
    }
}

static void put_head(struct buf *out, const char *name, const char *suffix, const char *labels,
                     const char *le) {
    buf_puts(out, name);
    buf_puts(out, suffix);
    if (labels[0] || le) {
        buf_putc(out, '{');
        buf_puts(out, labels);
        if (le)
            buf_printf(out, "%sle=\"%s\"", labels[0] ? "," : "", le);
        buf_putc(out, '}');
    }
    buf_putc(out, ' ');
}

void prom_u64(struct buf *out, const char *name, const char *labels, uint64_t value) {
    put_head(out, name, "", labels, NULL);
    buf_printf(out, "%" PRIu64 "\n", value);
}

void prom_double(struct buf *out, const char *name, const char *labels, double value) {
    put_head(out, name, "", labels, NULL);
    if (isnan(value))
        buf_puts(out, "NaN\n");
    else if (isinf(value))
        buf_puts(out, value > 0 ? "+Inf\n" : "-Inf\n");
    else
        buf_printf(out, "%.17g\n", value);
}

void prom_observe(struct prom_histogram *h, uint64_t ns) {
    const uint64_t *bounds = bounds_of(h);
    size_t i = 0;
    while (i < PROM_BUCKETS && ns > bounds[i])
        i++;
    h->buckets[i]++;
    h->sum_ns += ns;
}

void prom_add(struct prom_histogram *sum, const struct prom_histogram *more) {
    for (size_t i = 0; i <= PROM_BUCKETS; i++)
        sum->buckets[i] += more->buckets[i];
    sum->sum_ns += more->sum_ns;
}

/* Seconds from nanoseconds without going through a double, so that bounds read "0.0025". */
static void format_seconds(uint64_t ns, char out[static 32]) {
    int len = snprintf(out, 32, "%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
    while (len > 0 && out[len - 1] == '0')
        out[--len] = '\0';
    if (len > 0 && out[len - 1] == '.')
        out[len - 1] = '\0';
}

void prom_histogram_write(struct buf *out, const char *name, const char *labels,
                          const struct prom_histogram *h) {
    const uint64_t *bounds = bounds_of(h);
    uint64_t count = 0;
    char seconds[32];
    for (size_t i = 0; i <= PROM_BUCKETS; i++) {
        count += h->buckets[i];
        if (i < PROM_BUCKETS)
            format_seconds(bounds[i], seconds);
        put_head(out, name, "_bucket", labels, i < PROM_BUCKETS ? seconds : "+Inf");
        buf_printf(out, "%" PRIu64 "\n", count);
    }
    format_seconds(h->sum_ns, seconds);
    put_head(out, name, "_sum", labels, NULL);
    buf_printf(out, "%s\n", seconds);
    put_head(out, name, "_count", labels, NULL);
    buf_printf(out, "%" PRIu64 "\n", count);
}
