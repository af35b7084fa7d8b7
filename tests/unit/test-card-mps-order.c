/* SPDX-License-Identifier: Apache-2.0 */

/* Cards that are put under MPS by order: which ones are to be, as the order is known, not known yet
 * and gone. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/config/card_config.h"
#include "agent/report/publish.h"
#include "base/err.h"
#include "base/units.h"
#include "fake-monitor-wraps.h"
#include "mig/order.h"

#define FILE_OF_NODE "version: v1\naliquot: {cards: [{devices: [0], dynamic: true}]}\n"

static struct world {
    struct agent agent;
    bool read;         /* the GPU objects */
    bool begun, ready; /* MPS of the first card */
    bool status;       /* the daemon of the first card is known */
    size_t wanted;     /* cards */
} w;

bool __wrap_publisher_has_orders(const struct publisher *p);
bool __wrap_mps_has_begun(const struct mps *m, const char *uuid);
bool __wrap_mps_is_in_force(const struct mps *m, const char *uuid);
void __wrap_mps_set_cards(struct mps *m, const struct mps_card *cards, size_t n);
void __wrap_mps_update(struct mps *m, const struct gpu_snapshot *s);
const char *__wrap_mps_judge(struct mps *m, const struct gpu_device *d);
bool __wrap_mps_card_status(const struct mps *m, const char *uuid, struct mps_card_status *ret);

bool __wrap_publisher_has_orders(const struct publisher *p) {
    (void) p;
    return w.read;
}

bool __wrap_mps_has_begun(const struct mps *m, const char *uuid) {
    (void) m;
    return w.begun && strcmp(uuid, "GPU-0") == 0;
}

bool __wrap_mps_is_in_force(const struct mps *m, const char *uuid) {
    return w.ready && __wrap_mps_has_begun(m, uuid);
}

void __wrap_mps_set_cards(struct mps *m, const struct mps_card *cards, size_t n) {
    (void) m;
    if (n > 0)
        assert_string_equal(cards[0].uuid, "GPU-0");
    w.wanted = n;
}

void __wrap_mps_update(struct mps *m, const struct gpu_snapshot *s) {
    (void) m;
    (void) s;
}

const char *__wrap_mps_judge(struct mps *m, const struct gpu_device *d) {
    (void) m;
    (void) d;
    return NULL;
}

bool __wrap_mps_card_status(const struct mps *m, const char *uuid, struct mps_card_status *ret) {
    (void) m;
    (void) uuid;
    *ret = (struct mps_card_status){.ready = true, .why = ""};
    return w.status;
}

static int set_up(void **state) {
    struct err err;

    (void) state;
    memset(&w, 0, sizeof(w));
    memset(&snapshot, 0, sizeof(snapshot));
    polls = 0;
    w.agent.shares.mps = (struct mps *) &w;
    w.agent.report.publisher = (struct publisher *) &w;
    assert_int_equal(
        node_config_parse(FILE_OF_NODE, strlen(FILE_OF_NODE), "n", &w.agent.node_config, &err), 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct gpu_device *d = &snapshot.devices[snapshot.ndevices++];

        *d = (struct gpu_device){.kind = GPU_CARD, .index = i, .memory = GIB, .healthy = true};
        (void) snprintf(d->uuid, sizeof(d->uuid), "GPU-%u", i);
    }
    return 0;
}

static int tear_down(void **state) {
    (void) state;
    card_dynamic_done(&w.agent);
    w.agent.node_config = node_config_free(w.agent.node_config);
    return 0;
}

/* The GPU object of a card is shown with that order; NULL: with none. */
static void show(const char *uuid, const char *order) {
    _cleanup_json_ struct json_parser *parser = NULL;
    char text[512];
    struct json object;
    struct err err;

    (void) snprintf(text, sizeof(text),
                    "{\"spec\":{\"uuid\":\"%s\"},\"metadata\":{\"annotations\":{\"%s\":\"%s\"}}}",
                    uuid, MIG_ORDER_ANNOTATION, order ? order : "");
    assert_int_equal(json_open(text, strlen(text), &parser, &object, &err), 0);
    card_dynamic_object(object, &w.agent);
}

#define BEGIN "{\\\"serial\\\":1,\\\"mps\\\":true,\\\"instances\\\":[]}"
#define END "{\\\"serial\\\":2,\\\"instances\\\":[]}"

/* How many cards are to be under MPS, and whether the first one is shown so. */
static void expect(size_t wanted, bool shown) {
    card_mps_update(&w.agent);
    assert_int_equal(w.wanted, wanted);
    assert_int_equal(card_mps_has(&w.agent, &snapshot, &snapshot.devices[0]), shown);
    assert_false(card_mps_has(&w.agent, &snapshot, &snapshot.devices[1]));
}

static void an_order_is_followed(void **state) {
    const struct gpu_device *d = &snapshot.devices[0];

    (void) state;
    w.read = true;
    expect(0, false);
    show("GPU-0", BEGIN);
    assert_int_equal(polls, 1);
    /* Until the daemon is told to start the card takes no pods. */
    assert_string_equal(card_mps_judge(&w.agent, d), "MPS is not started yet");
    expect(1, false);
    w.begun = w.status = true;
    expect(1, false);
    w.ready = true;
    expect(1, true);
    assert_null(card_mps_judge(&w.agent, d));
    show("GPU-0", BEGIN);
    assert_int_equal(polls, 1);
    /* What cannot be read changes nothing. */
    show("GPU-0", "{");
    expect(1, true);
    /* It is under MPS until MPS has ended. */
    show("GPU-0", END);
    assert_int_equal(polls, 2);
    expect(0, true);
    w.begun = false;
    expect(0, false);
    /* An administrator has taken the order away. */
    show("GPU-0", BEGIN);
    expect(1, false);
    show("GPU-0", NULL);
    expect(0, false);
}

/* The configuration of the node decides, too. */
static void an_order_for_another_card(void **state) {
    (void) state;
    w.read = true;
    show("GPU-1", BEGIN);
    expect(0, false);
    show("GPU-0", BEGIN);
    snapshot.devices[0].divided = true;
    expect(0, false);
}

/* The daemon of a killed agent goes on until the order is known. */
static void before_the_order_is_known(void **state) {
    (void) state;
    expect(0, false);
    w.begun = w.ready = true;
    expect(1, true);
    w.read = true;
    expect(0, true);
    show("GPU-0", BEGIN);
    expect(1, true);
}

/* Nor does a malformed order end it, or begin it, where the agent has read no other one. */
static void a_malformed_order_after_a_restart(void **state) {
    (void) state;
    w.read = true;
    show("GPU-0", "{");
    expect(0, false);
    w.begun = w.ready = true;
    expect(1, true);
    show("GPU-0", END);
    expect(0, true);
    show("GPU-0", "{");
    expect(0, true);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_order_is_followed),
        TEST(an_order_for_another_card),
        TEST(before_the_order_is_known),
        TEST(a_malformed_order_after_a_restart),
    };

    return cmocka_run_group_tests_name("card-mps-order", tests, NULL, NULL);
}
