/* SPDX-License-Identifier: Apache-2.0 */

/* What the driver is told about control groups, when, and when a container may start. The driver's
 * process is played by this file; the hook, its socket and the control groups are real. Needs root
 * and a hierarchy of control groups of the second version. */

#include <fcntl.h>
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/shares/driver_limit_hook.h"
#include "agent/shares/shares.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/text.h"
#include "fail-malloc.h"

#define GIB ((uint64_t) 1 << 30)
#define WAIT_MS 60000
#define NONCE "0123456789abcdef0123456789abcdef"
#define POD_UID "11111111-2222-3333-4444-555555555555"
#define CONTAINER "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SECOND "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

/* ---- the driver's process ---- */

static struct gpu_snapshot snapshot;
static uint64_t restarts, generation;
static unsigned told; /* requests */
static char told_group[512];
static uint64_t told_bytes;
static bool away; /* nothing can be asked */

const struct gpu_snapshot *gpu_monitor_snapshot(const struct gpu_monitor *m) {
    (void) m;
    return &snapshot;
}

void gpu_monitor_status(const struct gpu_monitor *m, struct gpu_monitor_status *ret) {
    (void) m;
    *ret = (struct gpu_monitor_status){.restarts = restarts, .limit_generation = generation};
}

int gpu_monitor_limit(struct gpu_monitor *m, const char *uuid, const char *cgroup, uint64_t bytes) {
    (void) m;
    assert_string_equal(uuid, "GPU-a");
    if (away)
        return -EAGAIN;
    text_copy(told_group, sizeof(told_group), cgroup);
    told++;
    told_bytes = bytes;
    return 0;
}

/* ---- the node ---- */

struct node {
    struct shares a;
    struct slot slot;
    struct slot_device device;
    char dir[64];
    char pod[128];       /* the pod's control group */
    char container[256]; /* and the container's */
    pid_t program;       /* in it */
    pid_t hook;
};

static const char *hierarchy(void) {
    static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
    char path[64];

    for (size_t i = 0; i < 2; i++) {
        (void) snprintf(path, sizeof(path), "%s/cgroup.procs", mounts[i]);
        if (access(path, W_OK) == 0)
            return mounts[i];
    }
    fail_msg("no control groups of the second version that can be written to: run as root");
    return NULL;
}

/* A process in a control group of that container; it does nothing. */
static pid_t start_program(struct node *n, const char *container) {
    char procs[320];
    int ready[2];
    char c;
    pid_t pid;

    (void) snprintf(n->container, sizeof(n->container), "%s/%s", n->pod, container);
    assert_true(mkdir(n->container, 0755) == 0 && pipe(ready) == 0);
    (void) snprintf(procs, sizeof(procs), "%s/cgroup.procs", n->container);
    pid = fork();
    if (pid == 0) {
        int fd = open(procs, O_WRONLY | O_CLOEXEC);

        if (fd < 0 || write(fd, "0", 1) != 1 || write(ready[1], "", 1) != 1)
            _exit(1);
        (void) pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void) close(ready[0]);
    (void) close(ready[1]);
    return pid;
}

static void end_program(struct node *n) {
    (void) kill(n->program, SIGKILL);
    (void) waitpid(n->program, NULL, 0);
    n->program = 0;
}

static void start_agent(struct node *n, enum driver_limit_policy policy) {
    struct shares *a = &n->a;
    static char hook[512];
    ssize_t len = readlink("/proc/self/exe", hook, sizeof(hook) - 64);

    assert_true(len > 0);
    hook[len] = 0;
    (void) snprintf(strrchr(hook, '/'), 64, "/../../src/agent/aliquot-hook");
    memset(a, 0, sizeof(*a));
    a->loop = uv_default_loop();
    a->options.host_root = "";
    a->options.state_dir = n->dir;
    a->options.hook = hook;
    a->options.hook_dir = "";
    a->options.driver_limits = policy;
    (void) snprintf(a->slots.dir, sizeof(a->slots.dir), "%s/shares", n->dir);
    HASH_ADD_STR(a->slots.slots, nonce, &n->slot);
    assert_int_equal(driver_limit_start(a, NULL), 0);
}

static void stop_agent(struct node *n) {
    driver_limit_stop(&n->a);
    for (int i = 0; i < 3; i++)
        (void) uv_run(n->a.loop, UV_RUN_NOWAIT);
    HASH_CLEAR(hh, n->a.slots.slots);
}

