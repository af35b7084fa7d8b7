/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/on_closed.h"
#include "wire/grpc_service.h"
#include "wire/h2.h"
#include "wire/h2_link.h"

#define MESSAGE_MAX ((size_t) 64 << 20)
#define CONNECTIONS_MAX 64u
#define BACKLOG 64
#define GOODBYE_MS 500u

struct connection {
    struct grpc_peer peer; /* first: a peer is its connection */
    struct grpc_server *server;
    struct h2_link *link;
    struct connection *prev, *next;
};

struct grpc_server {
    struct grpc_service service;
    struct grpc_server_options options;
    uv_loop_t *loop;
    uv_pipe_t listener;
    struct connection *connections;
    unsigned n_connections;
    char *path;
    dev_t dev; /* of the socket file we made */
    ino_t ino;
    bool listener_closed;
    struct on_closed on_closed;
};

/* ---- the socket file ---- */

static int unix_address(const char *path, struct sockaddr_un *ret, struct err *err) {
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof(ret->sun_path))
        return err_set(err, ENAMETOOLONG, "socket path %s is longer than %zu bytes", path,
                       sizeof(ret->sun_path) - 1);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path, path, len);
    return 0;
}

/* Removes a socket without a listener: kill -9 leaves one behind. */
static int remove_stale(const struct sockaddr_un *address, struct err *err) {
    struct stat st;
    const char *path = address->sun_path;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot stat %s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, EEXIST, "%s exists and is not a socket", path);

    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *) address, sizeof(*address)) == 0 || errno == EAGAIN)
        return err_set(err, EADDRINUSE, "another process listens on %s", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove the old socket %s", path);
    return 0;
}

