/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/session/location.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "share/io_core.h"

/* The agent mounts a share below a mount point in /dev: neither that directory nor /dev itself can
 * be renamed. */
#define MOUNTED_LIMITS "/dev/aliquot/limits"
#define MOUNTED_LEDGER "/dev/aliquot/ledger"

/* Read only where nothing is mounted, and never by the library for containers: a tenant would name
 * a share of its own. */
#define LOCATION_VARIABLE "ALIQUOT_SHARE_DIR"

/* The number of every owner that has no number in the user namespace. */
#define OVERFLOW_UID 65534

/* Of statfs(2): f_flags are those of the mount. */
#define MOUNT_READ_ONLY 1

bool location_join(char *ret, size_t size, const char *dir, const char *name) {
    size_t len = strlen(dir), name_len = strlen(name);

    if (len + name_len + 2 > size)
        return false;
    memcpy(ret, dir, len);
    ret[len] = '/';
    memcpy(ret + len + 1, name, name_len);
    ret[len + 1 + name_len] = '\0';
    return true;
}

static uint64_t next_number(const char **text) {
    uint64_t number = 0;

    while (**text == ' ')
        (*text)++;
    for (; **text >= '0' && **text <= '9'; (*text)++)
        number = number * 10 + (uint64_t) (**text - '0');
    return number;
}

/* The initial user namespace maps all user IDs to themselves: "0 0 4294967295". False without
 * /proc, so that fewer files are trusted. */
static bool in_user_namespace(void) {
    int fd = io_open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    ssize_t n;
    char text[64];
    const char *at = text;

    if (fd < 0)
        return false;
    n = io_read(fd, text, sizeof(text) - 1);
    io_close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return next_number(&at) != 0 || next_number(&at) != 0 || next_number(&at) != UINT32_MAX;
}

/* The agent's files belong to the node's root. By system call: an old C library has no symbol
 * fstat. */
static bool owned_by_agent(int fd) {
    struct stat st;

    return syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) &&
           (st.st_uid == 0 || (st.st_uid == OVERFLOW_UID && in_user_namespace()));
}

static bool on_read_only_mount(int fd) {
    struct statfs fs;

    return syscall(SYS_fstatfs, fd, &fs) == 0 && (fs.f_flags & MOUNT_READ_ONLY);
}

/* A file of the agent, or -EPERM. */
static int open_agents(const char *path, int flags) {
    int fd = io_open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return -EPERM;
    if (owned_by_agent(fd) && ((flags & O_RDWR) || on_read_only_mount(fd)))
        return fd;
    io_close(fd);
    return -EPERM;
}

static int find_mounted(const struct limits_file **ret_limits, char *ret_ledger) {
    int ledger = open_agents(MOUNTED_LEDGER, O_RDWR), limits, r;
    struct limits_file *file = NULL;

    if (ledger < 0)
        return ledger;
    io_close(ledger);
    limits = open_agents(MOUNTED_LIMITS, O_RDONLY);
    if (limits < 0)
        return limits;
    r = limits_map_fd(limits, PROT_READ, &file);
    io_close(limits);
    memcpy(ret_ledger, MOUNTED_LEDGER, sizeof(MOUNTED_LEDGER));
    *ret_limits = file;
    return r;
}

static bool is_mounted(void) {
    int fd = io_open(MOUNTED_LIMITS, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0)
        io_close(fd);
    return fd >= 0 || (errno != ENOENT && errno != ENOTDIR);
}

static int find_named(const struct limits_file **ret_limits, char *ret_ledger, size_t size) {
    const char *dir = getenv(LOCATION_VARIABLE);
    char path[4096];
    int r;

    if (!dir || !*dir)
        return -ENOENT;
    if (!location_join(path, sizeof(path), dir, "limits") ||
        !location_join(ret_ledger, size, dir, "ledger"))
        return -ENAMETOOLONG;
    r = limits_map(path, ret_limits);
    return r == -ENOENT ? -EBADMSG : r;
}

int location_find(const struct limits_file **ret_limits, char *ret_ledger, size_t size) {
    return SHARE_MOUNTED_ONLY || is_mounted() ? find_mounted(ret_limits, ret_ledger)
                                              : find_named(ret_limits, ret_ledger, size);
}
