/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Trees of files that stand for a node with a driver, and what a container gets of them. */

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "gpu/device.h"
#include "gpu/driver/driver.h"
#include "model/driver_capability.h"

static inline void touch(const char *dir, const char *name) {
    char path[256];
    char *slash;

    (void) snprintf(path, sizeof(path), "%s%s", dir, name);
    slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    *slash = '/';
    assert_int_equal(file_replace(path, "x", 1, 0644, NULL), 0);
}

static inline bool has_edit(const struct gpu_edits *e, enum gpu_edit_kind kind, const char *host,
                            const char *container) {
    for (size_t i = 0; i < e->count; i++)
        if (e->list[i].kind == kind && strcmp(e->list[i].host, host) == 0 &&
            strcmp(e->list[i].container, container) == 0)
            return true;
    return false;
}

static inline int edits_of(const struct gpu_driver *d, const struct gpu_driver_places *places,
                           const struct gpu_device *a, const struct gpu_device *b,
                           struct gpu_edits *ret, struct err *err) {
    const struct gpu_device *devices[] = {a, b};

    return gpu_driver_edits(d, places, devices, b ? 2 : 1, DRIVER_CAPABILITIES_UNSAID, "", ret,
                            err);
}
