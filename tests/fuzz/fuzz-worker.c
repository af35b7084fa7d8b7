/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "gpu/nvml/worker_protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    union gpu_message m;

    memset(&m, 0xee, sizeof(m));
    memcpy(&m, data, size < sizeof(m) ? size : sizeof(m));
    /* So that seeds stay seeds when struct gpu_sample grows. */
    if (m.header.type == GPU_MESSAGE_DEVICE && size < sizeof(m.device) &&
        size > offsetof(struct gpu_message_device, sample))
        size = sizeof(m.device);
    switch (gpu_message_check(&m, size)) {
    case GPU_MESSAGE_DEVICE:
        if (m.header.index >= GPU_CARDS_MAX || strlen(m.device.uuid) >= sizeof(m.device.uuid) ||
            strlen(m.device.error) >= sizeof(m.device.error) || m.device.kind >= GPU_KINDS ||
            strlen(m.device.parent) >= sizeof(m.device.parent))
            abort();
        break;
    case GPU_MESSAGE_PROCESSES:
        if (m.header.index >= GPU_CARDS_MAX || m.processes.count > GPU_PACKET_PROCESSES)
            abort();
        break;
    case GPU_MESSAGE_LIMIT:
        if (strlen(m.limit.uuid) >= sizeof(m.limit.uuid) ||
            strlen(m.limit.cgroup) >= sizeof(m.limit.cgroup))
            abort();
        break;
    default:
        break;
    }
    return 0;
}
