/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of a PodDisruptionBudget (policy/v1) that matters here: which pods it counts and how
 * many of them may be evicted now. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/pod.h"

#define BUDGETS_PATH "/apis/policy/v1/poddisruptionbudgets"
#define BUDGET_TERMS_MAX 32

enum budget_operator { BUDGET_IN, BUDGET_NOT_IN, BUDGET_EXISTS, BUDGET_DOES_NOT_EXIST };

/* One requirement on the labels of a pod. */
struct budget_term {
    enum budget_operator operator;
    char *key;
    char *values; /* "value," for each, may be "" */
};

struct budget {
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    int32_t allowed;   /* status.disruptionsAllowed */
    bool has_selector; /* without one it counts nobody, with an empty one everybody */
    uint32_t nterms;
    struct budget_term terms[BUDGET_TERMS_MAX];
};

/* -EINVAL: it is none, or its selector cannot be understood; -ENOMEM. Free with budget_done(). */
int budget_parse(struct json object, struct budget *ret, struct err *err);
void budget_done(struct budget *b);

/* Whether it counts a pod with these labels ("key=value," for each; NULL: none). */
bool budget_counts(const struct budget *b, const char *namespace, const char *labels);
