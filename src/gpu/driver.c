/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

/* A file to put into containers: found in the first of the search directories that has it, and
 * mounted under the same name in every one of the library directories of images. */
struct driver_file {
    const char *name;
    bool required;
    const char *behind; /* its name when a shadow has taken the first; NULL: has none */
};

struct gpu_driver {
    const char *name;
    const char *control;             /* the file whose presence means that this driver is here */
    const char *const *search;       /* where its libraries are, below the driver's root */
    const struct driver_file *files; /* ends with a NULL name */
    const char *const *nodes;        /* needed beside the card's own, where they exist */
    const char *device;              /* prefix of a card's own node */
    enum gpu_edit_kind node_kind;
    bool simulated; /* root is sim_dir, not the driver's root */
};

static const char *const nvidia_search[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib",
                                            "/lib/x86_64-linux-gnu",     "/lib64",     NULL};
static const struct driver_file nvidia_files[] = {
    {"libcuda.so.1", true, "libcuda-driver.so.1"},
    {"libnvidia-ml.so.1", true, "libnvidia-ml-driver.so.1"},
    {"libnvidia-ptxjitcompiler.so.1", false, NULL},
    {"libnvidia-nvvm.so.4", false, NULL},
    {"libnvidia-opencl.so.1", false, NULL},
    {"libcudadebugger.so.1", false, NULL},
    {NULL, false, NULL},
};
static const char *const nvidia_nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
                                           "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", NULL};

static const char *const simulated_search[] = {"/lib", NULL};
static const struct driver_file simulated_files[] = {
    {"libcuda.so.1", true, "libcuda-driver.so.1"},
    {"libnvidia-ml.so.1", true, "libnvidia-ml-driver.so.1"},
    {NULL, false, NULL},
};
static const char *const simulated_nodes[] = {"/nvidiactl", NULL};

/* In this order: who starts the simulated driver wants it, also on a machine with a GPU. */
static const struct gpu_driver drivers[] = {
    {.name = "simulated",
     .control = "/nvidiactl",
     .search = simulated_search,
     .files = simulated_files,
     .nodes = simulated_nodes,
     .device = "/nvidia",
     .node_kind = GPU_EDIT_MOUNT_RW,
     .simulated = true},
    {.name = "nvidia",
     .control = "/dev/nvidiactl",
     .search = nvidia_search,
     .files = nvidia_files,
     .nodes = nvidia_nodes,
     .device = "/dev/nvidia",
     .node_kind = GPU_EDIT_NODE},
};

/* Where images look for libraries without a cache: Debian's family, Red Hat's family. */
static const char *const image_library_dirs[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64"};

/* The same file in the host's view; the agent sees it below host_root, except the simulated one. */
static void host_path(const struct gpu_driver *d, const struct gpu_driver_places *p, bool library,
                      const char *dir, const char *name, char *ret, size_t size) {
    const char *root = d->simulated ? p->sim_dir : library ? p->driver_root : "";

    (void) snprintf(ret, size, "%s%s%s%s", root, dir, dir[0] && name[0] ? "/" : "", name);
}

static bool is_here(const struct gpu_driver *d, const struct gpu_driver_places *p,
                    const char *host) {
    char path[512];

    (void) snprintf(path, sizeof(path), "%s%s", d->simulated ? "" : p->host_root, host);
    return access(path, F_OK) == 0;
}

static bool find_library(const struct gpu_driver *d, const struct gpu_driver_places *p,
                         const char *name, char *ret, size_t size) {
    for (const char *const *dir = d->search; *dir; dir++) {
        host_path(d, p, true, *dir, name, ret, size);
        if (is_here(d, p, ret))
            return true;
    }
    return false;
}

const struct gpu_driver *gpu_driver_find(const struct gpu_driver_places *places,
                                         char ret_library[static 512]) {
    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
        const struct gpu_driver *d = &drivers[i];
        char control[256], library[256];

        host_path(d, places, false, d->control, "", control, sizeof(control));
        if (!is_here(d, places, control) ||
            !find_library(d, places, "libnvidia-ml.so.1", library, sizeof(library)))
            continue;
        (void) snprintf(ret_library, 512, "%s%s", d->simulated ? "" : places->host_root, library);
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

/* The same file in every library directory that an image may have. */
static int add_library(const char *host, const char *name, struct gpu_edits *edits,
                       struct err *err) {
    for (size_t i = 0; i < sizeof(image_library_dirs) / sizeof(image_library_dirs[0]); i++) {
        char container[256];
        int r;

        (void) snprintf(container, sizeof(container), "%s/%s", image_library_dirs[i], name);
        r = gpu_edits_add(edits, GPU_EDIT_MOUNT, host, container);
        if (r < 0)
            return err_set(err, -r, "too many driver files");
    }
    return 0;
}

static int add_libraries(const struct gpu_driver *d, const struct gpu_driver_places *p,
                         const char *shadow, struct gpu_edits *edits, struct err *err) {
    for (const struct driver_file *f = d->files; f->name; f++) {
        bool shadowed = f->behind && shadow[0];
        char host[256], front[320];
        int r;

        if (!find_library(d, p, f->name, host, sizeof(host))) {
            if (f->required)
                return err_set(err, ENOENT, "%s of the %s driver is not on this node", f->name,
                               d->name);
            continue;
        }
        r = add_library(host, shadowed ? f->behind : f->name, edits, err);
        (void) snprintf(front, sizeof(front), "%s/%s", shadow, f->name);
        if (r == 0 && shadowed)
            r = add_library(front, f->name, edits, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_node(const struct gpu_driver *d, const struct gpu_driver_places *p, const char *path,
                    bool required, struct gpu_edits *edits, struct err *err) {
    int r;

    if (!is_here(d, p, path))
        return required ? err_set(err, ENOENT, "%s is not on this node", path) : 0;
    r = gpu_edits_add(edits, d->node_kind, path, path);
    return r < 0 ? err_set(err, -r, "too many device nodes") : 0;
}

static int collect(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                   const struct gpu_device *const *devices, size_t ndevices, const char *shadow,
                   struct gpu_edits *edits, struct err *err) {
    char path[256];
    int r = 0;

    for (const char *const *node = driver->nodes; *node && r == 0; node++) {
        host_path(driver, places, false, *node, "", path, sizeof(path));
        r = add_node(driver, places, path, node == driver->nodes, edits, err);
    }
    for (size_t i = 0; i < ndevices && r == 0; i++) {
        char node[64];

        gpu_driver_path(driver, places, devices[i], node);
        r = add_node(driver, places, node, true, edits, err);
    }
    return r == 0 ? add_libraries(driver, places, shadow, edits, err) : r;
}

int gpu_driver_edits(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                     const struct gpu_device *const *devices, size_t ndevices, const char *shadow,
                     struct gpu_edits *ret, struct err *err) {
    int r;

    ret->count = 0;
    r = collect(driver, places, devices, ndevices, shadow, ret, err);
    if (r < 0)
        ret->count = 0;
    return r;
}
