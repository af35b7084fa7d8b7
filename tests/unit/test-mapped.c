/* SPDX-License-Identifier: Apache-2.0 */

/* Which process has a file mapped, and when it has executed another program. */

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/audit/mapped.h"
#include "agent/os/procfs.h"
#include "base/cleanup.h"
#include "child.h"

#define BYTES 8192

static int new_file(struct stat *ret) {
    char path[] = "/dev/shm/aliquot-mapped-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(fstat(fd, ret), 0);
    return fd;
}

struct beginning {
    void (*begin)(int fd);
    int fd;
};

static bool begin_and_close(const void *userdata) {
    const struct beginning *b = userdata;

    b->begin(b->fd);
    return close(b->fd) == 0;
}

/* A child that runs `begin`, and closes the descriptor then, as a program does that closes all it
 * does not know. */
static pid_t start(void (*begin)(int fd), int fd) {
    return child_start(begin_and_close, &(const struct beginning){begin, fd});
}

static enum mapped_answer query_maps(pid_t pid, const struct stat *st) {
    struct mapped_query *a = mapped_query(pid, st->st_dev, st->st_ino);
    enum mapped_answer answer;

    assert_non_null(a);
    while ((answer = mapped_answer(a)) == MAPPED_PENDING)
        (void) usleep(1000);
    assert_null(mapped_free(a));
    return answer;
}

static void map_nothing(int fd) {
    (void) fd;
}

static void map_for_reading(int fd) {
    if (mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
        _exit(2);
}

static void map_file(int fd) {
    if (mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
        _exit(2);
}

/* In between as many others as a process may have, at least most of them. */
static void map_many(int fd) {
    for (int i = 0; i < 30000; i++)
        if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
            MAP_FAILED)
            _exit(2);
    map_file(fd);
}

static void the_kernel_says_what_is_mapped(void **state) {
    void (*const begin[])(int) = {map_nothing, map_for_reading, map_file, map_many};
    struct stat st, other;
    _cleanup_close_ int fd = new_file(&st);
    _cleanup_close_ int fd_other = new_file(&other);

    (void) state;
    for (size_t i = 0; i < sizeof(begin) / sizeof(begin[0]); i++) {
        pid_t pid = start(begin[i], fd);

        assert_int_equal(query_maps(pid, &st), i < 2 ? MAPPED_NO : MAPPED_YES);
        assert_int_equal(query_maps(pid, &other), MAPPED_NO);
        child_end(pid);
        assert_int_equal(query_maps(pid, &st), MAPPED_UNKNOWN);
    }
}

static void what_is_no_longer_wanted_is_dropped(void **state) {
    struct stat st;
    _cleanup_close_ int fd = new_file(&st);

    (void) state;
    for (int i = 0; i < 100; i++)
        assert_null(mapped_free(mapped_query(getpid(), st.st_dev, st.st_ino)));
    assert_null(mapped_free(NULL));
}

static void a_life_ends_with_exec(void **state) {
    int ready[2];
    uint64_t before;
    char c;
    pid_t pid;

    (void) state;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sigset_t set;
        int signal;

        (void) sigemptyset(&set);
        (void) sigaddset(&set, SIGUSR1);
        (void) sigprocmask(SIG_BLOCK, &set, NULL);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        (void) sigwait(&set, &signal);
        (void) execl("/bin/sleep", "sleep", "60", (char *) NULL);
        _exit(2);
    }
    (void) close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    before = procfs_life(pid);
    assert_true(before != 0);
    assert_true(procfs_life(pid) == before);
    assert_true(procfs_life(getpid()) != before);
    assert_int_equal(kill(pid, SIGUSR1), 0);
    assert_int_equal(read(ready[0], &c, 1), 0); /* closed by the exec */
    assert_true(procfs_life(pid) != before);
    child_end(pid);
    assert_true(procfs_life(pid) == 0);
    (void) close(ready[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_says_what_is_mapped),
        cmocka_unit_test(what_is_no_longer_wanted_is_dropped),
        cmocka_unit_test(a_life_ends_with_exec),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
