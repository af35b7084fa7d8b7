/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/driver.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "gpu/driver/capabilities.h"
#include "gpu/driver/driver_tables.h"
#include "gpu/driver/driver_tree.h"
#include "gpu/driver/minor.h"

struct gpu_driver {
    const char *name;
    const char *control;      /* the file that exists if this driver is installed */
    const char *const *nodes; /* needed beside the card's own, where they exist */
    const char *device;       /* prefix of a card's own node */
    const char *capability;   /* prefix of a MIG instance's nodes */
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
     .capability = "/nvidia-caps/nvidia-cap",
     .node_kind = GPU_EDIT_MOUNT_RW,
     .simulated = true},
    {.name = "nvidia",
     .control = "/dev/nvidiactl",
     .nodes = nvidia_nodes,
     .device = "/dev/nvidia",
     .capability = "/dev/nvidia-caps/nvidia-cap",
     .node_kind = GPU_EDIT_NODE},
};

static const char *as_prefix(const char *root) {
    return strcmp(root, "/") == 0 ? "" : root;
}

static bool has_node_below(const struct gpu_driver_places *p, const char *dev_root,
                           const char *name) {
    char path[PATH_MAX];

    (void) snprintf(path, sizeof(path), "%s%s%s", p->host_root, dev_root, name);
    return access(path, F_OK) == 0;
}

static bool has_library(const struct gpu_driver_places *p, const char *driver_root) {
    char root[512], path[PATH_MAX];
    struct driver_tree tree = {.root = root};

    (void) snprintf(root, sizeof(root), "%s%s", p->host_root, driver_root);
    return driver_tree_library(&tree, "libnvidia-ml.so.1", path, sizeof(path)) == 0;
}

/* In the host's view; "" is its root. */
static const char *find_root(const struct gpu_driver *d, const struct gpu_driver_places *p) {
    if (d->simulated)
        return p->sim_dir;
    if (p->driver_root)
        return as_prefix(p->driver_root);
    for (const char *const *root = driver_roots; *root; root++)
        if (has_library(p, *root))
            return *root;
    return "";
}

static const char *find_dev(const struct gpu_driver *d, const struct gpu_driver_places *p) {
    if (d->simulated)
        return p->sim_dir;
    if (p->dev_root)
        return as_prefix(p->dev_root);
    if (has_node_below(p, "", d->control))
        return "";
    return has_node_below(p, p->found_root, d->control) ? p->found_root : "";
}

const char *gpu_driver_view(const struct gpu_driver *driver,
                            const struct gpu_driver_places *places) {
    return driver->simulated ? "" : places->host_root;
}

/* Where /proc of the host is, in the agent's view. */
static const char *proc_root(const struct gpu_driver *d, const struct gpu_driver_places *p) {
    return d->simulated ? p->sim_dir : p->host_root;
}

static bool is_here(const struct gpu_driver *d, const struct gpu_driver_places *p,
                    const char *host) {
    char path[512];

    (void) snprintf(path, sizeof(path), "%s%s", gpu_driver_view(d, p), host);
    return access(path, F_OK) == 0;
}

/* Where the files of the driver are; `root` is kept in the caller's. */
static struct driver_tree tree_of(const struct gpu_driver *d, const struct gpu_driver_places *p,
                                  char root[static 512]) {
    (void) snprintf(root, 512, "%s%s", gpu_driver_view(d, p), p->found_root);
    return (struct driver_tree){.name = d->name, .root = root, .host = p->found_root};
}

const struct gpu_driver *gpu_driver_find(struct gpu_driver_places *places,
                                         char ret_library[static 512]) {
    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
        const struct gpu_driver *d = &drivers[i];
        char control[256], root[512];
        struct driver_tree tree;

        places->found_root = find_root(d, places);
        places->found_dev = find_dev(d, places);
        tree = tree_of(d, places, root);
        (void) snprintf(control, sizeof(control), "%s%s", places->found_dev, d->control);
        if (is_here(d, places, control) &&
            driver_tree_library(&tree, "libnvidia-ml.so.1", ret_library, 512) == 0)
            return d;
    }
    return NULL;
}

int gpu_driver_program(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                       const char *name, char *ret, size_t size) {
    char root[512];
    struct driver_tree tree = tree_of(driver, places, root);

    return driver_tree_program(&tree, name, ret, size);
}

const char *gpu_driver_name(const struct gpu_driver *driver) {
    return driver->name;
}

void gpu_driver_path(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                     const struct gpu_device *device, char ret[static 64]) {
    (void) snprintf(ret, 64, "%s%s%d", places->found_dev, driver->device, device->minor);
}

static bool has_node(const struct gpu_edits *edits, const char *path) {
    for (size_t i = 0; i < edits->count; i++)
        if (strcmp(edits->list[i].host, path) == 0)
            return true;
    return false;
}

/* `name` ("/dev/nvidia0") is the node's path in the container. Several instances have one card, and
 * compute instances one GPU instance. */
static int add_node(const struct gpu_driver *d, const struct gpu_driver_places *p, const char *name,
                    bool required, struct gpu_edits *edits, struct err *err) {
    char host[256];
    int r;

    (void) snprintf(host, sizeof(host), "%s%s", p->found_dev, name);
    if (!is_here(d, p, host))
        return required ? err_set(err, ENOENT, "%s is not on this node", host) : 0;
    if (has_node(edits, host))
        return 0;
    r = gpu_edits_add(edits, d->node_kind, host, d->simulated ? host : name);
    return r < 0 ? err_set(err, -r, "too many device nodes") : 0;
}

static int add_capability(const struct gpu_driver *d, const struct gpu_driver_places *p,
                          uint32_t number, struct gpu_edits *edits, struct err *err) {
    char path[256];

    (void) snprintf(path, sizeof(path), "%s%u", d->capability, number);
    return add_node(d, p, path, true, edits, err);
}

/* The card's node alone gives access to none of its instances. */
static int add_instance(const struct gpu_driver *d, const struct gpu_driver_places *p,
                        const struct gpu_device *instance, struct gpu_edits *edits,
                        struct err *err) {
    const char *root = proc_root(d, p);
    const struct gpu_mig *mig = &instance->mig;
    uint32_t gi, ci;
    int r = capability_of_gpu_instance(root, instance->minor, mig->gi, &gi, err);

    if (r == 0)
        r = capability_of_compute_instance(root, instance->minor, mig->gi, mig->ci, &ci, err);
    if (r == 0)
        r = add_capability(d, p, gi, edits, err);
    return r == 0 ? add_capability(d, p, ci, edits, err) : r;
}

static int add_device(const struct gpu_driver *d, const struct gpu_driver_places *p,
                      const struct gpu_device *device, struct gpu_edits *edits, struct err *err) {
    char node[64];
    int r = minor_check(proc_root(d, p), device, err);

    (void) snprintf(node, sizeof(node), "%s%d", d->device, device->minor);
    if (r == 0)
        r = add_node(d, p, node, true, edits, err);
    return r == 0 && device->kind == GPU_MIG_INSTANCE ? add_instance(d, p, device, edits, err) : r;
}

static int add_nodes(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                     const struct gpu_device *const *devices, size_t ndevices,
                     struct gpu_edits *edits, struct err *err) {
    int r = 0;

    for (const char *const *node = driver->nodes; *node && r == 0; node++)
        r = add_node(driver, places, *node, node == driver->nodes, edits, err);
    for (size_t i = 0; i < ndevices && r == 0; i++)
        r = add_device(driver, places, devices[i], edits, err);
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
