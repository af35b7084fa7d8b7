/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/os/procfs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/num.h"
#include "base/proc.h"

/* Maximum number of threads that are checked. An ending process has few left in the list, unless
 * another process traces them: then a tenant decides how many. */
#define THREADS_MAX 256
#define INITIAL_PID_NAMESPACE 0xEFFFFFFCu /* PROC_PID_INIT_INO: the same on every machine */

static bool is_gone(int error) {
    return error == ENOENT || error == ESRCH;
}

/* Reads the beginning of a file of /proc; "" when that fails. False: it may be there even so. */
static bool read_start(const char *path, char *ret, size_t size) {
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n = fd < 0 ? -1 : 1;

    while (n > 0 && used < size - 1) {
        n = read(fd, ret + used, size - 1 - used);
        used += n > 0 ? (size_t) n : 0;
    }
    ret[used] = 0;
    return n >= 0 || is_gone(errno);
}

/* Whether `is` holds for all threads of the process: true if the process is gone, false with more
 * than THREADS_MAX threads, `unknown` if a thread cannot be checked (no descriptor, no memory). */
static bool all_threads(int pid, bool (*is)(const char *stat), bool unknown) {
    _cleanup_closedir_ DIR *tasks = NULL;
    char path[64], text[1024];
    struct dirent *e;
    int n = 0;

    (void) snprintf(path, sizeof(path), "/proc/%d/task", pid);
    tasks = opendir(path);
    if (!tasks)
        return is_gone(errno) || unknown;
    while ((e = readdir(tasks))) {
        if (!isdigit((unsigned char) e->d_name[0]))
            continue;
        (void) snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat", pid, e->d_name);
        if (!read_start(path, text, sizeof(text)))
            return unknown;
        if (++n > THREADS_MAX || !is(text))
            return false;
    }
    return true;
}

bool procfs_is_ending(int pid) {
    return all_threads(pid, proc_stat_is_ending, true);
}

static bool stat_has_ended(const char *text) {
    const char *at = strrchr(text, ')');

    return !at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X';
}

bool process_has_ended(int pid) {
    return all_threads(pid, stat_has_ended, false);
}

/* ---- all of them ---- */

int procfs_walk_step(struct procfs_walk *w, unsigned max, void (*visit)(int pid, void *userdata),
                     void *userdata) {
    const struct dirent *e;
    uint64_t pid;

    if (!w->proc)
        w->proc = opendir("/proc");
    if (!w->proc)
        return -errno;
    for (unsigned i = 0; i < max; i++) {
        e = readdir(w->proc);
        if (!e) {
            procfs_walk_end(w);
            return 1;
        }
        if (isdigit((unsigned char) e->d_name[0]) && num_parse_u64(e->d_name, INT32_MAX, &pid) == 0)
            visit((int) pid, userdata);
    }
    return 0;
}

bool procfs_walk_is_under_way(const struct procfs_walk *w) {
    return w->proc != NULL;
}

void procfs_walk_end(struct procfs_walk *w) {
    if (w->proc)
        (void) closedir(w->proc);
    w->proc = NULL;
}

/* ---- names ---- */

/* Fields of /proc/PID/stat, counted from the state, which is the first behind the name: when the
 * process started; where code, stack, data, heap, arguments and environment lie. */
static const unsigned char life_fields[] = {19, 23, 24, 25, 42, 43, 44, 45, 46, 47, 48};

uint64_t procfs_life(int pid) {
    char path[64], text[1024], *at, *save = NULL;
    uint64_t hash = HASH_START;
    unsigned int field = 0, next = 0;

    (void) snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    (void) read_start(path, text, sizeof(text));
    at = strrchr(text, ')');
    if (!at)
        return 0;
    for (char *word = strtok_r(at + 1, " ", &save); word && next < sizeof(life_fields);
         word = strtok_r(NULL, " ", &save)) {
        if (field++ != life_fields[next])
            continue;
        next++;
        hash = hash_text(hash, word);
    }
    return hash | 1;
}

void procfs_name(int pid, char ret[static PROCFS_NAME_MAX]) {
    char path[64];

    (void) snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    (void) read_start(path, ret, PROCFS_NAME_MAX);
    for (char *c = ret; *c; c++) {
        if (*c == '\n')
            *c = 0;
        else if (*c < ' ' || *c > '~')
            *c = '?';
        if (!*c)
            break;
    }
    if (!ret[0])
        (void) snprintf(ret, PROCFS_NAME_MAX, "?");
}

bool procfs_namespace_is_initial(void) {
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == INITIAL_PID_NAMESPACE;
}
