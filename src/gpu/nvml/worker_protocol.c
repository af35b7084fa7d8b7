/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/worker_protocol.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "gpu/device.h"

/* The structures hold no padding that would differ between two builds of the same binary. */
_Static_assert(sizeof(struct gpu_message_device) ==
                   16 + 16 + 160 + 2 * GPU_UUID_MAX + 96 + 32 + 8 + sizeof(struct gpu_errors) +
                       sizeof(struct gpu_mig) + 8 + sizeof(struct gpu_traits) +
                       sizeof(struct gpu_sample),
               "device");
_Static_assert(sizeof(struct gpu_message_links) == 16 + 8 + 2 * GPU_CARDS_MAX, "links");
_Static_assert(sizeof(struct gpu_message_processes) == 16 + 8 + 64 * 16, "processes");

static bool terminated(const char *text, size_t size) {
    return memchr(text, 0, size) != NULL;
}

static bool device_ok(const struct gpu_message_device *d) {
    return d->header.index < GPU_CARDS_MAX && d->minor >= -1 &&
           terminated(d->error, sizeof(d->error)) && terminated(d->uuid, sizeof(d->uuid)) &&
           terminated(d->model, sizeof(d->model)) && terminated(d->pci, sizeof(d->pci)) &&
           terminated(d->parent, sizeof(d->parent)) &&
           gpu_kind_ok(d->kind, d->parent, d->divided != 0) && gpu_mig_ok(&d->mig) &&
           (d->status != 0 || (d->uuid[0] && d->minor >= 0));
}

int gpu_message_check(const union gpu_message *message, size_t len) {
    bool ok = false;

    if (len < sizeof(message->header) || message->header.magic != GPU_MESSAGE_MAGIC)
        return -EBADMSG;
    switch (message->header.type) {
    case GPU_MESSAGE_POLL:
        ok = len == sizeof(message->poll);
        break;
    case GPU_MESSAGE_READING:
        ok = len == sizeof(message->header) && message->header.index < GPU_CARDS_MAX;
        break;
    case GPU_MESSAGE_END:
        ok = len == sizeof(message->header);
        break;
    case GPU_MESSAGE_DRIVER:
    case GPU_MESSAGE_FAILED:
        ok = len == sizeof(message->text) &&
             terminated(message->text.text, sizeof(message->text.text));
        break;
    case GPU_MESSAGE_DEVICE:
        ok = len == sizeof(message->device) && device_ok(&message->device);
        break;
    case GPU_MESSAGE_PROCESSES:
        ok = len == sizeof(message->processes) && message->header.index < GPU_CARDS_MAX &&
             message->processes.count <= GPU_PACKET_PROCESSES;
        break;
    case GPU_MESSAGE_LINKS:
        ok = len == sizeof(message->links) && message->header.index < GPU_CARDS_MAX &&
             message->links.links.known <= GPU_CARDS_MAX && message->links.links.numa >= -1 &&
             message->links.links.numa <= INT8_MAX;
        break;
    case GPU_MESSAGE_CONTEXT:
        ok = len == sizeof(message->context) && message->context.bytes > 0 &&
             terminated(message->context.uuid, sizeof(message->context.uuid));
        break;
    case GPU_MESSAGE_EVENT:
        ok = len == sizeof(message->event) && message->header.index < GPU_CARDS_MAX;
        break;
    case GPU_MESSAGE_LIMIT:
        ok = len == sizeof(message->limit) &&
             terminated(message->limit.uuid, sizeof(message->limit.uuid)) &&
             terminated(message->limit.cgroup, sizeof(message->limit.cgroup)) &&
             terminated(message->limit.error, sizeof(message->limit.error));
        break;
    default:
        break;
    }
    return ok ? (int) message->header.type : -EBADMSG;
}
