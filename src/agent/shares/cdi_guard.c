/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/cdi_guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "gpu/driver/edits.h"

int cdi_guard_install(const char *state_dir, struct cdi_guard *ret, struct err *err) {
    const char *name = strrchr(CDI_GUARD_BELOW, '/');
    struct cdi_guard g;
    char below[352];
    int r;

    if (snprintf(g.dir, sizeof(g.dir), "%s/guard/mem", state_dir) >= (int) sizeof(g.dir))
        return err_set(err, ENAMETOOLONG, "the state directory's path is too long");
    (void) snprintf(g.file, sizeof(g.file), "%s/guard/" CDI_GUARD_NAME, state_dir);
    (void) snprintf(below, sizeof(below), "%s%s", g.dir, name);
    r = dir_make(g.dir, 0755, err);
    if (r == 0)
        r = file_replace(g.file, "", 0, 0444, err);
    if (r == 0)
        r = file_replace(below, "", 0, 0444, err);
    if (r == 0)
        *ret = g;
    return r;
}

int cdi_guard_edits(const struct cdi_guard *guard, struct gpu_edits *edits) {
    return guard->dir[0] ? gpu_edits_add(edits, GPU_EDIT_MOUNT, guard->dir, CDI_GUARD_DIRECTORY)
                         : 0;
}

bool cdi_guard_refused(const char *message) {
    return strstr(message, "/" CDI_GUARD_NAME) != NULL;
}
