/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/kubectl.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/cleanup.h"

#define ARGUMENTS_MAX 32
#define OPTIONS_MAX 2
#define COMPLAINT_MAX 4096

/* Reads both pipes until both have ended. */
static int read_pipes(int out, int complaint, struct buf *ret_out, struct buf *ret_complaint) {
    struct pollfd fds[] = {{out, POLLIN, 0}, {complaint, POLLIN, 0}};
    struct buf *bufs[] = {ret_out, ret_complaint};

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return -errno;
        for (int i = 0; i < 2; i++) {
            char part[16384];
            if (fds[i].fd < 0 || fds[i].revents == 0)
                continue;
            ssize_t n = read(fds[i].fd, part, sizeof(part));
            if (n > 0)
                buf_append(bufs[i], part, (size_t) n);
            else if (n == 0 || errno != EINTR)
                fds[i].fd = -1;
        }
    }
    return 0;
}

static const char *last_line(struct buf *text) {
    while (text->len > 0 && text->data[text->len - 1] == '\n')
        text->data[--text->len] = '\0';
    const char *line = strrchr(buf_str(text), '\n');
    return line ? line + 1 : buf_str(text);
}

static char *join(const char *option, const char *value) {
    char *text;

    return asprintf(&text, "%s%s", option, value) < 0 ? NULL : text;
}

/* In the child: becomes kubectl, or says over `failed` why not. It ends with its parent. */
static void become(char **argv, pid_t parent, int out, int complaint, int failed) {
    sigset_t none;

    (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(out, STDOUT_FILENO) >= 0 && dup2(complaint, STDERR_FILENO) >= 0)
        (void) execvp(argv[0], argv);
    int error = errno;
    (void) !write(failed, &error, sizeof(error));
    _exit(EXIT_FAILURE);
}

static int start(char **argv, int out, int complaint, pid_t *ret_pid) {
    int ends[2], error = 0;
    pid_t parent = getpid();

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    _cleanup_close_ int read_end = ends[0];
    _cleanup_close_ int write_end = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        become(argv, parent, out, complaint, write_end);
    (void) close(take_fd(&write_end));
    ssize_t n;
    while ((n = read(read_end, &error, sizeof(error))) < 0 && errno == EINTR)
        ;
    if (n == 0) {
        *ret_pid = pid;
        return 0;
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return n == sizeof(error) ? -error : -EIO;
}

int kubectl_start(const char *const *arguments, int out, int complaint, pid_t *ret_pid,
                  struct err *err) {
    const char *program = getenv("KUBECTL");
    char *argv[ARGUMENTS_MAX + OPTIONS_MAX + 2];
    size_t n = 0;

    argv[n++] = strdup(program && *program ? program : "kubectl");
    if (kubectl_options.context)
        argv[n++] = join("--context=", kubectl_options.context);
    if (kubectl_options.kubeconfig)
        argv[n++] = join("--kubeconfig=", kubectl_options.kubeconfig);
    for (size_t i = 0; i < ARGUMENTS_MAX && arguments[i]; i++)
        argv[n++] = strdup(arguments[i]);
    argv[n] = NULL;

    int r = argv[0] ? start(argv, out, complaint, ret_pid) : -ENOMEM;
    for (size_t i = 0; i < n; i++)
        free(argv[i]);
    if (r == -ENOENT)
        return err_set(err, EREMOTEIO, "kubectl is not on the path; install it or set KUBECTL");
    return r < 0 ? err_errno(err, -r, "cannot run kubectl") : 0;
}

int kubectl_start_piped(const char *const *arguments, int *ret_out, int *ret_complaint,
                        pid_t *ret_pid, struct err *err) {
    int out[2], bad[2];

    if (pipe2(out, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot run kubectl");
    _cleanup_close_ int out_read = out[0];
    _cleanup_close_ int out_write = out[1];
    if (pipe2(bad, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot run kubectl");
    _cleanup_close_ int bad_read = bad[0];
    _cleanup_close_ int bad_write = bad[1];
    int r = kubectl_start(arguments, out_write, bad_write, ret_pid, err);
    if (r < 0)
        return r;
    *ret_out = take_fd(&out_read);
    *ret_complaint = take_fd(&bad_read);
    return 0;
}

int kubectl(struct buf *ret, struct err *err, const char *const *arguments) {
    _cleanup_buf_ struct buf complaint = BUF_INIT(COMPLAINT_MAX);
    _cleanup_close_ int out = -1;
    _cleanup_close_ int bad = -1;
    pid_t pid;
    int r = kubectl_start_piped(arguments, &out, &bad, &pid, err);

    if (r < 0)
        return r;
    r = read_pipes(out, bad, ret, &complaint);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (r < 0 || buf_error(ret) < 0)
        return err_errno(err, r < 0 ? -r : ret->error, "cannot read what kubectl printed");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, EREMOTEIO, "kubectl: %s", last_line(&complaint));
    return 0;
}

/* Without a kubeconfig it sends no credentials. The last option of a name counts. */
int kubectl_get_url(const char *url, const char *path, bool verifies, struct buf *ret,
                    struct err *err) {
    char server[256];

    if (snprintf(server, sizeof(server), "--server=%s", url) >= (int) sizeof(server))
        return err_set(err, EINVAL, "the address %s is too long", url);
    if (strncmp(url, "https:", 6) == 0 && !verifies)
        return KUBECTL(ret, err, "--kubeconfig=/dev/null", "--context=", server,
                       "--insecure-skip-tls-verify", "--request-timeout=15s", "get", "--raw", path);
    return KUBECTL(ret, err, "--kubeconfig=/dev/null", "--context=", server,
                   "--request-timeout=15s", "get", "--raw", path);
}
