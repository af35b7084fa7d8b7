/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/extra_nodes.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* A file or link in the place of a node would keep the container from its start. */
static bool is_there(const struct row *row, const char *dir, const char *name) {
    char path[1024];
    struct stat st;

    (void) snprintf(path, sizeof(path), "%s/%s", dir, name);
    return row->kind == GPU_EDIT_MOUNT || (lstat(path, &st) == 0 && S_ISCHR(st.st_mode));
}

/* In the order of their names. `view` is where the agent sees the host's root. Returns their
 * number. */
static int add_all(const char *view, const struct row *row, const char *root,
                   struct gpu_edits *edits) {
    char dir[512];
    struct dirent **list;
    int found = 0, r = 0, n;

    (void) snprintf(dir, sizeof(dir), "%s%s%s", view, root, row->dir);
    n = scandir(dir, &list, NULL, alphasort);
    if (n < 0)
        return 0;
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;

        if (r == 0 && is_of(row, name) && is_there(row, dir, name)) {
            r = add(row, root, name, edits);
            found++;
        }
        free(list[i]);
    }
    free(list);
    return r < 0 ? r : found;
}

/* What is mounted is the host's own: a driver in a container has directories of these names, too.
 */
static int add_row(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                   const struct row *row, struct gpu_edits *edits) {
    int n = 0;

    if (row->kind == GPU_EDIT_NODE && places->found_dev[0])
        n = add_all(gpu_driver_view(driver, places), row, places->found_dev, edits);
    return n == 0 ? add_all(places->host_root, row, "", edits) : n;
}

/* The mounts of a row are of no use without its nodes, which come first. */
int gpu_extra_nodes(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                    unsigned int extras, struct gpu_edits *edits, struct err *err) {
    unsigned int found = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        int n = 0;

        if ((extras & row->extra) && (row->kind == GPU_EDIT_NODE || (found & row->extra)))
            n = add_row(driver, places, row, edits);
        if (n < 0)
            return err_set(err, -n, "too many device nodes");
        found |= n > 0 ? row->extra : 0;
    }
    if ((extras & GPU_EXTRA_IMEX_REQUIRED) && !(found & GPU_EXTRA_IMEX))
        return err_set(
            err, ENXIO,
            "imex.required: /dev/nvidia-caps-imex-channels/channel0 is not on this node");
    return 0;
}
