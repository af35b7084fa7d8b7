/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/recommend.h"

#include <stdio.h>
#include <string.h>

struct seen *recommend_find(const struct recommend *r, const char *uid, const char *container,
                            const char *uuid) {
    char key[512];
    struct seen *found = NULL;

    (void) snprintf(key, sizeof(key), "%s/%s/%s", uid, container, uuid);
    HASH_FIND(hh, r->by_card, key, strlen(key), found);
    return found;
}
