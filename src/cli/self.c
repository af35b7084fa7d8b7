/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/self.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/kubectl_options.h"
#include "cli/login.h"

#define OPTIONS_MAX 5 /* the program's name, and two options with their values */

/* A handler of the parent's in the child would give back the terminal that the parent still uses.
 */
static void drop_handlers(void) {
    struct sigaction action;

    for (int number = 1; number < NSIG; number++)
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            (void) signal(number, SIG_DFL);
}

/* In the child, which ends with its parent. All signals are blocked. */
static void become(const char *const *words, char **environment, pid_t parent, int in, int out) {
    sigset_t none;

    (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    drop_handlers();
    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(out, STDERR_FILENO) >= 0)
        (void) execve("/proc/self/exe", (char *const *) (uintptr_t) words, environment);
    _exit(EXIT_FAILURE);
}

static void choose_words(const char *const *words, const char **all) {
    size_t n = 0;

    all[n++] = "aliquot";
    if (kubectl_options.context) {
        all[n++] = "--context";
        all[n++] = kubectl_options.context;
    }
    if (kubectl_options.kubeconfig) {
        all[n++] = "--kubeconfig";
        all[n++] = kubectl_options.kubeconfig;
    }
    for (size_t i = 0; i < SELF_WORDS_MAX && words[i]; i++)
        all[n++] = words[i];
}

/* A file of no name with the login; /dev/null without one. A descriptor or a negative errno. */
static int open_input(void) {
    if (!login_used()) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return null < 0 ? -errno : null;
    }
    _cleanup_wipe_ struct buf text = BUF_INIT(0);
    _cleanup_close_ int fd = memfd_create("login", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    login_pass(login_used(), &text);
    bool is_written = buf_error(&text) == 0 &&
                      write(fd, text.data, text.len) == (ssize_t) text.len &&
                      lseek(fd, 0, SEEK_SET) == 0;
    return is_written ? take_fd(&fd) : -EIO;
}

/* Of this process, with the word that there is a login to read. NULL without memory. */
static char **make_environment(void) {
    static char variable[] = LOGIN_VARIABLE;
    size_t n = 0;

    while (environ[n])
        n++;
    char **made = calloc(n + 2, sizeof(*made));
    if (!made)
        return NULL;
    memcpy(made, environ, n * sizeof(*made));
    if (login_used())
        made[n] = variable;
    return made;
}

int self_start(const char *const *words, struct self_command *ret) {
    const char *all[SELF_WORDS_MAX + OPTIONS_MAX + 1] = {NULL};
    _cleanup_free_ char **environment = make_environment();
    _cleanup_close_ int in = open_input();
    pid_t parent = getpid();
    int ends[2];

    if (in < 0 || !environment)
        return in < 0 ? in : -ENOMEM;
    choose_words(words, all);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    _cleanup_close_ int read_end = ends[0];
    _cleanup_close_ int write_end = ends[1];
    (void) fcntl(read_end, F_SETFL, O_NONBLOCK);
    sigset_t blocked, before;
    (void) sigfillset(&blocked);
    (void) pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pid_t pid = fork();
    int error = errno;
    if (pid == 0)
        become(all, environment, parent, in, write_end);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return -error;
    *ret = (struct self_command){.pid = pid, .out = take_fd(&read_end)};
    return 0;
}

/* Waits for its end. */
static int take_status(struct self_command *command) {
    int status = 0;

    while (waitpid(command->pid, &status, 0) < 0 && errno == EINTR)
        ;
    (void) close(command->out);
    *command = (struct self_command){.out = -1};
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

void self_cancel(struct self_command *command) {
    if (command->pid <= 0)
        return;
    (void) kill(command->pid, SIGTERM);
    (void) take_status(command);
}

/* Whether there can be more: false where it has closed its output, or says too much. */
static bool read_part(const struct self_command *command, struct buf *ret) {
    char part[4096];

    for (;;) {
        ssize_t n = read(command->out, part, sizeof(part));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n > 0)
            buf_append(ret, part, (size_t) n);
        if (n <= 0 || buf_error(ret) < 0)
            return false;
    }
}

void self_read(struct self_command *command, struct buf *ret) {
    if (!read_part(command, ret))
        self_cancel(command);
}

int self_run(const char *const *words, struct buf *ret) {
    struct self_command command = {.out = -1};
    int r = self_start(words, &command);

    if (r < 0)
        return r;
    while (read_part(&command, ret))
        (void) poll(&(struct pollfd){command.out, POLLIN, 0}, 1, -1);
    if (buf_error(ret) == 0)
        return take_status(&command);
    self_cancel(&command);
    return buf_error(ret);
}
