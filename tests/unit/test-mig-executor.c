/* SPDX-License-Identifier: Apache-2.0 */

/* The executor of repartitions, with this program as its child: what it is told, in which order,
 * and how a job ends when the child does not do what it should. And the lock of a machine. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/mig/executor.h"
#include "base/err.h"
#include "base/text.h"
#include "child.h"
#include "gpu/mig/lock.h"
#include "gpu/mig/worker.h"
#include "gpu/nvml/worker.h"

#define CARD "GPU-00000000-0000-0000-0000-000000000000"
#define ONE "MIG-00000000-0000-0000-0000-000000000001"
#define TWO "MIG-00000000-0000-0000-0000-000000000002"

/* ---- the child ---- */

static union gpu_mig_message message;

static void send_it(enum gpu_mig_message_type type, size_t size) {
    message.header = (struct gpu_mig_header){GPU_MIG_MAGIC, type};
    if (send(GPU_WORKER_FD, &message, size, MSG_NOSIGNAL) != (ssize_t) size)
        _exit(2);
}

static bool receive(enum gpu_mig_message_type type) {
    ssize_t n = recv(GPU_WORKER_FD, &message, sizeof(message), 0);

    return n > 0 && gpu_mig_message_check(&message, (size_t) n) == (int) type;
}

static bool holds(const struct gpu_mig_held *held, const char *uuid) {
    for (uint32_t i = 0; i < held->n; i++)
        if (strcmp(held->list[i].uuid, uuid) == 0)
            return true;
    return false;
}

static void end_with(int status, const char *text) {
    memset(&message, 0, sizeof(message));
    message.end.status = status;
    text_copy(message.end.error, sizeof(message.end.error), text);
    send_it(GPU_MIG_END, sizeof(message.end));
}

/* Ends ONE and TWO; says in the text of END which of them the agent then names as held. */
static int plan(bool mode) {
    struct gpu_mig_held held;

    memset(&message, 0, sizeof(message));
    message.begin.n = 2;
    message.begin.mode = mode;
    text_copy(message.begin.card, GPU_UUID_MAX, CARD);
    text_copy(message.begin.ended[0], GPU_UUID_MAX, ONE);
    text_copy(message.begin.ended[1], GPU_UUID_MAX, TWO);
    send_it(GPU_MIG_BEGIN, sizeof(message.begin));
    if (!receive(GPU_MIG_HELD))
        return 3;
    held = message.held;
    if (held.stop)
        end_with(-ECANCELED, "stopped");
    else
        end_with(-EBUSY, holds(&held, ONE)   ? holds(&held, TWO) ? "both" : "one"
                         : holds(&held, TWO) ? "two"
                                             : "none");
    return 0;
}

/* Plans ever other instances, until the agent says why it stops. */
static int plan_for_ever(void) {
    uint32_t made = 0;

    do {
        memset(&message, 0, sizeof(message));
        message.begin.n = GPU_MIG_ENDED_MAX;
        for (uint32_t i = 0; i < GPU_MIG_ENDED_MAX; i++)
            (void) snprintf(message.begin.ended[i], GPU_UUID_MAX, "MIG-%u", made++);
        send_it(GPU_MIG_BEGIN, sizeof(message.begin));
        if (!receive(GPU_MIG_HELD))
            return 3;
    } while (message.held.stop == GPU_MIG_GO);
    end_with(-ECANCELED, message.held.stop == GPU_MIG_STOP_FULL ? "full" : "another reason");
    return 0;
}

/* What it does is the name of the configuration. */
static int child(void) {
    char what[MIG_CONFIG_NAME_MAX];

    if (!receive(GPU_MIG_ORDER))
        return 1;
    text_copy(what, sizeof(what), message.order.order.config);
    if (strcmp(what, "dies") == 0)
        return 0;
    if (strcmp(what, "garbage") == 0)
        return send(GPU_WORKER_FD, "garbage", 7, MSG_NOSIGNAL) == 7 ? pause() : 1;
    if (strcmp(what, "plan") == 0 || strcmp(what, "mode") == 0)
        return plan(what[0] == 'm');
    if (strcmp(what, "many") == 0)
        return plan_for_ever();
    end_with(0, "");
    return 0;
}

