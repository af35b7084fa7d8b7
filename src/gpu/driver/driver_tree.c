/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/driver_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/step.h"
#include "base/text.h"
#include "gpu/driver/driver_tables.h"
#include "gpu/driver/edits.h"
#include "gpu/driver/ldcache.h"
#include "gpu/driver/root_path.h"
#include "model/driver_capability.h"

#define VERSION_MAX 32

struct search {
    const struct driver_tree *tree;
    uint8_t wanted;            /* capabilities; DRIVER_CAPABILITIES_ALL if the pod sets none */
    bool unknown;              /* files of unknown capabilities are included */
    char version[VERSION_MAX]; /* "535.261.03"; "": the files carry none */
    char dir[PATH_MAX];        /* where libcuda.so.1 is */
    struct gpu_edits *edits;
};

static bool wants(const struct search *s, uint8_t capabilities) {
    return (s->wanted & capabilities) != 0;
}

/* A file below the root, of which the first that takes a name in the container has it. */
static int add_mount(const struct search *s, const char *path, const char *container) {
    char host[PATH_MAX];
    int n = snprintf(host, sizeof(host), "%s%s", s->tree->host, path);

    if (n < 0 || (size_t) n >= sizeof(host))
        return -ENAMETOOLONG;
    for (size_t i = 0; i < s->edits->count; i++)
        if (strcmp(s->edits->list[i].container, container) == 0)
            return 0;
    return gpu_edits_add(s->edits, GPU_EDIT_MOUNT, host, container);
}

/* DIR/NAME when it is there: its path below the root, links resolved. */
static int resolve_in_dir(const struct driver_tree *t, const char *dir, const char *name,
                          char ret[static PATH_MAX]) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);

    return n < 0 || (size_t) n >= sizeof(path) ? -ENAMETOOLONG
                                               : root_path_resolve(t->root, path, ret, PATH_MAX);
}

/* The first of the directories that has it, or NULL. */
static const char *find_in_dirs(const struct driver_tree *t, const char *const *dirs,
                                const char *name, char ret[static PATH_MAX]) {
    for (; *dirs; dirs++) {
        step_end();
        if (resolve_in_dir(t, *dirs, name, ret) == 0)
            return *dirs;
    }
    return NULL;
}

/* The library's path by the cache of the linker of that root. */
static bool find_in_cache(const struct driver_tree *t, const char *name,
                          char ret[static PATH_MAX]) {
    _cleanup_buf_ struct buf cache = BUF_INIT(2 * LDCACHE_MAX);
    char path[PATH_MAX], file[2 * PATH_MAX];

    if (root_path_resolve(t->root, "/etc/ld.so.cache", path, sizeof(path)) < 0)
        return false;
    (void) snprintf(file, sizeof(file), "%s%s", t->root, path);
    return file_read(file, LDCACHE_MAX, &cache, NULL) == 0 &&
           ldcache_find(buf_str(&cache), cache.len, name, ret, PATH_MAX);
}

/* The directory that has the library; its own path, links resolved, goes to `ret`. */
static bool find_library(const struct driver_tree *t, const char *name,
                         char ret_dir[static PATH_MAX], char ret[static PATH_MAX]) {
    const char *dir = find_in_dirs(t, driver_library_dirs, name, ret);

    if (dir) {
        text_copy(ret_dir, PATH_MAX, dir);
        return true;
    }
    if (!find_in_cache(t, name, ret_dir) || ret_dir[0] != '/' ||
        root_path_resolve(t->root, ret_dir, ret, PATH_MAX) < 0)
        return false;
    *strrchr(ret_dir, '/') = 0;
    return true;
}

static int in_root(const struct driver_tree *t, const char *path, char *ret, size_t size) {
    int n;

    n = snprintf(ret, size, "%s%s", t->root, path);
    return n < 0 || (size_t) n >= size ? -ENAMETOOLONG : 0;
}

int driver_tree_library(const struct driver_tree *t, const char *name, char *ret, size_t size) {
    char path[PATH_MAX], dir[PATH_MAX];

    return find_library(t, name, dir, path) ? in_root(t, path, ret, size) : -ENOENT;
}