static int setup(void **state) {
    struct node *n = calloc(1, sizeof(*n));
    char path[128];

    (void) snprintf(n->dir, sizeof(n->dir), "/tmp/test-limit-XXXXXX");
    assert_non_null(mkdtemp(n->dir));
    (void) snprintf(path, sizeof(path), "%s/shares/" NONCE, n->dir);
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    (void) snprintf(n->pod, sizeof(n->pod), "%s/aliquot-test-%d-pod" POD_UID, hierarchy(),
                    getpid());
    assert_int_equal(mkdir(n->pod, 0755), 0);
    memset(&snapshot, 0, sizeof(snapshot));
    snapshot.ndevices = 1;
    snapshot.devices[0].memory = 80 * GIB;
    text_copy(snapshot.devices[0].uuid, sizeof(snapshot.devices[0].uuid), "GPU-a");
    text_copy(snapshot.driver_version, sizeof(snapshot.driver_version), "615.71.09");
    told = 0;
    restarts = generation = 0;
    away = false;
    n->device = (struct slot_device){.uuid = "GPU-a", .memory = 4 * GIB, .physical = 4 * GIB};
    text_copy(n->slot.nonce, sizeof(n->slot.nonce), NONCE);
    text_copy(n->slot.grant.pod_uid, sizeof(n->slot.grant.pod_uid), POD_UID);
    n->slot.grant.ndevices = 1;
    n->slot.grant.devices = &n->device;
    start_agent(n, DRIVER_LIMIT_AUTO);
    n->program = start_program(n, CONTAINER);
    *state = n;
    return 0;
}

static int teardown(void **state) {
    struct node *n = *state;
    char path[320];

    if (n->program > 0)
        end_program(n);
    stop_agent(n);
    (void) snprintf(path, sizeof(path), "%s/" CONTAINER, n->pod);
    (void) rmdir(path);
    (void) snprintf(path, sizeof(path), "%s/" SECOND, n->pod);
    (void) rmdir(path);
    assert_int_equal(rmdir(n->pod), 0);
    assert_int_equal(dir_remove(n->dir, NULL), 0);
    free(n);
    return 0;
}

static void on_timer(uv_timer_t *timer) {
    *(bool *) timer->data = true;
}

/* Runs the loop until the condition holds. */
#define RUN_UNTIL(n, condition)                                                                    \
    do {                                                                                           \
        uv_timer_t _tick, _end;                                                                    \
        bool _ticked = false, _late = false;                                                       \
        (void) uv_timer_init((n)->a.loop, &_tick);                                                 \
        (void) uv_timer_init((n)->a.loop, &_end);                                                  \
        _tick.data = &_ticked;                                                                     \
        _end.data = &_late;                                                                        \
        (void) uv_timer_start(&_tick, on_timer, 5, 5);                                             \
        (void) uv_timer_start(&_end, on_timer, WAIT_MS, 0);                                        \
        while (!(condition) && !_late)                                                             \
            (void) uv_run((n)->a.loop, UV_RUN_ONCE);                                               \
        uv_close((uv_handle_t *) &_tick, NULL);                                                    \
        uv_close((uv_handle_t *) &_end, NULL);                                                     \
        (void) uv_run((n)->a.loop, UV_RUN_NOWAIT);                                                 \
        assert_false(_late);                                                                       \
    } while (0)

/* The runtime runs the hook for a container whose first process is `pid`. */
static void run_hook(struct node *n, const char *policy, const char *nonce, int pid) {
    char state[512], socket[128];
    int input[2];

    (void) snprintf(
        state, sizeof(state),
        "{\"ociVersion\":\"1.0.2\",\"annotations\":{\"pid\":\"1\",\"a\":\"\\\"pid\\\":1\"},"
        "\"id\":\"x\",\"status\":\"created\",\"pid\":%d,\"bundle\":\"/b\"}",
        pid);
    (void) snprintf(socket, sizeof(socket), "%s/hook.sock", n->dir);
    assert_int_equal(pipe(input), 0);
    assert_int_equal(write(input[1], state, strlen(state)), (ssize_t) strlen(state));
    (void) close(input[1]);
    n->hook = fork();
    if (n->hook == 0) {
        (void) dup2(input[0], STDIN_FILENO);
        (void) execl(n->a.driver_limits.program, "aliquot-hook", socket, policy, nonce, NULL);
        _exit(127);
    }
    (void) close(input[0]);
}

