/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes metrics into a buffer, in one of two text formats. A family is begun once and followed by
 * all its samples. */

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum prom_format {
    PROM_TEXT,        /* of Prometheus, version 0.0.4 */
    PROM_OPENMETRICS, /* version 1.0.0; the page ends with prom_end() */
    PROM_FORMATS,
};

enum prom_type {
    PROM_COUNTER,
    PROM_GAUGE,
    PROM_HISTOGRAM,
};

struct prom_label {
    const char *name;  /* [a-zA-Z_][a-zA-Z0-9_]* */
    const char *value; /* any UTF-8, escaped here */
};

/* HELP and TYPE lines. `help` is one sentence, escaped here. In OpenMetrics the samples of a
 * counter end with _total, and one of another name is of unknown type. */
void prom_family(struct buf *out, enum prom_format format, const char *name, enum prom_type type,
                 const char *help);

/* The end of a page. */
void prom_end(struct buf *out, enum prom_format format);

const char *prom_content_type(enum prom_format format);

/* Appends labels as samples have them between braces: once for all samples that have the same. */
void prom_labels(struct buf *out, const struct prom_label *labels, size_t nlabels);

/* One sample of the family begun last. `labels`: as by prom_labels(); "": none. */
void prom_u64(struct buf *out, const char *name, const char *labels, uint64_t value);
void prom_double(struct buf *out, const char *name, const char *labels, double value);

/* A histogram with fixed bounds; observe anywhere, write on a scrape. Bounds are in nanoseconds and
 * written in seconds, as Prometheus wants. */
#define PROM_BUCKETS 22
extern const uint64_t prom_waits[PROM_BUCKETS]; /* bounds for waiting: 1 s to a day */
struct prom_histogram {
    const uint64_t *bounds;             /* PROM_BUCKETS of them; NULL: for answers, 10 us to 10 s */
    uint64_t buckets[PROM_BUCKETS + 1]; /* not cumulative; the last is +Inf */
    uint64_t sum_ns;
};

void prom_observe(struct prom_histogram *h, uint64_t ns);
/* Adds the observations of `more` to `sum`, which has the same bounds. */
void prom_add(struct prom_histogram *sum, const struct prom_histogram *more);
/* Buckets, _sum and _count of one label set; the family is begun by the caller. */
void prom_histogram_write(struct buf *out, const char *name, const char *labels,
                          const struct prom_histogram *h);
