/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Metrics as tables. A sample is a struct of figures about one thing (a card, a container); a
 * vocabulary names figures of samples. Several vocabularies can name the same samples. No state. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/prom.h"

struct http_exchange;

/* KIND(id, type): the types of figures, and of texts for labels. */
#define METRIC_KINDS(KIND)                                                                         \
    KIND(BOOL, bool)                                                                               \
    KIND(U32, uint32_t)                                                                            \
    KIND(U64, uint64_t)                                                                            \
    KIND(DOUBLE, double)                                                                           \
    KIND(HISTOGRAM, struct prom_histogram)                                                         \
    KIND(TEXT, const char *)                                                                       \
    KIND(TEXT_ARRAY, char *)

enum metric_kind {
#define METRIC_KIND_ID(id, type) METRIC_##id,
    METRIC_KINDS(METRIC_KIND_ID)
#undef METRIC_KIND_ID
};

/* A figure that is not known is one of these or NAN, by its type; a bool is always known. */
#define METRIC_UNKNOWN_32 UINT32_MAX
#define METRIC_UNKNOWN_64 UINT64_MAX

struct metric_field {
    size_t offset;
    enum metric_kind kind;
};

/* Where a member of a struct is, and its type; char[] is METRIC_TEXT_ARRAY. */
#define METRIC_OF_KIND(id, type) , type : METRIC_##id
#define METRIC_FIELD(type, member)                                                                 \
    { offsetof(type, member), _Generic((((type *) 0)->member) METRIC_KINDS(METRIC_OF_KIND)) }

/* UNIT(id, text, divisor, rounding): the unit of a metric, and by what a figure of a sample is
 * divided to be in it. Samples are in bytes, nanoseconds, milliwatts and parts per million. WHOLE:
 * rounded down, EXACT: with its fraction. */
#define METRIC_UNITS(UNIT)                                                                         \
    UNIT(NONE, "", 1, WHOLE)                                                                       \
    UNIT(BYTES, "bytes", 1, WHOLE)                                                                 \
    UNIT(MIB, "MiB", 1 << 20, WHOLE)                                                               \
    UNIT(PERCENT, "percent", 1, WHOLE)                                                             \
    UNIT(RATIO, "ratio", 1000000, EXACT)                                                           \
    UNIT(SECONDS, "seconds", 1000000000, EXACT)                                                    \
    UNIT(CELSIUS, "degrees Celsius", 1, WHOLE)                                                     \
    UNIT(WATTS, "watts", 1000, WHOLE)                                                              \
    UNIT(MILLIJOULES, "millijoules", 1, WHOLE)                                                     \
    UNIT(MHZ, "MHz", 1, WHOLE)                                                                     \
    UNIT(BYTES_A_SECOND, "bytes a second", 1, WHOLE)                                               \
    UNIT(DCGM_MB_A_SECOND, "MB a second, of 1024000 bytes", 1024000, WHOLE)

enum metric_unit {
#define METRIC_UNIT_ID(id, text, divisor, rounding) METRIC_##id,
    METRIC_UNITS(METRIC_UNIT_ID)
#undef METRIC_UNIT_ID
};

struct metric {
    unsigned set; /* the samples it is of: an index of `sets` below */
    const char *name;
    enum prom_type type;
    enum metric_unit unit;
    struct metric_field figure;
    const char *absent; /* when there is no sample of it; "": there always is */
    const char *help;   /* one sentence */
};

struct metric_label {
    unsigned set; /* on all metrics of these samples */
    const char *name;
    struct metric_field value;
};

struct vocabulary {
    const struct metric *metrics;
    size_t nmetrics;
    const struct metric_label *labels;
    size_t nlabels;
    const char *name; /* by which it is chosen; NULL: it always is */
};

/* The initializer of one whose tables wire/metric_table.h has defined for `id`. */
#define METRIC_VOCABULARY(id, word)                                                                \
    {                                                                                              \
        .metrics = id##_metrics, .nmetrics = sizeof(id##_metrics) / sizeof(id##_metrics[0]),       \
        .labels = id##_labels, .nlabels = sizeof(id##_labels) / sizeof(id##_labels[0]),            \
        .name = (word)                                                                             \
    }

/* An enumerator and a type for each row SET(id, of, sample) of a table of sets. */
#define METRIC_SET_ID(id, of, sample) SAMPLES_##id,
#define METRIC_SET_TYPE(id, of, sample) typedef struct sample##_sample sample_of_##id;

/* Initializers from the rows of a .def file:
 *
 *   LABEL(set, "name", member)
 *   METRIC(set, "name", type, unit, member, absent, help)
 *
 * `set` is that of an enumerator SAMPLES_set and of a type sample_of_set. */
#define METRIC_ROW(set, name, type, unit, member, absent, help)                                    \
    {SAMPLES_##set, name, PROM_##type, METRIC_##unit, METRIC_FIELD(sample_of_##set, member),       \
     absent,        help},
#define METRIC_LABEL_ROW(set, name, member)                                                        \
    {SAMPLES_##set, name, METRIC_FIELD(sample_of_##set, member)},

/* The samples of one set, in an array. */
struct metric_samples {
    const void *first;
    size_t size, count;
};

#define METRIC_SAMPLES(array, n) ((struct metric_samples){(array), sizeof((array)[0]), (n)})

#define METRIC_LABELS_MAX 16 /* of one metric; one that is not known, or NULL, is left out */

/* Appends all metrics of the vocabulary, in its order: a family for each, and a sample of it for
 * each of `sets[set]` in which the figure is known. Several vocabularies can follow each other on a
 * page; prom_end() ends it. */
void vocabulary_write(const struct vocabulary *v, const struct metric_samples *sets,
                      enum prom_format format, struct buf *out);

/* The format that the client asks for: Prometheus' text, unless it wants OpenMetrics as much. */
enum prom_format metrics_format(const struct http_exchange *exchange);

/* Answers with a page in that format, compressed if the client takes it so; empties `page`. */
void metrics_reply(struct http_exchange *exchange, enum prom_format format, struct buf *page);
