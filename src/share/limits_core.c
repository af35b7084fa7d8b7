/* SPDX-License-Identifier: Apache-2.0 */
#include "share/limits_core.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A writer would have to finish an update within each of the copies that we make. */
#define TRIES_MAX 100

int limits_map(const char *path, const struct limits_file **ret) {
    struct limits_file *file = MAP_FAILED;
    /* Nonblocking: a lease on the file would hold the agent up. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r = -EBADMSG;

    if (fd < 0)
        return -errno;
    if (lseek(fd, 0, SEEK_END) == (off_t) sizeof(*file)) {
        file = mmap(NULL, sizeof(*file), PROT_READ, MAP_SHARED, fd, 0);
        if (file == MAP_FAILED)
            r = -errno;
    }
    (void) close(fd);
    if (file == MAP_FAILED)
        return r;
    if (file->magic != LIMITS_MAGIC || file->version != LIMITS_VERSION ||
        file->size != sizeof(*file)) {
        (void) munmap(file, sizeof(*file));
        return -EBADMSG;
    }
    *ret = file;
    return 0;
}

static void terminate(struct share_limits *limits) {
    limits->pod_uid[sizeof(limits->pod_uid) - 1] = '\0';
    limits->namespace[sizeof(limits->namespace) - 1] = '\0';
    limits->pod[sizeof(limits->pod) - 1] = '\0';
    limits->container[sizeof(limits->container) - 1] = '\0';
    for (int i = 0; i < LIMITS_DEVICES_MAX; i++)
        limits->device[i].uuid[sizeof(limits->device[i].uuid) - 1] = '\0';
    if (limits->ndevices > LIMITS_DEVICES_MAX)
        limits->ndevices = LIMITS_DEVICES_MAX;
}

int limits_copy(const struct limits_file *file, struct share_limits *ret) {
    for (int i = 0; i < TRIES_MAX; i++) {
        uint64_t before = __atomic_load_n(&file->index, __ATOMIC_ACQUIRE);

        memcpy(ret, &file->copy[before & 1], sizeof(*ret));
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&file->index, __ATOMIC_RELAXED) == before) {
            terminate(ret);
            return 0;
        }
    }
    return -EAGAIN;
}
