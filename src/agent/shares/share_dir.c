/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/share_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/os/selinux.h"
#include "base/err.h"
#include "base/file.h"
#include "share/compute_core.h"
#include "share/ledger_core.h"

#define TENANT "tenant"
#define PAGE ((size_t) 4096)
#define PAGES(size) (((size) + PAGE - 1) / PAGE)

/* Its root, both files, and each under its temporary name. */
#define INODES 5

static const struct {
    const char *name;
    size_t size; /* bytes */
} written[] = {
    {"ledger", sizeof(struct ledger_file)},
    {"compute", sizeof(struct compute_file)},
};

#define WRITTEN (sizeof(written) / sizeof(written[0]))
#define WRITTEN_MODE 0666

static void tenant_path(const char *dir, char ret[static 384]) {
    (void) snprintf(ret, 384, "%s/" TENANT, dir);
}

static bool is_mounted(const char *dir, const char *tenant) {
    struct stat outer, inner;

    return stat(dir, &outer) == 0 && stat(tenant, &inner) == 0 && outer.st_dev != inner.st_dev;
}

static int mount_bounded(const char *path, struct err *err) {
    size_t pages = 0;
    char options[96];

    for (size_t i = 0; i < WRITTEN; i++)
        pages += PAGES(written[i].size);
    (void) snprintf(options, sizeof(options), "size=%zu,nr_inodes=%d,mode=0755", pages * PAGE,
                    INODES);
    /* Not MS_NOEXEC: a runtime that binds the files in a user namespace may not take it off. */
    if (mount("aliquot", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return err_errno(err, errno, "cannot mount a tmpfs on %s", path);
    return 0;
}

/* Whether the node has the same directory there. */
static bool is_of_the_node(const char *host_root, const char *path) {
    struct stat here, there;
    char outer[600];

    (void) snprintf(outer, sizeof(outer), "%s%s", host_root, path);
    return stat(path, &here) == 0 && stat(outer, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

int share_dir_beside(const char *state_dir, const char *name, mode_t mode, char ret[static 384],
                     struct err *err) {
    (void) snprintf(ret, 384, "%s/%s", state_dir, name);
    return dir_make(ret, mode, err);
}

int share_dir_can_bound(const char *state_dir, const char *host_root, struct err *err) {
    char path[384];
    int r = share_dir_beside(state_dir, ".mount", 0700, path, err);

    if (r < 0)
        return r;
    r = mount_bounded(path, err);
    if (r == 0 && !is_of_the_node(host_root, path))
        r = err_set(err, EPERM, "mounts in %s are not mounts of the node (mountPropagation)",
                    state_dir);
    (void) umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
    (void) rmdir(path);
    return r;
}

int share_dir_make(const char *dir, bool bounded, const char *selinux, struct err *err) {
    char tenant[384];
    int r = dir_make(dir, 0755, err);

    tenant_path(dir, tenant);
    if (r == 0)
        r = dir_make(tenant, 0755, err);
    if (r == 0 && bounded && !is_mounted(dir, tenant))
        r = mount_bounded(tenant, err);
    if (r == 0)
        r = selinux_label(dir, selinux, err);
    return r == 0 ? selinux_label(tenant, selinux, err) : r;
}

void share_dir_path(const char *dir, const char *file, char ret[static 384]) {
    bool inner = false;

    for (size_t i = 0; i < WRITTEN; i++)
        inner = inner || strcmp(file, written[i].name) == 0;
    (void) snprintf(ret, 384, "%s/" TENANT, dir);
    inner = inner && access(ret, F_OK) == 0;
    (void) snprintf(ret, 384, "%s/%s%.16s", dir, inner ? TENANT "/" : "", file);
}

/* The library refuses a file of another owner, and every user of the container has to be able to
 * write. */
static int restore_access(const char *path, struct err *err) {
    if (removexattr(path, "system.posix_acl_access") < 0 && errno != ENODATA && errno != ENOTSUP)
        return err_errno(err, errno, "cannot remove the access control list of %s", path);
    if (chown(path, geteuid(), getegid()) < 0 || chmod(path, WRITTEN_MODE) < 0)
        return err_errno(err, errno, "cannot restore owner and mode of %s", path);
    return 0;
}

int share_dir_mend(const char *dir, struct err *err) {
    char path[384];
    struct stat st;
    int r = 0;

    for (size_t i = 0; r == 0 && i < WRITTEN; i++) {
        share_dir_path(dir, written[i].name, path);
        if (stat(path, &st) < 0)
            continue;
        if (st.st_size > (off_t) written[i].size && truncate(path, (off_t) written[i].size) < 0)
            return err_errno(err, errno, "cannot truncate %s", path);
        r = restore_access(path, err);
    }
    return r;
}

int share_dir_remove(const char *dir, struct err *err) {
    char tenant[384];

    tenant_path(dir, tenant);
    if (umount2(tenant, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT &&
        errno != EPERM)
        return err_errno(err, errno, "cannot unmount %s", tenant);
    return dir_remove(dir, err);
}
