/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/cdi_guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/shares/cdi.h"
#include "base/err.h"
#include "base/file.h"
#include "gpu/driver/edits.h"

static int write_device(const struct cdi_guard *guard, const char *cdi_dir, struct err *err) {
    struct gpu_edits *edits = calloc(1, sizeof(*edits)); /* too large for the stack */
    int r = edits ? cdi_guard_edits(guard, edits) : -ENOMEM;

    r = r < 0 ? err_set(err, -r, "out of memory") : cdi_write_guard(cdi_dir, edits, err);
    free(edits);
    return r;
}

int cdi_guard_keep(const struct cdi_guard *guard, const char *cdi_dir, struct err *err) {
    return guard->dir[0] && !cdi_has_guard(cdi_dir) ? write_device(guard, cdi_dir, err) : 0;
}

int cdi_guard_install(const char *state_dir, const char *cdi_dir, struct cdi_guard *ret,
                      struct err *err) {
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
        r = write_device(&g, cdi_dir, err);
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
