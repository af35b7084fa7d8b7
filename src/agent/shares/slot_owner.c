/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/slot_owner.h"

#include <string.h>

#include "agent/os/cgroup.h"
#include "agent/shares/shares.h"

static bool has_share(const struct slot_grant *g, const struct pod_entry *e,
                      const char *container) {
    return g->claim ? pod_claim_use_find(e, container, g->claim->name) != NULL
                    : strcmp(g->container, container) == 0;
}

/* `e` NULL: the pod is gone, `container` NULL: it is not known which one. */
static struct slot *slot_of_container(struct shares *s, const char *pod_uid,
                                      const struct pod_entry *e, const char *container) {
    struct slot *only = NULL;

    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        if (slot->grant.ndevices == 0 || !slot_is_of_pod(&slot->grant, pod_uid))
            continue;
        if (container && has_share(&slot->grant, e, container))
            return slot;
        /* The status with the container's ID may not be here yet; with one share in the pod there
         * is no question. */
        if (!container && only)
            return NULL;
        only = slot;
    }
    return container ? NULL : only;
}

struct slot *slot_of_group(struct shares *s, const struct cgroup_id *id) {
    const struct pod_entry *e = s->pods ? pods_find(s->pods, id->pod_uid) : NULL;

    return slot_of_container(s, id->pod_uid, e, e ? pod_container_name(e, id->container_id) : NULL);
}

struct slot *slot_of_process(struct shares *s, uint32_t pid) {
    struct cgroup_id id;

    return cgroup_of_pid((int) pid, &id) == 1 ? slot_of_group(s, &id) : NULL;
}
