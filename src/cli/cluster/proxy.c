/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cluster/kubectl.h"

#define START_MS 20000 /* until it listens */
#define LINE_MAX_LEN 4096
#define SOCKET "/api"
#define DIRECTORY_MAX 80 /* so that the socket's path fits into an address */

static struct {
    pid_t pid; /* 0: none was started */
    int complaint;
    int socket;      /* the socket itself, which has no name any more */
    struct buf line; /* of standard error, the last one */
    bool is_whole;   /* it has its end */
    bool is_started;
    void (*hear)(void *hearer, const char *text, size_t len);
    void *hearer;
} proxy = {.complaint = -1, .socket = -1, .line = {.max = LINE_MAX_LEN}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of starts, and of the end */
static atomic_bool is_ending;

int proxy_complaints(void) {
    return proxy.complaint;
}

void proxy_listen(void (*hear)(void *hearer, const char *text, size_t len), void *hearer) {
    (void) pthread_mutex_lock(&lock);
    proxy.hear = hear;
    proxy.hearer = hearer;
    (void) pthread_mutex_unlock(&lock);
}

/* ---- standard error ---- */

/* "E1128 20:41:07.123456 ..." */
static bool is_log(const char *line) {
    return line[0] && strchr("IWEF", line[0]) && strspn(line + 1, "0123456789") == 4 &&
           line[5] == ' ';
}

/* A part of the line that is held. A prompt has no line end, and is passed on nevertheless. */
static void pass_on(const char *text, size_t len) {
    if (!proxy.is_started || is_log(buf_str(&proxy.line)))
        return;
    if (proxy.hear)
        proxy.hear(proxy.hearer, text, len);
    else
        (void) fwrite(text, 1, len, stderr);
}

/* Of a long line only the beginning is held, and all of it is passed on. */
static void take_part(const char *text, size_t len) {
    size_t room = LINE_MAX_LEN - proxy.line.len;

    if (proxy.is_whole) {
        buf_reset(&proxy.line);
        room = LINE_MAX_LEN;
    }
    proxy.is_whole = text[len - 1] == '\n';
    buf_append(&proxy.line, text, len < room ? len : room);
    pass_on(text, len);
}

static void take_complaint(const char *text, size_t len) {
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t) (end - text) + 1 : len;
        take_part(text, n);
        text += n;
        len -= n;
    }
}

void proxy_read_complaints(void) {
    char part[1024];
    ssize_t n;

    while (proxy.complaint >= 0 && (n = read(proxy.complaint, part, sizeof(part))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        take_complaint(part, (size_t) n);
    }
    if (proxy.complaint >= 0)
        (void) close(take_fd(&proxy.complaint));
}

static const char *last_complaint(void) {
    while (proxy.line.len > 0 && proxy.line.data[proxy.line.len - 1] == '\n')
        proxy.line.data[--proxy.line.len] = '\0';
    return proxy.line.len > 0 ? buf_str(&proxy.line) : "it ended without a word";
}

/* ---- start ---- */

/* Waits for the line "Starting to serve on ...". */
static int await_socket(int out, struct err *err) {
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + START_MS;
    char line[LINE_MAX_LEN];
    size_t len = 0;

    while (len < sizeof(line) && !memchr(line, '\n', len)) {
        uint64_t now = clock_ms(CLOCK_MONOTONIC);
        struct pollfd fds[] = {{out, POLLIN, 0}, {proxy.complaint, POLLIN, 0}};
        int ready = poll(fds, 2, now < end ? (int) (end - now) : 0);
        if (ready == 0)
            return err_set(err, ETIMEDOUT, "kubectl proxy has not started in %d s",
                           START_MS / 1000);
        if (fds[1].revents)
            proxy_read_complaints();
        if (!fds[0].revents)
            continue;
        ssize_t n = read(out, line + len, sizeof(line) - len);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            proxy_read_complaints();
            return err_set(err, EREMOTEIO, "kubectl: %s", last_complaint());
        }
        len += n > 0 ? (size_t) n : 0;
    }
    return 0;
}

/* kubectl with the standard output in *ret_out. A server of a kubeconfig can have a path, as behind
 * Rancher. */
static int spawn(const char *option, int *ret_out, struct err *err) {
    const char *const arguments[] = {"proxy", "--append-server-path", option, NULL};
    int r = kubectl_start_piped(arguments, ret_out, &proxy.complaint, &proxy.pid, err);

    if (r == 0)
        (void) fcntl(proxy.complaint, F_SETFL, O_NONBLOCK);
    return r;
}