int driver_tree_program(const struct driver_tree *t, const char *name, char *ret, size_t size) {
    char path[PATH_MAX];

    return find_in_dirs(t, driver_program_dirs, name, path) ? in_root(t, path, ret, size) : -ENOENT;
}

/* ---- libraries ---- */

/* Under that name in the images' search path. Libraries for CUDA programs are also in the default
 * path of Red Hat's distributions, for images without a linker cache. */
static int give_library(const struct search *s, const char *path, const char *name,
                        uint8_t capabilities) {
    char container[256];
    int r;

    (void) snprintf(container, sizeof(container), "/usr/lib/" MULTIARCH "/%s", name);
    r = add_mount(s, path, container);
    if (r < 0 || !(capabilities & DRIVER_COMPUTE))
        return r;
    (void) snprintf(container, sizeof(container), "/usr/lib64/%s", name);
    return add_mount(s, path, container);
}

/* The shadow is no file of the driver's: its path is the host's. */
static int give_shadow(const struct search *s, const char *shadow, const char *soname,
                       const char *name) {
    struct driver_tree here = {.root = "", .host = ""};
    struct search own = {.tree = &here, .edits = s->edits};
    char path[PATH_MAX];

    (void) snprintf(path, sizeof(path), "%s/%s", shadow, soname);
    return give_library(&own, path, name, DRIVER_COMPUTE);
}

static int cannot_give(int r, struct err *err) {
    return err_set(err, -r,
                   r == -ENOSPC ? "the driver has too many files"
                                : "a file of the driver has too long a path");
}

/* libcuda and libnvidia-ml: "libcuda.so.1" and "libcuda.so" are the shadow where there is one, and
 * the driver's own is beside them. */
static int give_carrier(struct search *s, const struct driver_carrier *c, const char *shadow,
                        struct err *err) {
    const char *names[] = {c->soname, c->link};
    char path[PATH_MAX], dir[PATH_MAX];
    int r = 0;

    if (!find_library(s->tree, c->soname, dir, path))
        return err_set(err, ENOENT, "%s of the %s driver is not on this node", c->soname,
                       s->tree->name);
    if (shadow[0])
        r = give_library(s, path, c->behind, DRIVER_COMPUTE);
    for (size_t i = 0; i < 2 && r == 0; i++)
        r = shadow[0] ? give_shadow(s, shadow, c->soname, names[i])
                      : give_library(s, path, names[i], DRIVER_COMPUTE);
    return r < 0 ? cannot_give(r, err) : 0;
}

/* "/usr/lib/libcuda.so.535.261.03" -> "535.261.03" */
static void read_version(struct search *s) {
    static const char stem[] = "libcuda.so.";
    char path[PATH_MAX];
    const char *base;

    if (!find_library(s->tree, "libcuda.so.1", s->dir, path))
        return;
    base = strrchr(path, '/') + 1;
    if (strncmp(base, stem, strlen(stem)) == 0 && strchr(base + strlen(stem), '.') &&
        strlen(base + strlen(stem)) < sizeof(s->version))
        memcpy(s->version, base + strlen(stem), strlen(base + strlen(stem)) + 1);
}

static const struct driver_library *library_of(const char *stem, size_t len) {
    for (const struct driver_library *l = driver_libraries; l->stem; l++)
        if (strlen(l->stem) == len && memcmp(l->stem, stem, len) == 0)
            return l;
    return NULL;
}

static bool is_carrier(const char *stem, size_t len) {
    for (const struct driver_carrier *c = driver_carriers; c->soname; c++)
        if (strncmp(c->soname, stem, len) == 0 && strncmp(c->soname + len, ".so", 3) == 0)
            return true;
    return false;
}

/* Its other names are those that the driver's installation made beside it: the SONAME by all means,
 * which is what programs and other libraries ask for; without one its own name is that. */
