/* SPDX-License-Identifier: Apache-2.0 */

/* The division that is wanted, with a clock, a timer and an executor of the test: which jobs follow
 * which wishes, and what is reported. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/mig/manager.h"
#include "base/file.h"
#include "base/text.h"

static struct world {
    uv_loop_t loop;
    struct mig_manager *manager;
    char dir[64], record[128], file[128], hooks[128];
    const char *missing; /* why there is no file */
    uint64_t now, due;   /* 0: the timer is not started */
    uv_timer_t *timer;
    uv_timer_cb on_timer;
    struct mig_job *job; /* submitted */
    unsigned jobs, cancels, statuses, resets;
    bool unread; /* the agent does not know the card */
} w;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms, uint64_t repeat);
int __wrap_uv_timer_stop(uv_timer_t *timer);
void __wrap_mig_executor_submit(struct mig_executor *x, struct mig_job *job);
void __wrap_mig_executor_cancel(struct mig_executor *x, struct mig_job *job);

uint64_t __wrap_uv_now(const uv_loop_t *loop) {
    (void) loop;
    return w.now;
}

int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms, uint64_t repeat) {
    assert_int_equal(repeat, 0);
    w.timer = timer;
    w.on_timer = cb;
    w.due = w.now + ms;
    return 0;
}

int __wrap_uv_timer_stop(uv_timer_t *timer) {
    (void) timer;
    w.due = 0;
    return 0;
}

void __wrap_mig_executor_submit(struct mig_executor *x, struct mig_job *job) {
    (void) x;
    assert_null(w.job);
    job->submitted = true;
    w.job = job;
    w.jobs++;
}

void __wrap_mig_executor_cancel(struct mig_executor *x, struct mig_job *job) {
    (void) x, (void) job;
    w.cancels++;
}

static const char *no_file(void *userdata) {
    (void) userdata;
    return w.missing;
}

static uint64_t left_out(void *userdata) {
    (void) userdata;
    return 0;
}

static int reset(const char *uuid, void *userdata, struct err *err) {
    (void) userdata;
    assert_string_equal(uuid, "GPU-0");
    if (w.unread)
        return err_set(err, EAGAIN, "the agent has not read it yet");
    w.resets++;
    return 0;
}

static bool is_resetting(void *userdata) {
    (void) userdata;
    return false;
}

static void on_status(const struct mig_status *status, void *userdata) {
    (void) status, (void) userdata;
    w.statuses++;
}

static int start(void) {
    static const struct mig_manager_handlers handlers = {no_file, left_out, reset, is_resetting,
                                                         on_status};
    const struct mig_manager_options options = {
        .file = w.file, .hooks = w.hooks, .record = w.record, .handlers = &handlers};

    return mig_manager_new(&w.loop, &options, &w.manager);
}

static void stop(void) {
    mig_manager_close(w.manager);
    (void) uv_run(&w.loop, UV_RUN_DEFAULT);
}

static void restart(void) {
    stop();
    assert_int_equal(start(), 0);
}

static int set_up(void **state) {
    (void) state;
    memset(&w, 0, sizeof(w));
    w.now = 1000000;
    (void) snprintf(w.dir, sizeof(w.dir), "/tmp/aliquot-mig-XXXXXX");
    if (!mkdtemp(w.dir) || uv_loop_init(&w.loop) < 0)
        return -1;
    (void) snprintf(w.record, sizeof(w.record), "%s/record", w.dir);
    (void) snprintf(w.file, sizeof(w.file), "%s/file", w.dir);
    (void) snprintf(w.hooks, sizeof(w.hooks), "%s/hooks", w.dir);
    return start();
}

static int tear_down(void **state) {
    (void) state;
    stop();
    assert_int_equal(uv_loop_close(&w.loop), 0);
    return dir_remove(w.dir, NULL);
}

/* The clock goes on; a timer that is due calls. */
static void pass(uint64_t ms) {
    w.now += ms;
    if (w.due == 0 || w.due > w.now)
        return;
    w.due = 0;
    w.on_timer(w.timer);
}

static void end(int status, const char *error) {
    struct mig_job *job = w.job;

    assert_non_null(job);
    w.job = NULL;
    job->submitted = false;
    job->on_done(job, status, error);
}

static void expect(enum mig_state state, const char *reason) {
    const struct mig_status *s = mig_manager_status(w.manager);

    assert_string_equal(mig_state_name(s->state), mig_state_name(state));
    assert_string_equal(s->reason, reason);
}

/* The job ends with a card whose mode changes with the next reset. */
static void end_in_need_of_reset(void) {
    const struct gpu_mig_card card = {.uuid = "GPU-0",
                                      .status = -EBUSY,
                                      .error = "MIG mode is pending until the card is reset",
                                      .result = {.needs_reset = true}};

    w.job->on_card(w.job, &card);
    end(0, "");
}

