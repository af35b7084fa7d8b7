/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/collect.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "abi/nvml.h"
#include "base/text.h"

void gpu_set_unhealthy(struct gpu_device *d, const char *why) {
    d->healthy = false;
    d->saved = false;
    text_copy(d->reason, sizeof(d->reason), why);
    memset(&d->sample, 0, sizeof(d->sample));
    memset(&d->errors, 0xff, sizeof(d->errors));
    d->nprocesses = 0;
}

uint32_t gpu_card_index(const struct gpu_snapshot *s, const struct gpu_device *d) {
    const struct gpu_device *card = gpu_is_part(d) ? gpu_find(s, d->parent) : d;

    return card ? card->index : GPU_CARDS_MAX;
}

void gpu_collect_clear(struct gpu_collect *c) {
    gpu_snapshot_done(&c->next);
    c->receiving = NULL;
}

/* ---- messages ---- */

/* The device that came last, if it has that index; NULL: it is left out. */
static struct gpu_device *last_device(struct gpu_collect *c, uint32_t index) {
    return c->receiving && c->receiving->index == index ? c->receiving : NULL;
}

/* By its UUID, or where that was not reported, by its last index. Parts of different cards have the
 * same indexes, and so have a card and a device of another kind. */
static const struct gpu_device *known_device(const struct gpu_snapshot *now,
                                             const struct gpu_message_device *msg) {
    if (msg->uuid[0])
        return gpu_find(now, msg->uuid);
    for (uint32_t i = 0; i < now->ndevices; i++)
        if (now->devices[i].kind == (enum gpu_kind) msg->kind &&
            now->devices[i].index == msg->header.index &&
            strcmp(now->devices[i].parent, msg->parent) == 0)
            return &now->devices[i];
    return NULL;
}

/* What the device reported of itself stays. Its UUID is reported after its minor and model. */
static void fill_identity(struct gpu_device *d, const struct gpu_device *known) {
    if (!d->uuid[0])
        gpu_copy_identity(d, known);
    if (d->minor < 0)
        d->minor = known->minor;
    if (d->memory == 0)
        d->memory = known->memory;
    if (!d->pci[0])
        memcpy(d->pci, known->pci, sizeof(d->pci));
}

static void add_device(struct gpu_collect *c, const struct gpu_snapshot *now,
                       const struct gpu_message_device *msg) {
    const struct gpu_device *known = known_device(now, msg);
    struct gpu_device d = {.kind = (enum gpu_kind) msg->kind,
                           .divided = msg->divided != 0,
                           .index = msg->header.index,
                           .minor = msg->minor,
                           .memory = msg->memory,
                           .mig = msg->mig,
                           .traits = msg->traits,
                           .errors = msg->errors,
                           .recovery_action = msg->recovery_action};

    c->receiving = NULL;
    memcpy(d.uuid, msg->uuid, sizeof(d.uuid));
    memcpy(d.parent, msg->parent, sizeof(d.parent));
    memcpy(d.model, msg->model, sizeof(d.model));
    memcpy(d.pci, msg->pci, sizeof(d.pci));
    if (msg->status != 0) {
        if (!d.uuid[0] || d.minor < 0 || d.memory == 0) {
            if (!known)
                return;
            fill_identity(&d, known);
        }
        gpu_set_unhealthy(&d, msg->error);
        d.needs_reset = msg->status == NVML_ERROR_RESET_REQUIRED;
    } else {
        d.healthy = true;
        d.sample = msg->sample;
    }
    if (c->next.ndevices == GPU_MAX || gpu_find(&c->next, d.uuid))
        return;
    c->receiving = &c->next.devices[c->next.ndevices++];
    *c->receiving = d;
}

static void add_links(struct gpu_collect *c, const struct gpu_snapshot *now,
                      const struct gpu_message_links *msg) {
    struct gpu_device *d = last_device(c, msg->header.index);
    const struct gpu_device *known = d ? gpu_find(now, d->uuid) : NULL;

    if (d)
        d->links = msg->links.known == 0 && known ? known->links : msg->links;
}

static void add_processes(struct gpu_collect *c, const struct gpu_message_processes *msg) {
    struct gpu_device *d = last_device(c, msg->header.index);
    size_t have = d ? d->nprocesses : 0;
    struct gpu_process *grown;

    if (!d || have + msg->count > GPU_PROCESSES_MAX || msg->count == 0)
        return;
    grown = realloc(d->processes, (have + msg->count) * sizeof(*grown));
    if (!grown)
        return;
    d->processes = grown;
    for (uint32_t i = 0; i < msg->count; i++)
        grown[have + i] = (struct gpu_process){
            .pid = msg->processes[i].pid,
            .sm_percent = msg->processes[i].sm_percent,
            .memory = msg->processes[i].memory,
        };
    d->nprocesses = have + msg->count;
}

void gpu_collect_add(struct gpu_collect *c, const struct gpu_snapshot *now,
                     const union gpu_message *msg) {
    switch (msg->header.type) {
    case GPU_MESSAGE_DRIVER:
        gpu_collect_clear(c);
        text_copy(c->next.driver_version, sizeof(c->next.driver_version), msg->text.text);
        break;
    case GPU_MESSAGE_DEVICE:
        add_device(c, now, &msg->device);
        break;
    case GPU_MESSAGE_LINKS:
        add_links(c, now, &msg->links);
        break;
    case GPU_MESSAGE_PROCESSES:
        add_processes(c, &msg->processes);
        break;
    default:
        break;
    }
}

/* ---- the end ---- */

/* Takes the device with its processes. */
static struct gpu_device *take_device(struct gpu_snapshot *to, struct gpu_device *from) {
    struct gpu_device *d;

    if (to->ndevices == GPU_MAX || gpu_find(to, from->uuid))
        return NULL;
    d = &to->devices[to->ndevices++];
    *d = *from;
    from->processes = NULL;
    from->nprocesses = 0;
    return d;
}

/* Instances of a card that is lost are not listed by the driver. */
static void keep_parts(struct gpu_snapshot *to, const struct gpu_device *card,
                       struct gpu_snapshot *now) {
    for (uint32_t i = 0; i < now->ndevices && !card->healthy && card->divided; i++) {
        struct gpu_device *part = strcmp(now->devices[i].parent, card->uuid) == 0
                                      ? take_device(to, &now->devices[i])
                                      : NULL;

        if (part)
            gpu_set_unhealthy(part, card->reason);
    }
}

static void take_all(struct gpu_snapshot *to, struct gpu_snapshot *from, uint32_t index) {
    for (uint32_t i = 0; i < from->ndevices; i++)
        if (gpu_card_index(from, &from->devices[i]) == index)
            (void) take_device(to, &from->devices[i]);
}

void gpu_collect_end(struct gpu_collect *c, struct gpu_snapshot *now, uint64_t left_out,
                     struct gpu_snapshot *room) {
    struct gpu_snapshot *next = &c->next;

    for (uint32_t i = 0, n = next->ndevices; i < n; i++)
        keep_parts(next, &next->devices[i], now);
    if (left_out) {
        memcpy(room->driver_version, next->driver_version, sizeof(room->driver_version));
        for (uint32_t index = 0; index < GPU_CARDS_MAX; index++)
            take_all(room, left_out >> index & 1 ? now : next, index);
        gpu_snapshot_move(next, room);
    }
    gpu_snapshot_move(now, next);
    c->receiving = NULL;
}