static bool hook_ended(struct node *n, int *ret) {
    return waitpid(n->hook, ret, WNOHANG) == n->hook;
}

#define HOOK_ENDS(n, code)                                                                         \
    do {                                                                                           \
        int _status = -1;                                                                          \
        RUN_UNTIL(n, hook_ended(n, &_status));                                                     \
        assert_true(WIFEXITED(_status));                                                           \
        assert_int_equal(WEXITSTATUS(_status), code);                                              \
    } while (0)

static void say(struct node *n, enum gpu_limit_result result, uint64_t before) {
    const struct gpu_limit_answer answer = {.uuid = "GPU-a",
                                            .cgroup = told_group,
                                            .bytes = told_bytes,
                                            .before = before,
                                            .result = result,
                                            .text = "no"};

    driver_limit_answer(&n->a, &answer);
}

/* The container starts, and the driver limits it. */
static void start_limited(struct node *n) {
    run_hook(n, "auto", NONCE, n->program);
    RUN_UNTIL(n, told == 1);
    say(n, GPU_LIMIT_SET, told_bytes);
    HOOK_ENDS(n, 0);
}

/* ---- the tests ---- */

static void a_container_waits_for_its_limit(void **state) {
    struct node *n = *state;
    int status;

    run_hook(n, "required", NONCE, n->program);
    RUN_UNTIL(n, told == 1);
    assert_string_equal(told_group, n->container);
    assert_true(told_bytes == 4 * GIB + AUDIT_MEMORY_SLACK);
    assert_true(driver_limit_bytes(&n->a, &n->slot, 0) == 0);
    assert_false(hook_ended(n, &status));
    say(n, GPU_LIMIT_SET, told_bytes);
    HOOK_ENDS(n, 0);
    assert_true(driver_limit_bytes(&n->a, &n->slot, 0) == 4 * GIB + AUDIT_MEMORY_SLACK);
    driver_limit_update(&n->a); /* nothing is new */
    assert_int_equal(told, 1);
}

static void a_whole_card_is_limited_too(void **state) {
    struct node *n = *state;

    n->device.memory = n->device.physical = 80 * GIB;
    run_hook(n, "auto", NONCE, n->program);
    RUN_UNTIL(n, told == 1);
    assert_true(told_bytes == 80 * GIB);
    say(n, GPU_LIMIT_SET, told_bytes);
    HOOK_ENDS(n, 0);
}

static void what_is_refused_is_not_set_and_asked_for_again(void **state) {
    struct node *n = *state;

    n->device.driver_memory = 6 * GIB;
    run_hook(n, "auto", NONCE, n->program);
    RUN_UNTIL(n, told == 1);
    say(n, GPU_LIMIT_REFUSED, told_bytes);
    HOOK_ENDS(n, 0);
    assert_true(driver_limit_bytes(&n->a, &n->slot, 0) == 0);
    driver_limit_update(&n->a);
    assert_int_equal(told, 1); /* as much is used */
    n->device.driver_memory = 3 * GIB;
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
    say(n, GPU_LIMIT_SET, told_bytes);
    assert_true(driver_limit_bytes(&n->a, &n->slot, 0) == told_bytes);
}

static void a_refusal_ends_the_start_only_where_limits_are_required(void **state) {
    struct node *n = *state;

    run_hook(n, "required", NONCE, n->program);
    RUN_UNTIL(n, told == 1);
    say(n, GPU_LIMIT_REFUSED, told_bytes);
    HOOK_ENDS(n, 1);
    /* A share that there is not, and a process of another pod. */
    run_hook(n, "required", "ffffffffffffffffffffffffffffffff", n->program);
    HOOK_ENDS(n, 1);
    run_hook(n, "auto", "../../../../../../../etc/passwd", n->program);
    HOOK_ENDS(n, 0);
    run_hook(n, "required", NONCE, getpid());
    HOOK_ENDS(n, 1);
    assert_int_equal(told, 1);
}

static void a_driver_without_limits_holds_nothing_up(void **state) {
    struct node *n = *state;

    run_hook(n, "auto", NONCE, n->program);
    RUN_UNTIL(n, told == 1);
    say(n, GPU_LIMIT_UNSUPPORTED, told_bytes);
    HOOK_ENDS(n, 0);
    assert_false(driver_limit_possible(&n->a));
    driver_limit_update(&n->a);
    assert_int_equal(told, 1); /* it is not asked again, its successor is */
    restarts++;
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
}

