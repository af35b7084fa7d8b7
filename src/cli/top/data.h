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
    const char *uuid;   /* its own */
};

/* A container's part of a card. */
struct top_share {
    const char *namespace, *pod, *container;
    const char *card, *node, *uuid;
    uint64_t core, memory; /* percent of the card, bytes; 0: no limit */
    uint64_t used, busy;   /* as above */
};

struct top_pod {
    const char *namespace, *name, *wants, *reason;
    time_t since; /* 0: not known */
};

#define TOP_HOUR_POINTS 12 /* of five minutes each */
#define TOP_HOUR_UNKNOWN UINT8_MAX

/* GPU time of the last hour in percent of the device, the oldest point first. */
struct top_hour {
    char *key; /* UUID of a card, or "UUID/NAMESPACE/POD/CONTAINER" of a share; owned */
    uint8_t percent[TOP_HOUR_POINTS];
};

struct top_hours {
    struct top_hour *list; /* by key */
    size_t n;
};

struct top_data {
    struct top_card *cards;   /* by node and index */
    struct top_share *shares; /* in the order of their cards */
    struct top_pod *waiting;
    size_t ncards, nshares, nwaiting;
    size_t silent;       /* agents that did not answer */
    const char *trouble; /* what could not be read, or "" */
    struct top_hours hours;
    struct top_text *texts;
};

/* Whether no card before it is a part of the same GPU. */
bool top_is_first(const struct top_data *data, size_t card);

/* A text that lives as long as the data; "" without memory. */
const char *top_text(struct top_data *data, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void top_data_done(struct top_data *data);

/* NULL: it is not known. */
const struct top_hour *top_hour_find(const struct top_hours *hours, const char *key);
/* A copy, or none at all where memory lacks. */
struct top_hours top_hours_copy(const struct top_hours *hours);
void top_hours_done(struct top_hours *hours);

/* Where the data is from. */
struct top_source {
    const char *system;    /* namespace of Aliquot */
    const char *namespace; /* only what pods of it have; NULL: everything */
};

/* Reads the cluster. What the user may not read of it is said in `trouble`. */
int top_read_cluster(const struct top_source *source, struct top_data *ret, struct err *err);

/* Reads the last hour of the shares on these nodes, and of the cards as the sum of their shares. -1
 * or 0. */
int top_read_hours(const struct top_source *source, const char *const *nodes, size_t n,
                   struct top_hours *ret);

/* Reads this machine's cards from NVML, and this user's `aliquot run`s. */
int top_read_local(const struct top_source *source, struct top_data *ret, struct err *err);
