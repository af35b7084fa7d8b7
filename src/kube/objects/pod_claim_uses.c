/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/pod_claim_uses.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

struct uses {
    struct pod_claim_use *list;
    size_t n;
};

/* The claim by its name in the pod: made of a template, or one that is there; NULL: none yet. */
static const char *claim_of(struct json object, const char *name) {
    struct json made =
        json_find(JSON_PATH(object, "status", "resourceClaimStatuses"), "name", name);
    struct json given = json_find(JSON_PATH(object, "spec", "resourceClaims"), "name", name);
    const char *claim = json_string(json_get(made, "resourceClaimName"));

    return claim ? claim : json_string(json_get(given, "resourceClaimName"));
}

static bool has_use(const struct uses *uses, const char *container, const char *claim) {
    for (size_t i = 0; i < uses->n; i++)
        if (strcmp(uses->list[i].container, container) == 0 &&
            strcmp(uses->list[i].claim, claim) == 0)
            return true;
    return false;
}

static int add_use(struct uses *uses, const char *container, const char *claim) {
    struct pod_claim_use *more;

    if (has_use(uses, container, claim))
        return 0;
    more = realloc(uses->list, (uses->n + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    uses->list = more;
    more = &uses->list[uses->n++];
    text_copy(more->container, sizeof(more->container), container);
    text_copy(more->claim, sizeof(more->claim), claim);
    return 0;
}

/* Each look-up goes through all claims of the pod, and nothing bounds those: `left` says how many
 * there may be. */
static int read_uses(struct json object, const char *list, struct uses *ret, size_t *left) {
    struct json_iter it = json_iter(JSON_PATH(object, "spec", list));
    struct json item, claim;
    int r = 0;

    while (r == 0 && *left > 0 && json_next(&it, NULL, &item)) {
        struct json_iter claims = json_iter(JSON_PATH(item, "resources", "claims"));
        const char *container = json_string(json_get(item, "name"));

        for (; r == 0 && container && *left > 0 && json_next(&claims, NULL, &claim); --*left) {
            const char *name = json_string(json_get(claim, "name"));
            const char *found = name ? claim_of(object, name) : NULL;

            if (found)
                r = add_use(ret, container, found);
        }
    }
    return r;
}

int pod_claim_uses_read(struct json pod, struct pod_claim_use **ret, size_t *ret_n) {
    struct uses uses = {0};
    size_t left = POD_CLAIM_USES_MAX;
    int r = read_uses(pod, "initContainers", &uses, &left);

    if (r == 0)
        r = read_uses(pod, "containers", &uses, &left);
    *ret = uses.list;
    *ret_n = uses.n;
    return r;
}
