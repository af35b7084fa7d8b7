/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cluster/proxy.h"
#include "cli/login.h"
#include "kube/api/config.h"
#include "wire/tls.h"

#define CONNECT_MS 10000 /* until TLS is set up */
#define SEND_MS 10000    /* a request is short: a server that takes none of it is not there */
#define PART ((size_t) 16 << 10)

struct channel {
    int fd;
    struct security *tls; /* NULL: none */
    bool holds;           /* what was fed to TLS may not be read yet */
};

static struct channel *channel_of(int fd) {
    struct channel *c = calloc(1, sizeof(*c));

    if (c)
        c->fd = fd;
    return c;
}

struct channel *channel_close(struct channel *c) {
    if (!c)
        return NULL;
    if (c->tls)
        c->tls->free(c->tls);
    (void) close(c->fd);
    free(c);
    return NULL;
}

/* ---- bytes ---- */

/* 0, or -ETIMEDOUT at `end`. */
static int await(int fd, short events, uint64_t end) {
    for (;;) {
        uint64_t now = clock_ms(CLOCK_MONOTONIC);
        int r = poll(&(struct pollfd){fd, events, 0}, 1, now < end ? (int) (end - now) : 0);
        if (r > 0)
            return 0;
        if (r == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

static int send_all(int fd, const char *data, size_t len, uint64_t end) {
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, data + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        int r = n >= 0 || errno == EINTR ? 0 : -errno;
        if (r == -EAGAIN)
            r = await(fd, POLLOUT, end);
        if (r < 0)
            return r;
        at += n > 0 ? (size_t) n : 0;
    }
    return 0;
}

/* What TLS has for the server. */
static int flush(struct channel *c, uint64_t end) {
    struct buf *out = c->tls->output(c->tls);
    int r = buf_error(out) < 0 ? buf_error(out) : send_all(c->fd, out->data, out->len, end);

    buf_reset(out);
    return r;
}

int channel_send(struct channel *c, const void *data, size_t len) {
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + SEND_MS;

    if (!c->tls)
        return send_all(c->fd, data, len, end);
    int r = c->tls->write(c->tls, data, len);
    return r < 0 ? r : flush(c, end);
}

/* What has come is fed to TLS: how much, as recv() says it. */
static ssize_t feed(struct channel *c) {
    char part[PART];
    ssize_t n = recv(c->fd, part, sizeof(part), MSG_DONTWAIT);

    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    int r = n > 0 ? c->tls->feed(c->tls, part, (size_t) n) : 0;
    c->holds = n > 0;
    return r < 0 ? r : n;
}

ssize_t channel_receive(struct channel *c, void *ret, size_t size) {
    struct err err;
    ssize_t n;

    if (!c->tls) {
        n = recv(c->fd, ret, size, MSG_DONTWAIT);
        return n >= 0 ? n : errno == EINTR ? -EAGAIN : -errno;
    }
    if (!c->holds && (n = feed(c)) <= 0)
        return n;
    n = c->tls->read(c->tls, ret, size, &err);
    c->holds = n > 0;
    if (n == -ESHUTDOWN)
        return 0;
    return n == 0 ? -EAGAIN : n;
}

bool channel_holds(const struct channel *c) {
    return c->holds;
}

int channel_fd(const struct channel *c) {
    return c->fd;
}

/* ---- the API server itself ---- */

static int connect_to(const struct addrinfo *address, uint64_t end) {
    _cleanup_close_ int fd =
        socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0, on = 1;
    socklen_t len = sizeof(error);

    if (fd < 0)
        return -errno;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        return take_fd(&fd);
    if (errno != EINPROGRESS)
        return -errno;
    int r = await(fd, POLLOUT, end);
    if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0)
        r = -error;
    return r < 0 ? r : take_fd(&fd);
}

static int connect_to_one(const struct kube_address *to, uint64_t end, struct err *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int r = getaddrinfo(to->host, to->port, &hints, &found);

    if (r != 0)
        return err_set(err, EHOSTUNREACH, "cannot find the API server %s: %s", to->host,
                       gai_strerror(r));
    r = -EHOSTUNREACH;
    for (const struct addrinfo *one = found; one && r < 0; one = one->ai_next)
        r = connect_to(one, end);
    freeaddrinfo(found);
    return r < 0 ? err_errno(err, -r, "cannot reach the API server %s", to->authority) : r;
}

static int shake_hands(struct channel *c, uint64_t end, struct err *err) {
    int done;

    while ((done = c->tls->handshake(c->tls, err)) >= 0) {
        ssize_t r = flush(c, end);
        if (r == 0 && done > 0)
            return 0;
        if (r == 0)
            r = await(c->fd, POLLIN, end);
        if (r == 0)
            r = feed(c);
        if (r == 0)
            r = -ECONNRESET;
        if (r < 0 && r != -EAGAIN)
            return err_errno(err, (int) -r, "TLS with the API server");
    }
    (void) flush(c, end); /* the alert that says why */
    return done;
}

static struct channel *open_direct(const struct api_login *login, struct err *err) {
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + CONNECT_MS;
    struct kube_address address;
    struct channel *c = NULL;

    if (kube_address_parse(login->server, &address, err) < 0)
        return NULL;
    int fd = connect_to_one(&address, end, err);
    if (fd < 0)
        return NULL;
    c = channel_of(fd);
    if (!c) {
        (void) close(fd);
        (void) err_errno(err, ENOMEM, "cannot reach the API server");
        return NULL;
    }
    const struct tls_client_options tls = {
        .ca_file = login->ca_file, .host = address.host, .alpn = "http/1.1"};
    if (tls_client_new(&tls, &c->tls, err) < 0 || shake_hands(c, end, err) < 0)
        return channel_close(c);
    return c;
}

struct channel *channel_open(const struct api_login *login, struct err *err) {
    if (login) {
        struct channel *direct = open_direct(login, err);
        if (!direct) /* no code of these is to be taken for an answer of the API server */
            err->code = EHOSTUNREACH;
        return direct;
    }
    int fd = proxy_connect(err);
    struct channel *c = fd >= 0 ? channel_of(fd) : NULL;
    if (fd >= 0 && !c) {
        (void) close(fd);
        (void) err_errno(err, ENOMEM, "cannot reach kubectl proxy");
    }
    return c;
}
