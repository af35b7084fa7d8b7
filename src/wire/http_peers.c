/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http_peers.h"

#include <errno.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"

struct http_peer {
    struct http_peer *prev, *next;
    int fd; /* libmicrohttpd's */
    struct in6_addr address;
    bool answering;    /* the request is complete, its answer is not */
    bool resting;      /* nothing of the next request has come */
    uint64_t received; /* bytes, when it began to rest */
    uint64_t since_ms; /* when the request that is coming began */
};

struct in6_addr http_peer_address(const struct sockaddr *from) {
    const struct sockaddr_in *v4 = (const void *) from;
    struct in6_addr address = IN6ADDR_ANY_INIT;

    if (from->sa_family == AF_INET6)
        return ((const struct sockaddr_in6 *) (const void *) from)->sin6_addr;
    memcpy(&address.s6_addr[12], &v4->sin_addr, sizeof(v4->sin_addr));
    return address;
}

/* What is sent to an address of this host is sent from that address. */
static bool is_own(const struct sockaddr *from, socklen_t len) {
    struct sockaddr_storage own = {0};
    struct in6_addr a = http_peer_address(from), b;
    socklen_t own_len = sizeof(own);
    _cleanup_close_ int fd = socket(from->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, from, len) < 0 ||
        getsockname(fd, (struct sockaddr *) &own, &own_len) < 0)
        return false;
    b = http_peer_address((const struct sockaddr *) &own);
    return memcmp(&a, &b, sizeof(a)) == 0;
}

bool http_peers_admit(const struct http_peers *peers, const struct sockaddr *from, socklen_t len) {
    struct in6_addr address = http_peer_address(from);
    const struct http_peer *peer;
    unsigned others = 0, same = 0;

    if (is_own(from, len))
        return true;
    DL_FOREACH(peers->others, peer) {
        others++;
        same += memcmp(&peer->address, &address, sizeof(address)) == 0;
    }
    return others < peers->max_others && same < peers->max_per_client;
}

int http_peer_new(struct http_peers *peers, int fd, const struct sockaddr *from, uint64_t now_ms,
                  struct http_peer **ret_peer) {
    socklen_t len =
        from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    struct http_peer *peer;

    *ret_peer = NULL;
    if (is_own(from, len))
        return 0;
    peer = calloc(1, sizeof(*peer));
    if (!peer)
        return -ENOMEM;
    peer->fd = fd;
    peer->address = http_peer_address(from);
    peer->since_ms = now_ms;
    DL_APPEND(peers->others, peer);
    *ret_peer = peer;
    return 0;
}

void http_peer_free(struct http_peers *peers, struct http_peer *peer) {
    if (!peer)
        return;
    DL_DELETE(peers->others, peer);
    free(peer);
}

/* Bytes that the peer has sent; of TLS, too. 0: not known. */
static uint64_t received(const struct http_peer *peer) {
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);

    return getsockopt(peer->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ? 0
                                                                        : info.tcpi_bytes_received;
}

void http_peer_complete(struct http_peer *peer) {
    if (peer)
        peer->answering = true;
}

void http_peer_rest(struct http_peer *peer) {
    if (!peer)
        return;
    peer->answering = false;
    peer->resting = true;
    peer->received = received(peer);
}

void http_peers_check(struct http_peers *peers, uint64_t now_ms) {
    struct http_peer *peer;

    DL_FOREACH(peers->others, peer) {
        if (peer->answering)
            continue;
        if (peer->resting && received(peer) == peer->received)
            continue;
        if (peer->resting)
            peer->since_ms = now_ms;
        peer->resting = false;
        if (now_ms - peer->since_ms >= peers->request_ms)
            (void) shutdown(peer->fd, SHUT_RDWR);
    }
}
