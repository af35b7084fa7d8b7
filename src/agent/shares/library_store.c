/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/library_store.h"

#include <elf.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/os/selinux.h"
#include "agent/shares/share_dir.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "gpu/driver/driver.h"

/* The files of a share, which are mounted over empty files of these names in the library's
 * directory. */
static const struct {
    const char *name;
    enum gpu_edit_kind kind;
} share_files[] = {
    {"limits", GPU_EDIT_MOUNT},
    {"ledger", GPU_EDIT_MOUNT_RW},
    {"grants", GPU_EDIT_MOUNT},
    {"compute", GPU_EDIT_MOUNT_RW},
};

#define SHARE_FILES (sizeof(share_files) / sizeof(share_files[0]))

#define LIBRARY_MAX ((size_t) 8 << 20)

/* In containers under these names; beside the library "libcuda.so.1" is "libshadow-cuda.so.1". */
#define SHADOWS 2
static const char *const shadows[SHADOWS] = {"libcuda.so.1", "libnvidia-ml.so.1"};

static int write_once(const char *dir, const char *name, const void *data, size_t len, mode_t mode,
                      struct err *err) {
    char path[384];

    (void) snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0 ? 0 : file_replace(path, data, len, mode, err);
}

/* The files that are installed, one after the other in one buffer. */
struct files {
    struct buf content;
    size_t end[1 + SHADOWS]; /* the library, the shadows */
};

static void files_done(struct files *files) {
    buf_done(&files->content);
}

static int read_one(const char *path, struct files *files, size_t i, struct err *err) {
    size_t start = files->content.len;
    int r = file_read(path, LIBRARY_MAX, &files->content, err);

    if (r < 0)
        return err_wrap(err, "the interception library (--library)");
    files->end[i] = files->content.len;
    if (files->content.len < start + SELFMAG ||
        memcmp(files->content.data + start, ELFMAG, SELFMAG) != 0)
        return err_set(err, ENOEXEC, "%s (--library) is not a shared object", path);
    return 0;
}

/* Where the installed tree and where the build tree has it. */
static bool find_shadow(const char *source, const char *name, char *ret, size_t size) {
    static const char *const dirs[] = {"shadow/", ""};
    const char *slash = strrchr(source, '/');

    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        int n = snprintf(ret, size, "%.*s%slibshadow-%s", slash ? (int) (slash + 1 - source) : 0,
                         source, dirs[i], name + strlen("lib"));

        if (n > 0 && (size_t) n < size && access(ret, R_OK) == 0)
            return true;
    }
    return false;
}

/* Both shadows or none: returns whether they are here. */
static int read_shadows(const char *source, struct files *files, struct err *err) {
    char path[SHADOWS][512];
    int r = 0;

    for (size_t i = 0; i < SHADOWS; i++)
        if (!find_shadow(source, shadows[i], path[i], sizeof(path[i])))
            return 0;
    for (size_t i = 0; i < SHADOWS && r == 0; i++)
        r = read_one(path[i], files, 1 + i, err);
    return r < 0 ? r : 1;
}

static int write_files(const struct files *files, const struct library *l, struct err *err) {
    static const char preload[] = LIBRARY_IN_CONTAINER "\n";
    const char *data = files->content.data;
    int r = dir_make(l->shadow[0] ? l->shadow : l->dir, 0755, err);

    if (r == 0)
        r = write_once(l->dir, "libaliquot.so", data, files->end[0], 0755, err);
    for (size_t i = 0; i < SHADOWS && l->shadow[0] && r == 0; i++)
        r = write_once(l->shadow, shadows[i], data + files->end[i],
                       files->end[i + 1] - files->end[i], 0755, err);
    for (size_t i = 0; i < SHARE_FILES && r == 0; i++)
        r = write_once(l->dir, share_files[i].name, "", 0, 0444, err);
    return r < 0 ? r : write_once(l->dir, "ld.so.preload", preload, sizeof(preload) - 1, 0644, err);
}

/* Also what an earlier agent has written. The rest of the directory is mount points. */
static int label_files(const struct library *l, const char *selinux, struct err *err) {
    static const char *const names[] = {"", "/libaliquot.so", "/ld.so.preload"};
    char path[384];
    int r = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && r == 0; i++) {
        (void) snprintf(path, sizeof(path), "%s%s", l->dir, names[i]);
        r = selinux_label(path, selinux, err);
    }
    if (r == 0 && l->shadow[0])
        r = selinux_label(l->shadow, selinux, err);
    for (size_t i = 0; i < SHADOWS && l->shadow[0] && r == 0; i++) {
        (void) snprintf(path, sizeof(path), "%s/%s", l->shadow, shadows[i]);
        r = selinux_label(path, selinux, err);
    }
    return r;
}