/* The containers of a claim have one share: a limit of one control group says nothing of it. */
static void a_claim_has_no_limit(void **state) {
    struct slot_claim claim = {.npods = 0};
    struct node *n = *state;

    n->slot.grant.claim = &claim;
    n->device.worst_pid = (uint32_t) n->program;
    driver_limit_update(&n->a);
    assert_int_equal(told, 0);
    n->slot.grant.claim = NULL;
    driver_limit_update(&n->a);
    assert_int_equal(told, 1);
    say(n, GPU_LIMIT_SET, told_bytes);
    n->slot.grant.claim = &claim; /* an earlier agent has set one */
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
    assert_true(told_bytes > 80 * GIB);
    say(n, GPU_LIMIT_SET, told_bytes);
    n->slot.grant.claim = NULL;
}

static void a_new_driver_is_told_anew(void **state) {
    struct node *n = *state;

    n->device.worst_pid = (uint32_t) n->program;
    driver_limit_update(&n->a); /* its container started without a hook */
    driver_limit_update(&n->a);
    assert_int_equal(told, 1);
    say(n, GPU_LIMIT_SET, told_bytes);
    restarts++;
    driver_limit_update(&n->a);
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
    assert_true(driver_limit_bytes(&n->a, &n->slot, 0) == 0);
    say(n, GPU_LIMIT_SET, told_bytes);
    n->device.memory = n->device.physical = 5 * GIB; /* a limit that changes */
    driver_limit_update(&n->a);
    assert_int_equal(told, 3);
    assert_true(told_bytes == 5 * GIB + AUDIT_MEMORY_SLACK);
}

/* Another child sets limits: one without an answer, and one with, which may have been undone. */
static void a_dropped_request_is_made_again(void **state) {
    struct node *n = *state;
    int status;

    run_hook(n, "required", NONCE, n->program);
    RUN_UNTIL(n, told == 1);
    driver_limit_update(&n->a);
    assert_int_equal(told, 1);
    generation++;
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
    assert_false(hook_ended(n, &status));
    say(n, GPU_LIMIT_SET, told_bytes);
    HOOK_ENDS(n, 0);
    generation++;
    driver_limit_update(&n->a);
    assert_int_equal(told, 3);
    assert_true(driver_limit_bytes(&n->a, &n->slot, 0) == told_bytes); /* it is in force */
    say(n, GPU_LIMIT_SET, told_bytes);
    away = true;
    end_program(n);
    RUN_UNTIL(n, driver_limit_bytes(&n->a, &n->slot, 0) == 0);
    away = false;
    driver_limit_update(&n->a);
    assert_int_equal(told, 4); /* takes it away */
    generation++;
    driver_limit_update(&n->a);
    assert_int_equal(told, 5);
    say(n, GPU_LIMIT_SET, told_bytes);
    assert_null(n->a.driver_limits.list);
}

static void the_limit_goes_before_the_group(void **state) {
    struct node *n = *state;
    char note[384];

    start_limited(n);
    slot_path(&n->a.slots, NONCE, "group", note);
    assert_int_equal(access(note, F_OK), 0);
    away = true; /* the driver cannot be asked at this moment */
    end_program(n);
    RUN_UNTIL(n, access(note, F_OK) < 0);
    assert_true(driver_limit_bytes(&n->a, &n->slot, 0) == 0);
    away = false;
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
    assert_string_equal(told_group, n->container);
    assert_true(told_bytes == UINT64_MAX);
    say(n, GPU_LIMIT_SET, told_bytes);
    assert_null(n->a.driver_limits.list);
    /* The container is started again: another group. */
    n->program = start_program(n, SECOND);
    run_hook(n, "auto", NONCE, n->program);
    RUN_UNTIL(n, told == 3);
    assert_string_equal(told_group, n->container);
    assert_true(told_bytes == 4 * GIB + AUDIT_MEMORY_SLACK);
    say(n, GPU_LIMIT_SET, told_bytes);
    HOOK_ENDS(n, 0);
}

/* A group that cannot be looked at has not ended. */
static void a_limit_stays_for_lack_of_descriptors(void **state) {
    struct node *n = *state;
    struct rlimit before, none = {0};

    start_limited(n);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    driver_limit_update(&n->a);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(told, 1);
    assert_true(driver_limit_bytes(&n->a, &n->slot, 0) == 4 * GIB + AUDIT_MEMORY_SLACK);
}

