/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cgroup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cgroup_id id;

    if (cgroup_parse((const char *) data, size, &id) == 0)
        return 0;
    /* What is found can be compared and printed. */
    if ((strlen(id.pod_uid) != 36 && strlen(id.pod_uid) != 32) ||
        (strlen(id.container_id) != 64 && strlen(id.container_id) != 0))
        abort();
    return 0;
}