/* ---- the agent ---- */

static struct world {
    uv_loop_t loop;
    struct mig_executor *executor;
    bool has_driver, closed, had_child;
    const char *may_not;     /* start a job, for that reason */
    const char *pod_takes;   /* by a slot */
    struct mig_job *cancels; /* when its child has been started */
    unsigned closes, opened; /* calls */
    unsigned withdrawals;
    bool both_at_first;
    int done, status;
    char error[ERR_TEXT_MAX], order[16]; /* of the jobs that have ended */
} w;

static const char *library(void *userdata) {
    (void) userdata;
    return w.has_driver ? "library" : NULL;
}

static void held(struct gpu_mig_held *ret, void *userdata) {
    (void) userdata;
    w.had_child |= mig_executor_has_child(w.executor);
    if (w.cancels)
        mig_executor_cancel(w.executor, w.cancels);
    if (w.pod_takes)
        mig_executor_add_held(ret, w.pod_takes, "pod a/b");
}

static int may_start(const struct gpu_mig_order *order, void *userdata, struct err *err) {
    (void) order, (void) userdata;
    return w.may_not ? err_set(err, EBUSY, "%s", w.may_not) : 0;
}

static void on_withdraw(void *userdata) {
    (void) userdata;
    if (w.withdrawals++ == 0)
        w.both_at_first =
            mig_executor_withdraws(w.executor, ONE) && mig_executor_withdraws(w.executor, TWO);
}

/* Done at the third call. */
static bool close_card(const char *uuid, void *userdata) {
    (void) userdata;
    assert_string_equal(uuid, CARD);
    assert_true(mig_executor_closes(w.executor, CARD));
    assert_true(w.both_at_first);
    return ++w.closes == 3;
}

static void open_card(const char *uuid, void *userdata) {
    (void) userdata;
    assert_string_equal(uuid, CARD);
    assert_false(mig_executor_closes(w.executor, CARD));
    w.opened++;
}

static void on_done(struct mig_job *job, int status, const char *error) {
    w.order[w.done++] = *(const char *) job->userdata;
    w.status = status;
    text_copy(w.error, sizeof(w.error), error);
}

static void on_closed(void *userdata) {
    (void) userdata;
    w.closed = true;
}

static int set_up(void **state) {
    static const struct mig_executor_handlers handlers = {library,     held,       may_start,
                                                          on_withdraw, close_card, open_card};
    const struct mig_executor_options options = {.program = "/proc/self/exe",
                                                 .lock = "/lock",
                                                 .kubelet_dir = "/kubelet",
                                                 .pod_logs = "/logs",
                                                 .hook_root = "/host",
                                                 .handlers = &handlers};

    (void) state;
    w = (struct world){.has_driver = true};
    assert_int_equal(uv_loop_init(&w.loop), 0);
    assert_int_equal(mig_executor_new(&w.loop, &options, &w.executor), 0);
    return 0;
}

static int tear_down(void **state) {
    (void) state;
    mig_executor_close(w.executor, on_closed, NULL);
    while (!w.closed)
        (void) uv_run(&w.loop, UV_RUN_ONCE);
    (void) uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    return 0;
}

static struct mig_job job_of(const char *what) {
    struct mig_job job = {
        .order.kind = GPU_MIG_CONFIG, .on_done = on_done, .userdata = (void *) (uintptr_t) what};

    text_copy(job.order.config, sizeof(job.order.config), what);
    return job;
}

static void run_until(int done) {
    while (w.done < done)
        (void) uv_run(&w.loop, UV_RUN_ONCE);
}