/* At the start of the agent the driver's answer can come before the first poll. */
static void a_card_is_reset_once_when_it_is_known(void **state) {
    (void) state;
    w.unread = true;
    mig_manager_want(w.manager, "all", false);
    end_in_need_of_reset();
    expect(MIG_STATE_PENDING, "GPU 0 MIG mode is pending until the card is reset");
    w.unread = false;
    pass(60000);
    end_in_need_of_reset();
    expect(MIG_STATE_REBOOTING, "GPU 0 MIG mode is pending until the card is reset");
    assert_int_equal(w.resets, 1);
    pass(60000);
    end_in_need_of_reset();
    assert_int_equal(w.resets, 1);
    assert_int_equal(mig_manager_status(w.manager)->state, MIG_STATE_FAILED);
}

/* As with each snapshot. It is the name of no configuration, which the job says. */
static void a_name_without_room_is_wanted_once(void **state) {
    char name[2 * MIG_CONFIG_NAME_MAX];

    (void) state;
    memset(name, 'a', sizeof(name));
    name[sizeof(name) - 1] = 0;
    mig_manager_want(w.manager, name, false);
    assert_int_equal(w.jobs, 1);
    mig_manager_want(w.manager, name, false);
    end(-EINVAL, "no such configuration");
    expect(MIG_STATE_FAILED, "no such configuration");
    mig_manager_want(w.manager, name, false);
    assert_int_equal(w.jobs, 1);
    assert_int_equal(w.cancels, 0);
    assert_int_equal(w.statuses, 2);
}

/* With instances on demand the configuration is applied once; without them it holds again. */
static void the_division_is_restored_after_instances_on_demand(void **state) {
    (void) state;
    mig_manager_want(w.manager, "all", true);
    assert_false(w.job->order.mode_only);
    end(0, "");
    mig_manager_update(w.manager, 7);
    mig_manager_update(w.manager, 8);
    pass(60000);
    assert_int_equal(w.jobs, 1);
    mig_manager_want(w.manager, "all", false);
    assert_int_equal(w.jobs, 2);
    assert_false(w.job->order.mode_only);
    end(0, "");
    expect(MIG_STATE_SUCCESS, "");
    mig_manager_want(w.manager, "all", false);
    assert_int_equal(w.jobs, 2);
    mig_manager_update(w.manager, 9);
    pass(60000);
    assert_int_equal(w.jobs, 3);
    end(0, "");
}

/* A job that leaves the instances as they are, at the start of the agent, is not enough then. */
static void what_runs_then_is_followed_by_the_whole_division(void **state) {
    (void) state;
    mig_manager_want(w.manager, "all", true);
    end(0, "");
    restart();
    mig_manager_want(w.manager, "all", true);
    assert_true(w.job->order.mode_only);
    mig_manager_want(w.manager, "all", false);
    assert_int_equal(w.cancels, 1);
    end(0, "");
    pass(0);
    assert_int_equal(w.jobs, 3);
    assert_false(w.job->order.mode_only);
    end(0, "");
    expect(MIG_STATE_SUCCESS, "");
}

static void put_file(const char *path, const char *text) {
    assert_int_equal(file_replace(path, text, strlen(text), 0644, NULL), 0);
}

/* The cards stay as they are, and take pods: nothing says what they should be. */
static void without_a_file_nothing_is_divided(void **state) {
    (void) state;
    w.missing = "there is no ConfigMap ns/a";
    mig_manager_want(w.manager, "all", false);
    expect(MIG_STATE_FAILED, "there is no ConfigMap ns/a");
    assert_false(mig_manager_holds(w.manager));
    w.missing = "ConfigMap ns/a, entry config.yaml: line 1";
    mig_manager_see_file(w.manager);
    expect(MIG_STATE_FAILED, "ConfigMap ns/a, entry config.yaml: line 1");
    assert_int_equal(w.jobs, 0);
    w.missing = NULL;
    put_file(w.file, "one");
    mig_manager_see_file(w.manager);
    assert_int_equal(w.jobs, 1);
    assert_string_equal(w.job->order.file, w.file);
    assert_string_equal(w.job->order.hooks, w.hooks);
    end(0, "");
    expect(MIG_STATE_SUCCESS, "");
}

