/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/hook_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"

#define TAIL_MAX 256 /* bytes of the last line that are kept */
#define PIPE_SIZE 65536
#define DESCRIPTORS_MAX 4096 /* more than this process opens */

struct run {
    const struct hook_program *p;
    pid_t pid;
    int output; /* what it prints; -1: it has closed it, or it is not read */
    int ended;  /* pidfd */
    char tail[TAIL_MAX];
    size_t have;
    bool whole; /* the tail is a whole line: what follows begins another one */
};

/* ---- in the program's process ---- */

static int enter(const struct hook_program *p) {
    if (p->root[0] && (chroot(p->root) < 0 || chdir("/") < 0))
        return -1;
    return p->workdir ? chdir(p->workdir) : 0;
}

/* A daemon that a hook starts would keep the cards open, and the lock. */
static void keep_descriptors(void) {
    for (int fd = STDERR_FILENO + 1; fd < DESCRIPTORS_MAX; fd++)
        (void) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static _Noreturn void become(const struct hook_program *p, int output, int error) {
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC), cause;
    sigset_t none;

    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    keep_descriptors();
    if (setpgid(0, 0) == 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
        dup2(output, STDERR_FILENO) >= 0 && enter(p) == 0)
        (void) execvpe(p->argv[0], (char **) (uintptr_t) p->argv, (char **) (uintptr_t) p->env);
    cause = errno;
    (void) !write(error, &cause, sizeof(cause));
    _exit(127);
}

/* ---- output ---- */

static void take_output(struct run *run, const char *data, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n') {
            run->whole = run->have > 0;
            continue;
        }
        if (run->whole)
            run->have = 0;
        run->whole = false;
        if (run->have < TAIL_MAX - 1)
            run->tail[run->have++] = (char) ((data[i] & 0x80) || data[i] < ' ' ? '?' : data[i]);
    }
    run->tail[run->have] = 0;
}

/* A daemon can have inherited the other end: the end of the program counts. No more is read at once
 * than a pipe holds: a program can print without end. */
static void read_output(struct run *run) {
    char data[1024];
    ssize_t n = 1;

    for (size_t have = 0; n > 0 && have < PIPE_SIZE; have += (size_t) n) {
        n = read(run->output, data, sizeof(data));
        if (n <= 0)
            break;
        take_output(run, data, (size_t) n);
    }
    if (n == 0)
        run->output = -1;
}

/* ---- the end ---- */

/* Returns whether it has ended. */
static bool wait_for_end(struct run *run) {
    uint64_t begin = clock_ms(CLOCK_MONOTONIC), told = 0;

    for (;;) {
        struct pollfd fds[] = {{run->ended, POLLIN, 0}, {run->output, POLLIN, 0}};
        uint64_t passed = clock_ms(CLOCK_MONOTONIC) - begin, left;

        if (passed >= run->p->timeout_ms)
            return false;
        if (passed >= told + run->p->tell_ms) {
            told = passed;
            run->p->tell((unsigned) (passed / 1000), run->p->userdata);
        }
        left = run->p->timeout_ms - passed;
        if (left > told + run->p->tell_ms - passed)
            left = told + run->p->tell_ms - passed;
        if (poll(fds, 2, (int) left) < 0 && errno != EINTR)
            return false;
        if (fds[1].revents)
            read_output(run);
        if (fds[0].revents)
            return true;
    }
}

static int say(const struct run *run, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int say(const struct run *run, struct err *err, const char *format, ...) {
    char what[96];
    va_list ap;

    va_start(ap, format);
    (void) vsnprintf(what, sizeof(what), format, ap);
    va_end(ap);
    return err_set(err, EINVAL, "%s %s%s%s", run->p->argv[0], what, run->have > 0 ? ": " : "",
                   run->tail);
}

static int judge(const struct run *run, bool late, int status, struct err *err) {
    if (late)
        return say(run, err, "has not ended within %u s and was killed", run->p->timeout_ms / 1000);
    if (WIFSIGNALED(status))
        return say(run, err, "was ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? 0
                                    : say(run, err, "ended with status %d", WEXITSTATUS(status));
}

static int watch(struct run *run, int error, struct err *err) {
    int cause, status = 0;
    bool late;

    if (read(error, &cause, sizeof(cause)) == (ssize_t) sizeof(cause)) {
        (void) waitpid(run->pid, NULL, 0);
        return err_errno(err, cause, "cannot run %s", run->p->argv[0]);
    }
    late = run->ended < 0 || !wait_for_end(run);
    if (late)
        (void) kill(-run->pid, SIGKILL);
    while (waitpid(run->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (run->output >= 0)
        read_output(run);
    if (run->ended < 0)
        return say(run, err, "was killed: this kernel has no pidfd_open() to wait with");
    return judge(run, late, status, err);
}

/* ---- the beginning ---- */

int hook_program_run(const struct hook_program *p, struct err *err) {
    _cleanup_close_ int out = -1, in = -1, error_out = -1, error_in = -1, ended = -1;
    struct run run = {.p = p, .output = -1};
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot run %s", p->argv[0]);
    error_in = pair[0];
    error_out = pair[1];
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_errno(err, errno, "cannot run %s", p->argv[0]);
    in = pair[0];
    out = pair[1];
    (void) fcntl(out, F_SETFL, 0); /* the program's end blocks */
    run.pid = fork();
    if (run.pid == 0)
        become(p, p->output ? STDERR_FILENO : out, error_out);
    if (run.pid < 0)
        return err_errno(err, errno, "cannot run %s", p->argv[0]);
    run.ended = (int) syscall(SYS_pidfd_open, run.pid, 0);
    ended = run.ended; /* NOLINT: closed at the end */
    (void) close(take_fd(&out));
    (void) close(take_fd(&error_out));
    run.output = p->output ? -1 : in;
    return watch(&run, error_in, err);
}
