/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/os/cgroup.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define CONTAINER_ID_LEN 64
#define GROUPS_MAX 8192
/* Threads that are asked. A thread that has ended stays in the list only while another process
 * traces it. */
#define THREADS_MAX 256

/* A piece of the text; the parser never copies before it has found both names. */
struct span {
    const char *at;
    size_t len;
};

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool all_hex(struct span s) {
    for (size_t i = 0; i < s.len; i++)
        if (!is_hex(s.at[i]))
            return false;
    return s.len > 0;
}

/* A UID is 8-4-4-4-12 with '-' or, under systemd's escaping, '_'; of a static pod 32 hex digits. */
static size_t uid_length(struct span s) {
    if (s.len >= 36) {
        bool dashed = true;

        for (size_t i = 0; i < 36 && dashed; i++) {
            bool dash = i == 8 || i == 13 || i == 18 || i == 23;

            dashed = dash ? (s.at[i] == '-' || s.at[i] == '_') : is_hex(s.at[i]);
        }
        if (dashed)
            return 36;
    }
    return s.len >= 32 && all_hex((struct span){s.at, 32}) ? 32 : 0;
}

/* Recognises `pod<uid>` and `<anything>-pod<uid>.slice[:runtime:id]`; *ret_rest is what follows the
 * UID. */
static bool segment_pod(struct span seg, struct span *ret_uid, struct span *ret_rest) {
    for (size_t i = 0; i + 3 < seg.len; i++) {
        struct span uid = {seg.at + i + 3, seg.len - i - 3};
        size_t n;

        if (memcmp(seg.at + i, "pod", 3) != 0 || (i > 0 && seg.at[i - 1] != '-'))
            continue;
        n = uid_length(uid);
        if (n == 0)
            continue;
        *ret_rest = (struct span){uid.at + n, uid.len - n};
        *ret_uid = (struct span){uid.at, n};
        return ret_rest->len == 0 || ret_rest->at[0] == '.';
    }
    return false;
}

/* The last 64 characters of `<id>`, `<runtime>-<id>.scope` or `.slice:<runtime>:<id>`. */
static struct span segment_container(struct span seg) {
    static const char scope[] = ".scope";
    static const char conmon[] = "conmon-";
    struct span id, before;

    if (seg.len > sizeof(scope) - 1 &&
        memcmp(seg.at + seg.len - (sizeof(scope) - 1), scope, sizeof(scope) - 1) == 0)
        seg.len -= sizeof(scope) - 1;
    if (seg.len < CONTAINER_ID_LEN)
        return (struct span){seg.at, 0};
    id = (struct span){seg.at + seg.len - CONTAINER_ID_LEN, CONTAINER_ID_LEN};
    before = (struct span){seg.at, seg.len - CONTAINER_ID_LEN};
    if (!all_hex(id) ||
        (before.len > 0 && before.at[before.len - 1] != '-' && before.at[before.len - 1] != ':'))
        return (struct span){seg.at, 0};
    /* CRI-O's monitor lives beside the container, not in it. */
    if (before.len >= sizeof(conmon) - 1 &&
        memcmp(before.at + before.len - (sizeof(conmon) - 1), conmon, sizeof(conmon) - 1) == 0)
        return (struct span){seg.at, 0};
    return id;
}

static struct span next_segment(struct span *path) {
    struct span seg;
    const char *slash;

    while (path->len > 0 && path->at[0] == '/') {
        path->at++;
        path->len--;
    }
    slash = memchr(path->at, '/', path->len);
    seg = (struct span){path->at, slash ? (size_t) (slash - path->at) : path->len};
    path->at += seg.len;
    path->len -= seg.len;
    return seg;
}

static void copy_names(struct span uid, struct span id, struct cgroup_id *ret) {
    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < uid.len; i++)
        ret->pod_uid[i] = (char) (uid.at[i] == '_' ? '-' : uid.at[i]);
    memcpy(ret->container_id, id.at, id.len);
}

static bool path_parse(struct span path, struct cgroup_id *ret) {
    while (path.len > 0) {
        struct span seg = next_segment(&path), uid, rest;

        if (!segment_pod(seg, &uid, &rest))
            continue;
        if (memchr(rest.at, ':', rest.len))
            copy_names(uid, segment_container(rest), ret);
        else
            copy_names(uid, segment_container(next_segment(&path)), ret);
        return true;
    }
    return false;
}

