/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/slot_owner.h"

#include <string.h>

#include "agent/os/cgroup.h"
#include "agent/shares/shares.h"

static struct slot *slot_of_container(struct shares *s, const char *pod_uid,
                                      const char *container) {
    struct slot *only = NULL;

    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        if (slot->grant.ndevices == 0 || strcmp(slot->grant.pod_uid, pod_uid) != 0)
            continue;
        if (container && strcmp(slot->grant.container, container) == 0)
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

    return slot_of_container(s, id->pod_uid, e ? pod_container_name(e, id->container_id) : NULL);
}

struct slot *slot_of_process(struct shares *s, uint32_t pid) {
    struct cgroup_id id;

    return cgroup_of_pid((int) pid, &id) == 1 ? slot_of_group(s, &id) : NULL;
}
