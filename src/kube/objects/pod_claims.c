/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/pod_claims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *prefix;
    bool template;
} spellings[] = {
    {"egpuc.elasticgpu.io/", false},
    {"elasticgpu.io/egpuc-", false},
    {"egpuc-", false},
    {"egpuct.elasticgpu.io/", true},
};

const char *pod_claims_prefix(size_t i) {
    return i < sizeof(spellings) / sizeof(spellings[0]) ? spellings[i].prefix : NULL;
}

static int add_claim(struct pod_claims *claims, const char *container, const char *value,
                     bool template) {
    struct pod_claim claim = {.template = NULL};
    size_t len = strlen(value);
    if (claims->n == POD_CLAIMS_MAX || pod_claims_find(claims, container) || !*container ||
        strlen(container) >= sizeof(claim.container) || len == 0 ||
        len >= (template ? POD_CLAIM_TEMPLATE_MAX : sizeof(claim.claim)))
        return 0;
    struct pod_claim *list = reallocarray(claims->list, claims->n + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    claims->list = list;
    memcpy(claim.container, container, strlen(container) + 1);
    if (!template)
        memcpy(claim.claim, value, len + 1);
    else if (!(claim.template = strdup(value)))
        return -ENOMEM;
    claims->list[claims->n++] = claim;
    return 0;
}

int pod_claims_add(struct pod_claims *claims, const char *key, const char *value) {
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        size_t len = strlen(spellings[i].prefix);
        if (strncmp(key, spellings[i].prefix, len) == 0)
            return add_claim(claims, key + len, value, spellings[i].template);
    }
    return 0;
}

void pod_claims_name(struct pod_claims *claims, const char *pod) {
    for (uint32_t i = 0; i < claims->n; i++) {
        struct pod_claim *c = &claims->list[i];
        if (c->template && snprintf(c->claim, sizeof(c->claim), "%s-%s", pod, c->container) >=
                               (int) sizeof(c->claim))
            c->claim[0] = '\0';
    }
}

const struct pod_claim *pod_claims_find(const struct pod_claims *claims, const char *container) {
    for (uint32_t i = 0; i < claims->n; i++)
        if (strcmp(claims->list[i].container, container) == 0)
            return &claims->list[i];
    return NULL;
}

bool pod_claims_move(struct pod_claims *claims, const char *container, uint32_t to) {
    for (uint32_t i = to; i < claims->n; i++)
        if (strcmp(claims->list[i].container, container) == 0) {
            const struct pod_claim claim = claims->list[i];
            claims->list[i] = claims->list[to];
            claims->list[to] = claim;
            return true;
        }
    return false;
}

void pod_claims_cut(struct pod_claims *claims, uint32_t n) {
    for (; claims->n > n; claims->n--)
        free(claims->list[claims->n - 1].template);
}

int pod_claims_copy(const struct pod_claims *from, struct pod_claims *ret) {
    struct pod_claims copy = {0};
    if (from->n > 0 && !(copy.list = calloc(from->n, sizeof(*copy.list))))
        return -ENOMEM;
    for (; copy.n < from->n; copy.n++) {
        struct pod_claim *to = &copy.list[copy.n];
        *to = from->list[copy.n];
        if (to->template && !(to->template = strdup(to->template))) {
            pod_claims_done(&copy);
            return -ENOMEM;
        }
    }
    *ret = copy;
    return 0;
}

void pod_claims_done(struct pod_claims *claims) {
    for (uint32_t i = 0; i < claims->n; i++)
        free(claims->list[i].template);
    free(claims->list);
    *claims = (struct pod_claims){0};
}
