/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Carries one h2_conn over a libuv stream: a unix socket, or TCP with TLS. Reads, writes with
 * back-pressure, notices a dead peer by PING, closes in order. One thread: the loop's.
 *
 * The first link makes the process ignore SIGPIPE, unless it has a handler for it.
 */

#include <stdbool.h>
#include <uv.h>

struct err;
struct h2_conn;
struct h2_link;
struct security;

struct h2_link_options {
    bool tcp; /* else a unix socket */
    /* TCP_USER_TIMEOUT: the connection is lost when data is unacknowledged for this time, and no
     * data is sent after it is closed or the process has ended. 0: the system's default, which may
     * be a quarter of an hour. */
    unsigned unacked_ms;
    unsigned ping_idle_ms;    /* silence before a PING; 0: 30 s */
    unsigned ping_timeout_ms; /* for its answer, and for the first bytes at all; 0: 15 s */
    /* Connected and, with TLS, the peer is authenticated. May be NULL. */
    void (*on_up)(struct h2_link *link, void *user);
    /*
     * The connection is no more (the reason is for a person), or is done after h2_link_shutdown
     * ("" then). Runs from the loop, at most once, never after h2_link_close. Close the link now.
     */
    void (*on_lost)(struct h2_link *link, const char *reason, void *user);
    void *user;
};

/*
 * Takes over `conn` and `security` (NULL: none), also when it fails. conn's on_wake must call
 * h2_link_flush.
 */
int h2_link_new(uv_loop_t *loop, const struct h2_link_options *options, struct h2_conn *conn,
                struct security *security, struct h2_link **ret);

/* One of these three starts it; negative errno: close the link. */
int h2_link_accept(struct h2_link *link, uv_stream_t *listener);
int h2_link_connect_unix(struct h2_link *link, const char *path);
int h2_link_connect_tcp(struct h2_link *link, const struct sockaddr *address);

/* Takes what the peer has sent on a unix socket, now and not from the loop; the owner hears of it
 * as from there. Does nothing while the link is in the middle of that. */
void h2_link_read(struct h2_link *link);

/* Sends what there is to send. Does nothing while the link itself is in the middle of that. */
void h2_link_flush(struct h2_link *link);

/* GOAWAY, then on_lost("") when open streams are finished and everything is sent, or time is up. */
void h2_link_shutdown(struct h2_link *link, unsigned timeout_ms);

/* Frees the connection (its streams hear of it; later if inside a callback of it), and the link
 * when libuv has closed it. Then on_closed (may be NULL). */
void h2_link_close(struct h2_link *link, void (*on_closed)(void *user), void *user);

struct h2_conn *h2_link_conn(struct h2_link *link);

/* The connection is lost, and on_lost follows: what is submitted now is not sent. */
bool h2_link_is_lost(const struct h2_link *link);
