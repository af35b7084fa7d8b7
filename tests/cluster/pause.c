/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a pod's sandbox: it holds the namespaces and reaps what is left to PID 1. */

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signo) {
    (void) signo;
    _exit(0);
}

static void reap(int signo) {
    (void) signo;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(void) {
    struct sigaction on_end = {.sa_handler = end};
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};

    if (sigaction(SIGTERM, &on_end, NULL) < 0 || sigaction(SIGINT, &on_end, NULL) < 0 ||
        sigaction(SIGCHLD, &on_child, NULL) < 0)
        return EXIT_FAILURE;
    for (;;)
        pause();
}
