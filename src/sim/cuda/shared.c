/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/shared.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t) 4096)

size_t shared_room(size_t bytes) {
    return bytes ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE;
}

static int device_of(uint64_t minor) {
    for (int i = 0; i < cuda_ndevices; i++)
        if (cuda_device[i].minor == minor)
            return i;
    return -1;
}

static CUresult share_request(enum sim_op op, uint32_t minor, uint64_t a, const uint64_t id[2],
                              int fd, struct client_answer *answer) {
    struct sim_request q = {.magic = SIM_MAGIC, .op = op, .minor = minor, .a = a};
    if (id) {
        q.token[0] = id[0];
        q.token[1] = id[1];
    }
    int r = client_request(&cuda_client, &q, fd, answer);
    if (r == -ENOENT || r == -EINVAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (r == -EMFILE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (r == -ENODEV)
        return CUDA_ERROR_INVALID_DEVICE; /* one that this process does not see */
    return cuda_from_errno(r);
}

static void close_fd(int fd) {
    if (fd >= 0)
        (void) close(fd);
}

static CUresult accept_share(CUresult r, const struct client_answer *a, struct shared *ret) {
    struct shared s = {.id = {a->reply.token[0], a->reply.token[1]},
                       .device = r == CUDA_SUCCESS ? device_of(a->reply.b) : -1,
                       .bytes = a->reply.a,
                       .fd = a->fds[0]};
    if (r == CUDA_SUCCESS && s.fd >= 0 && s.device >= 0) {
        *ret = s;
        return r;
    }
    if (r == CUDA_SUCCESS)
        shared_close(&s);
    else
        close_fd(s.fd);
    return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_DEVICE : r;
}

CUresult shared_new(int device, size_t bytes, struct shared *ret) {
    struct client_answer a = {.list = NULL};
    CUresult r = share_request(SIM_SHARE, cuda_device[device].minor, bytes, NULL, -1, &a);
    return accept_share(r, &a, ret);
}

CUresult shared_open(const uint64_t id[2], struct shared *ret) {
    struct client_answer a = {.list = NULL};
    CUresult r = share_request(SIM_SHARE_OPEN, 0, 0, id, -1, &a);
    return accept_share(r, &a, ret);
}

CUresult shared_import(int fd, struct shared *ret) {
    struct client_answer a = {.list = NULL};
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = share_request(SIM_SHARE_IMPORT, 0, 0, NULL, fd, &a);
    return accept_share(r, &a, ret);
}

CUresult shared_export(const struct shared *s, int *ret_fd) {
    struct client_answer a = {.list = NULL};
    CUresult r = share_request(SIM_SHARE_EXPORT, 0, 0, s->id, -1, &a);
    if (r == CUDA_SUCCESS)
        *ret_fd = a.fds[0];
    else
        close_fd(a.fds[0]);
    return r;
}

void shared_close(struct shared *s) {
    struct client_answer a = {.list = NULL};
    (void) share_request(SIM_SHARE_CLOSE, 0, 0, s->id, -1, &a);
    close_fd(s->fd);
    s->fd = -1;
}

void *shared_map(const struct shared *s, size_t offset, size_t bytes, void *where) {
    size_t room = shared_room(bytes);
    void *p = mmap(where, room, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), s->fd,
                   (off_t) offset);
    if (p == MAP_FAILED)
        return NULL;
    (void) madvise(p, room, MADV_DONTFORK);
    return p;
}
