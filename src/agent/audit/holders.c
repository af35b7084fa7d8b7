/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "agent/os/procfs.h"
#include "base/cleanup.h"
#include "base/num.h"

#define NODES_MAX 1024
#define CONTAINERS_MAX 1024
#define NODE_PREFIX "nvidia"

/* ---- nodes of the driver ---- */

/* A device by its number, whatever it is called in a container; a file by its place. */
struct node {
    bool is_device;
    uint32_t major, minor;
    uint64_t ino;
};

/* What has been checked of a container. */
struct container {
    struct cgroup_id id;
    uint32_t files, processes;
    bool reported; /* too many processes or files, or unreadable */
};

struct walk {
    struct node nodes[NODES_MAX];
    size_t nnodes;
    struct container containers[CONTAINERS_MAX];
    size_t ncontainers;
    uint32_t from;
    const char *skip; /* IDs of containers */
    void (*report)(const struct holder *h, void *userdata);
    void *userdata;
};

/* Without asking a file system for news: a tenant may serve one of its own, and not answer. */
static bool node_of(int dir, const char *name, int flags, struct node *ret, struct statx *st) {
    if (statx(dir, name, flags | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, st) <
        0)
        return false;
    *ret = (struct node){.is_device = S_ISCHR(st->stx_mode)};
    if (ret->is_device) {
        ret->major = st->stx_rdev_major;
        ret->minor = st->stx_rdev_minor;
    } else {
        ret->major = st->stx_dev_major;
        ret->minor = st->stx_dev_minor;
        ret->ino = st->stx_ino;
    }
    return true;
}

static void add_nodes(struct walk *w, const char *path, bool below) {
    _cleanup_closedir_ DIR *dir = opendir(path);
    const struct dirent *e;
    struct statx st;
    struct node n;

    while (dir && w->nnodes < NODES_MAX && (e = readdir(dir))) {
        if (e->d_name[0] == '.' ||
            (!below && strncmp(e->d_name, NODE_PREFIX, strlen(NODE_PREFIX)) != 0) ||
            !node_of(dirfd(dir), e->d_name, AT_SYMLINK_NOFOLLOW, &n, &st))
            continue;
        if (S_ISDIR(st.stx_mode) && !below) {
            char inner[512];

            if (snprintf(inner, sizeof(inner), "%s/%s", path, e->d_name) < (int) sizeof(inner))
                add_nodes(w, inner, true);
        } else if (n.is_device || S_ISSOCK(st.stx_mode) || S_ISFIFO(st.stx_mode)) {
            w->nodes[w->nnodes++] = n;
        }
    }
}

static bool links_to(int dir, const char *name, const char *prefix) {
    char target[32];
    size_t len = strlen(prefix);

    return readlinkat(dir, name, target, sizeof(target)) >= (ssize_t) len &&
           memcmp(target, prefix, len) == 0;
}

/* Whether descriptors wait in the socket's queue: until they are received no process has them.
 * `dir` is the directory fd of a process. Before Linux 5.10 the kernel does not report. */
static bool is_sending(int dir, const char *name) {
    static const char key[] = "\nscm_fds:";
    _cleanup_close_ int fd = -1;
    char path[32], text[512];
    const char *at;
    ssize_t n;

    if (snprintf(path, sizeof(path), "../fdinfo/%s", name) >= (int) sizeof(path))
        return false;
    fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return false;
    text[n] = 0;
    at = strstr(text, key);
    if (!at)
        return false;
    at += strlen(key);
    at += strspn(at, " \t");
    return *at >= '1' && *at <= '9';
}

/* What the file is to the walk: HOLDER_OPEN a node, HOLDER_SENT a socket that may carry one,
 * HOLDER_END neither. */
static enum holder_how kind_of(const struct walk *w, int dir, const char *name) {
    struct statx st;
    struct node n;

    if (!node_of(dir, name, 0, &n, &st))
        return HOLDER_END;
    for (size_t i = 0; i < w->nnodes; i++) {
        const struct node *have = &w->nodes[i];

        if (have->is_device == n.is_device && have->major == n.major && have->minor == n.minor &&
            have->ino == n.ino)
            return HOLDER_OPEN;
    }
    if (S_ISSOCK(st.stx_mode))
        return is_sending(dir, name) ? HOLDER_SENT : HOLDER_END;
    /* These lie on file systems of the kernel without a device. */
    if (n.is_device || st.stx_dev_major != 0)
        return HOLDER_END;
    if (S_ISREG(st.stx_mode) && links_to(dir, name, "/dmabuf:"))
        return HOLDER_OPEN;
    /* A node that is registered with it need be in no table. */
    return links_to(dir, name, "anon_inode:[io_uring]") ? HOLDER_OPEN : HOLDER_END;
}

/* ---- one process ---- */

/* Searches a directory of links to files for one that can hold memory. Returns enum holder_how,
 * HOLDER_END for none, or -ENOBUFS: the container has more files than the limit. */
