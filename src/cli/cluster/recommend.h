/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `aliquot recommend` knows of each container of each owner. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "cli/cluster/advice.h"
#include "cli/cluster/owner.h"
#include "kube/api/names.h"

/* A container of one pod on one card. */
struct seen {
    UT_hash_handle hh, by_pod;
    char *key;             /* "UID/CONTAINER/UUID" */
    uint32_t row;          /* of its owner and container */
    uint64_t core, memory; /* what it asks of the card; percent, bytes */
    uint64_t device_core;  /* percent of a card that the device has */
    bool has_figures, has_peak;
    /* By Prometheus. */
    double booked, overhead, driver;
};

/* A container of an owner, over all pods and cards. */
struct row {
    UT_hash_handle hh;
    char key[KUBE_LABEL_MAX + OWNER_SIZE + KUBE_LABEL_MAX + 2];
    char namespace[KUBE_LABEL_MAX], owner[OWNER_SIZE], container[KUBE_LABEL_MAX];
    uint32_t pods, cards;  /* that have it, and cards of these together */
    uint32_t silent;       /* of these cards those of which nothing is known */
    uint32_t peakless;     /* of these cards those of which no peak is known */
    uint64_t runs;         /* seconds since the start, of the container that runs longest */
    uint64_t seconds;      /* for which memory was seen, of the container that was seen longest */
    uint64_t core_seconds; /* the same of compute */
    struct advice_figures figures; /* asks: the most of any pod */
    struct advice advice;
    uint64_t freed_core, freed_memory;
};

struct recommend {
    struct row **rows; /* sorted in the end */
    uint32_t nrows;
    struct row *by_key;
    struct seen *seen, *by_card; /* all, and by their key */
    struct seen *by_container;   /* one for each container of a pod */
    uint32_t nseen;
};

struct recommend_options {
    const char *system, *namespace, *pod; /* of the last two NULL: all */
    double headroom;
    uint32_t for_seconds;   /* shorter is too short a time */
    const char *prometheus; /* where one is; NULL: the agents tell */
    uint32_t range_seconds; /* how far back it is asked */
    void (*trouble)(const char *pod, const char *text);
};

/* Reads cards, pods and agents or Prometheus, and makes the advice: what would free the most is the
 * first. */
int recommend_read(const struct recommend_options *options, struct recommend *ret, struct err *err);
void recommend_done(struct recommend *recommend);

/* The most that Prometheus has of each share. */
int recommend_ask_prometheus(struct recommend *recommend, const struct recommend_options *options,
                             struct err *err);

/* The share of the container on that device; NULL: there is none. */
struct seen *recommend_find(const struct recommend *recommend, const char *uid,
                            const char *container, const char *uuid);

/* Whether anything may be said of memory, and of compute: for long enough it was seen. */
bool recommend_knows_memory(const struct row *row, const struct recommend_options *options);
bool recommend_knows_core(const struct row *row, const struct recommend_options *options);
