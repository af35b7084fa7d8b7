/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/owner.h"

#include <stdio.h>
#include <string.h>

static struct json controller_of(struct json metadata) {
    struct json_iter it = json_iter(json_get(metadata, "ownerReferences"));
    struct json one;

    while (json_next(&it, NULL, &one)) {
        bool controls = false;
        (void) json_bool(json_get(one, "controller"), &controls);
        if (controls)
            return one;
    }
    return (struct json){0};
}

/* The length of the Deployment's name in that of its ReplicaSet; 0: there is none. */
static size_t deployment_len(struct json metadata, const char *name) {
    const char *hash = json_string_or(JSON_PATH(metadata, "labels", "pod-template-hash"), "");
    size_t len = strlen(name), tail = strlen(hash);

    if (tail == 0 || len <= tail + 1 || name[len - tail - 1] != '-' ||
        strcmp(name + len - tail, hash) != 0)
        return 0;
    return len - tail - 1;
}

const char *owner_of(struct json pod, char ret[static OWNER_SIZE]) {
    struct json metadata = json_get(pod, "metadata"), owner = controller_of(metadata);
    const char *kind = json_string_or(json_get(owner, "kind"), "Pod");
    const char *own = json_string_or(json_get(metadata, "name"), "");
    const char *name = json_string_or(json_get(owner, "name"), own);
    size_t len = strcmp(kind, "ReplicaSet") == 0 ? deployment_len(metadata, name) : 0;

    if (len > 0)
        (void) snprintf(ret, OWNER_SIZE, "Deployment/%.*s", (int) len, name);
    else
        (void) snprintf(ret, OWNER_SIZE, "%s/%s", kind, name);
    return ret;
}
