/* SPDX-License-Identifier: Apache-2.0 */

/* What memory errors and links make of a card, in virtual time. */

#include "health-world.h"

#define LINKS "some of the card's 4 NVLinks are down"

static void read_links(uint32_t active) {
    static struct gpu_errors errors;

    memset(&errors, 0xff, sizeof(errors));
    errors.nvlinks = active;
    w.reading.errors = &errors;
}

/* Links that were active are expected to be, until a person says otherwise. */
static void test_links_that_go_down(void **state) {
    (void) state;
    start_healthy();
    read_links(2);
    poll_after(SECOND);
    read_links(4);
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    read_links(3);
    poll_after(SECOND);
    expect(HEALTH_SUSPECT, LINKS);
    poll_after(999);
    expect(HEALTH_SUSPECT, LINKS);
    poll_after(1);
    expect(HEALTH_UNHEALTHY, LINKS);
    expect_work(HEALTH_NOTHING);
    read_links(GPU_NOT_TOLD);
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, LINKS);
    read_links(4);
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    read_links(0);
    poll_after(SECOND);
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, LINKS);
    order(HEALTH_ORDER_SET_HEALTHY);
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    read_links(4);
    poll_after(SECOND);
    read_links(3);
    poll_after(SECOND);
    expect(HEALTH_SUSPECT, LINKS);
}

/* Links end at another card, too; those of a divided card are of no use. */
static void test_links_without_a_peer(void **state) {
    (void) state;
    start_healthy();
    read_links(4);
    poll_after(SECOND);
    read_links(0);
    w.reading.peer_away = true;
    poll_after(MINUTE);
    expect(HEALTH_HEALTHY, "");
    w.reading.peer_away = false;
    poll_after(MINUTE);
    poll_after(MINUTE);
    expect(HEALTH_UNHEALTHY, LINKS);
    w.reading.divided = true;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    w.reading.divided = false;
    poll_after(MINUTE);
    poll_after(MINUTE);
    expect(HEALTH_HEALTHY, "");
}

#define NO_ROW "a row of the memory could not be remapped: the card has to be replaced"
#define NO_PAGE "no more pages of the memory can be retired: the card has to be replaced"
#define UNCORRECTABLE "the memory has had an uncorrectable ECC error: the card needs a reset"

/* Ampere and later: the error ends programs, the driver goes on without the row. */
static void test_remapped_rows(void **state) {
    struct gpu_errors errors;

    (void) state;
    start_healthy();
    memset(&errors, 0xff, sizeof(errors));
    errors.corrected = 7;
    errors.uncorrected = errors.uncorrected_total = 3;
    errors.remapped_correctable = errors.remapped_uncorrectable = 1;
    errors.remap_pending = errors.remap_failed = 0;
    w.reading.errors = &errors;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    assert_false(health_repair_pending(&errors));
    errors.remap_pending = 1;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    assert_true(health_repair_pending(&errors));
    errors.remap_failed = 1;
    w.options.reset = HEALTH_RESET_IDLE;
    poll_after(SECOND);
    xid(64);
    poll_after(MINUTE);
    expect(HEALTH_UNHEALTHY, NO_ROW);
    expect_work(HEALTH_NOTHING);                               /* no reset heals it */
    errors.remap_failed = errors.remap_pending = GPU_NOT_TOLD; /* it has MIG instances now */
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, NO_ROW);
    assert_false(health_repair_pending(&errors));
    order(HEALTH_ORDER_SET_HEALTHY);
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, NO_ROW); /* what goes on is no matter of orders */
}

/* Volta and Turing. */
static void test_retired_pages(void **state) {
    struct gpu_errors errors;

    (void) state;
    start_healthy();
    memset(&errors, 0xff, sizeof(errors));
    errors.uncorrected = 0;
    errors.retired_single = 40;
    errors.retired_double = 23;
    errors.retirement_pending = 1;
    w.reading.errors = &errors;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    assert_true(health_repair_pending(&errors));
    errors.uncorrected = 1;
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, UNCORRECTABLE);
    expect_work(HEALTH_NOTHING);
    w.options.reset = HEALTH_RESET_IDLE;
    poll_after(SECOND);
    expect_work(HEALTH_RESET);
    errors.uncorrected = 0;
    done(HEALTH_RESET, NULL);
    expect_work(HEALTH_PROBE);
    done(HEALTH_PROBE, NULL);
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    errors.retired_double = 24;
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, NO_PAGE);
    expect_work(HEALTH_NOTHING);
    errors.uncorrected = UINT64_MAX; /* not reported */
    errors.retired_double = 0;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

/* A context on a card whose memory needs a reset proves nothing. */
static void test_no_probe_of_bad_memory(void **state) {
    struct gpu_errors errors;

    (void) state;
    start_healthy();
    memset(&errors, 0xff, sizeof(errors));
    errors.retired_single = errors.retired_double = 0;
    errors.uncorrected = 1;
    w.reading.errors = &errors;
    w.reading.recovery = -1;
    xid(48);
    poll_after(SECOND);
    poll_after(MINUTE);
    expect(HEALTH_UNHEALTHY, XID_48);
    expect_work(HEALTH_NOTHING);
    errors.uncorrected = 0; /* it was reset */
    poll_after(SECOND);
    expect_work(HEALTH_PROBE);
}

/* Only the host of a vGPU can reset it. */
static void test_no_reset_of_a_vgpu(void **state) {
    (void) state;
    start_healthy();
    w.options.reset = HEALTH_RESET_IDLE;
    w.reading.no_reset = true;
    poll_after(SECOND);
    w.reading.recovery = 1;
    xid(48);
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, XID_48);
    expect_work(HEALTH_NOTHING);
    order(HEALTH_ORDER_RESET);
    poll_after(SECOND);
    expect_work(HEALTH_NOTHING);
    w.reading.recovery = 0;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    order(HEALTH_ORDER_RESET);
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

/* An order that comes before the first reading, and one while a vGPU is silent. */
static void test_early_reset_of_a_vgpu(void **state) {
    (void) state;
    start_healthy();
    w.reading.holders = 1;
    poll_after(SECOND);
    order(HEALTH_ORDER_RESET);
    w.reading.no_reset = true;
    w.reading.holders = 0;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    w.reading.error = "GPU is lost";
    w.reading.no_reset = false;
    poll_after(SECOND);
    order(HEALTH_ORDER_RESET);
    expect(HEALTH_UNHEALTHY, "GPU is lost");
    expect_work(HEALTH_NOTHING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_links_that_go_down),     cmocka_unit_test(test_links_without_a_peer),
        cmocka_unit_test(test_remapped_rows),          cmocka_unit_test(test_retired_pages),
        cmocka_unit_test(test_no_probe_of_bad_memory), cmocka_unit_test(test_no_reset_of_a_vgpu),
        cmocka_unit_test(test_early_reset_of_a_vgpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
