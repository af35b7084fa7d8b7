/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes that a test starts and kills. Include it behind cmocka.h. */

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Starts a process that runs begin(userdata), tells so, and waits to be killed. Returns when it has
 * told; fails the test where `begin` is false. */
static inline pid_t child_start(bool (*begin)(const void *userdata), const void *userdata) {
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!begin(userdata) || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            (void) pause();
    }
    (void) close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void) close(ready[0]);
    return pid;
}

static inline void child_end(pid_t pid) {
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}
