/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `aliquot top` shows, as values: one reading of a cluster or of this machine. */

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"

#define TOP_UNKNOWN UINT64_MAX /* a figure that is not to be had */

struct top_card {
    const char *name, *node, *model, *state;
    uint64_t core, taken_core;     /* percent; 0 of a card that gives no shares */
    uint64_t memory, taken_memory; /* bytes */
    uint64_t used;                 /* bytes, or TOP_UNKNOWN */
    uint64_t busy;                 /* percent, or TOP_UNKNOWN */
    uint64_t pods;
    const char *device; /* UUID of the GPU, which several MIG instances share */
};

/* A container's part of a card. */
struct top_share {
    const char *namespace, *pod, *container;
    const char *card, *node;
    uint64_t core, memory; /* percent of the card, bytes; 0: no limit */
    uint64_t used, busy;   /* as above */
};

struct top_pod {
    const char *namespace, *name, *wants, *reason;
    time_t since; /* 0: not known */
};

struct top_data {
    struct top_card *cards;   /* by node and index */
    struct top_share *shares; /* in the order of their cards */
    struct top_pod *waiting;
    size_t ncards, nshares, nwaiting;
    size_t silent;       /* agents that did not answer */
    const char *trouble; /* what could not be read, or "" */
    struct top_text *texts;
};

/* Whether no card before it is a part of the same GPU. */
bool top_is_first(const struct top_data *data, size_t card);

/* A text that lives as long as the data; "" without memory. */
const char *top_text(struct top_data *data, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void top_data_done(struct top_data *data);

/* Where the data is from. */
struct top_source {
    const char *system;    /* namespace of Aliquot */
    const char *namespace; /* only what pods of it have; NULL: everything */
};

/* Reads the cluster. What the user may not read of it is said in `trouble`. */
int top_read_cluster(const struct top_source *source, struct top_data *ret, struct err *err);

/* Reads this machine's cards from NVML, and this user's `aliquot run`s. */
int top_read_local(const struct top_source *source, struct top_data *ret, struct err *err);