int cgroup_parse(const char *text, size_t len, struct cgroup_id *ret) {
    struct span all = {text, len};

    while (all.len > 0) {
        const char *nl = memchr(all.at, '\n', all.len);
        struct span line = {all.at, nl ? (size_t) (nl - all.at) : all.len};
        const char *colon = memchr(line.at, ':', line.len);

        all.at += line.len + (nl ? 1 : 0);
        all.len -= line.len + (nl ? 1 : 0);
        if (colon)
            colon = memchr(colon + 1, ':', line.len - (size_t) (colon + 1 - line.at));
        if (!colon)
            continue;
        line.len -= (size_t) (colon + 1 - line.at);
        line.at = colon + 1;
        if (path_parse(line, ret))
            return 1;
    }
    return 0;
}

/* Reads /proc/<process>/cgroup, terminated; returns its length or negative errno. `process` may
 * name a thread: "12/task/13". */
static ssize_t read_groups(const char *process, char *text, size_t size) {
    char path[64];
    size_t used = 0;
    ssize_t n = 0;
    int fd;

    (void) snprintf(path, sizeof(path), "/proc/%.48s/cgroup", process);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (used < size - 1 && (n = read(fd, text + used, size - 1 - used)) > 0)
        used += (size_t) n;
    if (n < 0)
        n = -errno;
    (void) close(fd);
    text[used] = 0;
    return n < 0 ? n : (ssize_t) used;
}

static int group_of(const char *process, char text[static GROUPS_MAX], struct cgroup_id *ret) {
    ssize_t len = read_groups(process, text, GROUPS_MAX);

    return len < 0 ? (int) len : cgroup_parse(text, (size_t) len, ret);
}

/* Whether the kernel names only the roots of cgroup v1 hierarchies, which it does of a thread that
 * has ended. Seen from another cgroup namespace a root is "/../..". */
static bool in_v1_roots(const char *text) {
    bool any = false;

    for (const char *line = text, *next; line; line = next ? next + 1 : NULL) {
        const char *path = strchr(line, '/');

        next = strchr(line, '\n');
        if (!path || (next && path > next) || strncmp(line, "0::", 3) == 0)
            continue;
        path += strspn(path, "/.");
        if (*path && *path != '\n')
            return false;
        any = true;
    }
    return any;
}

/* In cgroup v1 only its other threads lead to a process whose main thread has ended. */
static int group_of_threads(const char *process, struct cgroup_id *ret) {
    _cleanup_closedir_ DIR *tasks = NULL;
    char path[64], text[GROUPS_MAX];
    const struct dirent *e;

    (void) snprintf(path, sizeof(path), "/proc/%.16s/task", process);
    tasks = opendir(path);
    if (!tasks)
        return -errno;
    for (int n = 0; n < THREADS_MAX && (e = readdir(tasks)); n++) {
        if (!isdigit((unsigned char) e->d_name[0]) || strcmp(e->d_name, process) == 0)
            continue;
        (void) snprintf(path, sizeof(path), "%.16s/task/%.16s", process, e->d_name);
        if (group_of(path, text, ret) == 1)
            return 1;
    }
    return 0;
}

int cgroup_of_pid(int pid, struct cgroup_id *ret) {
    char process[16], text[GROUPS_MAX];
    int r;

    (void) snprintf(process, sizeof(process), "%d", pid);
    r = group_of(process, text, ret);
    return r == 0 && in_v1_roots(text) ? group_of_threads(process, ret) : r;
}

int cgroup_path(const char *text, const struct cgroup_id *id, char *ret, size_t size) {
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    const char *path, *found;
    size_t len;

    if (!line || !id->container_id[0])
        return -ENOENT;
    path = strchr(line, '/');
    if (!path || strncmp(path, "/..", 3) == 0)
        return -ENOENT;
    len = strcspn(path, "\n");
    found = strstr(path, id->container_id);
    if (!found || found >= path + len)
        return -ENOENT;
    len = (size_t) (found - path) + strcspn(found, "/\n");
    if (len >= size)
        return -ENAMETOOLONG;
    memcpy(ret, path, len);
    ret[len] = 0;
    return 0;
}

int cgroup_directory(int pid, const struct cgroup_id *id, const char *host_root, char *ret,
                     size_t size) {
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    const char *const roots[] = {"", host_root};
    char process[16], text[GROUPS_MAX], group[1024];
    ssize_t len;
    int r;

    (void) snprintf(process, sizeof(process), "%d", pid);
    len = read_groups(process, text, sizeof(text));
    r = len < 0 ? (int) len : cgroup_path(text, id, group, sizeof(group));
    if (r < 0)
        return r;
    for (size_t i = 0; i < 2; i++)
        for (size_t m = 0; m < 2; m++)
            if ((size_t) snprintf(ret, size, "%s%s%s", roots[i], mounts[m], group) < size &&
                access(ret, F_OK) == 0)
                return 0;
    return -ENOENT;
}