/* At once, or with the next reading where they are mounted. */
static void files_change(void **state) {
    (void) state;
    put_file(w.file, "one");
    mig_manager_want(w.manager, "all", false);
    mig_manager_see_file(w.manager);
    end(0, "");
    mig_manager_see_file(w.manager);
    assert_int_equal(w.jobs, 1);
    put_file(w.file, "two");
    mig_manager_see_file(w.manager);
    assert_int_equal(w.jobs, 2);
    end(0, "");
    put_file(w.hooks, "hooks");
    mig_manager_update(w.manager, 0);
    assert_int_equal(w.jobs, 3);
    end(0, "");
    mig_manager_update(w.manager, 0);
    mig_manager_want(w.manager, "all", false);
    assert_int_equal(w.jobs, 3);
}

/* What the record names was applied of another file: it is neither called a success, nor left to
 * what is made on demand. */
static void a_wish_is_decided_by_the_file_that_is_there(void **state) {
    (void) state;
    put_file(w.file, "one");
    mig_manager_want(w.manager, "all", true);
    end(0, "");
    expect(MIG_STATE_SUCCESS, "");
    stop();
    put_file(w.file, "two");
    assert_int_equal(start(), 0);
    mig_manager_want(w.manager, "all", true);
    expect(MIG_STATE_PENDING, "");
    assert_false(w.job->order.mode_only);
    mig_manager_see_file(w.manager);
    assert_int_equal(w.cancels, 0);
    end(0, "");
    expect(MIG_STATE_SUCCESS, "");
    put_file(w.file, "three");
    mig_manager_want(w.manager, "all", true);
    assert_false(w.job->order.mode_only);
    end(0, "");
}

/* As mounts of a ConfigMap are, with each start of the pod. */
static void the_same_text_is_the_same_file(void **state) {
    (void) state;
    put_file(w.file, "one");
    mig_manager_want(w.manager, "all", true);
    end(0, "");
    stop();
    put_file(w.file, "one");
    assert_int_equal(start(), 0);
    mig_manager_want(w.manager, "all", true);
    expect(MIG_STATE_SUCCESS, "");
    assert_true(w.job->order.mode_only);
    end(0, "");
}

/* As before it was known of which files the record is; from then on it is. */
static void a_record_of_an_older_agent_is_of_the_files_that_are_there(void **state) {
    (void) state;
    stop();
    put_file(w.file, "one");
    put_file(w.record, "all\n");
    assert_int_equal(start(), 0);
    mig_manager_want(w.manager, "all", true);
    expect(MIG_STATE_SUCCESS, "");
    end(0, "");
    stop();
    put_file(w.file, "two");
    assert_int_equal(start(), 0);
    mig_manager_want(w.manager, "all", true);
    expect(MIG_STATE_PENDING, "");
    end(0, "");
}

/* Neither before the restart nor after it is anything applied of the new file. */
static void what_fails_of_another_file_is_not_on_record(void **state) {
    (void) state;
    put_file(w.file, "one");
    mig_manager_want(w.manager, "all", true);
    end(0, "");
    put_file(w.file, "two");
    mig_manager_see_file(w.manager);
    end(-EIO, "no answer");
    expect(MIG_STATE_FAILED, "no answer");
    restart();
    mig_manager_want(w.manager, "all", true);
    expect(MIG_STATE_PENDING, "");
    assert_false(w.job->order.mode_only);
    end(0, "");
}

/* The reason does, for the administrator. */
static void what_every_client_is_told_names_no_pod(void **state) {
    const struct gpu_mig_card waiting = {
        .index = 1,
        .result = {.pending = true,
                   .in_use = 2,
                   .reason = "in use: instance 1 (1g.10gb at 0) of pod team/trainer, instance 2"}};
    char text[MIG_PROBLEM_MAX];

    (void) state;
    mig_manager_want(w.manager, "all", false);
    w.job->on_card(w.job, &waiting);
    end(0, "");
    assert_non_null(strstr(mig_manager_status(w.manager)->reason, "pod team/trainer"));
    mig_status_problem(mig_manager_status(w.manager), text);
    assert_string_equal(text, "MIG configuration all: pending: instances or cards in use: 2; the "
                              "node's Events name what uses them");
    pass(60000);
    end(-EIO, "no answer");
    mig_status_problem(mig_manager_status(w.manager), text);
    assert_string_equal(text, "MIG configuration all: failed: no answer");
    mig_manager_see_file(w.manager);
    pass(60000);
    end(0, "");
    mig_status_problem(mig_manager_status(w.manager), text);
    assert_string_equal(text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_card_is_reset_once_when_it_is_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_name_without_room_is_wanted_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_file_nothing_is_divided, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_change, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wish_is_decided_by_the_file_that_is_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_same_text_is_the_same_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_record_of_an_older_agent_is_of_the_files_that_are_there,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_fails_of_another_file_is_not_on_record, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_every_client_is_told_names_no_pod, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_division_is_restored_after_instances_on_demand, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_runs_then_is_followed_by_the_whole_division, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests_name("mig-manager", tests, NULL, NULL);
}
