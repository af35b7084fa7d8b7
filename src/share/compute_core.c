/* SPDX-License-Identifier: Apache-2.0 */
#include "share/compute_core.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "share/io_core.h"

/* What both files begin with. */
struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
};

/* Files that are shorter than `size`, from expected->size on, are mapped all the same. */
static int map(const char *path, const struct head *expected, size_t size, bool writable,
               void **ret) {
    /* Nonblocking: a lease on the file would hold us up. */
    int fd = io_open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK), r = -EBADMSG;
    struct head *file = MAP_FAILED;
    off_t length;

    if (fd < 0)
        return -errno;
    length = lseek(fd, 0, SEEK_END);
    if (length >= (off_t) expected->size) {
        file = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (file == MAP_FAILED)
            r = -errno;
    }
    io_close(fd);
    if (file == MAP_FAILED)
        return r;
    if (file->magic != expected->magic || file->version != expected->version ||
        file->size < expected->size || (off_t) file->size > length) {
        (void) munmap(file, size);
        return -EBADMSG;
    }
    *ret = file;
    return 0;
}

int grants_map(const char *path, const struct grants_file **ret) {
    const struct head head = {GRANTS_MAGIC, GRANTS_VERSION, sizeof(struct grants_file)};
    void *file = NULL;
    int r = map(path, &head, sizeof(struct grants_file), false, &file);

    if (r == 0)
        *ret = file;
    return r;
}

int compute_map(const char *path, struct compute_file **ret) {
    const struct head head = {COMPUTE_MAGIC, COMPUTE_VERSION, COMPUTE_SIZE_LEAST};
    void *file = NULL;
    int r = map(path, &head, sizeof(struct compute_file), true, &file);

    if (r == 0)
        *ret = file;
    return r;
}
