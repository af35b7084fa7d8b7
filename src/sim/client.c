/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/client.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* How long a sleeper goes without looking whether the daemon still lives. */
#define PATIENCE_NS 250000000u

static const _Atomic uint32_t no_faults;
const _Atomic uint32_t *client_faults = &no_faults;

/* Connects to a device's socket. A connection does not show in /proc which file it was made to, so
 * the file itself is opened too: `ret_node` is what a descriptor of a device node looks like. */
static int connect_socket(const char *dir, const char *name, uint32_t number, int *ret_node) {
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    *ret_node = -1;
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
    *ret_node = open(sa.sun_path, O_PATH | O_CLOEXEC);
    return fd;
}

static void close_fd(int *fd) {
    if (*fd >= 0)
        (void) close(*fd);
    *fd = -1;
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

/* A request, and the descriptor that goes along with it. */
static bool send_request(int fd, const struct sim_request *request, int passed) {
    struct iovec iov = {(void *) (uintptr_t) request, sizeof(*request)};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (passed >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &passed, sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t) sizeof(*request);
}

static int send_and_receive(int fd, const struct sim_request *request, int passed,
                            struct client_answer *a) {
    ssize_t n;
    if (!send_request(fd, request, passed))
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

/* Puts it where its card belongs: that with the lowest number need not be the first. */
static void add_device(struct client *c, const struct client_device *new) {
    uint32_t at = c->ndevices++;
    for (; at > 0 && c->device[at - 1].minor > new->minor; at--)
        c->device[at] = c->device[at - 1];
    c->device[at] = *new;
}

static int attach(struct client *c, const char *dir, uint32_t number, const uint64_t token[2]) {
    int node, fd = connect_socket(dir, SIM_DEVICE_NAME, number, &node);
    if (fd < 0)
        return fd;
    struct sim_request q = {
        .magic = SIM_MAGIC, .op = SIM_ATTACH, .minor = number, .token = {token[0], token[1]}};
    struct client_answer a = {.fds = {-1, -1}};
    int r = send_and_receive(fd, &q, -1, &a);
    if (r == 0 && a.fds[0] >= 0) {
        const struct sim_page *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, a.fds[0], 0);
        (void) close(a.fds[0]);
        if (page != MAP_FAILED) {
            add_device(c, &(struct client_device){fd, node, page->minor, page});
            return 0;
        }
        r = -ENOMEM;
    }
    close_fd(&fd);
    close_fd(&node);
    return r < 0 ? r : -EPROTO;
}

/* A capability's descriptor is the right to use it: it stays open. */
static int attach_capability(struct client *c, uint32_t number) {
    if (number == 0 || c->ncapabilities == sizeof(c->capability) / sizeof(c->capability[0]))
        return -EACCES;
    int node, fd = connect_socket(c->dir, SIM_CAP_NAME, number, &node);
    if (fd < 0)
        return -EACCES;
    struct sim_request q = {
        .magic = SIM_MAGIC, .op = SIM_ATTACH, .token = {c->token[0], c->token[1]}};
    struct client_answer a = {.fds = {-1, -1}};
    int r = send_and_receive(fd, &q, -1, &a);
    if (r == 0) {
        c->capability[c->ncapabilities++] = (struct client_capability){fd, node, number};
        return 0;
    }
    close_fd(&fd);
    close_fd(&node);
    return -EACCES;
}

static int map_host(struct client *c, int fd) {
    void *map = mmap(NULL, SIM_HOST_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    c->host = map;
    client_faults = &c->host->faults;
    return 0;
}

int client_open(struct client *c) {
    const char *dir = getenv(SIM_DIR_ENV);
    if (!dir || !*dir)
        dir = SIM_DIR_DEFAULT;
    int fd = connect_socket(dir, SIM_CTL_NAME, UINT32_MAX, &c->node);
    if (fd < 0)
        return fd == -EACCES ? fd : -ENOENT;
    c->ctl = fd;
    c->lost = false;
    c->ndevices = c->ncapabilities = 0;
    (void) snprintf(c->dir, sizeof(c->dir), "%s", dir); /* fits: so did a socket's path */
    struct sim_request q = {.magic = SIM_MAGIC, .op = SIM_HELLO, .a = SIM_PROTO};
    struct client_answer a = {.fds = {-1, -1}};
    int r = send_and_receive(fd, &q, -1, &a);
    if (r == 0)
        r = a.fds[0] >= 0 ? map_host(c, a.fds[0]) : -EPROTO;
    if (a.fds[0] >= 0)
        (void) close(a.fds[0]);
    memcpy(c->token, a.reply.token, sizeof(c->token));
    for (uint32_t i = 0; r == 0 && i < a.reply.a && i < SIM_MAX_GPUS; i++)
        (void) attach(c, dir, i, c->token); /* one that is not there does not exist */
    if (r < 0)
        client_close(c);
    return r;
}

void client_close(struct client *c) {
    for (uint32_t i = 0; i < c->ndevices; i++) {
        close_fd(&c->device[i].fd);
        close_fd(&c->device[i].node);
    }
    for (uint32_t i = 0; i < c->ncapabilities; i++) {
        close_fd(&c->capability[i].fd);
        close_fd(&c->capability[i].node);
    }
    c->ncapabilities = 0;
    close_fd(&c->ctl);
    close_fd(&c->node);
    client_faults = &no_faults;
}

void client_forget(struct client *c) {
    if (c->host && c->host->fork_closes) {
        client_close(c);
        return;
    }
    c->ndevices = c->ncapabilities = 0;
    c->ctl = c->node = -1;
    client_faults = &no_faults;
}

int client_request(struct client *c, const struct sim_request *request, int fd,
                   struct client_answer *answer) {
    answer->fds[0] = answer->fds[1] = -1;
    int saved = errno;
    (void) pthread_mutex_lock(&c->lock);
    int r;
    do
        r = c->lost || c->ctl < 0 ? -EPIPE : send_and_receive(c->ctl, request, fd, answer);
    while (r == -EACCES && attach_capability(c, (uint32_t) answer->reply.a) == 0);
    if (r == -EPIPE)
        c->lost = true;
    (void) pthread_mutex_unlock(&c->lock);
    errno = saved;
    return r;
}

int client_call(struct client *c, uint32_t op, uint32_t minor, uint64_t a,
                struct client_answer *answer) {
    struct sim_request q = {.magic = SIM_MAGIC, .op = op, .minor = minor, .a = a};
    return client_request(c, &q, -1, answer);
}

int client_mig(struct client *c, uint32_t minor, enum sim_mig what, uint64_t x, uint64_t y,
               struct client_answer *answer) {
    struct sim_request q = {
        .magic = SIM_MAGIC, .op = SIM_MIG, .minor = minor, .a = what, .token = {x, y}};
    return client_request(c, &q, -1, answer);
}

const struct sim_page *client_attach_part(struct client *c, uint32_t minor, uint32_t unit,
                                          uint32_t capability) {
    struct client_answer a = {.list = NULL};
    if (client_mig(c, minor, SIM_MIG_ATTACH, unit, capability, &a) < 0 || a.fds[0] < 0)
        return NULL;
    void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, a.fds[0], 0);
    (void) close(a.fds[0]);
    return page == MAP_FAILED ? NULL : page;
}

int client_do(struct client *c, uint32_t op, uint32_t minor, uint64_t a) {
    struct client_answer answer = {.list = NULL};
    return client_call(c, op, minor, a, &answer);
}

void client_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t ns) {
    const struct timespec ts = {.tv_sec = (time_t) (ns / 1000000000u),
                                .tv_nsec = (long) (ns % 1000000000u)};
    int saved = errno;
    (void) syscall(SYS_futex, (uintptr_t) word, FUTEX_WAIT, seen, &ts, NULL, 0);
    errno = saved;
}

