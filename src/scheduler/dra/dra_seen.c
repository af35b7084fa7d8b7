/* SPDX-License-Identifier: Apache-2.0 */

/* What pages and metrics show of claims that wait. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/dra/dra_internal.h"

static const char *const words[] = {
    [DRA_LATER] = "missing",
    [DRA_HELD] = "held",
    [DRA_NO_ROOM] = "no-room",
    [DRA_REFUSED] = "refused",
};

static void set_claims(struct dra *d, const struct dra_pod *pod, const char *word) {
    for (uint32_t i = 0; i < pod->object.nclaims; i++) {
        struct dra_claim *claim;
        char key[DRA_KEY_MAX];
        (void) snprintf(key, sizeof(key), "%s/%s", pod->object.namespace,
                        pod->object.claims[i].claim);
        HASH_FIND_STR(d->claims, key, claim);
        if (claim)
            claim->waits_for = word;
    }
}

void dra_note(struct dra *d, struct dra_pod *pod, enum dra_found found, const char *why) {
    const char *word = (size_t) found < sizeof(words) / sizeof(words[0]) ? words[found] : NULL;
    free(pod->why);
    pod->why = word && why[0] ? strdup(why) : NULL;
    set_claims(d, pod, word);
}

const char *dra_why(const struct dra *d, const char *namespace, const char *pod) {
    for (const struct dra_pod *one = d->pods; one; one = one->hh.next)
        if (strcmp(one->object.name, pod) == 0 && strcmp(one->object.namespace, namespace) == 0)
            return one->why ? one->why : "";
    return NULL;
}

void dra_waiting_each(const struct dra *d,
                      void (*each)(const char *namespace, const char *reason, void *userdata),
                      void *userdata) {
    for (const struct dra_claim *claim = d->claims; claim; claim = claim->hh.next)
        if (claim->waits_for && dra_waits_for_us(d, claim))
            each(claim->object.namespace, claim->waits_for, userdata);
}