/* Here, or on the host: the mount that the agent's container has of the directory has flags of its
 * own, and containers get the host's. */
static int is_noexec(const char *host_root, const char *path, struct err *err) {
    char on_host[640];
    struct statvfs fs;

    if (statvfs(path, &fs) < 0)
        return err_errno(err, errno, "cannot find out how %s is mounted", path);
    if (fs.f_flag & ST_NOEXEC || !host_root[0])
        return (fs.f_flag & ST_NOEXEC) != 0;
    (void) snprintf(on_host, sizeof(on_host), "%s%s", host_root, path);
    if (statvfs(on_host, &fs) == 0)
        return (fs.f_flag & ST_NOEXEC) != 0;
    log_warn("cannot find out how the host has mounted %s (%s: %s): if it is noexec, containers in "
             "a user namespace run without limits",
             path, on_host, strerror(errno));
    return 0;
}

static int make_executable(const char *state_dir, const char *host_root, bool may_mount,
                           struct err *err) {
    char path[384];
    int r = share_dir_beside(state_dir, "lib", 0755, path, err);

    if (r < 0)
        return r;
    r = is_noexec(host_root, path, err);
    if (r <= 0)
        return r;
    /* runc keeps noexec in a user namespace, and from 1.2 on it starts the container; the loader
     * then leaves the library out. */
    if (!may_mount)
        return err_set(err, EPERM,
                       "%s is mounted noexec, and this agent may not mount a file system of its "
                       "own there: containers in a user namespace would run without limits (give "
                       "the agent mountPropagation: Bidirectional, or another --state-dir)",
                       path);
    if (mount("aliquot", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m") < 0)
        return err_errno(err, errno, "cannot mount a tmpfs on %s", path);
    return 0;
}

int library_install(const char *source, const char *state_dir, const char *host_root,
                    bool may_mount, const char *selinux, struct library *ret, struct err *err) {
    _cleanup_(files_done) struct files files = {.content = BUF_INIT(4 * LIBRARY_MAX)};
    unsigned char digest[32];
    struct library l = {0};
    int n, r, shadowed;

    r = read_one(source, &files, 0, err);
    shadowed = r < 0 ? r : read_shadows(source, &files, err);
    if (shadowed < 0)
        return shadowed;
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, files.content.data, files.content.len, digest) < 0)
        return err_set(err, EIO, "cannot compute a hash");
    n = snprintf(l.dir, sizeof(l.dir), "%s/lib/%02x%02x%02x%02x%02x%02x%02x%02x", state_dir,
                 digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6],
                 digest[7]);
    if (n < 0 || (size_t) n >= sizeof(l.dir) - 32)
        return err_set(err, ENAMETOOLONG, "the state directory's path is too long");
    if (shadowed)
        (void) snprintf(l.shadow, sizeof(l.shadow), "%s/shadow", l.dir);
    r = make_executable(state_dir, host_root, may_mount, err);
    if (r == 0)
        r = write_files(&files, &l, err);
    if (r == 0)
        r = label_files(&l, selinux, err);
    if (r == 0)
        *ret = l;
    return r;
}

int library_edits(const struct library *l, const char *share, struct gpu_edits *edits) {
    char path[384], inside[64];
    int r = gpu_edits_add(edits, GPU_EDIT_MOUNT, l->dir, SHARE_IN_CONTAINER);

    /* Also a mount of its own: of two mounts on one path the pod's comes first and ours covers it.
     */
    (void) snprintf(path, sizeof(path), "%s/libaliquot.so", l->dir);
    if (r == 0)
        r = gpu_edits_add(edits, GPU_EDIT_MOUNT, path, LIBRARY_IN_CONTAINER);
    (void) snprintf(path, sizeof(path), "%s/ld.so.preload", l->dir);
    if (r == 0)
        r = gpu_edits_add(edits, GPU_EDIT_MOUNT, path, "/etc/ld.so.preload");
    for (size_t i = 0; i < SHARE_FILES && r == 0; i++) {
        share_dir_path(share, share_files[i].name, path);
        /* A share that an older agent made has fewer. */
        if (access(path, F_OK) < 0)
            continue;
        (void) snprintf(inside, sizeof(inside), SHARE_IN_CONTAINER "/%s", share_files[i].name);
        r = gpu_edits_add(edits, share_files[i].kind, path, inside);
    }
    return r;
}

void library_remove_mount_point(const char *host_root) {
    char path[384];

    (void) snprintf(path, sizeof(path), "%s" SHARE_IN_CONTAINER, host_root);
    (void) rmdir(path);
}