static void run(const char *what) {
    struct mig_job job = job_of(what);

    mig_executor_submit(w.executor, &job);
    assert_int_equal(w.done, 0); /* in a later turn */
    run_until(1);
    assert_false(job.submitted);
}

/* ---- tests ---- */

static void test_jobs_run_one_after_the_other(void **state) {
    struct mig_job a = job_of("a"), b = job_of("b"), c = job_of("c");

    (void) state;
    mig_executor_submit(w.executor, &a);
    mig_executor_submit(w.executor, &b);
    mig_executor_submit(w.executor, &c);
    mig_executor_cancel(w.executor, &c);
    run_until(2);
    assert_int_equal(w.status, 0);
    run_until(3);
    assert_int_equal(w.status, -ECANCELED);
    assert_string_equal(w.order, "abc");
}

static void test_what_ends_is_withdrawn_first(void **state) {
    (void) state;
    run("plan");
    assert_int_equal(w.status, -EBUSY);
    assert_string_equal(w.error, "none");
    assert_true(w.both_at_first);
    /* Until a reading that began after the job: a former one can still have what has ended. */
    assert_true(mig_executor_withdraws(w.executor, ONE));
    mig_executor_update(w.executor, 1);
    assert_true(mig_executor_withdraws(w.executor, ONE));
    mig_executor_update(w.executor, 2);
    assert_false(mig_executor_withdraws(w.executor, ONE));
    assert_false(mig_executor_withdraws(w.executor, TWO));
    assert_int_equal(w.withdrawals, 2);
}

/* A job that withdraws nothing does not keep back what an earlier one has withdrawn. */
static void test_jobs_that_withdraw_nothing(void **state) {
    (void) state;
    run("plan");
    mig_executor_update(w.executor, 1);
    w.done = 0;
    run("a");
    mig_executor_update(w.executor, 2);
    assert_false(mig_executor_withdraws(w.executor, ONE));
    assert_int_equal(w.withdrawals, 2);
}

static void test_what_a_pod_has_taken_stays(void **state) {
    (void) state;
    w.pod_takes = TWO;
    run("plan");
    assert_string_equal(w.error, "two");
    assert_true(w.both_at_first);
    assert_true(mig_executor_withdraws(w.executor, ONE));
    assert_false(mig_executor_withdraws(w.executor, TWO));
}

/* kubelet's checkpoint does not have it yet. */
static void test_what_was_just_allocated_stays(void **state) {
    static const char *const ids[] = {ONE "::3", "0-1"};

    (void) state;
    mig_executor_allocated(w.executor, ids, 2);
    run("plan");
    assert_string_equal(w.error, "one");
    assert_false(mig_executor_withdraws(w.executor, ONE));
    assert_true(mig_executor_withdraws(w.executor, TWO));
}

/* It is cancelled while its child runs: before the child's first change. */
static void test_a_cancelled_job_changes_nothing(void **state) {
    struct mig_job job = job_of("plan");

    (void) state;
    w.cancels = &job;
    mig_executor_submit(w.executor, &job);
    run_until(1);
    assert_int_equal(w.status, -ECANCELED);
    assert_string_equal(w.error, "stopped"); /* by the child */
    assert_false(mig_executor_withdraws(w.executor, ONE));
}

static void test_more_than_is_withdrawn(void **state) {
    (void) state;
    run("many");
    assert_int_equal(w.status, -ECANCELED);
    assert_string_equal(w.error, "full");
    mig_executor_update(w.executor, 2);
    w.done = 0;
    run("plan"); /* the next one works */
    assert_string_equal(w.error, "none");
}

