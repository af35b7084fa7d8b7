/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/edits.h"

#include <errno.h>
#include <string.h>

int gpu_edits_add(struct gpu_edits *edits, enum gpu_edit_kind kind, const char *host,
                  const char *container) {
    struct gpu_edit *e;

    if (edits->count >= GPU_EDITS_MAX)
        return -ENOSPC;
    e = &edits->list[edits->count];
    if (strlen(host) >= sizeof(e->host) || strlen(container) >= sizeof(e->container))
        return -ENAMETOOLONG;
    e->kind = kind;
    memcpy(e->host, host, strlen(host) + 1);
    memcpy(e->container, container, strlen(container) + 1);
    edits->count++;
    return 0;
}
