/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/claim_users.h"

#include <string.h>

#include "agent/shares/shares.h"
#include "agent/shares/slot_users.h"
#include "wire/json_write.h"

void claim_users_each(const struct shares *s, const struct slot *slot,
                      void (*each)(const struct claim_user *user, void *userdata), void *userdata) {
    const struct slot_claim *claim = slot->grant.claim;
    struct slot_user first;
    uint32_t at = 0;

    while (slot_users_next(s, slot, &at, &first)) {
        const struct pod_entry *e = claim ? first.entry : NULL;
        struct claim_user user = {first.pod, first.uid, first.container};
        bool any = false;

        for (size_t i = 0; e && i < e->nuses; i++) {
            if (strcmp(e->uses[i].claim, claim->name) != 0)
                continue;
            user.container = e->uses[i].container;
            each(&user, userdata);
            any = true;
        }
        if (!any)
            each(&user, userdata);
    }
}

struct sought {
    const char *pod;
    bool found;
};

static void compare(const struct claim_user *user, void *userdata) {
    struct sought *sought = userdata;

    sought->found |= strcmp(user->pod, sought->pod) == 0;
}

bool claim_users_have(const struct shares *s, const struct slot *slot, const char *pod) {
    struct sought sought = {.pod = pod};

    claim_users_each(s, slot, compare, &sought);
    return sought.found;
}

static void put_user(const struct claim_user *user, void *userdata) {
    struct json_writer *w = userdata;

    json_object_begin(w, NULL);
    json_put(w, "pod", user->pod, "podUID", user->pod_uid, "container", user->container);
    json_object_end(w);
}

void claim_users_write(const struct shares *s, const struct slot *slot, struct json_writer *w) {
    const struct slot_claim *claim = slot->grant.claim;

    if (!claim)
        return;
    json_put(w, "claim", (const char *) claim->name, "claimUID", (const char *) claim->uid);
    json_array_begin(w, "users");
    claim_users_each(s, slot, put_user, w);
    json_array_end(w);
}
