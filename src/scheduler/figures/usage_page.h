/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an agent's page /usage (docs/http.md) says of pods: each pod's containers and cards
 * together. Pure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kube/api/names.h"

#define USAGE_PODS_MAX 1024 /* of one node; more of them have no figures */

struct pod_use {
    char uid[KUBE_UID_MAX];
    uint64_t core;         /* percent of a card; 100 for each card without a part of its own */
    uint64_t taken;        /* parts per million of a card's time */
    uint64_t memory;       /* bytes in use: the larger of the driver's figure and the ledger's */
    uint64_t memory_limit; /* bytes; 0: none */
    uint64_t throttled_ns; /* since the start of its containers, all threads together */
    bool time_known;       /* `core`, `taken` and `throttled_ns` */
};

/* Reads a page. *ret is in the order of the UIDs and to be freed. -EBADMSG with the cause, -ENOMEM.
 */
int usage_page_read(const char *text, size_t len, struct pod_use **ret, size_t *ret_n,
                    struct err *err);

/* The pod of that UID, or NULL. */
const struct pod_use *usage_find(const struct pod_use *uses, size_t n, const char *uid);
