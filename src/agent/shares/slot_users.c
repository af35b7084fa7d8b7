/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/slot_users.h"

#include <string.h>

#include "agent/os/cgroup.h"
#include "agent/shares/shares.h"

static const struct pod_entry *find(const struct shares *s, const char *uid) {
    return s->pods ? pods_find(s->pods, uid) : NULL;
}

static bool has_ended(const struct shares *s, const char *uid) {
    const struct pod_entry *e = find(s, uid);

    return e ? e->pod.finished : s->pods && pods_ever_synced(s->pods);
}

int slot_users_add(struct shares *s, struct slot *slot, const char *pod_uid, struct err *err) {
    const struct slot_claim *claim = slot->grant.claim;
    int r = slot_add_pod(&s->slots, slot, pod_uid, err);

    if (r >= 0 || claim->npods < SLOT_CLAIM_PODS_MAX)
        return r;
    for (uint32_t i = 0; i < claim->npods; i++)
        if (has_ended(s, claim->pods[i]))
            return slot_replace_pod(&s->slots, slot, i, pod_uid, err);
    return r;
}

static struct slot_user first_user(const struct shares *s, const struct slot *slot) {
    const struct slot_grant *g = &slot->grant;

    return (struct slot_user){.entry = find(s, g->pod_uid),
                              .namespace = g->namespace,
                              .pod = g->pod,
                              .uid = g->pod_uid,
                              .container = g->container};
}

static bool user_of_claim(const struct shares *s, const struct slot *slot, uint32_t i,
                          struct slot_user *ret) {
    const struct slot_claim *claim = slot->grant.claim;
    const struct pod_entry *e = find(s, claim->pods[i]);
    const struct pod_claim_use *use = e ? pod_claim_use_find(e, NULL, claim->name) : NULL;

    if (!e || e->pod.finished)
        return false;
    *ret = (struct slot_user){.entry = e,
                              .namespace = e->pod.namespace,
                              .pod = e->pod.name,
                              .uid = e->pod.uid,
                              .container = use ? use->container : slot->grant.container};
    return true;
}

bool slot_users_next(const struct shares *s, const struct slot *slot, uint32_t *at,
                     struct slot_user *ret) {
    uint32_t npods = slot->grant.claim ? slot->grant.claim->npods : 0;
    bool first = *at == 0;

    while (*at < npods)
        if (user_of_claim(s, slot, (*at)++, ret))
            return true;
    *at = npods + 1;
    if (first)
        *ret = first_user(s, slot);
    return first;
}

void slot_user_of_group(const struct shares *s, const struct slot *slot, const struct cgroup_id *id,
                        struct slot_user *ret) {
    uint32_t at = 0;

    while (id && slot->grant.claim && slot_users_next(s, slot, &at, ret)) {
        const char *container =
            ret->entry ? pod_container_name(ret->entry, id->container_id) : NULL;

        if (strcmp(ret->uid, id->pod_uid) != 0)
            continue;
        ret->container = container ? container : ret->container;
        return;
    }
    at = 0;
    (void) slot_users_next(s, slot, &at, ret);
}

void slot_user_of_process(const struct shares *s, const struct slot *slot, uint32_t pid,
                          struct slot_user *ret) {
    bool known = false;
    struct cgroup_id id;

    if (slot->grant.claim && pid > 0)
        known = cgroup_of_pid((int) pid, &id) == 1;
    slot_user_of_group(s, slot, known ? &id : NULL, ret);
}

void slot_users_event(struct shares *s, const struct slot *slot, const char *reason,
                      const char *text) {
    struct slot_user user;
    uint32_t at = 0;

    while (slot_users_next(s, slot, &at, &user))
        pod_events_container(&s->events, user.namespace, user.pod, user.uid, user.container, reason,
                             text);
}
