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

#include "agent/clean_users.h"
#include "agent/config.h"
#include "agent/shares/cdi.h"
#include "agent/shares/library_store.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/health.h"
#include "base/log.h"
#include "model/dra.h"

#define MOUNTS_MAX ((size_t) 16 << 20)
#define AGAIN_S 1

static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    (void) number;
    stopped = 1;
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
        point = mount_point_of(line ? line + 1 : text.data);
        if (point && strncmp(point, dir, len) == 0 && point[len] == '/' &&
            umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT)
            return err_errno(err, errno, "cannot unmount %s", point);
    }
    return 0;
}

/* The first of several errors; it is still tried to remove the rest. */
static int keep_first(int first, int next, const struct err *why, struct err *ret) {
    if (first == 0 && next < 0)
        *ret = *why;
    return first < 0 ? first : next;
}

static int remove_file(const char *path, struct err *err) {
    if (unlink(path) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s", path);
    return 0;
}

static bool has_suffix(const char *text, const char *suffix) {
    size_t n = strlen(text), m = strlen(suffix);

    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* Of the DRA driver; the directory is made with the agent's pod, also where the driver is off. */
static int remove_driver(const char *kubelet_dir, struct err *err) {
    static const char *const files[] = {"plugins_registry/" DRA_DRIVER "-reg.sock",
                                        "plugins/" DRA_DRIVER "/dra.sock"};
    char path[512];
    struct err why;
    int r = 0;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void) snprintf(path, sizeof(path), "%s/%s", kubelet_dir, files[i]);
        r = keep_first(r, remove_file(path, &why), &why, err);
    }
    (void) snprintf(path, sizeof(path), "%s/plugins/" DRA_DRIVER, kubelet_dir);
    (void) rmdir(path);
    return r;
}

/* Of agents that were killed. */
static int remove_sockets(const char *kubelet_dir, struct err *err) {
    char path[512], socket[800];
    _cleanup_closedir_ DIR *dir = NULL;
    struct err why;
    struct dirent *e;
    int r = 0;

    (void) snprintf(path, sizeof(path), "%s/device-plugins", kubelet_dir);
    dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot read %s", path);
    while ((e = readdir(dir))) {
        if (strncmp(e->d_name, "aliquot-", 8) != 0 || !has_suffix(e->d_name, ".sock"))
            continue;
        (void) snprintf(socket, sizeof(socket), "%s/%s", path, e->d_name);
        r = keep_first(r, remove_file(socket, &why), &why, err);
    }
    return r;
}

/* Whether it may be removed with all that is in it. A directory that was given by mistake, such as
 * /var/lib, neither has our name nor records of shares. */
static int check_state_dir(const char *dir, struct err *err) {
    char path[512];
    unsigned parts = 0;
    const char *name = "";

    for (const char *at = dir; at[0] == '/'; at += strcspn(at, "/")) {
        at += strspn(at, "/");
        if (strcspn(at, "/") == 2 && strncmp(at, "..", 2) == 0)
            return err_set(err, EINVAL, "--state-dir %s: leave out ..", dir);
        if (at[0]) {
            parts++;
            name = at;
        }
    }
    (void) snprintf(path, sizeof(path), "%s/shares", dir);
    if (parts >= 2 && (strstr(name, "aliquot") || access(path, F_OK) == 0 || access(dir, F_OK) < 0))
        return 0;
    return err_set(err, EINVAL,
                   "--state-dir %s: not removed, it has no shares, so it seems to be of something "
                   "else; if it is of an agent, remove it by hand",
                   dir);
}

static int remove_state(const struct config *c, struct err *err) {
    char path[512];
    int r = check_state_dir(c->shares.state_dir, err);

    if (r == 0)
        r = unmount_below(c->shares.state_dir, err);
    if (r == 0)
        r = dir_remove(c->shares.state_dir, err);
    (void) rmdir(SHARE_IN_CONTAINER); /* see library_remove_mount_point */
    if (r < 0 || !c->shares.hook_dir[0])
        return r;
    (void) snprintf(path, sizeof(path), "%s/aliquot-hook", c->shares.hook_dir);
    r = remove_file(path, err);
    (void) rmdir(c->shares.hook_dir);
    return r;
}

/* A container that was about to start when its CDI file went has its mounts, or never gets them:
 * containers are looked at after that. */
static int remove_files(const struct config *c, struct err *err) {
    struct err why;
    bool used = true;
    int r = cdi_remove_all(c->shares.cdi_dir, err);

    (void) rmdir(c->shares.cdi_dir);
    (void) rmdir(c->sim_dir);
    r = keep_first(r, remove_sockets(c->kubelet_dir, &why), &why, err);
    r = keep_first(r, remove_driver(c->kubelet_dir, &why), &why, err);
    if (c->labels.place[0] == '/')
        r = keep_first(r, remove_file(c->labels.place, &why), &why, err);
    r = keep_first(r, clean_find_users(&used, &why), &why, err);
    if (!used)
        r = keep_first(r, remove_state(c, &why), &why, err);
    if (r == 0)
        log_info(used ? "%s stays: containers with shares run"
                      : "%s and all files of agents are gone",
                 c->shares.state_dir);
    return r;
}

/* ---- the process ---- */

/* Links such as /var/run lead where they do on the host, so that is this process's root. */
static bool clean_in_child(const struct config *c) {
    struct err err;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        const char *root = c->shares.host_root[0] ? c->shares.host_root : "/";
        int r = chroot(root) < 0 || chdir("/") < 0
                    ? err_errno(&err, errno, "cannot change to %s", root)
                    : remove_files(c, &err);

        if (r < 0)
            log_error("%s", err.text);
        _exit(r < 0);
    }
    if (pid < 0)
        log_error("cannot start a process: %s", strerror(errno));
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && status == 0;
}

int clean_main(const struct config *c) {
    const struct timespec pause = {.tv_sec = AGAIN_S};
    struct sigaction action = {.sa_handler = on_signal};
    bool done = false;

    (void) sigaction(SIGTERM, &action, NULL);
    (void) sigaction(SIGINT, &action, NULL);
    while (!stopped) {
        done = done || clean_in_child(c);
        if (c->health)
            (void) health_mark(c->health, HEALTH_READY, done);
        else if (done)
            break;
        (void) nanosleep(&pause, NULL);
    }
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
