/* SPDX-License-Identifier: Apache-2.0 */
#include "share/compute_core.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* What both files begin with. */
struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
};

static int map(const char *path, const struct head *expected, bool writable, void **ret) {
    /* Nonblocking: a lease on the file would hold us up. */
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK), r = -EBADMSG;
    struct head *file = MAP_FAILED;

    if (fd < 0)
        return -errno;
    if (lseek(fd, 0, SEEK_END) >= (off_t) expected->size) {
        file = mmap(NULL, expected->size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                    fd, 0);
        if (file == MAP_FAILED)
            r = -errno;
    }
    (void) close(fd);
    if (file == MAP_FAILED)
        return r;
    if (file->magic != expected->magic || file->version != expected->version ||
        file->size < expected->size) {
        (void) munmap(file, expected->size);
        return -EBADMSG;
    }
    *ret = file;
    return 0;
}

int grants_map(const char *path, const struct grants_file **ret) {
    const struct head head = {GRANTS_MAGIC, GRANTS_VERSION, sizeof(struct grants_file)};
    void *file = NULL;
    int r = map(path, &head, false, &file);

    if (r == 0)
        *ret = file;
    return r;
}

int compute_map(const char *path, struct compute_file **ret) {
    const struct head head = {COMPUTE_MAGIC, COMPUTE_VERSION, sizeof(struct compute_file)};
    void *file = NULL;
    int r = map(path, &head, true, &file);

    if (r == 0)
        *ret = file;
    return r;
}
