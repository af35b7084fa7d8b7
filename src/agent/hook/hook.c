/* SPDX-License-Identifier: Apache-2.0 */

/* aliquot-hook SOCKET auto|required NONCE: an OCI createRuntime hook (`aliquot-hook ldcache` is in
 * update_ldcache.c). It runs on the host, outside of any image: libc only, and linked statically.
 * The runtime gives it the container's state on standard input. The hook passes that on to the
 * agent, which limits the container's control group, and waits for the answer. The container's
 * first instruction comes after that.
 *
 * Status 0: limited, or, with "auto", not: the agent logs why. 1: not limited, and required. */

#include "agent/hook/hook.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define AUTO_MS 1000      /* how long an agent is waited for that is not there */
#define REQUIRED_MS 10000 /* e.g. while it is being replaced */
#define ANSWER_S 15       /* the agent answers sooner, whatever the driver does */
#define RETRY_NS 20000000

/* An agent that hangs neither accepts nor reads: what is sent waits no longer than that, too. */
static int dial(const char *path, long long wait_ms) {
    const struct timeval patience = {.tv_sec = wait_ms / 1000};
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    long long until = (long long) clock_ms(CLOCK_MONOTONIC) + wait_ms;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
        return -1;
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    while (connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0) {
        if ((long long) clock_ms(CLOCK_MONOTONIC) >= until) {
            (void) fprintf(stderr, "aliquot-hook: the agent does not answer at %s: %s\n", path,
                           strerror(errno));
            (void) close(fd);
            return -1;
        }
        (void) nanosleep(&pause, NULL);
    }
    return fd;
}

static bool send_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            data += n;
            len -= (size_t) n;
        }
    }
    return true;
}

static bool send_state(int fd, const char *nonce) {
    char data[4096];
    ssize_t n;

    if (!send_all(fd, nonce, strlen(nonce)) || !send_all(fd, "\n", 1))
        return false;
    while ((n = read(STDIN_FILENO, data, sizeof(data))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || !send_all(fd, data, (size_t) n))
            return false;
    }
    return shutdown(fd, SHUT_WR) == 0;
}

/* "0", or "1 and the reason". */
static bool read_answer(int fd) {
    const struct timeval patience = {.tv_sec = ANSWER_S};
    char text[512];
    size_t len = 0;
    ssize_t n;

    (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    while (len < sizeof(text) - 1 && (n = read(fd, text + len, sizeof(text) - 1 - len)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        len += (size_t) n;
    }
    text[len] = 0;
    text[strcspn(text, "\n")] = 0;
    if (text[0] != '0')
        (void) fprintf(stderr, "aliquot-hook: the driver does not limit this container: %s\n",
                       len > 2 ? text + 2 : "no answer from the agent");
    return text[0] == '0';
}

int main(int argc, char **argv) {
    bool required, done;
    int fd;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void) printf("aliquot-hook %s\n", ALIQUOT_VERSION);
        return EXIT_SUCCESS;
    }
    if (argc == 2 && strcmp(argv[1], "ldcache") == 0)
        return hook_ldcache();
    required = argc == 4 && strcmp(argv[2], "required") == 0;
    if (argc != 4 || (!required && strcmp(argv[2], "auto") != 0)) {
        (void) fprintf(stderr, "usage: aliquot-hook ldcache\n"
                               "       aliquot-hook SOCKET auto|required NONCE <STATE\n");
        return 2;
    }
    fd = dial(argv[1], required ? REQUIRED_MS : AUTO_MS);
    done = fd >= 0 && send_state(fd, argv[3]) && read_answer(fd);
    return done || !required ? EXIT_SUCCESS : EXIT_FAILURE;
}
