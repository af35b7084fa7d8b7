/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The connections of an HTTP server by where they come from. Connections from the server's own host
 * (kubelet's probes, a sidecar, kube-scheduler beside its extender) are distinguished from all
 * others by their address, which no other host and no pod with a network of its own can have.
 * Others are bounded, together and for each address, and have limited time to send a request; so
 * they can neither use up the connections nor keep the host's own out.
 *
 * For http.c only; one thread.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct http_peer;

struct http_peers {
    unsigned max_others;     /* connections from elsewhere at once */
    unsigned max_per_client; /* of those, from one address */
    uint64_t request_ms;     /* time for a whole request from elsewhere */
    struct http_peer *others;
};

/* The address without its port; one of IPv4 is in the last four bytes. */
struct in6_addr http_peer_address(const struct sockaddr *from);

/* Whether a connection from that address may be accepted now. */
bool http_peers_admit(const struct http_peers *peers, const struct sockaddr *from, socklen_t len);

/* A connection that was accepted. *ret_peer is NULL for one of the host's own, which is not
 * watched. 0 or -ENOMEM. */
int http_peer_new(struct http_peers *peers, int fd, const struct sockaddr *from, uint64_t now_ms,
                  struct http_peer **ret_peer);
void http_peer_free(struct http_peers *peers, struct http_peer *peer);

/* The whole request is there: the time until its answer is the server's. NULL is fine. */
void http_peer_complete(struct http_peer *peer);
/* The exchange is over: the next request may start at any time. NULL is fine. */
void http_peer_rest(struct http_peer *peer);

/* To be called about once a second: shuts down the connections whose request takes too long. Their
 * ends come as events of the sockets. */
void http_peers_check(struct http_peers *peers, uint64_t now_ms);