static int give_names(const struct search *s, const char *dir, const char *file, size_t stem,
                      uint8_t capabilities) {
    static const char *const endings[] = {".so",   ".so.0", ".so.1", ".so.2",
                                          ".so.3", ".so.4", ".so.5", ".so.6"};
    char own[PATH_MAX], name[NAME_MAX + 1], path[PATH_MAX];
    bool soname = false;
    int r = resolve_in_dir(s->tree, dir, file, own);

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]) && r == 0; i++) {
        int n = snprintf(name, sizeof(name), "%.*s%s", (int) stem, file, endings[i]);

        if (n < 0 || (size_t) n >= sizeof(name) || resolve_in_dir(s->tree, dir, name, path) < 0 ||
            strcmp(path, own) != 0)
            continue;
        soname = soname || i > 0;
        r = give_library(s, own, name, capabilities);
    }
    return r < 0 || soname ? r : give_library(s, own, file, capabilities);
}

/* One entry of a directory: "libNAME.so.VERSION" of this driver, or something else. */
static int give_versioned(const struct search *s, const char *dir, const char *file) {
    const char *so = strstr(file, ".so.");
    size_t stem = so ? (size_t) (so - file) : 0;
    const struct driver_library *l = library_of(file, stem);
    char path[PATH_MAX];
    int r;

    if (strncmp(file, "lib", 3) != 0 || !so || strcmp(so + 4, s->version) != 0 ||
        is_carrier(file, stem) || !(l ? wants(s, l->capabilities) : s->unknown))
        return 0;
    r = give_names(s, dir, file, stem, l ? l->capabilities : 0);
    if (r == 0 && l && l->also && (r = resolve_in_dir(s->tree, dir, file, path)) == 0)
        r = give_library(s, path, l->also, l->capabilities);
    return r;
}

static int scan(const struct search *s, const char *dir) {
    _cleanup_closedir_ DIR *d = NULL;
    char full[2 * PATH_MAX];
    struct dirent *e;
    int r = 0;

    (void) snprintf(full, sizeof(full), "%s%s", s->tree->root, dir);
    d = opendir(full);
    while (d && r == 0 && (e = readdir(d)))
        r = give_versioned(s, dir, e->d_name);
    return r;
}

/* Several of the directories may be one. */
static int give_all_versioned(const struct search *s) {
    const char *dirs[DRIVER_LIBRARY_DIRS + 1];
    char seen[DRIVER_LIBRARY_DIRS + 1][PATH_MAX];
    size_t n = 0;
    int r = 0;

    memcpy(dirs, driver_library_dirs, sizeof(dirs) - sizeof(dirs[0]));
    dirs[DRIVER_LIBRARY_DIRS] = s->dir;
    for (size_t d = 0; d <= DRIVER_LIBRARY_DIRS && r == 0; d++) {
        bool again = root_path_resolve(s->tree->root, dirs[d], seen[n], PATH_MAX) < 0;

        for (size_t i = 0; i < n && !again; i++)
            again = strcmp(seen[i], seen[n]) == 0;
        if (!again)
            r = scan(s, seen[n++]);
    }
    return r;
}

/* ---- other files ---- */

static int give_configs(const struct search *s) {
    int r = 0;

    for (const struct driver_config *c = driver_configs; c->name && r == 0; c++) {
        char path[PATH_MAX], container[256];

        if (!wants(s, c->capabilities) || !find_in_dirs(s->tree, driver_config_dirs, c->name, path))
            continue;
        (void) snprintf(container, sizeof(container), "%s/%s", c->container, c->name);
        r = add_mount(s, path, container);
    }
    return r;
}

/* Whether images search that directory of programs; true for files that are none. */
static bool is_in_path(const char *const *dirs, const char *dir) {
    for (size_t i = DRIVER_PATH_DIRS; dirs == driver_program_dirs && dirs[i]; i++)
        if (strcmp(dirs[i], dir) == 0)
            return false;
    return true;
}

