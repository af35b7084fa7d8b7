/* SPDX-License-Identifier: Apache-2.0 */

/* A monitor that may read none of its cards, as the one of an agent that starts on a node whose
 * cards are all released: no driver answers, and none is missing. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

#include "base/step.h"
#include "gpu/nvml/monitor.h"

static const char *no_library(void *userdata) {
    (void) userdata;
    return NULL;
}

static bool judging; /* some devices are not judged yet */

static void on_update(void *userdata) {
    (void) userdata;
    judging = false;
    step_end();
}

/* kubelet's calls, which devices that are not judged must not be read by. */
static void on_urgent(void *userdata) {
    (void) userdata;
    assert_false(judging);
}

static void judge(struct gpu_device *d, void *userdata) {
    (void) userdata;
    judging = true;
    step_end();
    d->service = GPU_SERVES;
}

static void run_until(uv_loop_t *loop, const struct gpu_monitor *m, const char *text) {
    struct gpu_monitor_status status;

    gpu_monitor_status(m, &status);
    while (strcmp(status.text, text) != 0) {
        (void) uv_run(loop, UV_RUN_ONCE);
        gpu_monitor_status(m, &status);
    }
}

static bool answers(const struct gpu_monitor *m) {
    struct gpu_monitor_status status;

    gpu_monitor_status(m, &status);
    assert_false(status.complete);
    return status.answering;
}

static void all_cards_are_released(void **state) {
    const struct gpu_monitor_options options = {
        .program = "/nowhere", .library = no_library, .on_update = on_update, .judge = judge};
    static struct gpu_snapshot saved = {
        .ndevices = 2,
        .devices = {{.uuid = "GPU-0", .saved = true}, {.uuid = "GPU-1", .index = 1, .saved = true}},
    };
    struct gpu_monitor *m;
    uv_loop_t loop;

    (void) state;
    step_set_urgent(on_urgent, NULL, 0);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(gpu_monitor_start(&loop, &options, &saved, &m, NULL), 0);
    assert_int_equal(gpu_monitor_release(m, "GPU-0"), 0);
    run_until(&loop, m, "no GPU driver was found on this node");
    assert_false(answers(m));
    assert_int_equal(gpu_monitor_release(m, "GPU-1"), 0);
    run_until(&loop, m, "all cards are released");
    assert_true(answers(m));
    gpu_monitor_resume(m, "GPU-1");
    assert_false(answers(m));
    gpu_monitor_close(m, NULL, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    step_set_urgent(NULL, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_cards_are_released)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
