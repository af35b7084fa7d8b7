/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Rows of the watch table for ElasticGPUs, claims and classes, and what the row of pods adds. */

#include "scheduler/watch.h"

#define ELASTIC_WATCHES                                                                             \
    {EGPUS_PATH, NULL, true, elastic_egpus_begin, elastic_on_egpu, elastic_egpus_end},              \
        {EGPU_CLAIMS_PATH, NULL, true, elastic_claims_begin, elastic_on_claim, elastic_claims_end}, \
    {                                                                                               \
        EGPU_CLASSES_PATH, NULL, true, elastic_classes_begin, elastic_on_class,                     \
            elastic_classes_end                                                                     \
    }

#define ELASTIC_ROW(kind, one)                                                                     \
    void elastic_##kind##_begin(struct scheduler *s);                                              \
    void elastic_on_##one(struct scheduler *s, enum kube_event event, struct json object);         \
    void elastic_##kind##_end(struct scheduler *s);
ELASTIC_ROW(egpus, egpu)
ELASTIC_ROW(claims, claim)
ELASTIC_ROW(classes, class)
#undef ELASTIC_ROW

/* Sets up s->elastic and its gate, the first of all: it fills in what a pod asks. 0 or -ENOMEM. */
int elastic_start(struct scheduler *s);

/* A pass of the controller, if this replica leads. */
void elastic_step(struct scheduler *s);
