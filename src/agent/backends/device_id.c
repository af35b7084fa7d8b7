/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/device_id.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/text.h"

#define SEPARATOR "::"

void device_id_put(const char *uuid, bool is_replica, uint32_t replica,
                   char ret[static BACKEND_ID_SIZE]) {
    if (is_replica)
        (void) snprintf(ret, BACKEND_ID_SIZE, "%s" SEPARATOR "%u", uuid, replica);
    else
        text_copy(ret, BACKEND_ID_SIZE, uuid);
}

void device_id_parse(const char *text, struct device_id *ret) {
    const char *at = strstr(text, SEPARATOR);
    size_t len = at ? (size_t) (at - text) : strlen(text);

    *ret = (struct device_id){.is_replica = at};
    if (at && num_parse_u64(at + strlen(SEPARATOR), UINT32_MAX, &ret->replica) < 0)
        ret->replica = UINT64_MAX;
    text_copy(ret->uuid, len < GPU_UUID_MAX ? len + 1 : GPU_UUID_MAX, text);
}

const struct gpu_device *device_id_find(const struct gpu_snapshot *s, const char *text) {
    struct device_id id;

    device_id_parse(text, &id);
    return gpu_find(s, id.uuid);
}
