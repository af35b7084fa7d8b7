/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Provisioners of claims. An ElasticGPUClass names one. A provisioner decides which claims it can
 * serve, and writes the source of the ElasticGPU. Placement selects the card. A new one is a row
 * of the table of provisioner.c. */

#include <stdbool.h>
#include <stddef.h>

#include "claims/object.h"
#include "wire/json_write.h"

/* Room that was found for a claim. */
struct claims_room {
    char node[KUBE_NAME_MAX];
    struct claim_amount amount;
    uint32_t ncards;
    char cards[CLAIM_CARDS_MAX][KUBE_NAME_MAX]; /* names of GPU objects */
};

#define PROVISIONER_NAMES_MAX 4

struct provisioner {
    const char *names[PROVISIONER_NAMES_MAX]; /* values of ElasticGPUClass.provisioner */
    bool under_mps; /* of cards only whose containers are clients of MPS */
    /* Whether it can make that for a class with these parameters; a negative errno and a sentence
     * that names the remedy otherwise. */
    int (*admit)(const struct provisioner *p, const struct egpu_class *class,
                 const struct claim_amount *want, struct err *why);
    /* Writes the one member of ElasticGPU.spec that names the source. */
    void (*put_source)(const struct provisioner *p, struct json_writer *w,
                       const struct claims_room *room);
    const char *source;  /* the member's name */
    const char *refusal; /* of an amount that it does not give */
};

/* NULL: none of ours. */
const struct provisioner *provisioner_find(const char *name);
