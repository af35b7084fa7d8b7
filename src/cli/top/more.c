/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/more.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/kubectl_options.h"

#define WORDS_MAX 16

static void run(const char *const *words, int out) {
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (in >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(out, STDERR_FILENO) >= 0)
        (void) execv("/proc/self/exe", (char *const *) (uintptr_t) words);
    _exit(EXIT_FAILURE);
}

static void read_all(int fd, struct buf *ret) {
    char part[4096];
    ssize_t n;

    while ((n = read(fd, part, sizeof(part))) != 0) {
        if (n < 0 && errno != EINTR)
            return;
        if (n > 0)
            buf_append(ret, part, (size_t) n);
    }
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

void more_of(const struct top_row *row, const char *system, struct buf *ret) {
    const char *words[WORDS_MAX] = {NULL};
    int ends[2];

    (void) choose_words(row, system, words);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    _cleanup_close_ int read_end = ends[0];
    _cleanup_close_ int write_end = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return;
    if (pid == 0)
        run(words, write_end);
    (void) close(take_fd(&write_end));
    read_all(read_end, ret);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
