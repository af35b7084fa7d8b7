/* SPDX-License-Identifier: Apache-2.0 */

#include "cli/sim/machines.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

#define SUFFIX ".machine"
#define FILE_BYTES_MAX ((size_t) 256 << 10)

/* Beside an installed program, or in the tree that it was built in. */
static const char *const places[] = {"../share/aliquot/machines", "../sim"};

static int place_path(size_t place, char *ret, size_t size) {
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (n < 0)
        return -errno;
    program[n] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash)
        return -ENOENT;
    *slash = '\0';
    return snprintf(ret, size, "%s/%s", program, places[place]) < (int) size ? 0 : -ENAMETOOLONG;
}

static int is_machine(const struct dirent *e) {
    size_t n = strlen(e->d_name), suffix = strlen(SUFFIX);
    return n > suffix && strcmp(e->d_name + n - suffix, SUFFIX) == 0;
}

void machines_list(struct buf *out) {
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char dir[PATH_MAX * 2];
        struct dirent **list = NULL;
        int n =
            place_path(i, dir, sizeof(dir)) < 0 ? -1 : scandir(dir, &list, is_machine, alphasort);
        for (int k = 0; k < n; k++) {
            buf_printf(out, "%s%.*s", k > 0 ? " " : "",
                       (int) (strlen(list[k]->d_name) - strlen(SUFFIX)), list[k]->d_name);
            free(list[k]);
        }
        free(list);
        if (n > 0)
            return;
    }
}

int machines_load(const char *name, struct sim_config *ret, struct err *err) {
    char path[PATH_MAX * 2 + 300];
    (void) snprintf(path, sizeof(path), "%s", name);
    for (size_t i = 0; !strchr(name, '/') && access(path, F_OK) < 0; i++) {
        char dir[PATH_MAX * 2];
        if (i == sizeof(places) / sizeof(places[0])) {
            _cleanup_buf_ struct buf known = BUF_INIT(0);
            machines_list(&known);
            return err_set(err, ENOENT, "no file and no machine '%s'; there are: %s", name,
                           buf_str(&known));
        }
        if (place_path(i, dir, sizeof(dir)) == 0)
            (void) snprintf(path, sizeof(path), "%s/%.255s" SUFFIX, dir, name);
    }
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r = file_read(path, FILE_BYTES_MAX, &text, err);
    return r < 0 ? r : config_parse(name, buf_str(&text), text.len, ret, err);
}
