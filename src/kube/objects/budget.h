/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of a PodDisruptionBudget (policy/v1) that matters here: which pods it counts and how
 * many of them may be evicted now. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/labels.h"
#include "kube/objects/pod.h"

#define BUDGETS_PATH "/apis/policy/v1/poddisruptionbudgets"

struct budget {
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    int32_t allowed;   /* status.disruptionsAllowed */
    bool has_selector; /* without one it selects no pod, with an empty one every pod */
    struct label_terms selector;
};

/* -EINVAL: it is none, or its selector cannot be understood; -ENOMEM. Free with budget_done(). */
int budget_parse(struct json object, struct budget *ret, struct err *err);
void budget_done(struct budget *b);

/* Whether it counts a pod with these labels ("key=value," for each; NULL: none). */
bool budget_counts(const struct budget *b, const char *namespace, const char *labels);
