/* SPDX-License-Identifier: Apache-2.0 */

/* Orders for cards after a boot, with a clock, a snapshot and objects of the test. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/report/publish.h"
#include "base/text.h"
#include "fake-monitor-wraps.h"

#define CARD "GPU-00000000-0000-0000-0000-000000000000"
#define AWAIT_MS 3000

static struct world {
    struct agent agent;
    struct node_config config;
    struct gpu_orders orders; /* of the card's object */
    struct node_orders node;
    bool read; /* the objects were */
    uint64_t now;
    unsigned judged, healthy; /* how often the card became so */
} w;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
void __wrap_gpu_monitor_judge(struct gpu_monitor *m);
bool __wrap_publisher_has_orders(const struct publisher *p);
const struct node_orders *__wrap_publisher_node_orders(const struct publisher *p);
const struct gpu_orders *__wrap_publisher_orders(const struct publisher *p,
                                                 const struct gpu_device *d);

/* As the monitor does with each snapshot. */
static void judge(void) {
    snapshot.devices[0].reason[0] = 0;
    card_health_judge(&snapshot.devices[0], &w.agent);
}

uint64_t __wrap_uv_now(const uv_loop_t *loop) {
    (void) loop;
    return w.now;
}

void __wrap_gpu_monitor_judge(struct gpu_monitor *m) {
    (void) m;
    w.judged++;
    judge();
}

bool __wrap_publisher_has_orders(const struct publisher *p) {
    (void) p;
    return w.read;
}

const struct node_orders *__wrap_publisher_node_orders(const struct publisher *p) {
    (void) p;
    return w.read ? &w.node : NULL;
}

const struct gpu_orders *__wrap_publisher_orders(const struct publisher *p,
                                                 const struct gpu_device *d) {
    (void) p, (void) d;
    return w.read ? &w.orders : NULL;
}

static uint32_t no_holders(const char *uuid, void *userdata) {
    (void) uuid, (void) userdata;
    return 0;
}

static void on_change(const struct health_card *card, enum health_state before, void *userdata) {
    (void) before, (void) userdata;
    w.healthy += card->health.state == HEALTH_HEALTHY;
}

/* A healthy card, which users have cordoned. */
static int set_up(void **state) {
    struct gpu_device *d = &snapshot.devices[0];

    (void) state;
    memset(&w, 0, sizeof(w));
    memset(&snapshot, 0, sizeof(snapshot));
    w.now = 1000000;
    w.config.health = health_defaults;
    w.config.mode = -1;
    w.agent.node_config = &w.config;
    w.agent.report.publisher = (struct publisher *) (uintptr_t) 8;
    w.agent.report.started = w.now;
    w.agent.health.awaits_orders = true;
    w.agent.health.options = (struct health_cards_options){.rules = &w.config.health,
                                                           .state_dir = "/nowhere",
                                                           .holders = no_holders,
                                                           .on_change = on_change};
    snapshot.ndevices = 1;
    *d = (struct gpu_device){.kind = GPU_CARD, .healthy = true, .memory = 1, .uuid = CARD};
    text_copy(w.orders.maintenance, sizeof(w.orders.maintenance), "cordon");
    return 0;
}

static void expect(enum gpu_service service, const char *reason) {
    assert_int_equal(snapshot.devices[0].service, service);
    assert_string_equal(snapshot.devices[0].reason, reason);
}

/* It takes no pods until its orders are read, and none after that. */
static void test_after_a_boot(void **state) {
    (void) state;
    judge();
    expect(GPU_SERVES_NONE, "its orders have not been read from the API server yet");
    w.now += AWAIT_MS - 1;
    card_orders_await(&w.agent);
    judge();
    expect(GPU_SERVES_NONE, "its orders have not been read from the API server yet");
    w.read = true;
    card_orders_await(&w.agent);
    assert_int_equal(w.judged, 1);
    expect(GPU_SERVES_HOLDERS, "cordoned by order");
    assert_int_equal(w.healthy, 0);
    card_orders_await(&w.agent);
    assert_int_equal(w.judged, 1);
}

/* The API server does not answer. */
static void test_bounded(void **state) {
    (void) state;
    judge();
    w.now += AWAIT_MS;
    card_orders_await(&w.agent);
    assert_int_equal(w.judged, 1);
    expect(GPU_SERVES, "");
    w.read = true;
    assert_true(card_orders_follow(&w.agent));
    judge();
    expect(GPU_SERVES_HOLDERS, "cordoned by order");
}

/* What an agent of this boot has left holds meanwhile. */
static void test_saved_state(void **state) {
    (void) state;
    w.agent.health.awaits_orders = false;
    judge();
    w.agent.health.awaits_orders = true;
    judge();
    expect(GPU_SERVES, "");
    (void) health_cards_maintain(&w.agent.health, CARD, HEALTH_ORDER_CORDON, "by order");
    judge();
    expect(GPU_SERVES_HOLDERS, "cordoned by order");
}

/* A card that comes later, whose orders are known. */
static void test_a_new_card(void **state) {
    (void) state;
    w.agent.health.awaits_orders = false;
    w.read = true;
    judge();
    expect(GPU_SERVES_HOLDERS, "cordoned by order");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_after_a_boot, set_up),
        cmocka_unit_test_setup(test_bounded, set_up),
        cmocka_unit_test_setup(test_saved_state, set_up),
        cmocka_unit_test_setup(test_a_new_card, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
