/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/shares/library_store.h"
#include "agent/shares/slot.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"

#define NOTE "library"

static const char *name_of(const struct library *l) {
    const char *slash = strrchr(l->dir, '/');

    return slash ? slash + 1 : l->dir;
}

int library_note(const struct library *l, const char *share, struct err *err) {
    const char *name = name_of(l);
    char path[400];

    (void) snprintf(path, sizeof(path), "%s/" NOTE, share);
    return file_replace(path, name, strlen(name), 0600, err);
}

/* Appends " NAME" of the library that each share uses. False when that is not known of one: it is
 * of an agent that made no notes, or its note cannot be read now. */
static bool list_used(const struct slot_store *slots, struct buf *used) {
    for (const struct slot *slot = slots->slots; slot; slot = slot->hh.next) {
        char path[384];
        int r;

        if (slot->grant.ndevices == 0 && !slot->grant.newer)
            continue;
        slot_path(slots, slot->nonce, NOTE, path);
        buf_putc(used, ' ');
        r = file_read(path, LIBRARY_NAME_LEN, used, NULL);
        if (r < 0 && (r != -ENOENT || slot->grant.ndevices > 0))
            return false;
    }
    return buf_error(used) == 0;
}

static bool is_library(const char *name) {
    return strlen(name) == LIBRARY_NAME_LEN && strspn(name, "0123456789abcdef") == LIBRARY_NAME_LEN;
}

void library_clean(const struct library *current, const char *state_dir,
                   const struct slot_store *slots) {
    _cleanup_buf_ struct buf used = BUF_INIT(1 << 20);
    char path[384];
    struct dirent *e;
    struct err err;
    DIR *dir;

    if (!list_used(slots, &used))
        return;
    (void) snprintf(path, sizeof(path), "%s/lib", state_dir);
    dir = opendir(path);
    while (dir && (e = readdir(dir))) {
        if (!is_library(e->d_name) || strcmp(e->d_name, name_of(current)) == 0 ||
            strstr(buf_str(&used), e->d_name))
            continue;
        (void) snprintf(path, sizeof(path), "%s/lib/%.16s", state_dir, e->d_name);
        if (dir_remove(path, &err) < 0)
            log_warn("%s, of an earlier agent, cannot be removed: %s", path, err.text);
        else
            log_info("removed %s, of an earlier agent: no container uses it", path);
    }
    if (dir)
        (void) closedir(dir);
}
