/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/cgroup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A path below the mount, without a way up and within its bounds. */
static void look_for_directory(const uint8_t *data, size_t size, const struct cgroup_id *id) {
    char text[4096], path[256];
    size_t len = size < sizeof(text) - 1 ? size : sizeof(text) - 1;

    memcpy(text, data, len);
    text[len] = 0;
    if (cgroup_path(text, id, path, sizeof(path)) == 0 &&
        (path[0] != '/' || strncmp(path, "/..", 3) == 0 || !strstr(path, id->container_id) ||
         strchr(path, '\n')))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cgroup_id id;

    if (cgroup_parse((const char *) data, size, &id) == 0)
        return 0;
    /* What is found can be compared and printed. */
    if ((strlen(id.pod_uid) != 36 && strlen(id.pod_uid) != 32) ||
        (strlen(id.container_id) != 64 && strlen(id.container_id) != 0))
        abort();
    look_for_directory(data, size, &id);
    return 0;
}
