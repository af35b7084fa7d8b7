/* SPDX-License-Identifier: Apache-2.0 */

/* When a card counts as closed by the agent. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "base/text.h"
#include "gpu/nvml/monitor.h"

static struct world {
    struct agent agent;
    bool released, has_child, closes;
} w;

int __wrap_gpu_monitor_release(struct gpu_monitor *m, const char *uuid);
bool __wrap_gpu_monitor_has_released(const struct gpu_monitor *m, const char *uuid);
bool __wrap_mig_executor_has_child(const struct mig_executor *x);
bool __wrap_mig_executor_closes(const struct mig_executor *x, const char *uuid);

int __wrap_gpu_monitor_release(struct gpu_monitor *m, const char *uuid) {
    (void) m, (void) uuid;
    return 0;
}

bool __wrap_gpu_monitor_has_released(const struct gpu_monitor *m, const char *uuid) {
    (void) m, (void) uuid;
    return w.released;
}

bool __wrap_mig_executor_has_child(const struct mig_executor *x) {
    (void) x;
    return w.has_child;
}

bool __wrap_mig_executor_closes(const struct mig_executor *x, const char *uuid) {
    (void) x, (void) uuid;
    return w.closes;
}

static uint32_t holders(const char *uuid, void *userdata) {
    (void) uuid, (void) userdata;
    return 1;
}

/* A child that divides cards has them open; but one that waits for this card has not yet. */
static void a_card_is_open_in_the_child_that_divides_cards(void **state) {
    (void) state;
    w.agent.mig = (struct mig_executor *) &w;
    w.agent.health.ncards = 1;
    w.agent.health.options.holders = holders;
    text_copy(w.agent.health.cards[0].uuid, GPU_UUID_MAX, "GPU-0");
    assert_false(card_close(&w.agent, "GPU-0"));
    w.released = true;
    assert_true(card_close(&w.agent, "GPU-0"));
    w.has_child = true;
    assert_false(card_close(&w.agent, "GPU-0"));
    w.closes = true;
    assert_true(card_close(&w.agent, "GPU-0"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_is_open_in_the_child_that_divides_cards),
    };

    return cmocka_run_group_tests_name("card-close", tests, NULL, NULL);
}
