/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's own limit as an outer wall. Drivers from 615 on hold a control group to so many
 * bytes of a card, whatever its programs do. It is set on the container's own group, as soon as one
 * of its processes is on the card, and follows the limit. Other drivers, kernels and control groups
 * of the first version have none; that is said once and changes nothing else. */

#include <string.h>

#include "agent/agent.h"
#include "agent/cgroup.h"
#include "base/log.h"

/* What the driver is told: our own limit is to be met first, since it is refused without a trace,
 * and the driver takes a little for itself before we know. */
static uint64_t wanted(const struct agent *a, const struct slot *slot, uint32_t at) {
    const struct slot_device *d = &slot->grant.devices[at];
    const struct gpu_device *card = gpu_find(gpu_monitor_snapshot(a->monitor), d->uuid);
    uint64_t limit = slot_memory_now(&slot->grant, at);

    if (d->physical < limit)
        limit = d->physical;
    limit += OVERUSE_SLACK;
    return card && limit > card->memory ? card->memory : limit;
}

static void build(struct agent *a, struct slot *slot, uint32_t at, uint64_t bytes) {
    struct slot_device *d = &slot->grant.devices[at];
    struct cgroup_id id;
    char directory[512];

    if (cgroup_of_pid((int) d->worst_pid, &id) != 1 ||
        strcmp(id.pod_uid, slot->grant.pod_uid) != 0 || !id.container_id[0] ||
        (d->wall_bytes == bytes && strcmp(d->wall_container, id.container_id) == 0))
        return;
    if (cgroup_directory((int) d->worst_pid, &id, a->config.host_root, directory,
                         sizeof(directory)) < 0 ||
        gpu_monitor_wall(a->monitor, d->uuid, directory, bytes) < 0)
        return;
    d->wall_bytes = bytes;
    text_copy(d->wall_container, sizeof(d->wall_container), id.container_id);
}

/* Another process, perhaps another driver: it has been told nothing. */
static void forget(struct agent *a) {
    a->walls = WALL_UNKNOWN;
    for (struct slot *slot = a->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            slot->grant.devices[i].wall_container[0] = 0;
}

void wall_update(struct agent *a) {
    struct gpu_monitor_status status;

    gpu_monitor_status(a->monitor, &status);
    if (status.restarts != a->wall_restarts)
        forget(a);
    a->wall_restarts = status.restarts;
    for (struct slot *slot = a->slots.slots; slot && a->walls != WALL_NONE; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            if (slot->grant.devices[i].worst_pid > 0)
                build(a, slot, i, wanted(a, slot, i));
}

void wall_answer(struct agent *a, const char *cgroup, uint64_t bytes, enum gpu_wall wall,
                 const char *text) {
    if (wall == GPU_WALL_REFUSED) {
        log_warn("the driver does not limit %s to %llu bytes: %s", cgroup,
                 (unsigned long long) bytes, text);
        return;
    }
    if (wall == GPU_WALL_BUILT && a->walls != WALL_BUILT)
        log_info("the driver limits control groups: its own limits stand behind ours");
    else if (wall == GPU_WALL_UNKNOWN_TO_IT && a->walls != WALL_NONE)
        log_info("the driver does not limit control groups (that takes version 615 and cgroup v2): "
                 "the library's limits stand alone");
    a->walls = wall == GPU_WALL_BUILT ? WALL_BUILT : WALL_NONE;
}
