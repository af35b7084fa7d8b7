/* SPDX-License-Identifier: Apache-2.0 */

/* The files of a share on the node: bounded, and those of older agents kept in their places. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/shares/library_store.h"
#include "agent/shares/share_dir.h"
#include "agent/shares/slot.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/driver/driver.h"
#include "share/compute_core.h"
#include "share/ledger.h"
#include "share/limits.h"

#define NONCE "00000000000000000000000000000001"
#define GIB ((uint64_t) 1 << 30)
#define ACL "system.posix_acl_access"

struct fixture {
    char dir[64];
    struct slot_store slots;
};

static void no_bad(const char *nonce, const char *why, void *userdata) {
    (void) userdata;
    fail_msg("%s: %s", nonce, why);
}

static void load(struct fixture *f) {
    struct err err;

    if (slot_store_load(&f->slots, f->dir, no_bad, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-share-dir-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    load(f);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    char dir[384];

    slot_dir(&f->slots, NONCE, dir);
    slot_store_done(&f->slots);
    assert_int_equal(share_dir_remove(dir, NULL), 0);
    assert_int_equal(dir_remove(f->dir, NULL), 0);
    free(f);
    return 0;
}

static struct slot *fill(struct fixture *f, uint64_t memory) {
    struct slot_grant g = {.pod_uid = "u", .namespace = "n", .pod = "p", .container = "c"};
    struct slot *slot;
    struct err err;

    g.ndevices = 1;
    g.devices = calloc(1, sizeof(*g.devices));
    assert_non_null(g.devices);
    text_copy(g.devices[0].uuid, sizeof(g.devices[0].uuid), "GPU-a");
    g.devices[0].memory = g.devices[0].physical = memory;
    if (slot_fill(&f->slots, NONCE, &g, &slot, &err) < 0)
        fail_msg("%s", err.text);
    return slot;
}

/* Whether this test may mount. */
static bool mounts(struct fixture *f) {
    char path[96];
    struct err err;
    int r;

    (void) snprintf(path, sizeof(path), "%s/probe", f->dir);
    r = share_dir_make(path, true, NULL, &err);
    if (r < 0 && r != -EPERM)
        fail_msg("%s", err.text);
    assert_int_equal(share_dir_remove(path, NULL), 0);
    return r == 0;
}

/* A mount that the node does not see bounds nothing there. */
static void mounts_of_another_root_bound_nothing(void **state) {
    struct fixture *f = *state;
    char other[96], inside[192];

    if (!mounts(f))
        skip();
    assert_int_equal(share_dir_can_bound(f->dir, "", NULL), 0);
    (void) snprintf(other, sizeof(other), "%s/root", f->dir);
    assert_int_equal(share_dir_can_bound(f->dir, other, NULL), -EPERM);
    /* The same directory there, below the mount. */
    (void) snprintf(inside, sizeof(inside), "%s%s/.mount", other, f->dir);
    assert_int_equal(dir_make(inside, 0755, NULL), 0);
    assert_int_equal(share_dir_can_bound(f->dir, other, NULL), -EPERM);
}

/* The whole format fits, and not a page more. Without the right to mount there is nothing to test.
 */
static void what_a_container_writes_is_bounded(void **state) {
    struct fixture *f = *state;
    _cleanup_close_ int ledger = -1, compute = -1;
    char path[384];

    if (!mounts(f))
        skip();
    f->slots.bounded = true;
    (void) fill(f, GIB);
    slot_path(&f->slots, NONCE, "ledger", path);
    ledger = open(path, O_RDWR | O_CLOEXEC);
    slot_path(&f->slots, NONCE, "compute", path);
    compute = open(path, O_RDWR | O_CLOEXEC);
    assert_true(ledger >= 0 && compute >= 0);
    assert_int_equal(posix_fallocate(ledger, 0, sizeof(struct ledger_file)), 0);
    assert_int_equal(posix_fallocate(compute, 0, sizeof(struct compute_file)), 0);
    assert_int_equal(posix_fallocate(ledger, 0, sizeof(struct ledger_file) + (1 << 20)), ENOSPC);
    assert_int_equal(pwrite(compute, "x", 1, sizeof(struct compute_file) + (1 << 20)), -1);
    assert_int_equal(errno, ENOSPC);
}

