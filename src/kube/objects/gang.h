/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A gang: pods of one namespace that are of use only together, by annotations or labels on each. */

#include <stdbool.h>
#include <stdint.h>

#include "wire/json.h"

#define GANG_SIZE_MAX 4096
#define GANG_TIMEOUT_S 60 /* without an annotation */
#define GANG_TIMEOUT_MAX_S 86400

struct pod_gang {
    char name[64];
    uint32_t size;      /* how many must run together; 0: the annotation is no number */
    uint32_t timeout_s; /* how long shares are kept for members that are not bound yet */
    uint32_t gated;     /* scheduling gates of the pod: while it has any, it is not bound */
};

/* Whether the object with that metadata is of a gang; `gated` is the caller's to fill. */
bool gang_read(struct json metadata, struct pod_gang *ret);

/* "90", "90s", "1m30s", "2h" as seconds; false for anything else, 0, and more than a day. */
bool gang_parse_seconds(const char *text, uint32_t *ret);