/* Serves on a socket in the directory, of which a descriptor is all that stays. */
static int serve_in(const char *directory, struct err *err) {
    _cleanup_close_ int out = -1;
    char option[128], path[DIRECTORY_MAX + 16 + sizeof(SOCKET)];

    (void) snprintf(path, sizeof(path), "%s" SOCKET, directory);
    (void) snprintf(option, sizeof(option), "--unix-socket=%s", path);
    int r = spawn(option, &out, err);
    if (r == 0 && is_ending)
        r = err_set(err, ECANCELED, "the command ends");
    if (r == 0)
        r = await_socket(out, err);
    if (r == 0) {
        proxy.socket = open(path, O_PATH | O_CLOEXEC);
        if (proxy.socket < 0)
            r = err_errno(err, errno, "cannot open the socket of kubectl proxy");
    }
    (void) unlink(path);
    return r;
}

static void end_kubectl(void) {
    if (proxy.pid <= 0)
        return;
    (void) kill(proxy.pid, SIGTERM);
    while (waitpid(proxy.pid, NULL, 0) < 0 && errno == EINTR)
        ;
    proxy.pid = 0;
}

/* As if none had been started. */
static void forget(void) {
    end_kubectl();
    if (proxy.complaint >= 0)
        (void) close(take_fd(&proxy.complaint));
    if (proxy.socket >= 0)
        (void) close(take_fd(&proxy.socket));
    buf_reset(&proxy.line);
    proxy.is_whole = false;
    proxy.is_started = false;
}

static int make_directory(char *ret, size_t size, struct err *err) {
    const char *own = getenv("XDG_RUNTIME_DIR");

    if (!own || own[0] != '/' || strlen(own) > DIRECTORY_MAX || access(own, W_OK | X_OK) < 0)
        own = "/tmp";
    (void) snprintf(ret, size, "%s/aliquot-XXXXXX", own);
    return mkdtemp(ret) ? 0 : err_errno(err, errno, "cannot make a directory in %s", own);
}

static int start(struct err *err) {
    char directory[DIRECTORY_MAX + 16];
    sigset_t ends, before;

    int r = make_directory(directory, sizeof(directory), err);
    if (r < 0)
        return r;
    /* They end this process when the directory is removed again. */
    (void) sigemptyset(&ends);
    (void) sigaddset(&ends, SIGINT);
    (void) sigaddset(&ends, SIGTERM);
    (void) sigaddset(&ends, SIGHUP);
    (void) sigprocmask(SIG_BLOCK, &ends, &before);
    r = serve_in(directory, err);
    (void) rmdir(directory);
    if (r < 0)
        forget();
    (void) sigprocmask(SIG_SETMASK, &before, NULL);
    if (r < 0)
        return r;
    proxy.is_started = true;
    (void) atexit(proxy_end);
    return 0;
}

static int connect_to_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void) snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d", proxy.socket);
    if (fd < 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
        return -errno;
    return take_fd(&fd);
}

void proxy_end(void) {
    is_ending = true;
    if (pthread_mutex_trylock(&lock) != 0) { /* one starts: without it the start fails at once */
        pid_t pid = proxy.pid;
        if (pid > 0)
            (void) kill(pid, SIGTERM);
        (void) pthread_mutex_lock(&lock);
    }
    end_kubectl();
    (void) pthread_mutex_unlock(&lock);
}

static int connect_or_start(struct err *err) {
    int fd = proxy.is_started ? connect_to_socket() : -ECONNREFUSED;

    if (fd != -ECONNREFUSED)
        return fd < 0 ? err_errno(err, -fd, "cannot reach kubectl proxy") : fd;
    if (is_ending)
        return err_set(err, ECANCELED, "the command ends");
    /* It was not started yet, or has ended under a command that goes on and on. */
    forget();
    int r = start(err);
    if (r < 0)
        return r;
    fd = connect_to_socket();
    return fd < 0 ? err_errno(err, -fd, "cannot reach kubectl proxy") : fd;
}

int proxy_connect(struct err *err) {
    (void) pthread_mutex_lock(&lock);
    int r = connect_or_start(err);
    (void) pthread_mutex_unlock(&lock);
    return r;
}
