/* SPDX-License-Identifier: Apache-2.0 */

#include "cli/sim/host_view.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

static int write_map(const char *path, const char *text, struct err *err) {
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t) strlen(text))
        return err_errno(err, errno, "cannot write %s", path);
    return 0;
}

/* A user namespace in which the process keeps its user and group. */
static int unshare_as_user(struct err *err) {
    char users[32], groups[32];
    (void) snprintf(users, sizeof(users), "%u %u 1\n", geteuid(), geteuid());
    (void) snprintf(groups, sizeof(groups), "%u %u 1\n", getegid(), getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return err_errno(
            err, errno, "--host-view needs root or user namespaces: cannot make a mount namespace");
    int r = write_map("/proc/self/setgroups", "deny", err);
    if (r == 0)
        r = write_map("/proc/self/uid_map", users, err);
    return r < 0 ? r : write_map("/proc/self/gid_map", groups, err);
}

static int bind(const char *dir, const char *path, struct err *err) {
    char from[PATH_MAX];
    (void) snprintf(from, sizeof(from), "%s%s", dir, path);
    if (mount(from, path, NULL, MS_BIND, NULL) < 0)
        return err_errno(err, errno, "cannot mount %s at %s", from, path);
    return 0;
}

static int link_name(const char *view, const char *name, const char *to, struct err *err) {
    char path[PATH_MAX], target[PATH_MAX];
    (void) snprintf(path, sizeof(path), "%s/%s", view, name);
    (void) snprintf(target, sizeof(target), "%s/%s", to, name);
    return symlink(target, path) < 0 ? err_errno(err, errno, "cannot link %s", path) : 0;
}

/* What /proc has, as links into `host`, and our own names. */
static int link_proc(const char *dir, const char *view, struct err *err) {
    char own[PATH_MAX];
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    if (!proc)
        return err_errno(err, errno, "cannot read /proc");
    int r = 0;
    for (const struct dirent *e; r == 0 && (e = readdir(proc));)
        if (e->d_name[0] != '.' && strcmp(e->d_name, "driver") != 0)
            r = link_name(view, e->d_name, "host", err);
    (void) snprintf(own, sizeof(own), "%s/proc", dir);
    if (r == 0)
        r = link_name(view, "driver", own, err);
    return r < 0 ? r : link_name(view, "modules", own, err);
}

/* Nothing can be mounted at a name that /proc has not, and nothing else makes one there. */
static int replace_proc(const char *dir, struct err *err) {
    char view[PATH_MAX], host[PATH_MAX + 8];
    (void) snprintf(view, sizeof(view), "%s/proc-view", dir);
    (void) snprintf(host, sizeof(host), "%s/host", view);
    int r = dir_make(view, 0755, err);
    if (r == 0 && mount("proc-view", view, "tmpfs", 0, "mode=0755") < 0)
        r = err_errno(err, errno, "cannot mount a tmpfs at %s", view);
    if (r == 0)
        r = dir_make(host, 0755, err);
    if (r == 0 && mount("/proc", host, NULL, MS_BIND | MS_REC, NULL) < 0)
        r = err_errno(err, errno, "cannot mount /proc at %s", host);
    if (r == 0)
        r = link_proc(dir, view, err);
    if (r == 0 && mount(view, "/proc", NULL, MS_MOVE, NULL) < 0)
        r = err_errno(err, errno, "cannot mount %s at /proc", view);
    return r;
}

int host_view_enter(const char *dir, struct err *err) {
    int r = unshare(CLONE_NEWNS) < 0 ? unshare_as_user(err) : 0;
    if (r == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        r = err_errno(err, errno, "cannot make the mounts private");
    if (r == 0)
        r = bind(dir, "/sys/bus/pci", err);
    if (r < 0)
        return r;
    if (access("/proc/modules", F_OK) < 0)
        return replace_proc(dir, err);
    r = bind(dir, "/proc/modules", err);
    return r < 0 ? r : bind(dir, "/proc/driver", err);
}
