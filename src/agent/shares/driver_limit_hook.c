/* SPDX-License-Identifier: Apache-2.0 */

/* The OCI hook for driver limits: its program on the host, the CDI edit for it, and the socket on
 * which it calls the agent. The hook sends the nonce of the share, a newline, and the container's
 * state of the OCI runtime specification. The reply is "0", or "1" and the reason. */

#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <utlist.h>

#include "agent/shares/driver_limit_hook.h"
#include "agent/shares/shares.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "wire/json.h"

#define PROGRAM_NAME "aliquot-hook"
#define SOCKET_NAME "hook.sock"
#define STATE_MAX ((size_t) 1 << 20) /* it repeats the pod's annotations */
#define ANSWER_MS 8000               /* a request that a hang delays is made again before */
#define CALLS_MAX 64

struct driver_limit_call {
    struct shares *shares;
    uv_pipe_t pipe;
    uv_timer_t timer;
    unsigned handles; /* open */
    struct buf text;
    bool asked;
    char nonce[NONCE_LEN + 1];
    struct driver_limit_call *prev, *next;
};

/* ---- the program ---- */

static bool runs(const char *path) {
    char *const argv[] = {(char *) (uintptr_t) path, (char *) (uintptr_t) "--version", NULL};
    char *const env[] = {NULL};
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t pid;
    bool spawned;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    (void) posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    spawned = posix_spawn(&pid, path, &actions, NULL, argv, env) == 0;
    (void) posix_spawn_file_actions_destroy(&actions);
    while (spawned && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return spawned && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The runtime sees the same file under the same name, and may execute it. */
static bool is_on_host(const struct shares *s, const char *path) {
    struct stat here, there;
    struct statvfs fs;
    char host[600];

    (void) snprintf(host, sizeof(host), "%s%s", s->options.host_root, path);
    return stat(path, &here) == 0 && stat(host, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino && statvfs(host, &fs) == 0 && !(fs.f_flag & ST_NOEXEC);
}

static bool install_in(struct shares *s, const char *dir, struct err *why) {
    char path[sizeof(s->driver_limits.program)];

    if ((size_t) snprintf(path, sizeof(path), "%s/" PROGRAM_NAME, dir) >= sizeof(path))
        return err_set(why, ENAMETOOLONG, "%s is too long a name", dir) == 0;
    if (dir_make(dir, 0755, why) < 0 || file_copy(s->options.hook, path, 0755, why) < 0)
        return false;
    if (!is_on_host(s, path) || !runs(path))
        return err_set(why, ENOEXEC,
                       "%s cannot be executed on the host (another file system there, or one "
                       "mounted noexec)",
                       path) == 0;
    text_copy(s->driver_limits.program, sizeof(s->driver_limits.program), path);
    return true;
}

/* Where the state directory is mounted noexec, the library's is a tmpfs of its own. */
static bool install_beside_state(struct shares *s, struct err *why) {
    char dir[384];

    (void) snprintf(dir, sizeof(dir), "%s/lib", s->options.state_dir);
    return install_in(s, s->options.state_dir, why) || install_in(s, dir, why);
}

void driver_limit_hook_install(struct shares *s) {
    struct err why;

    if (s->options.hook_dir[0] && install_in(s, s->options.hook_dir, &why))
        return;
    if (s->options.hook_dir[0])
        log_warn("the runtime's hook goes to %s: %s", s->options.state_dir, why.text);
    if (!install_beside_state(s, &why))
        log_warn("the runtime's hook has no place, so limits of the driver are set late, at a "
                 "container's first use of a card, and `ldconfig -p` in containers does not list "
                 "the driver's libraries: %s",
                 why.text);
}

int driver_limit_edits(const struct shares *s, struct gpu_edits *edits, struct err *err) {
    bool required = s->options.driver_limits == DRIVER_LIMIT_REQUIRED;
    char arguments[160];
    int r = 0;

    if (required && !driver_limit_possible(s))
        return err_set(err, ENODEV,
                       "this node starts containers only with limits of the driver "
                       "(--driver-limits=required), and its driver has none: that takes version "
                       "615 and control groups of the second version");
    if (required && (!s->driver_limits.program[0] || !s->driver_limits.listening))
        return err_set(err, ENODEV,
                       "this node starts containers only with limits of the driver "
                       "(--driver-limits=required), and its hook cannot be executed: see "
                       "--hook-dir");
    if (!driver_limit_possible(s) || !s->driver_limits.program[0] || !s->driver_limits.listening)
        return 0;
    (void) snprintf(arguments, sizeof(arguments), "%s\n%s", s->driver_limits.socket,
                    required ? "required" : "auto");
    r = gpu_edits_add(edits, GPU_EDIT_HOOK, s->driver_limits.program, arguments);
    return r < 0 ? err_set(err, -r, "no room for the hook") : 0;
}

int ldcache_edits(const struct shares *s, struct gpu_edits *edits) {
    return s->driver_limits.program[0]
               ? gpu_edits_add(edits, GPU_EDIT_HOOK_INSIDE, s->driver_limits.program, "ldcache")
               : 0;
}

/* ---- calls ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct driver_limit_call *c = handle->data;

    if (--c->handles > 0)
        return;
    buf_done(&c->text);
    free(c);
}

static void end(struct driver_limit_call *c) {
    DL_DELETE(c->shares->driver_limits.calls, c);
    uv_close((uv_handle_t *) &c->timer, on_handle_closed);
    uv_close((uv_handle_t *) &c->pipe, on_handle_closed);
}

/* NULL: the limits are set. The answer fits into the socket, which is empty. */
static void answer_call(struct driver_limit_call *c, const char *why) {
    char text[ERR_TEXT_MAX + 8];
    uv_buf_t out = {.base = text};

    out.len = (size_t) snprintf(text, sizeof(text), why ? "1 %s\n" : "0\n", why);
    if (why)
        log_warn("a container starts without limits of the driver, or not at all: %s", why);
    (void) uv_try_write((uv_stream_t *) &c->pipe, &out, 1);
    end(c);
}

static void answer_if_decided(struct driver_limit_call *c) {
    struct slot *slot = slot_find(&c->shares->slots, c->nonce);
    struct err why = {0};
    enum driver_limit_progress progress;

    if (!c->asked)
        return;
    progress = slot ? driver_limit_progress(c->shares, slot, &why) : DRIVER_LIMIT_REFUSED;
    if (progress == DRIVER_LIMIT_SET)
        answer_call(c, NULL);
    else if (progress == DRIVER_LIMIT_REFUSED)
        answer_call(c, slot ? why.text : "its share is gone");
}

static void on_late(uv_timer_t *timer) {
    answer_call(timer->data, "the driver does not answer in time");
}

/* The whole of it is here. */
static void read_call(struct driver_limit_call *c) {
    const char *text = buf_str(&c->text), *line = memchr(text, '\n', c->text.len);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct slot *slot = NULL;
    struct json root;
    struct err err;
    uint64_t pid;

    if (line && line - text == NONCE_LEN) {
        memcpy(c->nonce, text, NONCE_LEN);
        slot = nonce_valid(c->nonce) ? slot_find(&c->shares->slots, c->nonce) : NULL;
    }
    if (!slot || slot->releasing || slot->grant.ndevices == 0) {
        answer_call(c, "the agent has given out no such share");
        return;
    }
    if (json_open(line + 1, c->text.len - (size_t) (line + 1 - text), &parser, &root, &err) < 0 ||
        !json_u64(json_get(root, "pid"), &pid) || pid == 0 || pid > INT32_MAX) {
        answer_call(c, "the runtime's state of the container has no process");
        return;
    }
    if (driver_limit_begin(c->shares, slot, (int) pid, &err) < 0) {
        answer_call(c, err.text);
        return;
    }
    c->asked = true;
    answer_if_decided(c);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret) {
    static char room[65536]; /* what is read is taken at once */

    (void) handle, (void) suggested;
    *ret = uv_buf_init(room, sizeof(room));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data) {
    struct driver_limit_call *c = stream->data;

    if (n > 0) {
        buf_append(&c->text, data->base, (size_t) n);
        if (buf_error(&c->text) < 0)
            answer_call(c, "the runtime's state of the container is too large");
        return;
    }
    if (n == 0)
        return;
    (void) uv_read_stop(stream);
    if (n == UV_EOF && !c->asked)
        read_call(c);
    else if (n != UV_EOF)
        end(c);
}

/* Out of memory: libuv keeps the connection and accepts no other one before it. */
static void accept_call(struct shares *s) {
    uv_stream_t *listener = (uv_stream_t *) &s->driver_limits.listener;
    struct driver_limit_call *c;
    size_t waiting = 0;

    DL_COUNT(s->driver_limits.calls, c, waiting);
    c = calloc(1, sizeof(*c));
    s->driver_limits.unaccepted = !c;
    if (!c)
        return;
    c->shares = s;
    c->text = (struct buf) BUF_INIT(STATE_MAX);
    c->handles = 2;
    (void) uv_pipe_init(s->loop, &c->pipe, 0);
    (void) uv_timer_init(s->loop, &c->timer);
    c->pipe.data = c->timer.data = c;
    DL_APPEND(s->driver_limits.calls, c);
    if (uv_accept(listener, (uv_stream_t *) &c->pipe) < 0 || waiting >= CALLS_MAX ||
        uv_timer_start(&c->timer, on_late, ANSWER_MS, 0) < 0 ||
        uv_read_start((uv_stream_t *) &c->pipe, on_alloc, on_read) < 0)
        end(c);
}

static void on_connection(uv_stream_t *listener, int status) {
    if (status == 0)
        accept_call(listener->data);
}

static void on_progress(struct shares *s) {
    struct driver_limit_call *c, *next;

    DL_FOREACH_SAFE(s->driver_limits.calls, c, next)
        answer_if_decided(c);
    if (s->driver_limits.unaccepted)
        accept_call(s);
}

/* ---- start and end ---- */

static int listen_at(struct shares *s, struct err *err) {
    uv_stream_t *listener = (uv_stream_t *) &s->driver_limits.listener;
    mode_t before;
    int r;

    if ((size_t) snprintf(s->driver_limits.socket, sizeof(s->driver_limits.socket),
                          "%s/" SOCKET_NAME,
                          s->options.state_dir) >= sizeof(s->driver_limits.socket))
        return err_set(err, ENAMETOOLONG, "the state directory's path is too long for a socket");
    (void) unlink(s->driver_limits.socket);
    (void) uv_pipe_init(s->loop, &s->driver_limits.listener, 0);
    s->driver_limits.listener.data = s;
    s->driver_limits.listening = true;
    before = umask(0177);
    r = uv_pipe_bind(&s->driver_limits.listener, s->driver_limits.socket);
    (void) umask(before);
    if (r == 0)
        r = uv_listen(listener, 16, on_connection);
    return r < 0 ? err_set(err, -r, "cannot listen at %s: %s", s->driver_limits.socket,
                           uv_strerror(r))
                 : 0;
}

int driver_limit_hook_start(struct shares *s, struct err *err) {
    s->driver_limits.on_progress = on_progress;
    driver_limit_hook_install(s);
    return listen_at(s, err);
}

void driver_limit_hook_stop(struct shares *s) {
    struct driver_limit_call *c, *next;

    DL_FOREACH_SAFE(s->driver_limits.calls, c, next)
        answer_call(c, "the agent ends");
    if (s->driver_limits.listening)
        uv_close((uv_handle_t *) &s->driver_limits.listener, NULL);
    s->driver_limits.listening = s->driver_limits.unaccepted = false;
}

int driver_limit_start(struct shares *s, struct err *err) {
    driver_limit_restore(s);
    if (s->options.driver_limits != DRIVER_LIMIT_OFF)
        return driver_limit_hook_start(s, err);
    driver_limit_hook_install(s);
    return 0;
}

void driver_limit_stop(struct shares *s) {
    driver_limit_hook_stop(s);
    driver_limit_forget(s);
}
