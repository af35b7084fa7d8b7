/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/mapped.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"

#define STACK_BYTES (64u << 10)
#define CHUNK_BYTES (16u << 10)
/* A process has 65,530 mappings at most where that was not raised. */
#define MAPS_MAX_BYTES (64u << 20)

struct mapped_query {
    int pid;
    dev_t device;
    ino_t inode;
    _Atomic int answer;
    _Atomic int users; /* the caller and the thread */
};

/* "7f00-7f01 rw-s 00000000 08:01 1234   /path": whether the line is of the file, and of a mapping
 * that writes it: the library reads the ledger in processes, too, that have booked nothing. */
static bool is_of_file(const char *line, const struct mapped_query *query) {
    unsigned int major_number, minor_number;
    unsigned long long inode;
    char mode[5];

    return sscanf(line, "%*x-%*x %4s %*x %x:%x %llu", mode, &major_number, &minor_number, &inode) ==
               4 &&
           mode[1] == 'w' && mode[3] == 's' &&
           makedev(major_number, minor_number) == query->device && inode == query->inode;
}

/* Looks at the whole lines in `text`; returns the length of what is left behind them. */
static size_t match_lines(char *text, size_t len, const struct mapped_query *query,
                          bool *ret_found) {
    char *at = text, *end;

    while ((end = memchr(at, '\n', len - (size_t) (at - text)))) {
        *end = '\0';
        *ret_found = *ret_found || is_of_file(at, query);
        at = end + 1;
    }
    len -= (size_t) (at - text);
    memmove(text, at, len);
    return len;
}

static enum mapped_answer search_maps(const struct mapped_query *query) {
    char path[64], text[CHUNK_BYTES];
    size_t used = 0, sum = 0;
    bool found = false;
    ssize_t n;

    (void) snprintf(path, sizeof(path), "/proc/%d/maps", query->pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return MAPPED_UNKNOWN;
    while (!found && sum < MAPS_MAX_BYTES && (n = read(fd, text + used, sizeof(text) - used)) > 0) {
        sum += (size_t) n;
        used = match_lines(text, used + (size_t) n, query, &found);
        if (used == sizeof(text))
            used = 0; /* longer than any line */
    }
    if (sum == 0)
        return MAPPED_UNKNOWN; /* it has no memory any more */
    return found ? MAPPED_YES : MAPPED_NO;
}

static void release_query(struct mapped_query *query) {
    if (atomic_fetch_sub(&query->users, 1) == 1)
        free(query);
}

static void *run(void *arg) {
    struct mapped_query *query = arg;

    atomic_store(&query->answer, (int) search_maps(query));
    release_query(query);
    return NULL;
}

struct mapped_query *mapped_query(int pid, dev_t device, ino_t inode) {
    struct mapped_query *query = calloc(1, sizeof(*query));
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    if (!query)
        return NULL;
    query->pid = pid;
    query->device = device;
    query->inode = inode;
    atomic_store(&query->users, 2);
    (void) pthread_attr_init(&attr);
    (void) pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void) pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    r = pthread_create(&thread, &attr, run, query);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void) pthread_attr_destroy(&attr);
    if (r == 0)
        return query;
    free(query);
    return NULL;
}

enum mapped_answer mapped_answer(const struct mapped_query *query) {
    return (enum mapped_answer) atomic_load(&query->answer);
}

struct mapped_query *mapped_free(struct mapped_query *query) {
    if (query)
        release_query(query);
    return NULL;
}
