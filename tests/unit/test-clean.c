/* SPDX-License-Identifier: Apache-2.0 */
/* What `aliquot-agent --clean` removes, and when it does not. Roots of a test have PIDs of their
 * own, so that other containers of the machine are none of theirs. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/clean.h"
#include "agent/clean_users.h"
#include "agent/config.h"
#include "base/err.h"
#include "base/file.h"
#include "child.h"

#define NONCE "0123456789abcdef0123456789abcdef"
#define SHARE_FILE "cdi/elasticgpu.io-share-" NONCE ".json"
#define LINE(point) "1 2 0:3 / " point " rw - tmpfs tmpfs rw\n"
#define POLL_US 20000

static char root[64];

static const char *in_root(const char *path) {
    static char text[512];

    (void) snprintf(text, sizeof(text), "%s/%s", root, path);
    return text;
}

static void put(const char *path, const char *text) {
    char dir[512];
    struct err err;

    (void) snprintf(dir, sizeof(dir), "%s", in_root(path));
    *strrchr(dir, '/') = '\0';
    assert_int_equal(dir_make(dir, 0755, &err), 0);
    assert_int_equal(file_replace(in_root(path), text, strlen(text), 0644, &err), 0);
}

static bool is_there(const char *path) {
    return access(in_root(path), F_OK) == 0;
}

static int setup(void **state) {
    (void) state;
    (void) snprintf(root, sizeof(root), "/tmp/clean-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state) {
    struct err err;

    (void) state;
    return dir_remove(root, &err);
}

/* ---- processes ---- */

static bool is_user(int pid) {
    struct err err;

    return clean_is_user(root, pid, &err);
}

static void mounts_say_what_uses_shares(void **state) {
    (void) state;
    put("1/mountinfo", LINE("/") LINE("/dev/aliquot"));
    put("2/mountinfo", LINE("/") LINE("/dev/aliquot2") LINE("/run/aliquot"));
    put("3/mountinfo", "");
    assert_true(is_user(1));
    assert_false(is_user(2));
    assert_false(is_user(3));
    assert_false(is_user(4));
}

static void mounts_that_cannot_be_read_count(void **state) {
    (void) state;
    assert_int_equal(mkdir(in_root("1"), 0755), 0);
    assert_int_equal(mkdir(in_root("1/mountinfo"), 0755), 0);
    assert_true(is_user(1));
}

static void *wait_for_ever(void *arg) {
    (void) arg;
    for (;;)
        (void) pause();
    return NULL;
}

static void *end_main(void *arg) {
    pthread_t main = *(pthread_t *) arg;
    char c = 'x';

    (void) pthread_join(main, NULL);
    (void) !write(STDOUT_FILENO, &c, 1);
    return wait_for_ever(NULL);
}

/* A process of which only the first thread has ended: the kernel then shows no mounts of it. */
static pid_t start_without_main(void) {
    static pthread_t main;
    int pipes[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        pthread_t other;

        main = pthread_self();
        (void) dup2(pipes[1], STDOUT_FILENO);
        (void) pthread_create(&other, NULL, end_main, &main);
        pthread_exit(NULL);
    }
    assert_true(pid > 0);
    (void) close(pipes[1]);
    assert_int_equal(read(pipes[0], &c, 1), 1);
    (void) close(pipes[0]);
    return pid;
}

