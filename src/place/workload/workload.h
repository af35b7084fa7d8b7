/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A histogram of pod shapes that have arrived. Old arrivals decay, so that it follows changes of
 * the workload. Pure, of fixed size. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define WORKLOAD_SHAPES_MAX 2048
#define WORKLOAD_FULL 65536 /* arrivals; from here on the old ones fade */
#define WORKLOAD_INDEX (2 * WORKLOAD_SHAPES_MAX)
#define WORKLOAD_CARDS_MAX 64
#define WORKLOAD_ANY_MODEL UINT64_MAX
#define WORKLOAD_MODELS_MAX 64
#define WORKLOAD_TEXT_SHAPES 1024 /* below 100 KB */

/* A pod as packing sees it. */
struct place_shape {
    uint64_t models; /* bit i: may take cards of model i; WORKLOAD_ANY_MODEL: of every model */
    uint64_t memory; /* bytes of each card; 0: as many percent as compute */
    uint32_t cpu;    /* milli-CPU */
    uint32_t cards;  /* distinct cards, 0 to WORKLOAD_CARDS_MAX */
    uint32_t core;   /* percent of each, 0 to 100 */
};

struct workload_count {
    struct place_shape shape;
    uint32_t count; /* at least 1 */
};

struct workload {
    uint32_t n;                                /* shapes */
    uint32_t total;                            /* arrivals counted, of all shapes */
    uint32_t fresh;                            /* arrivals since workload_settled() */
    uint64_t milli;                            /* thousandths of cards that they asked */
    uint32_t by_cards[WORKLOAD_CARDS_MAX + 1]; /* arrivals by number of cards */
    struct workload_count shapes[WORKLOAD_SHAPES_MAX];
    uint16_t index[WORKLOAD_INDEX]; /* open addressing; 0: empty, else 1 + place in shapes */
};

void workload_init(struct workload *w);

/* Counts arrivals, at most 65,536 at once. What is out of range is cut to it. */
void workload_add(struct workload *w, const struct place_shape *shape);
void workload_add_count(struct workload *w, const struct place_shape *shape, uint32_t count);

/* Whether enough was added since the last workload_settled() to evaluate it again. */
bool workload_is_news(const struct workload *w);
void workload_settled(struct workload *w);

/* Thousandths of a card that a pod of the shape requests, over all cards. */
uint64_t workload_milli(const struct place_shape *shape);

/* The indexes of the shapes, the most frequent first (then by their order of arrival), as many as
 * make up `percent` of all arrivals, at most `max`. */
uint32_t workload_typical(const struct workload *w, uint32_t percent, uint32_t max, uint16_t ret[]);

/* ---- as text, to be kept over restarts ---- */

/* Names of models: their bits differ from one run of the program to the next. */
struct workload_names {
    void *self;
    const char *(*name)(void *self, uint32_t model);                 /* NULL: there is none */
    bool (*find)(void *self, const char *name, uint32_t *ret_model); /* false: not taken */
};

/* Appends it, the most frequent shapes first, at most WORKLOAD_TEXT_SHAPES of them. Models without
 * a name are forgotten, and the shapes that may have no others. */
void workload_write(const struct workload *w, const struct workload_names *names, struct buf *out);

/* Replaces the contents by a text of workload_write(). -EINVAL: incomplete, nothing is changed;
 * -ENOMEM. Shapes none of whose models is accepted are dropped. Any text is safe. */
int workload_read(struct workload *w, const struct workload_names *names, const char *text,
                  size_t len);