/* A ledger in a file system that the container has filled through its other file is mended when the
 * container starts anew. */
static void what_was_written_beyond_is_cut_off(void **state) {
    struct fixture *f = *state;
    _cleanup_close_ int compute = -1;
    struct ledger_usage usage;
    struct slot *slot;
    char path[384];
    struct err err;
    off_t end;

    if (!mounts(f))
        skip();
    f->slots.bounded = true;
    slot = fill(f, GIB);
    slot_path(&f->slots, NONCE, "compute", path);
    compute = open(path, O_RDWR | O_CLOEXEC);
    assert_true(compute >= 0);
    for (end = 0; pwrite(compute, "x", 1, end) == 1; end += 4096)
        ;
    slot_path(&f->slots, NONCE, "ledger", path);
    assert_int_equal(truncate(path, 0), 0);
    for (; pwrite(compute, "x", 1, end) == 1; end += 4096)
        ;
    assert_int_equal(slot_mend_ledger(&f->slots, slot, &err), 0);
    assert_int_equal(ledger_snapshot(slot->ledger, &usage), 0);
    assert_int_equal(lseek(compute, 0, SEEK_END), sizeof(struct compute_file));
}

/* A list of version 2 with an entry for user 1000 that permits nothing. */
static const struct {
    uint32_t version;
    struct {
        uint16_t tag, permissions;
        uint32_t id;
    } entries[5];
} refuses_1000 = {2,
                  {{0x01, 6, UINT32_MAX},
                   {0x02, 0, 1000},
                   {0x04, 6, UINT32_MAX},
                   {0x10, 6, UINT32_MAX},
                   {0x20, 6, UINT32_MAX}}};

/* Root of the container may change them, and the library then refuses the driver. */
static void owner_and_mode_are_restored(void **state) {
    static const char *const names[] = {"ledger", "compute"};
    struct fixture *f = *state;
    struct slot *slot = fill(f, GIB);
    char path[384];
    struct stat st;
    struct err err;

    if (geteuid() != 0)
        skip();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        slot_path(&f->slots, NONCE, names[i], path);
        if (setxattr(path, ACL, &refuses_1000, sizeof(refuses_1000), 0) < 0)
            assert_int_equal(errno, ENOTSUP);
        assert_int_equal(chown(path, 1000, 1000), 0);
        assert_int_equal(chmod(path, 0400), 0);
    }
    assert_int_equal(slot_mend_ledger(&f->slots, slot, &err), 0);
    assert_int_equal(slot_mend_account(&f->slots, slot, &err), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        slot_path(&f->slots, NONCE, names[i], path);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_uid, 0);
        assert_int_equal(st.st_mode & 07777, 0666);
        assert_true(getxattr(path, ACL, NULL, 0) < 0);
    }
}

static void all_goes_with_the_slot(void **state) {
    struct fixture *f = *state;
    struct slot *slot;
    char path[384];
    struct err err;

    f->slots.bounded = mounts(f);
    slot = fill(f, GIB);
    /* An agent that was restarted finds the same files. */
    slot_store_done(&f->slots);
    load(f);
    f->slots.bounded = mounts(f);
    slot = slot_find(&f->slots, NONCE);
    assert_non_null(slot);
    assert_non_null(slot->ledger);
    assert_int_equal(slot_remove(&f->slots, slot, &err), 0);
    slot_dir(&f->slots, NONCE, path);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(rmdir(f->slots.dir), 0);
    load(f);
}

static void count_bad(const char *nonce, const char *why, void *userdata) {
    (void) nonce, (void) why;
    ++*(unsigned *) userdata;
}

