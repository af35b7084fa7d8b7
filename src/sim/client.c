/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int dial(const char *dir, const char *name, uint32_t number) {
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int n = number == UINT32_MAX
                ? snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", dir, name)
                : snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s%u", dir, name, number);
    if (n < 0 || (size_t) n >= sizeof(sa.sun_path))
        return -ENAMETOOLONG;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r;
    do
        r = connect(fd, (struct sockaddr *) &sa, sizeof(sa));
    while (r < 0 && errno == EINTR);
    if (r < 0) {
        r = -errno;
        (void) close(fd);
        return r;
    }
    return fd;
}

/* Takes the descriptors out of a received message; surplus ones are closed by the kernel. */
static void take_fds(struct msghdr *msg, int fds[2]) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), (n < 2 ? n : 2) * sizeof(int));
    }
}

static int exchange(int fd, const struct sim_request *request, struct client_answer *a) {
    ssize_t n;
    do
        n = send(fd, request, sizeof(*request), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t) sizeof(*request))
        return -EPIPE;
    struct iovec iov[2] = {{&a->reply, sizeof(a->reply)}, {a->list, a->list ? a->list_max : 0}};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct msghdr msg = {.msg_iov = iov,
                         .msg_iovlen = 2,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    do
        n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < (ssize_t) sizeof(a->reply))
        return -EPIPE;
    take_fds(&msg, a->fds);
    return a->reply.status;
}

static int attach(struct client *c, const char *dir, uint32_t minor, const uint64_t token[2]) {
    int fd = dial(dir, SIM_DEVICE_NAME, minor);
    if (fd < 0)
        return fd;
    struct sim_request q = {
        .magic = SIM_MAGIC, .op = SIM_ATTACH, .minor = minor, .token = {token[0], token[1]}};
    struct client_answer a = {.fds = {-1, -1}};
    int r = exchange(fd, &q, &a);
    if (r == 0 && a.fds[0] >= 0) {
        void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, a.fds[0], 0);
        (void) close(a.fds[0]);
        if (page != MAP_FAILED) {
            c->device[c->ndevices++] = (struct client_device){fd, minor, page};
            return 0;
        }
        r = -ENOMEM;
    }
    (void) close(fd);
    return r < 0 ? r : -EPROTO;
}

int client_open(struct client *c) {
    const char *dir = getenv(SIM_DIR_ENV);
    if (!dir || !*dir)
        dir = SIM_DIR_DEFAULT;
    int fd = dial(dir, SIM_CTL_NAME, UINT32_MAX);
    if (fd < 0)
        return fd == -EACCES ? fd : -ENOENT;
    c->ctl = fd;
    c->lost = false;
    c->ndevices = 0;
    struct sim_request q = {.magic = SIM_MAGIC, .op = SIM_HELLO, .a = SIM_PROTO};
    struct client_answer a = {.fds = {-1, -1}};
    int r = exchange(fd, &q, &a);
    for (uint32_t i = 0; r == 0 && i < a.reply.a && i < SIM_MAX_GPUS; i++)
        (void) attach(c, dir, i, a.reply.token); /* one that is not there does not exist */
    if (r < 0)
        client_close(c);
    return r;
}

void client_close(struct client *c) {
    for (uint32_t i = 0; i < c->ndevices; i++)
        if (c->device[i].fd >= 0) {
            (void) close(c->device[i].fd);
            c->device[i].fd = -1;
        }
    if (c->ctl >= 0)
        (void) close(c->ctl);
    c->ctl = -1;
}

int client_call(struct client *c, uint32_t op, uint32_t minor, uint64_t a,
                struct client_answer *answer) {
    struct sim_request q = {.magic = SIM_MAGIC, .op = op, .minor = minor, .a = a};
    answer->fds[0] = answer->fds[1] = -1;
    int saved = errno;
    (void) pthread_mutex_lock(&c->lock);
    int r = c->lost || c->ctl < 0 ? -EPIPE : exchange(c->ctl, &q, answer);
    if (r == -EPIPE)
        c->lost = true;
    (void) pthread_mutex_unlock(&c->lock);
    errno = saved;
    return r;
}

int client_do(struct client *c, uint32_t op, uint32_t minor, uint64_t a) {
    struct client_answer answer = {.list = NULL};
    return client_call(c, op, minor, a, &answer);
}

bool client_is_lost(struct client *c) {
    struct pollfd p = {.fd = c->ctl, .events = 0};
    if (!c->lost && (c->ctl < 0 || (poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)))))
        c->lost = true;
    return c->lost;
}