static void threads_are_asked_where_the_first_has_ended(void **state) {
    char path[64], file[512];
    pid_t pid = start_without_main();
    struct err err;

    (void) state;
    (void) snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
    /* It is joined before the kernel has taken its mounts from it. */
    for (int fd; (fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0; (void) close(fd))
        (void) usleep(POLL_US);
    assert_int_equal(errno, EINVAL);
    assert_false(clean_is_user("/proc", pid, &err));

    assert_int_equal(mkdir(in_root("1"), 0755), 0);
    (void) snprintf(file, sizeof(file), "%s", in_root("1/mountinfo"));
    assert_int_equal(symlink(path, file), 0);
    assert_false(is_user(1)); /* all threads have ended */
    put("1/task/7/mountinfo", LINE("/dev/aliquot"));
    assert_true(is_user(1));
    child_end(pid);
}

/* ---- the node ---- */

static struct config config(const char *state_dir) {
    struct config c = {.sim_dir = "/sim",
                       .kubelet_dir = "/kubelet",
                       .clean = true,
                       .labels = {.place = "/labels"}};

    c.shares.host_root = root;
    c.shares.cdi_dir = "/cdi";
    c.shares.state_dir = state_dir;
    c.shares.hook_dir = "/hook";
    return c;
}

static void fill(void) {
    put(SHARE_FILE, "{}");
    put(SHARE_FILE ".a1B2c3", "");
    put("cdi/elasticgpu.io-guard.json", "{}");
    put("cdi/elasticgpu.io-guard.json.a1B2c3", "");
    put("cdi/elasticgpu.io-share-mine.json", "{}");
    put("kubelet/device-plugins/aliquot-slot-1-2.sock", "");
    put("kubelet/device-plugins/aliquot-slot.socket", "");
    put("kubelet/plugins_registry/gpu.elasticgpu.io-reg.sock", "");
    put("kubelet/plugins_registry/other.example-reg.sock", "");
    put("kubelet/plugins/gpu.elasticgpu.io/dra.sock", "");
    put("labels", "a=b");
    put("run/state/shares/x/limits", "1");
    put("hook/aliquot-hook", "");
    put("dev/aliquot/.keep", "");
    assert_int_equal(unlink(in_root("dev/aliquot/.keep")), 0);
    assert_int_equal(mkdir(in_root("proc"), 0755), 0);
}

/* Where the root has PIDs of its own. Does not return. */
static void clean_here(const struct config *c, bool with_user) {
    if (mount("proc", in_root("proc"), "proc", 0, NULL) < 0)
        _exit(2);
    if (with_user && fork() == 0) {
        if (unshare(CLONE_NEWNS) < 0 || chroot(root) < 0 ||
            mount("tmpfs", "/dev/aliquot", "tmpfs", 0, NULL) < 0 || creat("/mounted", 0600) < 0)
            _exit(2);
        wait_for_ever(NULL);
    }
    while (with_user && !is_there("mounted"))
        (void) usleep(POLL_US);
    exit(clean_main(c));
}

/* Runs it until it ends, or where it goes on trying until `sign` is gone. The exit status. */
static int clean(const struct config *c, bool with_user, const char *sign) {
    int status;
    pid_t between = fork(), pid;

    if (between == 0) {
        if (unshare(CLONE_NEWNS | CLONE_NEWPID) < 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
            _exit(3);
        pid = fork();
        if (pid == 0)
            clean_here(c, with_user);
        while (waitpid(pid, &status, sign ? WNOHANG : 0) == 0) {
            if (!is_there(sign))
                (void) kill(pid, SIGTERM);
            (void) usleep(POLL_US);
        }
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
    }
    assert_int_equal(waitpid(between, &status, 0), between);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

static void all_of_agents_goes(void **state) {
    struct config c = config("/run/state");

    (void) state;
    fill();
    assert_int_equal(clean(&c, false, NULL), EXIT_SUCCESS);
    assert_false(is_there(SHARE_FILE) || is_there(SHARE_FILE ".a1B2c3"));
    assert_false(is_there("cdi/elasticgpu.io-guard.json"));
    assert_false(is_there("cdi/elasticgpu.io-guard.json.a1B2c3"));
    assert_false(is_there("kubelet/device-plugins/aliquot-slot-1-2.sock"));
    assert_false(is_there("kubelet/plugins_registry/gpu.elasticgpu.io-reg.sock"));
    assert_false(is_there("kubelet/plugins/gpu.elasticgpu.io"));
    assert_true(is_there("kubelet/plugins_registry/other.example-reg.sock"));
    assert_true(is_there("kubelet/plugins"));
    assert_false(is_there("labels") || is_there("run/state") || is_there("hook"));
    assert_false(is_there("dev/aliquot"));
    assert_true(is_there("cdi/elasticgpu.io-share-mine.json"));
    assert_true(is_there("kubelet/device-plugins/aliquot-slot.socket"));
    assert_int_equal(clean(&c, false, NULL), EXIT_SUCCESS);
}

static void the_mount_point_goes_without_a_hook(void **state) {
    struct config c = config("/run/state");

    (void) state;
    fill();
    c.shares.hook_dir = "";
    assert_int_equal(clean(&c, false, NULL), EXIT_SUCCESS);
    assert_false(is_there("dev/aliquot"));
    assert_true(is_there("hook/aliquot-hook"));
}

static void what_containers_use_stays(void **state) {
    struct config c = config("/run/state");

    (void) state;
    fill();
    assert_int_equal(clean(&c, true, NULL), EXIT_SUCCESS);
    assert_false(is_there(SHARE_FILE) || is_there("labels"));
    assert_true(is_there("run/state/shares/x/limits") && is_there("hook/aliquot-hook"));
}

/* It is tried for as long as something is left, and the rest goes. */
static void a_file_that_stays_is_a_failure(void **state) {
    struct config c = config("/run/state");

    (void) state;
    fill();
    assert_int_equal(unlink(in_root(SHARE_FILE)), 0);
    assert_int_equal(mkdir(in_root(SHARE_FILE), 0755), 0); /* unlink() refuses it */
    assert_int_equal(clean(&c, false, "run/state"), EXIT_FAILURE);
    assert_false(is_there("cdi/elasticgpu.io-guard.json") || is_there("run/state"));
}

static void a_wrong_state_directory_stays(void **state) {
    static const char *const wrong[] = {"", "/", "/run", "/run/", "/var/lib", "/run/state/../.."};

    (void) state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct config c = config(wrong[i]);

        fill();
        put("var/lib/other/file", "x");
        assert_int_equal(clean(&c, false, "labels"), EXIT_FAILURE);
        assert_true(is_there("run/state/shares/x/limits") && is_there("var/lib/other/file"));
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mounts_say_what_uses_shares, setup, teardown),
        cmocka_unit_test_setup_teardown(mounts_that_cannot_be_read_count, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_are_asked_where_the_first_has_ended, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(all_of_agents_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(the_mount_point_goes_without_a_hook, setup, teardown),
        cmocka_unit_test_setup_teardown(what_containers_use_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_stays_is_a_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wrong_state_directory_stays, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