/* A hook for which there is no memory is answered when there is some again. */
static void a_hook_waits_for_memory(void **state) {
    struct node *n = *state;

    fail_malloc_at(1);
    run_hook(n, "required", NONCE, n->program);
    RUN_UNTIL(n, n->a.driver_limits.unaccepted);
    assert_true(fail_malloc_end());
    driver_limit_update(&n->a);
    RUN_UNTIL(n, told == 1);
    say(n, GPU_LIMIT_SET, told_bytes);
    HOOK_ENDS(n, 0);
}

static void a_limit_that_was_too_late_is_counted(void **state) {
    struct node *n = *state;

    start_limited(n);
    end_program(n);
    RUN_UNTIL(n, told == 2);
    assert_int_equal(rmdir(n->container), 0);
    driver_limit_update(&n->a); /* the driver has not answered: it may have been in time */
    assert_true(n->a.driver_limits.left == 0);
    say(n, GPU_LIMIT_SET, told_bytes);
    assert_true(n->a.driver_limits.left == 0);
    assert_null(n->a.driver_limits.list);
    n->program = start_program(n, SECOND);
    run_hook(n, "auto", NONCE, n->program);
    RUN_UNTIL(n, told == 3);
    say(n, GPU_LIMIT_SET, told_bytes);
    HOOK_ENDS(n, 0);
    end_program(n);
    RUN_UNTIL(n, told == 4);
    assert_int_equal(rmdir(n->container), 0);
    say(n, GPU_LIMIT_REFUSED, told_bytes);
    assert_true(n->a.driver_limits.left == 1);
    assert_null(n->a.driver_limits.list);
}

static void an_agent_that_starts_again_knows_the_groups(void **state) {
    struct node *n = *state;

    start_limited(n);
    stop_agent(n);
    start_agent(n, DRIVER_LIMIT_AUTO);
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
    assert_true(told_bytes == 4 * GIB + AUDIT_MEMORY_SLACK);
    /* What ends while there is no agent. */
    stop_agent(n);
    end_program(n);
    start_agent(n, DRIVER_LIMIT_AUTO);
    driver_limit_update(&n->a);
    assert_int_equal(told, 3);
    assert_true(told_bytes == UINT64_MAX);
    say(n, GPU_LIMIT_SET, told_bytes);
    assert_null(n->a.driver_limits.list);
}

static void no_agent_holds_an_ordinary_start_up_for_a_second_only(void **state) {
    struct node *n = *state;

    driver_limit_hook_stop(&n->a);
    (void) unlink(n->a.driver_limits.socket);
    run_hook(n, "auto", NONCE, n->program);
    HOOK_ENDS(n, 0);
}

/* Its socket takes calls until the queue is full, and nothing reads them. */
static void an_agent_that_hangs_holds_an_ordinary_start_up_no_longer(void **state) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct node *n = *state;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), caller[8];
    size_t callers = 0;

    text_copy(address.sun_path, sizeof(address.sun_path), n->a.driver_limits.socket);
    driver_limit_hook_stop(&n->a);
    (void) unlink(n->a.driver_limits.socket);
    assert_int_equal(bind(listener, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 0), 0);
    do {
        assert_true(callers < sizeof(caller) / sizeof(caller[0]));
        caller[callers] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    } while (connect(caller[callers++], (struct sockaddr *) &address, sizeof(address)) == 0);
    assert_int_equal(errno, EAGAIN);
    run_hook(n, "auto", NONCE, n->program);
    HOOK_ENDS(n, 0);
    while (callers > 0)
        (void) close(caller[--callers]);
    (void) close(listener);
}

static void limits_of_an_earlier_agent_go_where_this_one_sets_none(void **state) {
    struct node *n = *state;
    char note[384];

    start_limited(n);
    stop_agent(n);
    start_agent(n, DRIVER_LIMIT_OFF);
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
    assert_string_equal(told_group, n->container);
    assert_true(told_bytes == UINT64_MAX);
    say(n, GPU_LIMIT_SET, told_bytes);
    assert_null(n->a.driver_limits.list);
    slot_path(&n->a.slots, NONCE, "group", note);
    assert_int_equal(access(note, F_OK), -1);
    driver_limit_update(&n->a);
    assert_int_equal(told, 2);
}

