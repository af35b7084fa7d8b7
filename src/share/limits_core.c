/* SPDX-License-Identifier: Apache-2.0 */
#include "share/limits_core.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "share/io_core.h"

/* A writer would have to finish an update within each of the copies that we make. */
#define TRIES_MAX 100

static bool is_limits(const struct limits_file *file, off_t size) {
    return file->magic == LIMITS_MAGIC && file->version == LIMITS_VERSION && file->size == size;
}

/* Of a file that has grown beyond what we know, only that is mapped. */
static size_t mapped_size(off_t size) {
    return size < (off_t) sizeof(struct limits_file) ? LIMITS_SIZE_MIN : sizeof(struct limits_file);
}

int limits_map_fd(int fd, int protection, struct limits_file **ret) {
    /* Not fstat for the size, which no symbol of an old C library answers to. */
    off_t size = lseek(fd, 0, SEEK_END);
    struct limits_file *file;

    if (size < (off_t) LIMITS_SIZE_MIN)
        return -EBADMSG;
    file = mmap(NULL, mapped_size(size), protection, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return -errno;
    if (!is_limits(file, size)) {
        (void) munmap(file, mapped_size(size));
        return -EBADMSG;
    }
    *ret = file;
    return 0;
}

int limits_map(const char *path, const struct limits_file **ret) {
    /* Nonblocking: a lease on the file would hold the agent up. */
    int fd = io_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r;
    struct limits_file *file = NULL;

    if (fd < 0)
        return -errno;
    r = limits_map_fd(fd, PROT_READ, &file);
    io_close(fd);
    if (r == 0)
        *ret = file;
    return r;
}

void limits_unmap(const struct limits_file *file) {
    (void) munmap((void *) (uintptr_t) file, mapped_size(file->size));
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

        memcpy(ret, &file->copy[before & 1], sizeof(file->copy[0]));
        if (limits_has_more(file))
            memcpy(ret->more, file->more[before & 1], sizeof(ret->more));
        else
            memset(ret->more, 0, sizeof(ret->more));
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&file->index, __ATOMIC_RELAXED) == before) {
            terminate(ret);
            return 0;
        }
    }
    return -EAGAIN;
}
