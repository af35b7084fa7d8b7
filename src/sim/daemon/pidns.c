/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/pidns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/cleanup.h"

/* The inodes of a process's PID namespace and of its ancestors, as far as they can be seen. */
static int read_chain(pid_t pid, struct pidns *p) {
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int) pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (p->depth < PIDNS_DEPTH) {
        struct stat st;
        if (fstat(fd, &st) < 0)
            return -errno;
        p->ns[p->depth++] = st.st_ino;
        int parent = ioctl(fd, NS_GET_PARENT);
        if (parent < 0)
            break; /* the outermost that we may see */
        (void) close(fd);
        fd = parent;
    }
    return 0;
}

/* Numbers with white space between. Returns how many. */
static int parse_numbers(const char *at, pid_t list[PIDNS_DEPTH]) {
    int n = 0;
    while (n < PIDNS_DEPTH) {
        at += strspn(at, " \t");
        if (*at < '0' || *at > '9')
            break;
        list[n] = 0;
        for (; *at >= '0' && *at <= '9'; at++)
            list[n] = list[n] * 10 + (*at - '0');
        n++;
    }
    return n;
}

/* NSpid lists the PIDs from the namespace of /proc inwards: the reverse of our order. */
static int read_pids(pid_t pid, struct pidns *p) {
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    char line[512];
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, "NSpid:", 6) != 0)
            continue;
        pid_t list[PIDNS_DEPTH];
        int n = parse_numbers(line + 6, list);
        if (n < p->depth)
            p->depth = n;
        for (int i = 0; i < p->depth; i++)
            p->pid[i] = list[n - 1 - i];
        return 0;
    }
    return -ENOENT;
}

int pidns_read(pid_t pid, struct pidns *ret) {
    struct pidns p = {0};
    int r = read_chain(pid, &p);
    if (r < 0)
        return r;
    r = read_pids(pid, &p);
    if (r < 0)
        return r;
    *ret = p;
    return 0;
}

pid_t pidns_translate(const struct pidns *reader, const struct pidns *process) {
    if (reader->depth == 0)
        return 0;
    for (int i = 0; i < process->depth; i++)
        if (process->ns[i] == reader->ns[0])
            return process->pid[i];
    return 0;
}