static int open_socket(const char *path, struct stat *ret_st, struct err *err) {
    struct sockaddr_un address;
    int r = unix_address(path, &address, err);
    if (r < 0)
        return r;
    r = remove_stale(&address, err);
    if (r < 0)
        return r;
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a socket");
    /* The file takes its mode from the socket: it is private from its first instant, and the
     * process's umask stays alone. */
    if (fchmod(fd, 0600) < 0)
        return err_errno(err, errno, "cannot set the mode of %s", path);
    if (bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
        return err_errno(err, errno, "cannot listen on %s", path);
    if (lstat(path, ret_st) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    return take_fd(&fd);
}

bool grpc_server_socket_exists(const struct grpc_server *server) {
    struct stat st;
    return lstat(server->path, &st) == 0 && st.st_dev == server->dev && st.st_ino == server->ino;
}

static void remove_own_socket(const struct grpc_server *server) {
    if (grpc_server_socket_exists(server))
        (void) unlink(server->path);
}

/* ---- connections ---- */

static void free_when_done(struct grpc_server *server) {
    if (!server->listener_closed || server->connections)
        return;
    free(server->path);
    on_closed_free(&server->on_closed, server);
}

static void on_link_closed(void *user) {
    struct connection *connection = user;
    struct grpc_server *server = connection->server;
    DL_DELETE(server->connections, connection);
    server->n_connections--;
    free(connection);
    free_when_done(server);
}

static void on_link_lost(struct h2_link *link, const char *reason, void *user) {
    (void) reason;
    h2_link_close(link, on_link_closed, user);
}

static void on_peer_wake(struct grpc_peer *peer) {
    struct connection *connection = (struct connection *) peer;
    if (connection->link)
        h2_link_flush(connection->link);
}

static int add_connection(struct grpc_server *server) {
    struct connection *connection = calloc(1, sizeof(*connection));
    if (!connection)
        return -ENOMEM;
    connection->server = server;
    connection->peer = (struct grpc_peer){.service = &server->service, .on_wake = on_peer_wake};

    struct h2_link_options options = {
        .ping_idle_ms = server->options.ping_idle_ms,
        .ping_timeout_ms = server->options.ping_timeout_ms,
        .on_lost = on_link_lost,
        .user = connection,
    };
    struct h2_conn *conn = NULL;
    int r = grpc_service_accept(&connection->peer, &conn);
    if (r == 0)
        r = h2_link_new(server->loop, &options, conn, NULL, &connection->link);
    if (r < 0) {
        free(connection);
        return r;
    }
    DL_APPEND(server->connections, connection);
    server->n_connections++;
    r = h2_link_accept(connection->link, (uv_stream_t *) &server->listener);
    if (r < 0)
        h2_link_close(connection->link, on_link_closed, connection);
    return r;
}

void grpc_server_serve(struct grpc_server *server) {
    struct connection *connection;
    DL_FOREACH(server->connections, connection)
        h2_link_read(connection->link);
}

static void on_turned_away(uv_handle_t *handle) {
    free(handle);
}

/* libuv accepts only when asked to; a connection that is not wanted must still be taken. */
static void turn_away(struct grpc_server *server) {
    uv_pipe_t *pipe = calloc(1, sizeof(*pipe));
    if (!pipe || uv_pipe_init(server->loop, pipe, 0) < 0) {
        free(pipe);
        return;
    }
    (void) uv_accept((uv_stream_t *) &server->listener, (uv_stream_t *) pipe);
    uv_close((uv_handle_t *) pipe, on_turned_away);
}

static void on_connection(uv_stream_t *listener, int status) {
    struct grpc_server *server = listener->data;
    if (status < 0)
        return;
    if (server->n_connections >= server->options.max_connections || add_connection(server) < 0)
        turn_away(server);
}

/* ---- start and end ---- */

static uint64_t loop_now(void *clock) {
    return uv_now(clock);
}

static struct grpc_server *server_new(uv_loop_t *loop, const struct grpc_server_options *options) {
    struct grpc_server *server = calloc(1, sizeof(*server));
    char *path = strdup(options->socket_path);
    if (!server || !path) {
        free(server);
        free(path);
        return NULL;
    }
    server->path = path;
    server->loop = loop;
    server->options = *options;
    if (!server->options.max_connections)
        server->options.max_connections = CONNECTIONS_MAX;
    server->service = (struct grpc_service){
        .methods = options->methods,
        .n_methods = options->n_methods,
        .userdata = options->userdata,
        .max_request = options->max_request ? options->max_request : MESSAGE_MAX,
        .max_queued = options->max_queued ? options->max_queued : MESSAGE_MAX,
        .now_ms = loop_now,
        .clock = loop,
    };
    return server;
}

static void on_listener_closed(uv_handle_t *handle) {
    struct grpc_server *server = handle->data;
    server->listener_closed = true;
    free_when_done(server);
}

static int start_listening(struct grpc_server *server, int fd, struct err *err) {
    int r = uv_pipe_open(&server->listener, fd);
    if (r < 0) {
        (void) close(fd);
        return err_set(err, -r, "cannot listen on %s: %s", server->path, uv_strerror(r));
    }
    r = uv_listen((uv_stream_t *) &server->listener, BACKLOG, on_connection);
    if (r < 0)
        return err_set(err, -r, "cannot listen on %s: %s", server->path, uv_strerror(r));
    return 0;
}

int grpc_server_start(uv_loop_t *loop, const struct grpc_server_options *options,
                      struct grpc_server **ret_server, struct err *err) {
    struct stat st = {0};
    int fd = open_socket(options->socket_path, &st, err);
    if (fd < 0)
        return fd;
    struct grpc_server *server = server_new(loop, options);
    if (!server) {
        (void) close(fd);
        (void) unlink(options->socket_path);
        return err_errno(err, ENOMEM, "cannot start a server");
    }
    server->dev = st.st_dev;
    server->ino = st.st_ino;
    (void) uv_pipe_init(loop, &server->listener, 0);
    server->listener.data = server;
    int r = start_listening(server, fd, err);
    if (r < 0) {
        remove_own_socket(server);
        uv_close((uv_handle_t *) &server->listener, on_listener_closed);
        return r;
    }
    *ret_server = server;
    return 0;
}

void grpc_server_close(struct grpc_server *server, void (*on_closed)(void *userdata),
                       void *userdata) {
    if (uv_is_closing((uv_handle_t *) &server->listener))
        return;
    server->on_closed = (struct on_closed){on_closed, userdata};
    remove_own_socket(server);
    uv_close((uv_handle_t *) &server->listener, on_listener_closed);
    grpc_service_shutdown(&server->service);

    struct connection *connection;
    DL_FOREACH(server->connections, connection)
        h2_link_shutdown(connection->link, GOODBYE_MS);
}
