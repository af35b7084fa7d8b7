/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/mps.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/shares/slot.h"
#include "base/buf.h"
#include "base/units.h"
#include "gpu/driver/driver.h"
#include "share/limits.h"

#define PIPE_IN_CONTAINER "/run/aliquot/mps"

static bool is_there(const char *host_root, const char *dir, const char *file) {
    char path[512];

    return (size_t) snprintf(path, sizeof(path), "%s%s/%s", host_root, dir, file) < sizeof(path) &&
           access(path, F_OK) == 0;
}

/* The part of the processors that a program may use at most. MPS cannot change it while the program
 * runs, so where idle time may be borrowed it is the ceiling of that; 0: all. */
static uint32_t percent_of(const struct slot_grant *g) {
    uint32_t core = 0;

    for (uint32_t i = 0; i < g->ndevices; i++)
        core = g->devices[i].core > core ? g->devices[i].core : core;
    if (core >= 100)
        return 0;
    if (g->terms.policy == SHARE_FIXED)
        return core;
    return g->terms.policy == SHARE_BURST ? g->terms.ceiling : 0;
}

/* Of the cards that the container has, by its own numbers: a program that names another card has no
 * limit at all. */
static int add_memory(const struct slot_grant *g, struct gpu_edits *edits) {
    _cleanup_buf_ struct buf text = BUF_INIT(256);

    buf_puts(&text, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=");
    for (uint32_t i = 0; i < g->ndevices; i++)
        buf_printf(&text, "%s%u=%lluM", i ? "," : "", i,
                   (unsigned long long) ((g->devices[i].physical + AUDIT_MEMORY_SLACK) / MIB));
    /* With very many cards it does not fit, and only the library's limit applies. */
    return buf_error(&text) < 0 ? 0 : gpu_edits_add(edits, GPU_EDIT_ENV, "", buf_str(&text));
}

int mps_edits(const char *dir, const char *host_root, const struct slot_grant *g,
              struct gpu_edits *edits) {
    uint32_t percent = percent_of(g);
    char path[256], text[64];
    int r;

    if (!dir[0] || g->ndevices == 0 || !is_there(host_root, dir, "pipe/control"))
        return 0;
    (void) snprintf(path, sizeof(path), "%s/pipe", dir);
    r = gpu_edits_add(edits, GPU_EDIT_MOUNT_RW, path, PIPE_IN_CONTAINER);
    if (r == 0)
        r = gpu_edits_add(edits, GPU_EDIT_ENV, "", "CUDA_MPS_PIPE_DIRECTORY=" PIPE_IN_CONTAINER);
    (void) snprintf(path, sizeof(path), "%s/shm", dir);
    if (r == 0 && is_there(host_root, dir, "shm"))
        r = gpu_edits_add(edits, GPU_EDIT_MOUNT_RW, path, "/dev/shm");
    (void) snprintf(text, sizeof(text), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%u", percent);
    if (r == 0 && percent > 0)
        r = gpu_edits_add(edits, GPU_EDIT_ENV, "", text);
    return r == 0 ? add_memory(g, edits) : r;
}