static void the_hook_lies_beside_the_library_under_noexec(void **state) {
    struct node *n = *state;
    const char *state_dir = n->a.options.state_dir;
    char dir[96], lib[104], expected[128];

    (void) snprintf(dir, sizeof(dir), "%s/noexec", n->dir);
    (void) snprintf(lib, sizeof(lib), "%s/lib", dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(mount("none", dir, "tmpfs", MS_NOEXEC, NULL), 0);
    assert_int_equal(mkdir(lib, 0755), 0);
    assert_int_equal(mount("none", lib, "tmpfs", 0, NULL), 0);
    n->a.driver_limits.program[0] = 0;
    n->a.options.hook_dir = "";
    n->a.options.state_dir = dir;
    driver_limit_hook_install(&n->a);
    n->a.options.state_dir = state_dir;
    (void) snprintf(expected, sizeof(expected), "%s/aliquot-hook", lib);
    assert_string_equal(n->a.driver_limits.program, expected);
    assert_int_equal(umount(lib), 0);
    assert_int_equal(umount(dir), 0);
}

static void the_hook_lies_where_programs_may_run(void **state) {
    struct node *n = *state;
    struct gpu_edits *edits = calloc(1, sizeof(*edits));
    char dir[96], expected[128];
    struct err err;

    (void) snprintf(dir, sizeof(dir), "%s/noexec", n->dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(mount("none", dir, "tmpfs", MS_NOEXEC, NULL), 0);
    driver_limit_hook_stop(&n->a);
    (void) uv_run(n->a.loop, UV_RUN_NOWAIT);
    n->a.driver_limits.program[0] = 0;
    n->a.options.hook_dir = dir;
    assert_int_equal(driver_limit_hook_start(&n->a, NULL), 0);
    (void) snprintf(expected, sizeof(expected), "%s/aliquot-hook", n->dir);
    assert_string_equal(n->a.driver_limits.program, expected);
    assert_int_equal(driver_limit_edits(&n->a, edits, &err), 0);
    assert_int_equal(edits->count, 1);
    assert_int_equal(edits->list[0].kind, GPU_EDIT_HOOK);
    assert_string_equal(edits->list[0].host, expected);
    /* Nowhere: late limits will do, or nothing starts. */
    edits->count = 0;
    n->a.driver_limits.program[0] = 0;
    assert_int_equal(driver_limit_edits(&n->a, edits, &err), 0);
    assert_int_equal(edits->count, 0);
    n->a.options.driver_limits = DRIVER_LIMIT_REQUIRED;
    assert_int_equal(driver_limit_edits(&n->a, edits, &err), -ENODEV);
    /* A driver without the call gets no hook. */
    text_copy(n->a.driver_limits.program, sizeof(n->a.driver_limits.program), expected);
    text_copy(snapshot.driver_version, sizeof(snapshot.driver_version), "610.43.02");
    assert_int_equal(driver_limit_edits(&n->a, edits, &err), -ENODEV);
    n->a.options.driver_limits = DRIVER_LIMIT_AUTO;
    assert_int_equal(driver_limit_edits(&n->a, edits, &err), 0);
    assert_int_equal(edits->count, 0);
    assert_int_equal(umount(dir), 0);
    free(edits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_container_waits_for_its_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_whole_card_is_limited_too, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_refused_is_not_set_and_asked_for_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_refusal_ends_the_start_only_where_limits_are_required,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_driver_without_limits_holds_nothing_up, setup, teardown),
        cmocka_unit_test_setup_teardown(a_claim_has_no_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_driver_is_told_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(a_dropped_request_is_made_again, setup, teardown),
        cmocka_unit_test_setup_teardown(the_limit_goes_before_the_group, setup, teardown),
        cmocka_unit_test_setup_teardown(a_limit_stays_for_lack_of_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(a_hook_waits_for_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(a_limit_that_was_too_late_is_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_that_starts_again_knows_the_groups, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(no_agent_holds_an_ordinary_start_up_for_a_second_only,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_that_hangs_holds_an_ordinary_start_up_no_longer,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(limits_of_an_earlier_agent_go_where_this_one_sets_none,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_hook_lies_beside_the_library_under_noexec, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_hook_lies_where_programs_may_run, setup, teardown),
    };

    /* Mounts of its own. */
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        (void) fprintf(stderr, "needs root\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