/* Only a version and a kind of stream: "", "_v2", "_v2_ptsz". Programs that say cuMemAlloc call
 * cuMemAlloc_v2, by their headers. */
static bool is_variant(const char *tail) {
    if (strncmp(tail, "_v", 2) == 0 && tail[2] >= '0' && tail[2] <= '9')
        tail += 2 + strspn(tail + 2, "0123456789");
    return *tail == '\0' || strcmp(tail, "_ptsz") == 0 || strcmp(tail, "_ptds") == 0;
}

/* Is `name` one of the patterns in `list`? */
static bool list_has_name(const char *list, const char *name) {
    while (*list) {
        size_t n = strcspn(list, ",");
        bool open_end = n > 0 && list[n - 1] == '*';
        if (open_end ? strncmp(list, name, n - 1) == 0
                     : strncmp(list, name, n) == 0 && is_variant(name + n))
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

/* One slot of the machine's page. True: the call is decided, by *ret_status. */
static bool apply_fault(struct client *c, uint32_t slot, const char *name, uint32_t card,
                        uint32_t *ret_status) {
    const struct sim_fault *f = &c->host->fault[slot];
    uint32_t generation = atomic_load(&f->generation);
    if (!(generation & 1) || !list_has_name(f->names, name))
        return false;
    struct client_answer a = {.list = NULL};
    struct sim_request q = {.magic = SIM_MAGIC,
                            .op = SIM_FAULT,
                            .a = (uint64_t) slot << 32 | generation,
                            .token = {card}};
    if (client_request(c, &q, -1, &a) < 0)
        return false;
    if (a.reply.a == SIM_FAULT_FAIL) {
        *ret_status = (uint32_t) a.reply.b;
        return true;
    }
    while (a.reply.a == SIM_FAULT_HANG && atomic_load(&f->generation) == generation &&
           !client_is_lost(c))
        client_wait(&f->generation, generation, PATIENCE_NS);
    return false;
}

uint32_t client_fault(struct client *c, const char *name, uint32_t card) {
    uint32_t status = 0;
    for (uint32_t i = 0; c->host && i < SIM_FAULTS; i++)
        if (apply_fault(c, i, name, card, &status))
            return status;
    return 0;
}

bool client_is_lost(struct client *c) {
    struct pollfd p = {.fd = c->ctl, .events = 0};
    if (!c->lost && (c->ctl < 0 || (poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)))))
        c->lost = true;
    return c->lost;
}
