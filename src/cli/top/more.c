/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/more.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/kubectl_options.h"

#define WORDS_MAX 16

/* In the child, which ends with its parent. */
static void run(const char *const *words, pid_t parent, int out) {
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    if (in >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(out, STDERR_FILENO) >= 0)
        (void) execv("/proc/self/exe", (char *const *) (uintptr_t) words);
    _exit(EXIT_FAILURE);
}

static size_t choose_words(const struct top_row *row, const char *system, const char **words) {
    size_t n = 0;

    words[n++] = "aliquot";
    if (kubectl_options.context) {
        words[n++] = "--context";
        words[n++] = kubectl_options.context;
    }
    if (kubectl_options.kubeconfig) {
        words[n++] = "--kubeconfig";
        words[n++] = kubectl_options.kubeconfig;
    }
    if (row->pod) {
        const char *const explain[] = {"explain",      row->pod,   "--namespace",
                                       row->namespace, "--system", system};
        memcpy(words + n, explain, sizeof(explain));
        return n + sizeof(explain) / sizeof(explain[0]);
    }
    words[n++] = "inspect";
    words[n++] = row->view;
    words[n++] = row->name;
    return n;
}

int more_start(const struct top_row *row, const char *system, struct more *ret) {
    const char *words[WORDS_MAX] = {NULL};
    pid_t parent = getpid();
    int ends[2];

    (void) choose_words(row, system, words);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    _cleanup_close_ int read_end = ends[0];
    _cleanup_close_ int write_end = ends[1];
    (void) fcntl(read_end, F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        run(words, parent, write_end);
    *ret = (struct more){.pid = pid, .out = take_fd(&read_end)};
    return 0;
}

void more_cancel(struct more *more) {
    if (more->pid <= 0)
        return;
    (void) kill(more->pid, SIGTERM);
    while (waitpid(more->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    (void) close(more->out);
    *more = (struct more){.out = -1};
}

void more_read(struct more *more, struct buf *ret) {
    char part[4096];

    for (;;) {
        ssize_t n = read(more->out, part, sizeof(part));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n > 0)
            buf_append(ret, part, (size_t) n);
        if (n <= 0 || buf_error(ret) < 0)
            break;
    }
    more_cancel(more); /* it has closed its output, or says too much */
}
