/* SPDX-License-Identifier: Apache-2.0 */

/* When the agent publishes its ResourceSlices, with cards and pods of the test's own. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/dra/plugin.h"
#include "agent/dra/slices.h"
#include "fake-monitor-wraps.h"

static struct world {
    struct agent agent;
    bool settled, pods_known;
    unsigned published;
} w;

bool __wrap_dra_plugin_is_registered(const struct dra_plugin *p);
void __wrap_dra_plugin_health_changed(struct dra_plugin *p);
void __wrap_dra_prepare_wake(struct dra_prepares *p);
void __wrap_dra_slices_update(struct dra_slices *s);
bool __wrap_card_dynamic_is_settled(const struct agent *a);
bool __wrap_pods_ever_synced(const struct pods *p);
uint64_t __wrap_uv_now(const uv_loop_t *loop);

bool __wrap_dra_plugin_is_registered(const struct dra_plugin *p) {
    (void) p;
    return true;
}

void __wrap_dra_plugin_health_changed(struct dra_plugin *p) {
    (void) p;
}

void __wrap_dra_prepare_wake(struct dra_prepares *p) {
    (void) p;
}

void __wrap_dra_slices_update(struct dra_slices *s) {
    (void) s;
    w.published++;
}

bool __wrap_card_dynamic_is_settled(const struct agent *a) {
    (void) a;
    return w.settled;
}

bool __wrap_pods_ever_synced(const struct pods *p) {
    (void) p;
    return w.pods_known;
}

uint64_t __wrap_uv_now(const uv_loop_t *loop) {
    (void) loop;
    return 1000000;
}

/* A pod that is bound to a card keeps its allocator: which one it has is known with the pods. */
static void the_pods_come_first(void **state) {
    (void) state;
    w.agent.config.allocator = DRA_KUBE_SCHEDULER;
    w.agent.dra = (struct dra_plugin *) &w;
    w.agent.slices = (struct dra_slices *) &w;
    w.agent.shares.pods = (struct pods *) &w;
    for (int i = 0; i < 4; i++) {
        w.settled = i & 1;
        w.pods_known = i & 2;
        resource_claims_update(&w.agent);
        assert_int_equal(w.published, i == 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pods_come_first),
    };

    return cmocka_run_group_tests_name("claims-update", tests, NULL, NULL);
}
