/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/driver_links.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"

/* The link is replaced at once: a program may be using it. */
static int link_library(const char *from, const char *name, const char *to, struct err *err) {
    char target[PATH_MAX], path[PATH_MAX], new[PATH_MAX];

    if ((size_t) snprintf(target, sizeof(target), "%s/%s", from, name) >= sizeof(target) ||
        (size_t) snprintf(path, sizeof(path), "%s/%s", to, name) >= sizeof(path) ||
        (size_t) snprintf(new, sizeof(new), "%s/.new", to) >= sizeof(new))
        return 0;
    (void) unlink(new);
    if (symlink(target, new) < 0 || rename(new, path) < 0)
        return err_errno(err, errno, "cannot make the link %s", path);
    return 0;
}

static int link_all(const char *from, const char *to, struct err *err) {
    _cleanup_closedir_ DIR *dir = opendir(from);
    struct dirent *e;
    int r = dir ? 0 : err_errno(err, errno, "cannot read %s", from);

    while (r == 0 && (e = readdir(dir)))
        if (strncmp(e->d_name, "libcuda.so", strlen("libcuda.so")) == 0 ||
            strncmp(e->d_name, "libnvidia-", strlen("libnvidia-")) == 0)
            r = link_library(from, e->d_name, to, err);
    return r;
}

/* Links to libraries of another driver version. */
static void remove_dangling(const char *to) {
    _cleanup_closedir_ DIR *dir = opendir(to);
    struct dirent *e;

    while (dir && (e = readdir(dir)))
        if (e->d_name[0] != '.' && faccessat(dirfd(dir), e->d_name, F_OK, 0) < 0)
            (void) unlinkat(dirfd(dir), e->d_name, 0);
}

int gpu_driver_link_libraries(const char *nvml, const char *to, struct err *err) {
    char from[512];
    int r = dir_make(to, 0755, err);

    (void) snprintf(from, sizeof(from), "%.*s", (int) (strrchr(nvml, '/') - nvml), nvml);
    if (r == 0)
        r = link_all(from, to, err);
    remove_dangling(to);
    return r;
}