/* Files that are in the container where they are on the host, and in `also`. */
static int give_places(const struct search *s, const struct driver_place *places) {
    int r = 0;

    for (const struct driver_place *p = places; p->name && r == 0; p++) {
        char path[PATH_MAX], container[256];
        const char *dir;

        if (!wants(s, p->capabilities))
            continue;
        if (p->soname) {
            if (find_in_dirs(s->tree, p->dirs, p->name, path))
                r = give_library(s, path, p->name, p->capabilities);
            continue;
        }
        dir = find_in_dirs(s->tree, p->dirs, p->name, path);
        if (!dir)
            continue;
        if (!is_in_path(p->dirs, dir))
            dir = "/usr/bin";
        (void) snprintf(container, sizeof(container), "%s/%s", dir, p->name);
        r = add_mount(s, path, container);
        if (r == 0 && p->also)
            r = add_mount(s, path, p->also);
    }
    return r;
}

static bool is_firmware(const char *name) {
    size_t len = strlen(name);

    return len > 4 && strcmp(name + len - 4, ".bin") == 0 &&
           (strncmp(name, "gsp", 3) == 0 || strncmp(name, "ucodes", 6) == 0);
}

static int give_firmware_of(const struct search *s, const char *dir) {
    char below[PATH_MAX], full[2 * PATH_MAX], path[PATH_MAX], container[PATH_MAX + NAME_MAX + 2];
    _cleanup_closedir_ DIR *d = NULL;
    struct dirent *e;
    int r = 0;

    (void) snprintf(below, sizeof(below), "%s/nvidia/%s", dir, s->version);
    if (root_path_resolve(s->tree->root, below, path, sizeof(path)) < 0)
        return 0;
    (void) snprintf(full, sizeof(full), "%s%s", s->tree->root, path);
    d = opendir(full);
    while (d && r == 0 && (e = readdir(d))) {
        if (!is_firmware(e->d_name) || resolve_in_dir(s->tree, below, e->d_name, path) < 0)
            continue;
        (void) snprintf(container, sizeof(container), "%s/%s", below, e->d_name);
        r = add_mount(s, path, container);
    }
    return r;
}

/* The kernel's firmware search path: its parameter, then the defaults. */
static int give_firmware(const struct search *s) {
    _cleanup_buf_ struct buf custom = BUF_INIT(PATH_MAX);
    char with_release[2][256];
    const char *dirs[5];
    struct utsname kernel;
    size_t n = 0;
    int r = 0;

    if (!s->version[0] || uname(&kernel) < 0)
        return 0;
    if (file_read("/sys/module/firmware_class/parameters/path", PATH_MAX, &custom, NULL) == 0) {
        char *text = (char *) (uintptr_t) buf_str(&custom);

        text[strcspn(text, "\n")] = 0;
        if (text[0] == '/')
            dirs[n++] = text;
    }
    (void) snprintf(with_release[0], sizeof(with_release[0]), "/lib/firmware/updates/%s",
                    kernel.release);
    (void) snprintf(with_release[1], sizeof(with_release[1]), "/lib/firmware/%s", kernel.release);
    dirs[n++] = with_release[0];
    dirs[n++] = "/lib/firmware/updates";
    dirs[n++] = with_release[1];
    dirs[n++] = "/lib/firmware";
    for (size_t i = 0; i < n && r == 0; i++)
        r = give_firmware_of(s, dirs[i]);
    return r;
}

int driver_tree_edits(const struct driver_tree *t, uint8_t capabilities, const char *shadow,
                      struct gpu_edits *edits, struct err *err) {
    bool all = capabilities == DRIVER_CAPABILITIES_UNSAID;
    struct search s = {
        .tree = t,
        .wanted = all ? DRIVER_CAPABILITIES_ALL : capabilities,
        .unknown = all || capabilities == DRIVER_CAPABILITIES_ALL,
        .edits = edits,
    };
    int r = 0;

    for (const struct driver_carrier *c = driver_carriers; c->soname && r == 0; c++)
        r = give_carrier(&s, c, shadow, err);
    if (r < 0)
        return r;
    read_version(&s);
    if (s.version[0])
        r = give_all_versioned(&s);
    if (r == 0)
        r = give_places(&s, driver_places);
    if (r == 0)
        r = give_configs(&s);
    if (r == 0)
        r = give_firmware(&s);
    return r < 0 ? cannot_give(r, err) : 0;
}
