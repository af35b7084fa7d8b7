/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clean_users.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "agent/os/procfs.h"
#include "agent/shares/cdi_guard.h"
#include "agent/shares/library_store.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"

#define MOUNTS_MAX ((size_t) 16 << 20)
#define SCAN_STEP 1024

static bool is_of_container(const char *path) {
    static const char *const places[] = {SHARE_IN_CONTAINER, CDI_GUARD_DIRECTORY,
                                         "/run/aliquot/mps"};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (strcmp(path, places[i]) == 0)
            return true;
    return false;
}

const char *mount_point_of(char *line) {
    for (int field = 1; line && field < 5; field++) {
        line = strchr(line, ' ');
        line += line != NULL;
    }
    if (line)
        line[strcspn(line, " ")] = '\0';
    return line;
}

static bool has_place(char *lines) {
    char *next;

    for (char *line = lines; line; line = next) {
        const char *point;

        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        point = mount_point_of(line);
        if (point && is_of_container(point))
            return true;
    }
    return false;
}

/* Of a process or thread: 1 if it has a place, 0 if it has none or has ended. -EINVAL: it is a
 * thread that has ended, of a process that may go on. */
static int look_at(const char *dir, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(MOUNTS_MAX);
    char path[288];
    int r;

    (void) snprintf(path, sizeof(path), "%s/mountinfo", dir);
    r = file_read(path, MOUNTS_MAX, &text, err);
    if (r == -ENOENT || r == -ESRCH)
        return 0;
    return r < 0 ? r : text.len > 0 && has_place(text.data);
}

/* The main thread has ended, so that the process itself shows no mounts. */
static int look_at_threads(const char *dir, struct err *err) {
    char tasks[256], path[272];
    _cleanup_closedir_ DIR *d = NULL;
    struct dirent *e;
    int r = 0;

    (void) snprintf(tasks, sizeof(tasks), "%s/task", dir);
    d = opendir(tasks);
    if (!d)
        return errno == ENOENT || errno == ESRCH ? 0
                                                 : err_errno(err, errno, "cannot read %s", tasks);
    while (r == 0 && (e = readdir(d))) {
        if (!isdigit((unsigned char) e->d_name[0]))
            continue;
        (void) snprintf(path, sizeof(path), "%s/%.10s", tasks, e->d_name);
        r = look_at(path, err);
        r = r == -EINVAL ? 0 : r;
    }
    return r;
}

bool clean_is_user(const char *proc, int pid, struct err *err) {
    char dir[224];
    int r;

    (void) snprintf(dir, sizeof(dir), "%s/%d", proc, pid);
    r = look_at(dir, err);
    if (r == -EINVAL)
        r = look_at_threads(dir, err);
    if (r > 0)
        (void) err_set(err, EBUSY, "process %d has files of a share", pid);
    return r != 0;
}

static void visit(int pid, void *userdata) {
    bool *used = userdata;
    struct err err;

    if (*used || !clean_is_user("/proc", pid, &err))
        return;
    log_info("%s", err.text);
    *used = true;
}

int clean_find_users(bool *ret, struct err *err) {
    struct procfs_walk walk = {0};
    bool used = false;
    int r;

    while ((r = procfs_walk_step(&walk, SCAN_STEP, visit, &used)) == 0)
        ;
    if (r < 0)
        return err_errno(err, -r, "cannot read /proc");
    *ret = used;
    return 0;
}
