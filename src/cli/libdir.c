/* SPDX-License-Identifier: Apache-2.0 */

#include "cli/libdir.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

/* The directory of the running program. */
static int program_dir(char *ret, size_t size, struct err *err) {
    ssize_t n = readlink("/proc/self/exe", ret, size - 1);
    if (n < 0)
        return err_errno(err, errno, "cannot find where this program is");
    ret[n] = '\0';
    char *slash = strrchr(ret, '/');
    if (slash)
        *slash = '\0';
    return 0;
}

int libdir_find(const char *part, const char *file, char *ret, size_t size, struct err *err) {
    char dir[PATH_MAX];
    int r = program_dir(dir, sizeof(dir), err);
    if (r < 0)
        return r;
    const char *chosen = getenv("ALIQUOT_LIBDIR");
    /* Installed, only the simulated driver has a directory of its own. */
    const char *installed = strcmp(part, "sim") == 0 ? "/sim" : "";
    const struct {
        const char *base, *below, *part;
    } places[] = {
        {chosen, installed, ""},
        {chosen, "", ""},
        {dir, "/../lib/aliquot", installed},
        {dir, "/../", part},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[PATH_MAX + 64];
        if (!places[i].base || !*places[i].base)
            continue;
        (void) snprintf(path, sizeof(path), "%s%s%s/%s", places[i].base, places[i].below,
                        places[i].part, file);
        _cleanup_free_ char *real = realpath(path, NULL);
        if (!real)
            continue;
        if (strlen(real) >= size)
            return err_set(err, ENAMETOOLONG, "the path of %s is too long", file);
        memcpy(ret, real, strlen(real) + 1);
        return 0;
    }
    return err_set(err, ENOENT,
                   "cannot find %s: looked in $ALIQUOT_LIBDIR, %s/../lib/aliquot%s and %s/../%s",
                   file, dir, installed, dir, part);
}