/* An agent was killed between the directories of a share and its record. */
static void a_share_without_a_record_is_removed(void **state) {
    struct fixture *f = *state;
    unsigned bad = 0;
    char path[384];
    struct err err;

    slot_dir(&f->slots, NONCE, path);
    assert_int_equal(share_dir_make(path, mounts(f), NULL, &err), 0);
    slot_store_done(&f->slots);
    assert_int_equal(slot_store_load(&f->slots, f->dir, count_bad, &bad, &err), 0);
    assert_int_equal(bad, 1);
    assert_int_equal(access(path, F_OK), -1);
}

/* A record that cannot be read now is not a bad one: its container may be running. */
static void no_share_is_removed_for_lack_of_descriptors(void **state) {
    struct fixture *f = *state;
    struct rlimit before, few;
    unsigned bad = 0;
    char path[384];
    struct err err;
    int next, r;

    (void) fill(f, GIB);
    slot_store_done(&f->slots);
    next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(next >= 0);
    (void) close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t) next + 1; /* for the directory */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    r = slot_store_load(&f->slots, f->dir, count_bad, &bad, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(r, -EMFILE);
    assert_int_equal(bad, 0);
    slot_path(&f->slots, NONCE, "record.json", path);
    assert_int_equal(access(path, F_OK), 0);
}

static void a_share_that_cannot_be_made_leaves_nothing(void **state) {
    struct slot_grant g = {.ndevices = 1, .devices = calloc(1, sizeof(*g.devices))};
    struct fixture *f = *state;
    char path[384], obstacle[512];
    struct slot *slot;
    struct err err;

    f->slots.bounded = mounts(f);
    slot_dir(&f->slots, NONCE, path);
    (void) snprintf(obstacle, sizeof(obstacle), "%s/record.json/x", path);
    assert_int_equal(dir_make(obstacle, 0755, &err), 0);
    assert_true(slot_fill(&f->slots, NONCE, &g, &slot, &err) < 0);
    assert_int_equal(access(path, F_OK), -1);
}