/* A device in shares has many holders. */
static void test_a_device_of_many_pods(void **state) {
    static struct gpu_mig_held list;
    char uuid[GPU_UUID_MAX];

    (void) state;
    for (uint32_t i = 0; i < 2 * GPU_MIG_HELD_MAX; i++)
        mig_executor_add_held(&list, ONE, i == 0 ? "pod a/first" : "pod a/b");
    assert_int_equal(list.n, 1);
    assert_string_equal(list.list[0].by, "pod a/first");
    for (uint32_t i = 1; i < GPU_MIG_HELD_MAX; i++) {
        (void) snprintf(uuid, sizeof(uuid), "MIG-%u", i);
        mig_executor_add_held(&list, uuid, "pod a/b");
    }
    mig_executor_add_held(&list, ONE, "pod a/b");
    assert_int_equal(list.stop, GPU_MIG_GO);
    mig_executor_add_held(&list, TWO, "pod a/b");
    assert_int_equal(list.stop, GPU_MIG_STOP_FULL);
}

static void test_a_child_that_fails(void **state) {
    (void) state;
    run("dies");
    assert_int_equal(w.status, -EIO);
    assert_non_null(strstr(w.error, "has ended before its job"));
    w.done = 0;
    run("garbage");
    assert_int_equal(w.status, -EBADMSG);
    assert_non_null(strstr(w.error, "malformed"));
    w.done = 0;
    run("plan"); /* the next one works */
    assert_string_equal(w.error, "none");
}

/* The agent closes the card before the child goes on, and opens it at the end. */
static void test_the_mode_of_a_card(void **state) {
    (void) state;
    run("mode");
    assert_string_equal(w.error, "none");
    assert_int_equal(w.closes, 3);
    assert_int_equal(w.opened, 1);
    w.done = 0;
    run("plan"); /* instances change while it is open */
    assert_int_equal(w.closes, 3);
    assert_int_equal(w.opened, 1);
}

static void test_closed_cards(void **state) {
    (void) state;
    w.may_not = "GPU 1 is being reset";
    run("a");
    assert_int_equal(w.status, -EBUSY);
    assert_string_equal(w.error, "GPU 1 is being reset");
    assert_false(w.had_child);
    w.may_not = NULL;
    w.done = 0;
    run("a");
    assert_int_equal(w.status, 0);
    assert_true(w.had_child);
    while (mig_executor_has_child(w.executor))
        (void) uv_run(&w.loop, UV_RUN_ONCE);
}

static void test_without_a_driver(void **state) {
    (void) state;
    w.has_driver = false;
    run("a");
    assert_int_equal(w.status, -ENODEV);
}

/* ---- the lock ---- */

static bool take(const void *path) {
    struct err err;

    return gpu_mig_lock(path, &err) >= 0;
}

static void test_lock(void **state) {
    char dir[] = "/tmp/test-mig-lock-XXXXXX", path[64], pid[32];
    struct err err;
    pid_t other;
    int fd;

    (void) state;
    assert_non_null(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/new/mig.lock", dir);
    other = child_start(take, path);
    (void) snprintf(pid, sizeof(pid), "process %d ", other);
    assert_int_equal(gpu_mig_lock(path, &err), -EBUSY);
    assert_non_null(strstr(err.text, pid));
    assert_non_null(strstr(err.text, path));
    /* It ends with its holder, however that ends. */
    child_end(other);
    fd = gpu_mig_lock(path, &err);
    assert_true(fd >= 0);
    (void) close(fd);
    fd = gpu_mig_lock(path, &err);
    assert_true(fd >= 0);
    (void) close(fd);
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_jobs_run_one_after_the_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_ends_is_withdrawn_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_jobs_that_withdraw_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_a_pod_has_taken_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_just_allocated_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_cancelled_job_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_more_than_is_withdrawn, set_up, tear_down),
        cmocka_unit_test(test_a_device_of_many_pods),
        cmocka_unit_test_setup_teardown(test_a_child_that_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_mode_of_a_card, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_closed_cards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_driver, set_up, tear_down),
        cmocka_unit_test(test_lock),
    };

    if (argc > 1 && strcmp(argv[1], GPU_MIG_WORKER_COMMAND) == 0)
        return child();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
