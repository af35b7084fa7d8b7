/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clean.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/config.h"
#include "agent/os/procfs.h"
#include "agent/shares/cdi.h"
#include "agent/shares/cdi_guard.h"
#include "agent/shares/library_store.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/health.h"
#include "base/log.h"

#define MOUNTS_MAX ((size_t) 16 << 20)
#define SCAN_STEP 1024
#define AGAIN_S 1

static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    (void) number;
    stopped = 1;
}

/* ---- what containers use ---- */

/* The mount point of a line of mountinfo, in place; NULL: it is none. */
static const char *mount_point(char *line) {
    for (int field = 1; line && field < 5; field++) {
        line = strchr(line, ' ');
        line += line != NULL;
    }
    if (line)
        line[strcspn(line, " ")] = '\0';
    return line;
}

/* Where containers with a share, or with whole devices, have something of the state directory. */
static bool is_of_container(const char *path) {
    static const char *const places[] = {SHARE_IN_CONTAINER, CDI_GUARD_DIRECTORY,
                                         "/run/aliquot/mps"};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (strcmp(path, places[i]) == 0)
            return true;
    return false;
}

static void look_at(int pid, void *userdata) {
    _cleanup_buf_ struct buf text = BUF_INIT(MOUNTS_MAX);
    bool *used = userdata;
    char path[64], *next, *line;

    (void) snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
    if (*used || file_read(path, MOUNTS_MAX, &text, NULL) < 0 || text.len == 0)
        return; /* it has ended */
    (void) buf_str(&text);
    for (line = text.data; line && !*used; line = next) {
        const char *point;

        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        point = mount_point(line);
        *used = point && is_of_container(point);
    }
}

static int find_users(bool *ret, struct err *err) {
    struct procfs_walk walk = {0};
    bool used = false;
    int r;

    while ((r = procfs_walk_step(&walk, SCAN_STEP, look_at, &used)) == 0)
        ;
    if (r < 0)
        return err_errno(err, -r, "cannot read /proc");
    *ret = used;
    return 0;
}

/* ---- files; `/` is the host's ---- */

static int unmount_below(const char *dir, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(MOUNTS_MAX);
    size_t len = strlen(dir);
    char *line;
    int r = file_read("/proc/self/mountinfo", MOUNTS_MAX, &text, err);

    if (r < 0)
        return r;
    (void) buf_str(&text);
    /* Backwards: a later mount may lie on an earlier one. */
    while (text.len > 0 && (line = memrchr(text.data, '\n', text.len))) {
        const char *point;

        *line = '\0';
        text.len = (size_t) (line - text.data);
        line = memrchr(text.data, '\n', text.len);
        point = mount_point(line ? line + 1 : text.data);
        if (point && strncmp(point, dir, len) == 0 && point[len] == '/' &&
            umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT)
            return err_errno(err, errno, "cannot unmount %s", point);
    }
    return 0;
}

static void remove_cdi_file(const char *nonce, void *userdata) {
    const struct config *c = userdata;
    struct err err;

    if (cdi_remove(c->shares.cdi_dir, nonce, &err) < 0)
        log_warn("%s", err.text);
}

/* Of agents that were killed. */
static void remove_sockets(const char *kubelet_dir) {
    char path[512];
    _cleanup_closedir_ DIR *dir = NULL;
    struct dirent *e;

    (void) snprintf(path, sizeof(path), "%s/device-plugins", kubelet_dir);
    dir = opendir(path);
    while (dir && (e = readdir(dir)))
        if (strncmp(e->d_name, "aliquot-", 8) == 0 && strstr(e->d_name, ".sock"))
            (void) unlinkat(dirfd(dir), e->d_name, 0);
}

static int remove_state(const struct config *c, struct err *err) {
    char path[512];
    int r = unmount_below(c->shares.state_dir, err);

    if (r == 0)
        r = dir_remove(c->shares.state_dir, err);
    if (r < 0 || !c->shares.hook_dir[0])
        return r;
    (void) snprintf(path, sizeof(path), "%s/aliquot-hook", c->shares.hook_dir);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s", path);
    (void) rmdir(c->shares.hook_dir);
    (void) rmdir(SHARE_IN_CONTAINER); /* see library_remove_mount_point */
    return 0;
}

static int remove_files(struct config *c, bool used, struct err *err) {
    int r = cdi_each(c->shares.cdi_dir, remove_cdi_file, c, err);

    if (r == 0)
        r = cdi_remove_guard(c->shares.cdi_dir, err);
    (void) rmdir(c->shares.cdi_dir);
    (void) rmdir(c->sim_dir);
    remove_sockets(c->kubelet_dir);
    if (c->labels.place[0] == '/')
        (void) unlink(c->labels.place);
    return r == 0 && !used ? remove_state(c, err) : r;
}

/* ---- the process ---- */

/* Links such as /var/run lead where they do on the host, so that is this process's root. */
static int clean_in_child(const struct config *c, bool used) {
    struct config copy = *c;
    struct err err;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        const char *root = c->shares.host_root[0] ? c->shares.host_root : "/";
        int r = chroot(root) < 0 || chdir("/") < 0
                    ? err_errno(&err, errno, "cannot change to %s", root)
                    : remove_files(&copy, used, &err);

        if (r < 0)
            log_error("%s", err.text);
        _exit(r < 0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && status == 0 ? 0 : -EIO;
}

static bool clean_node(const struct config *c) {
    bool used = false;
    struct err err;

    if (find_users(&used, &err) < 0) {
        log_error("%s", err.text);
        return false;
    }
    if (clean_in_child(c, used) < 0)
        return false;
    log_info(used ? "%s stays: containers with shares run" : "%s and all files of agents are gone",
             c->shares.state_dir);
    return true;
}

int clean_main(const struct config *c) {
    const struct timespec pause = {.tv_sec = AGAIN_S};
    struct sigaction action = {.sa_handler = on_signal};
    bool done = false;

    (void) sigaction(SIGTERM, &action, NULL);
    (void) sigaction(SIGINT, &action, NULL);
    while (!stopped) {
        done = done || clean_node(c);
        if (c->health)
            (void) health_mark(c->health, HEALTH_READY, done);
        else if (done)
            break;
        (void) nanosleep(&pause, NULL);
    }
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