static void only_root_of_the_node_comes_to_the_files(void **state) {
    struct fixture *f = *state;
    struct stat st;

    (void) fill(f, GIB);
    assert_int_equal(chmod(f->slots.dir, 0755), 0);
    slot_store_done(&f->slots);
    load(f);
    assert_int_equal(stat(f->slots.dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

/* As an agent left it that knew no directory "tenant". */
static void make_older(struct fixture *f) {
    static const char *const names[] = {"ledger", "compute"};
    char dir[384], from[512], to[512];

    (void) fill(f, GIB);
    slot_store_done(&f->slots);
    slot_dir(&f->slots, NONCE, dir);
    for (size_t i = 0; i < 2; i++) {
        (void) snprintf(from, sizeof(from), "%s/tenant/%s", dir, names[i]);
        (void) snprintf(to, sizeof(to), "%s/%s", dir, names[i]);
        assert_int_equal(rename(from, to), 0);
    }
    (void) snprintf(from, sizeof(from), "%s/tenant", dir);
    assert_int_equal(rmdir(from), 0);
    load(f);
}

static ino_t inode(const struct fixture *f, const char *file) {
    struct stat st;
    char path[384];

    slot_path(&f->slots, NONCE, file, path);
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

/* Its container runs on and has the files mounted, so they must stay the same files. */
static void shares_of_older_agents_go_on(void **state) {
    static const char *const names[] = {"limits", "ledger", "grants", "compute"};
    struct fixture *f = *state;
    struct ledger_usage usage;
    struct share_limits limits;
    struct slot *slot;
    char path[384];
    struct err err;
    ino_t before[4];

    make_older(f);
    f->slots.bounded = mounts(f);
    slot = slot_find(&f->slots, NONCE);
    assert_non_null(slot);
    assert_int_equal(ledger_snapshot(slot->ledger, &usage), 0);
    for (size_t i = 0; i < 4; i++)
        before[i] = inode(f, names[i]);
    (void) fill(f, 2 * GIB);
    assert_int_equal(slot_mend_ledger(&f->slots, slot, &err), 0);
    assert_int_equal(slot_mend_account(&f->slots, slot, &err), 0);
    for (size_t i = 0; i < 4; i++)
        assert_true(inode(f, names[i]) == before[i]);
    slot_path(&f->slots, NONCE, "limits", path);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_true(limits.device[0].memory_bytes == 2 * GIB);
    assert_int_equal(slot_remove(&f->slots, slot, &err), 0);
    slot_dir(&f->slots, NONCE, path);
    assert_int_equal(access(path, F_OK), -1);
}

static const struct gpu_edit *edit_of(const struct gpu_edits *edits, const char *container) {
    for (size_t i = 0; i < edits->count; i++)
        if (strcmp(edits->list[i].container, container) == 0)
            return &edits->list[i];
    fail_msg("nothing is mounted on %s", container);
    return NULL;
}

/* One read-only directory in /dev; each mount inside it has an empty file to be mounted on. */
static void a_container_gets_one_directory(void **state) {
    static const struct {
        const char *name;
        enum gpu_edit_kind kind;
    } files[] = {{"limits", GPU_EDIT_MOUNT},
                 {"grants", GPU_EDIT_MOUNT},
                 {"ledger", GPU_EDIT_MOUNT_RW},
                 {"compute", GPU_EDIT_MOUNT_RW},
                 {"libaliquot.so", GPU_EDIT_MOUNT}};
    static struct gpu_edits edits;
    struct fixture *f = *state;
    const struct gpu_edit *edit;
    char path[512], share[384];
    struct library l;
    struct stat st;

    (void) fill(f, GIB);
    (void) snprintf(path, sizeof(path), "%s/lib.so", f->dir);
    assert_int_equal(file_replace(path, "\177ELF1", 5, 0644, NULL), 0);
    assert_int_equal(library_install(path, f->dir, "", false, NULL, &l, NULL), 0);
    slot_dir(&f->slots, NONCE, share);
    edits.count = 0;
    assert_int_equal(library_edits(&l, share, &edits), 0);
    edit = edit_of(&edits, "/dev/aliquot");
    assert_int_equal(edit->kind, GPU_EDIT_MOUNT);
    assert_string_equal(edit->host, l.dir);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void) snprintf(path, sizeof(path), "/dev/aliquot/%s", files[i].name);
        edit = edit_of(&edits, path);
        assert_int_equal(edit->kind, files[i].kind);
        assert_int_equal(access(edit->host, F_OK), 0);
        (void) snprintf(path, sizeof(path), "%s/%s", l.dir, files[i].name);
        assert_int_equal(stat(path, &st), 0);
        assert_true(S_ISREG(st.st_mode));
    }
}

static void install(struct fixture *f, const char *content, struct library *ret) {
    char path[512];

    (void) snprintf(path, sizeof(path), "%s/lib.so", f->dir);
    assert_int_equal(file_replace(path, content, strlen(content), 0644, NULL), 0);
    assert_int_equal(library_install(path, f->dir, "", false, NULL, ret, NULL), 0);
}

static void libraries_of_earlier_agents_go(void **state) {
    struct fixture *f = *state;
    struct library unused, used, current;
    char share[384], other[384];

    install(f, "\177ELF1", &unused);
    install(f, "\177ELF2", &used);
    install(f, "\177ELF3", &current);
    (void) snprintf(other, sizeof(other), "%s/lib/of-the-operator", f->dir);
    assert_int_equal(dir_make(other, 0755, NULL), 0);
    (void) fill(f, GIB);
    slot_dir(&f->slots, NONCE, share);
    library_clean(&current, f->dir, &f->slots); /* which one the share uses is not known */
    assert_int_equal(access(unused.dir, F_OK), 0);
    assert_int_equal(library_note(&used, share, NULL), 0);
    slot_store_done(&f->slots); /* by an agent that starts */
    load(f);
    library_clean(&current, f->dir, &f->slots);
    assert_int_equal(access(unused.dir, F_OK), -1);
    assert_int_equal(access(used.dir, F_OK), 0);
    assert_int_equal(access(current.dir, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(library_note(&current, share, NULL), 0); /* its container starts again */
    library_clean(&current, f->dir, &f->slots);
    assert_int_equal(access(used.dir, F_OK), -1);
    assert_int_equal(access(current.dir, F_OK), 0);
}

static const char *unreadable = ""; /* statvfs() fails for it */

int __real_statvfs64(const char *path, struct statvfs *ret);
int __wrap_statvfs64(const char *path, struct statvfs *ret);

int __wrap_statvfs64(const char *path, struct statvfs *ret) {
    if (strcmp(path, unreadable) != 0)
        return __real_statvfs64(path, ret);
    errno = EIO;
    return -1;
}

static char logged[1024]; /* the last warning */

void __wrap_log_write(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void __wrap_log_write(enum log_level level, const char *format, ...) {
    va_list args;

    if (level != LOG_WARN)
        return;
    va_start(args, format);
    (void) vsnprintf(logged, sizeof(logged), format, args);
    va_end(args);
}

/* The agent's own directory is looked at, and the host's where it can be. */
static void unknown_flags_of_a_mount(void **state) {
    struct fixture *f = *state;
    char path[512], lib[96], there[256];
    struct library l;
    struct err err;

    logged[0] = 0;
    install(f, "\177ELF1", &l);
    (void) snprintf(path, sizeof(path), "%s/lib.so", f->dir);
    (void) snprintf(lib, sizeof(lib), "%s/lib", f->dir);
    unreadable = lib;
    assert_int_equal(library_install(path, f->dir, "", true, NULL, &l, &err), -EIO);
    assert_non_null(strstr(err.text, lib));
    unreadable = "";
    assert_string_equal(logged, "");
    (void) snprintf(there, sizeof(there), "%s/host%s", f->dir, lib);
    assert_int_equal(dir_make(there, 0755, NULL), 0);
    there[strlen(there) - strlen(lib)] = 0;
    assert_int_equal(library_install(path, f->dir, there, true, NULL, &l, &err), 0);
    assert_string_equal(logged, "");
    assert_int_equal(library_install(path, f->dir, "/nowhere", true, NULL, &l, &err), 0);
    assert_non_null(strstr(logged, "/nowhere"));
}

/* As /run is on some distributions. */
static void the_library_can_be_mapped(void **state) {
    struct fixture *f = *state;
    char path[512], noexec[96];
    struct statvfs fs;
    struct library l;
    struct err err;

    if (!mounts(f))
        skip();
    (void) snprintf(path, sizeof(path), "%s/lib.so", f->dir);
    assert_int_equal(file_replace(path, "\177ELF1", 5, 0644, NULL), 0);
    (void) snprintf(noexec, sizeof(noexec), "%s/noexec", f->dir);
    assert_int_equal(dir_make(noexec, 0755, NULL), 0);
    assert_int_equal(mount("test", noexec, "tmpfs", MS_NOEXEC, ""), 0);
    assert_int_equal(library_install(path, noexec, "", false, NULL, &l, &err), -EPERM);
    assert_non_null(strstr(err.text, "noexec"));
    for (int i = 0; i < 2; i++) { /* the second time as an agent that was restarted */
        if (library_install(path, noexec, "", true, NULL, &l, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(statvfs(l.dir, &fs), 0);
        assert_false(fs.f_flag & ST_NOEXEC);
    }
    (void) snprintf(path, sizeof(path), "%s/lib", noexec);
    assert_int_equal(umount(path), 0);
    assert_int_equal(umount(path), -1); /* once is enough */
    assert_int_equal(umount(noexec), 0);
}

/* As in a container, whose mount of the state directory has not the flags of the host's. */
static void the_library_can_be_mapped_from_the_host(void **state) {
    struct fixture *f = *state;
    char path[512], host[96], there[256];
    struct library l;
    struct err err;

    if (!mounts(f))
        skip();
    (void) snprintf(path, sizeof(path), "%s/lib.so", f->dir);
    assert_int_equal(file_replace(path, "\177ELF1", 5, 0644, NULL), 0);
    (void) snprintf(host, sizeof(host), "%s/host", f->dir);
    assert_int_equal(dir_make(host, 0755, NULL), 0);
    assert_int_equal(mount("test", host, "tmpfs", MS_NOEXEC, ""), 0);
    assert_int_equal(library_install(path, f->dir, host, false, NULL, &l, &err), 0);
    (void) snprintf(there, sizeof(there), "%s%s/lib", host, f->dir);
    assert_int_equal(dir_make(there, 0755, NULL), 0);
    assert_int_equal(library_install(path, f->dir, host, false, NULL, &l, &err), -EPERM);
    assert_non_null(strstr(err.text, "noexec"));
    assert_int_equal(umount(host), 0);
}

static const char *label_of(const char *dir, const char *name) {
    static char label[96];
    char path[512];
    ssize_t n;

    (void) snprintf(path, sizeof(path), "%s%s", dir, name);
    n = getxattr(path, "security.selinux", label, sizeof(label) - 1);
    label[n > 0 ? n : 0] = 0;
    return label;
}

static void install_labelled(struct fixture *f, const char *interface, struct library *ret) {
    char path[512];

    (void) snprintf(path, sizeof(path), "%s/lib.so", f->dir);
    if (library_install(path, f->dir, "", false, interface, ret, NULL) < 0)
        fail_msg("the library is not installed");
}

/* Elsewhere a container would run without its limits: the loader skips a preload that it may not
 * read. */
static void containers_may_use_the_files_under_selinux(void **state) {
    static const char label[] = "system_u:object_r:container_file_t:s0";
    static const char *const names[] = {"", "/libaliquot.so", "/ld.so.preload", "/shadow",
                                        "/shadow/libcuda.so.1"};
    struct fixture *f = *state;
    char path[384], interface[96], share[384];
    struct library l;

    if (!mounts(f))
        skip();
    (void) snprintf(path, sizeof(path), "%s/libshadow-cuda.so.1", f->dir);
    assert_int_equal(file_replace(path, "\177ELFc", 5, 0644, NULL), 0);
    (void) snprintf(path, sizeof(path), "%s/libshadow-nvidia-ml.so.1", f->dir);
    assert_int_equal(file_replace(path, "\177ELFn", 5, 0644, NULL), 0);
    install(f, "\177ELF1", &l);
    (void) snprintf(interface, sizeof(interface), "%s/selinux", f->dir);
    install_labelled(f, interface, &l); /* SELinux is off */
    assert_string_equal(label_of(l.dir, "/libaliquot.so"), "");
    assert_int_equal(dir_make(interface, 0755, NULL), 0);
    install_labelled(f, interface, &l); /* over files of an agent that did not label them */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_string_equal(label_of(l.dir, names[i]), label);
    f->slots.bounded = true;
    f->slots.selinux = interface;
    (void) fill(f, GIB);
    slot_dir(&f->slots, NONCE, share);
    assert_string_equal(label_of(share, ""), label);
    assert_string_equal(label_of(share, "/tenant"), label);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_container_writes_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(mounts_of_another_root_bound_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_written_beyond_is_cut_off, setup, teardown),
        cmocka_unit_test_setup_teardown(owner_and_mode_are_restored, setup, teardown),
        cmocka_unit_test_setup_teardown(all_goes_with_the_slot, setup, teardown),
        cmocka_unit_test_setup_teardown(a_share_without_a_record_is_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(no_share_is_removed_for_lack_of_descriptors, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_share_that_cannot_be_made_leaves_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(only_root_of_the_node_comes_to_the_files, setup, teardown),
        cmocka_unit_test_setup_teardown(shares_of_older_agents_go_on, setup, teardown),
        cmocka_unit_test_setup_teardown(a_container_gets_one_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(libraries_of_earlier_agents_go, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_flags_of_a_mount, setup, teardown),
        cmocka_unit_test_setup_teardown(the_library_can_be_mapped, setup, teardown),
        cmocka_unit_test_setup_teardown(the_library_can_be_mapped_from_the_host, setup, teardown),
        cmocka_unit_test_setup_teardown(containers_may_use_the_files_under_selinux, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
