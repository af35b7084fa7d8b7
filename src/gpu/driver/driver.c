/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/driver.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "gpu/driver/driver_tree.h"

struct gpu_driver {
    const char *name;
    const char *control;      /* the file that exists if this driver is installed */
    const char *const *nodes; /* needed beside the card's own, where they exist */
    const char *device;       /* prefix of a card's own node */
    enum gpu_edit_kind node_kind;
    bool simulated; /* root is sim_dir, not the driver's root */
};

static const char *const nvidia_nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
                                           "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", NULL};

static const char *const simulated_nodes[] = {"/nvidiactl", NULL};

/* In this order: a running simulated driver takes precedence, also on a machine with a GPU. */
static const struct gpu_driver drivers[] = {
    {.name = "simulated",
     .control = "/nvidiactl",
     .nodes = simulated_nodes,
     .device = "/nvidia",
     .node_kind = GPU_EDIT_MOUNT_RW,
     .simulated = true},
    {.name = "nvidia",
     .control = "/dev/nvidiactl",
     .nodes = nvidia_nodes,
     .device = "/dev/nvidia",
     .node_kind = GPU_EDIT_NODE},
};

/* A node's path in the host's view; the agent sees it below host_root, except the simulated one. */
static void node_path(const struct gpu_driver *d, const struct gpu_driver_places *p,
                      const char *name, char *ret, size_t size) {
    (void) snprintf(ret, size, "%s%s", d->simulated ? p->sim_dir : "", name);
}

static bool is_here(const struct gpu_driver *d, const struct gpu_driver_places *p,
                    const char *host) {
    char path[512];

    (void) snprintf(path, sizeof(path), "%s%s", d->simulated ? "" : p->host_root, host);
    return access(path, F_OK) == 0;
}

/* Where the files of the driver are; `root` is kept in the caller's. */
static struct driver_tree tree_of(const struct gpu_driver *d, const struct gpu_driver_places *p,
                                  char root[static 512]) {
    (void) snprintf(root, 512, "%s%s", d->simulated ? p->sim_dir : p->host_root,
                    d->simulated ? "" : p->driver_root);
    return (struct driver_tree){
        .name = d->name, .root = root, .host = d->simulated ? p->sim_dir : p->driver_root};
}

const struct gpu_driver *gpu_driver_find(const struct gpu_driver_places *places,
                                         char ret_library[static 512]) {
    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
        const struct gpu_driver *d = &drivers[i];
        char control[256], root[512];
        struct driver_tree tree = tree_of(d, places, root);

        node_path(d, places, d->control, control, sizeof(control));
        if (is_here(d, places, control) &&
            driver_tree_library(&tree, "libnvidia-ml.so.1", ret_library, 512) == 0)
            return d;
    }
    return NULL;
}

const char *gpu_driver_name(const struct gpu_driver *driver) {
    return driver->name;
}

void gpu_driver_path(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                     const struct gpu_device *device, char ret[static 64]) {
    (void) snprintf(ret, 64, "%s%s%d", driver->simulated ? places->sim_dir : "", driver->device,
                    device->minor);
}

static int add_node(const struct gpu_driver *d, const struct gpu_driver_places *p, const char *path,
                    bool required, struct gpu_edits *edits, struct err *err) {
    int r;

    if (!is_here(d, p, path))
        return required ? err_set(err, ENOENT, "%s is not on this node", path) : 0;
    r = gpu_edits_add(edits, d->node_kind, path, path);
    return r < 0 ? err_set(err, -r, "too many device nodes") : 0;
}

static int add_nodes(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                     const struct gpu_device *const *devices, size_t ndevices,
                     struct gpu_edits *edits, struct err *err) {
    char path[256];
    int r = 0;

    for (const char *const *node = driver->nodes; *node && r == 0; node++) {
        node_path(driver, places, *node, path, sizeof(path));
        r = add_node(driver, places, path, node == driver->nodes, edits, err);
    }
    for (size_t i = 0; i < ndevices && r == 0; i++) {
        char node[64];

        gpu_driver_path(driver, places, devices[i], node);
        r = add_node(driver, places, node, true, edits, err);
    }
    return r;
}

int gpu_driver_edits(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                     const struct gpu_device *const *devices, size_t ndevices, uint8_t capabilities,
                     const char *shadow, struct gpu_edits *ret, struct err *err) {
    char root[512];
    struct driver_tree tree = tree_of(driver, places, root);
    int r;

    ret->count = 0;
    r = add_nodes(driver, places, devices, ndevices, ret, err);
    if (r == 0)
        r = driver_tree_edits(&tree, capabilities, shadow, ret, err);
    if (r < 0)
        ret->count = 0;
    return r;
}
