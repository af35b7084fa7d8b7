/* SPDX-License-Identifier: Apache-2.0 */
#include "share/limits.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/file.h"

static void unmap_limitsp(struct limits_file **file) {
    if (*file)
        limits_unmap(*file);
}

static void fill_copy(struct limits_file *file, unsigned int copy,
                      const struct share_limits *limits) {
    memcpy(&file->copy[copy], limits, sizeof(file->copy[copy]));
    if (limits_has_more(file))
        memcpy(file->more[copy], limits->more, sizeof(limits->more));
}

static bool terminated(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

static int check_limits(const struct share_limits *limits, struct err *err) {
    if (limits->ndevices > LIMITS_DEVICES_MAX)
        return err_set(err, EINVAL, "%u devices in one share, at most %d are possible",
                       limits->ndevices, LIMITS_DEVICES_MAX);
    if (!terminated(limits->pod_uid, sizeof(limits->pod_uid)) ||
        !terminated(limits->namespace, sizeof(limits->namespace)) ||
        !terminated(limits->pod, sizeof(limits->pod)) ||
        !terminated(limits->container, sizeof(limits->container)))
        return err_set(err, EINVAL,
                       "the name of a pod or container is too long for the limits file");
    for (uint32_t i = 0; i < limits->ndevices; i++)
        if (!terminated(limits->device[i].uuid, sizeof(limits->device[i].uuid)))
            return err_set(err, EINVAL, "the UUID of device %u is too long for the limits file", i);
    return 0;
}

int limits_create(const char *path, const struct share_limits *limits, struct err *err) {
    struct limits_file file = {
        .magic = LIMITS_MAGIC, .version = LIMITS_VERSION, .size = sizeof(file)};
    int r = check_limits(limits, err);

    if (r < 0)
        return r;
    fill_copy(&file, 0, limits);
    fill_copy(&file, 1, limits);
    return file_replace(path, &file, sizeof(file), 0444, err);
}

static int not_limits(const char *path, struct err *err) {
    return err_set(err, EBADMSG, "%s is not a limits file of version %d", path, LIMITS_VERSION);
}

/* Maps a limits file for writing; -EBADMSG when it is something else, -EAGAIN while a tenant has a
 * lease on it. */
static int map_writable(const char *path, struct limits_file **ret, struct err *err) {
    _cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int r;

    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    r = limits_map_fd(fd, PROT_READ | PROT_WRITE, ret);
    if (r == -EBADMSG)
        return not_limits(path, err);
    return r < 0 ? err_errno(err, -r, "cannot map %s", path) : 0;
}

int limits_update(const char *path, const struct share_limits *limits, struct err *err) {
    _cleanup_(unmap_limitsp) struct limits_file *file = NULL;
    uint64_t index;
    int r = check_limits(limits, err);

    if (r < 0)
        return r;
    r = map_writable(path, &file, err);
    if (r < 0 || !file)
        return r;
    index = __atomic_load_n(&file->index, __ATOMIC_ACQUIRE);
    /* A reader that started on this copy before the last update must see that before it sees new
     * bytes. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    fill_copy(file, (index + 1) & 1, limits);
    __atomic_store_n(&file->index, index + 1, __ATOMIC_RELEASE);
    return 0;
}

int limits_read(const char *path, struct share_limits *ret, struct err *err) {
    const struct limits_file *file;
    int r = limits_map(path, &file);

    if (r < 0)
        return r == -EBADMSG ? not_limits(path, err) : err_errno(err, -r, "cannot read %s", path);
    r = limits_copy(file, ret);
    limits_unmap(file);
    return r < 0 ? err_errno(err, -r, "cannot read %s", path) : 0;
}