static int search_maps(const struct walk *w, struct container *c, const char *path) {
    _cleanup_closedir_ DIR *dir = opendir(path);
    const struct dirent *e;

    while (dir && (e = readdir(dir))) {
        if (e->d_name[0] == '.')
            continue;
        if (c->files >= HOLDERS_FILES_MAX)
            return -ENOBUFS;
        c->files++;
        enum holder_how how = kind_of(w, dirfd(dir), e->d_name);
        if (how != HOLDER_END)
            return (int) how;
    }
    return HOLDER_END;
}

/* Threads can have descriptors of their own, and the first thread has none when it has ended. */
static int search_files(const struct walk *w, struct container *c, int pid) {
    _cleanup_closedir_ DIR *tasks = NULL;
    char path[80];
    const struct dirent *e;
    uint64_t tid, before = 0;
    int r = HOLDER_END;

    (void) snprintf(path, sizeof(path), "/proc/%d/task", pid);
    tasks = opendir(path);
    while (r == HOLDER_END && tasks && (e = readdir(tasks))) {
        if (num_parse_u64(e->d_name, INT32_MAX, &tid) < 0)
            continue;
        if (before > 0 && syscall(SYS_kcmp, (pid_t) before, (pid_t) tid, KCMP_FILES, 0, 0) == 0) {
            r = c->files >= HOLDERS_FILES_MAX ? -ENOBUFS : HOLDER_END;
            c->files++;
            continue;
        }
        before = tid;
        (void) snprintf(path, sizeof(path), "/proc/%d/task/%u/fd", pid, (unsigned) tid);
        r = search_maps(w, c, path);
    }
    return r;
}

static void report_holder(const struct walk *w, const struct container *c, int pid,
                          enum holder_how how) {
    const struct holder h = {.pid = (uint32_t) pid, .how = how, .id = c->id};

    w->report(&h, w->userdata);
}

static struct container *container_of(struct walk *w, const struct cgroup_id *id) {
    for (size_t i = 0; i < w->ncontainers; i++)
        if (strcmp(w->containers[i].id.container_id, id->container_id) == 0 &&
            strcmp(w->containers[i].id.pod_uid, id->pod_uid) == 0)
            return &w->containers[i];
    if (w->ncontainers == CONTAINERS_MAX)
        return NULL;
    w->containers[w->ncontainers] = (struct container){
        .id = *id, .reported = id->container_id[0] && strstr(w->skip, id->container_id)};
    return &w->containers[w->ncontainers++];
}

static void visit(int pid, void *userdata) {
    struct walk *w = userdata;
    struct container *c;
    struct cgroup_id id;
    char path[48];
    int r;

    if ((uint32_t) pid < w->from || cgroup_of_pid(pid, &id) != 1)
        return;
    c = container_of(w, &id);
    if (!c || c->reported)
        return;
    r = c->processes++ < HOLDERS_PROCESSES_MAX ? search_files(w, c, pid) : -ENOBUFS;
    if (r == HOLDER_END) {
        report_holder(w, c, pid, HOLDER_LOOKING);
        (void) snprintf(path, sizeof(path), "/proc/%d/map_files", pid);
        r = search_maps(w, c, path);
        r = r == HOLDER_OPEN ? HOLDER_MAPPED : r;
    }
    if (r != HOLDER_END)
        report_holder(w, c, pid, r < 0 ? HOLDER_UNREADABLE : (enum holder_how) r);
    c->reported = r < 0;
}

/* ---- all of them ---- */

void holders_walk(const char *const *dirs, size_t ndirs, uint32_t from, const char *skip,
                  void (*on_holder)(const struct holder *h, void *userdata), void *userdata) {
    struct walk *w = calloc(1, sizeof(*w));
    const struct holder end = {.how = HOLDER_END};
    struct procfs_walk all = {NULL};
    int r = 0;

    if (!w)
        return;
    w->from = from;
    w->skip = skip;
    w->report = on_holder;
    w->userdata = userdata;
    for (size_t i = 0; i < ndirs; i++)
        add_nodes(w, dirs[i], false);
    while (r == 0)
        r = procfs_walk_step(&all, UINT_MAX, visit, w);
    if (r == 1)
        on_holder(&end, userdata);
    free(w);
}

/* ---- the child ---- */

static void write_out(const struct holder *h, void *userdata) {
    (void) userdata;
    if (write(STDOUT_FILENO, h, sizeof(*h)) != (ssize_t) sizeof(*h))
        _exit(EXIT_FAILURE);
}

int holders_main(int argc, char **argv) {
    uint64_t from;

    if (argc < 5 || num_parse_u64(argv[2], INT32_MAX, &from) < 0) {
        (void) fprintf(stderr, "%s is started by the agent itself\n", HOLDERS_COMMAND);
        return EXIT_FAILURE;
    }
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void) prctl(PR_SET_NAME, "aliquot-holders");
    holders_walk((const char *const *) argv + 4, (size_t) argc - 4, (uint32_t) from, argv[3],
                 write_out, NULL);
    return EXIT_SUCCESS;
}
