/* SPDX-License-Identifier: Apache-2.0 */

/* Limits of control groups that the monitor's child sets through NVML. */

#include "gpu-world.h"

/* A driver that limits control groups, one that cannot, and requests that it refuses. The driver is
 * a fake: none of version 615 can be had without its GPU. */
static void memory_limits(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf said = BUF_INIT(65536);
    char path[128], want[256];

    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-1", f->dir, 1), -EAGAIN);
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-1", f->dir, (uint64_t) 4 << 30), 0);
    RUN_UNTIL(f, f->limit_answers == 1);
    assert_int_equal(f->result, GPU_LIMIT_SET);
    (void) snprintf(path, sizeof(path), "%s/limits", f->dir);
    (void) snprintf(want, sizeof(want), "1 %s 0 4294967296\n", f->dir);
    assert_int_equal(file_read(path, 4096, &said, NULL), 0);
    assert_string_equal(buf_str(&said), want);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-1", "/nowhere", 1), 0);
    RUN_UNTIL(f, f->limit_answers == 2);
    assert_int_equal(f->result, GPU_LIMIT_REFUSED);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-other", f->dir, 1), 0);
    RUN_UNTIL(f, f->limit_answers == 3);
    assert_int_equal(f->result, GPU_LIMIT_REFUSED);
    switch_fault(f, "no-limits", true);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-0", f->dir, 1), 0);
    RUN_UNTIL(f, f->limit_answers == 4);
    assert_int_equal(f->result, GPU_LIMIT_UNSUPPORTED);
    /* Polls went on all the time. */
    assert_true(snap(f)->devices[0].healthy && status(f).restarts == 0);
}

/* Between polls: the card is unhealthy that the request is for, and no call is made for another. */
static void limit_that_hangs(void **state) {
    struct fixture *f = *state;
    uint64_t generation;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    gpu_monitor_set_interval(f->monitor, 60000);
    RUN_UNTIL(f, gpu_monitor_poll(f->monitor) == status(f).polls + 1); /* none runs */
    generation = status(f).limit_generation;
    switch_fault(f, "hang-limit-1", true);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-1", f->dir, 1), 0);
    RUN_UNTIL(f, !snap(f)->devices[1].healthy);
    assert_non_null(strstr(snap(f)->devices[1].reason, "has not returned"));
    assert_true(snap(f)->devices[0].healthy && status(f).hangs == 1);
    assert_int_not_equal(status(f).limit_generation, generation);
    assert_int_equal(f->limit_answers, 0);
    switch_fault(f, "hang-handle-1", true);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-0", f->dir, 1), 0);
    RUN_UNTIL(f, f->limit_answers == 1);
    assert_int_equal(f->result, GPU_LIMIT_SET);
    switch_fault(f, "hang-handle-1", false);
    gpu_monitor_set_interval(f->monitor, 20);
    generation = status(f).limit_generation;
    switch_fault(f, "hang-limit-1", false); /* now that request is carried out: too late */
    RUN_UNTIL(f, status(f).limit_generation != generation);
    assert_int_equal(f->limit_answers, 1);
    RUN_UNTIL(f, snap(f)->devices[1].healthy && !snap(f)->devices[1].late);
    assert_int_equal(status(f).restarts, 0);
}

/* A request that waits in a child that is left behind is dropped. */
static void limit_behind_a_hang(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf said = BUF_INIT(65536);
    char path[128], want[256];
    uint64_t generation;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    gpu_monitor_set_interval(f->monitor, 60000);
    RUN_UNTIL(f, gpu_monitor_poll(f->monitor) == status(f).polls + 1);
    switch_fault(f, "hang-1", true);
    (void) uv_run(&f->loop, UV_RUN_NOWAIT); /* sends the poll */
    for (unsigned ms = 0; !is_switched("in-hang-1"); ms++) {
        assert_in_range(ms, 0, TIMEOUT_MS);
        (void) usleep(1000);
    }
    generation = status(f).limit_generation;
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-0", f->dir, 1), 0);
    RUN_UNTIL(f, status(f).limit_generation != generation && status(f).pid > 0);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-0", f->dir, 2), 0);
    RUN_UNTIL(f, f->limit_answers == 1);
    gpu_monitor_set_interval(f->monitor, 20);
    switch_fault(f, "hang-1", false);
    RUN_UNTIL(f, snap(f)->devices[1].healthy && !snap(f)->devices[1].late);
    (void) snprintf(path, sizeof(path), "%s/limits", f->dir);
    (void) snprintf(want, sizeof(want), "0 %s 0 2\n", f->dir);
    assert_int_equal(file_read(path, 4096, &said, NULL), 0);
    assert_string_equal(buf_str(&said), want);
    assert_int_equal(f->limit_answers, 1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(limit_that_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(limit_behind_a_hang, setup, teardown),
    };

    if (argc > 1 && strcmp(argv[1], GPU_WORKER_COMMAND) == 0)
        return gpu_worker_main(argc, argv);
    return find_own_dir() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
