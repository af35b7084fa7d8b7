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
    const char *claim; /* the ResourceClaim whose share it is; "": it is the container's own */
    const char *users; /* of the claim, as a text; `pod` is the first */
    uint64_t pods;     /* that have it together */
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

#define TOP_HOUR_SECONDS 3600
#define TOP_HOUR_STEPS 360
#define TOP_STEP_SECONDS 10 /* of an agent's history */

/* The last hour of a share, or of a card as the sum of its shares. */
struct top_hour {
    /* UUID of a card, or "UUID/NAMESPACE/POD/CONTAINER" of a share, "UUID/NAMESPACE//CLAIM" where
     * it is a claim's; owned. */
    char *key;
    uint8_t percent[TOP_HOUR_POINTS]; /* GPU time, of the device; the oldest point first */
    uint64_t end_ms, step_ms;         /* when the newest step ended, since 1970; of a step */
    /* Bytes, and percent of the device, of each step, the newest first; below 0: not known. */
    float used[TOP_HOUR_STEPS], busy[TOP_HOUR_STEPS];
};

struct top_hours {
    struct top_hour **list; /* by key */
    size_t n;
    time_t read_at; /* 0: never */
    char **nodes;   /* whose agents were asked; owned */
    size_t nnodes;
};

/* Figures of a time, each of them or TOP_UNKNOWN. */
struct top_figures {
    uint64_t used, busy;
};

struct top_data {
    struct top_card *cards;   /* by node and index */
    struct top_share *shares; /* in the order of their cards */
    struct top_pod *waiting;
    size_t ncards, nshares, nwaiting;
    bool of_pods;        /* the cards are those of pods that the user may read, and are not told */
    size_t silent;       /* agents that did not answer */
    const char *trouble; /* what could not be read, or "" */
    struct top_hours hours;
    time_t at; /* whose figures of use are shown; 0: those of the reading */
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
struct top_figures top_hours_at(const struct top_hours *hours, const char *key, time_t at);
bool top_hours_has_node(const struct top_hours *hours, const char *node);
/* Gives the hours of `old` to `fresh`, unless that has read its own. */
void top_hours_keep(struct top_data *fresh, struct top_data *old);
void top_hours_done(struct top_hours *hours);

/* Where the data is from. */
struct top_source {
    const char *system;    /* namespace of Aliquot */
    const char *namespace; /* only what pods of it have; NULL: everything */
};

/* Reads the cluster. What the user may not read of it is said in `trouble`. */
int top_read_cluster(const struct top_source *source, struct top_data *ret, struct err *err);

/* Reads the last hour of the shares on these nodes, and of the cards as the sum of their shares. 0
 * or a negative errno. */
int top_read_hours(const struct top_source *source, const char *const *nodes, size_t n,
                   struct top_hours *ret, struct err *err);

/* Reads this machine's cards from NVML, and this user's `aliquot run`s. */
int top_read_local(const struct top_source *source, struct top_data *ret, struct err *err);
