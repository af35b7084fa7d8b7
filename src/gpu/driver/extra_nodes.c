/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/extra_nodes.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gpu/driver/driver.h"

static const struct row {
    unsigned int extra;
    const char *dir, *name;
    bool all; /* whatever begins with the name */
    enum gpu_edit_kind kind;
} rows[] = {
    {GPU_EXTRA_GDS, "/dev", "nvidia-fs", true, GPU_EDIT_NODE},
    {GPU_EXTRA_GDS, "/run", "udev", false, GPU_EDIT_MOUNT},
    {GPU_EXTRA_GDS, "/etc", "cufile.json", false, GPU_EDIT_MOUNT},
    {GPU_EXTRA_MOFED, "/dev/infiniband", "uverbs", true, GPU_EDIT_NODE},
    {GPU_EXTRA_MOFED, "/dev/infiniband", "rdma_cm", false, GPU_EDIT_NODE},
    {GPU_EXTRA_GDRCOPY, "/dev", "gdrdrv", false, GPU_EDIT_NODE},
    {GPU_EXTRA_IMEX, "/dev/nvidia-caps-imex-channels", "channel0", false, GPU_EDIT_NODE},
};

static bool is_of(const struct row *row, const char *name) {
    return row->all ? strncmp(name, row->name, strlen(row->name)) == 0
                    : strcmp(name, row->name) == 0;
}

static int add(const struct row *row, const char *root, const char *name, struct gpu_edits *edits) {
    char container[512], host[1024];

    (void) snprintf(container, sizeof(container), "%s/%s", row->dir, name);
    (void) snprintf(host, sizeof(host), "%.400s%s", root, container);
    return gpu_edits_add(edits, row->kind, host, container);
}

/* In the order of their names. Returns their number. */
static int add_all(const struct gpu_driver_places *places, const struct row *row, const char *root,
                   struct gpu_edits *edits) {
    char dir[512];
    struct dirent **list;
    int found = 0, r = 0, n;

    (void) snprintf(dir, sizeof(dir), "%s%s%s", places->host_root, root, row->dir);
    n = scandir(dir, &list, NULL, alphasort);
    if (n < 0)
        return 0;
    for (int i = 0; i < n; i++) {
        if (r == 0 && is_of(row, list[i]->d_name)) {
            r = add(row, root, list[i]->d_name, edits);
            found++;
        }
        free(list[i]);
    }
    free(list);
    return r < 0 ? r : found;
}

static int add_row(const struct gpu_driver_places *places, const struct row *row,
                   struct gpu_edits *edits) {
    int n = add_all(places, row, places->found_dev, edits);

    return n == 0 && places->found_dev[0] ? add_all(places, row, "", edits) : n;
}

/* The mounts of a row are of no use without its nodes, which come first. */
int gpu_extra_nodes(const struct gpu_driver_places *places, unsigned int extras,
                    struct gpu_edits *edits, struct err *err) {
    unsigned int found = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        int n = 0;

        if ((extras & row->extra) && (row->kind == GPU_EDIT_NODE || (found & row->extra)))
            n = add_row(places, row, edits);
        if (n < 0)
            return err_set(err, -n, "too many device nodes");
        found |= n > 0 ? row->extra : 0;
    }
    if ((extras & GPU_EXTRA_IMEX_REQUIRED) && !(found & GPU_EXTRA_IMEX))
        return err_set(
            err, ENOENT,
            "imex.required: /dev/nvidia-caps-imex-channels/channel0 is not on this node");
    return 0;
}
