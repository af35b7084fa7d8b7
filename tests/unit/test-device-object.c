/* SPDX-License-Identifier: Apache-2.0 */

/* Which pods the GPU object of a drained card names: all of them in turns, however many. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/health/cards.h"
#include "agent/report/device_object.h"
#include "agent/shares/shares.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "kube/objects/gpu_object.h"
#include "wire/json.h"

#define CARD "GPU-1"
#define PODS_MAX 200

static struct health_options rules;
static struct health_cards health;
static struct shares shares;
static struct slot pods[PODS_MAX];
static struct slot_device devices[PODS_MAX];

static uint32_t holders(const char *uuid, void *userdata) {
    (void) uuid, (void) userdata;
    return HASH_COUNT(shares.slots.slots);
}

static void judge(void) {
    struct gpu_device card = {.uuid = CARD, .pci = "00000000:3B:00.0", .healthy = true};

    health_cards_judge(&health, &card);
}

static int setup(void **state) {
    static const struct health_cards_options options = {
        .rules = &rules, .state_dir = "/nonexistent", .holders = holders};

    (void) state;
    rules = health_defaults;
    memset(&health, 0, sizeof(health));
    health.options = options;
    memset(pods, 0, sizeof(pods));
    memset(devices, 0, sizeof(devices));
    return 0;
}

static int teardown(void **state) {
    (void) state;
    HASH_CLEAR(hh, shares.slots.slots);
    return 0;
}

/* A share of the card, by a pod with a long name. */
static void add_pod(unsigned i) {
    struct slot *slot = &pods[i];

    (void) snprintf(slot->nonce, sizeof(slot->nonce), "%u", i);
    text_copy(slot->grant.namespace, sizeof(slot->grant.namespace), "team");
    (void) snprintf(slot->grant.pod, sizeof(slot->grant.pod), "a-pod-with-a-rather-long-name-%03u",
                    i);
    (void) snprintf(slot->grant.pod_uid, sizeof(slot->grant.pod_uid),
                    "01234567-89ab-cdef-0123-456789abc%03u", i);
    text_copy(devices[i].uuid, sizeof(devices[i].uuid), CARD);
    slot->grant.devices = &devices[i];
    slot->grant.ndevices = 1;
    HASH_ADD_STR(shares.slots.slots, nonce, slot);
}

static void check_named(unsigned npods) {
    bool named[PODS_MAX] = {false};

    for (uint64_t turn = 0; turn < npods; turn++) {
        struct gpu_object gpu = {.index = 0};

        device_object_evict(&shares, &health, CARD, turn, &gpu);
        assert_true(gpu.evict[0]);
        for (unsigned i = 0; i < npods; i++)
            named[i] |= strstr(gpu.evict, pods[i].grant.pod) != NULL;
    }
    for (unsigned i = 0; i < npods; i++)
        assert_true(named[i]);
}

static void test_pods_take_turns(void **state) {
    unsigned npods = 0;

    (void) state;
    for (; npods < 3; npods++)
        add_pod(npods);
    judge();
    (void) health_cards_maintain(&health, CARD, HEALTH_ORDER_DRAIN, "by order");
    check_named(npods);
    for (; npods < PODS_MAX; npods++)
        add_pod(npods);
    check_named(npods);
}

const struct pod_entry *__wrap_pods_find(const struct pods *p, const char *uid);

const struct pod_entry *__wrap_pods_find(const struct pods *p, const char *uid) {
    static struct pod_entry users[3];

    (void) p;
    for (size_t i = 0; i < 3; i++) {
        (void) snprintf(users[i].pod.uid, sizeof(users[i].pod.uid), "u%zu", i);
        (void) snprintf(users[i].pod.name, sizeof(users[i].pod.name), "user-%zu", i);
        text_copy(users[i].pod.namespace, sizeof(users[i].pod.namespace), "team");
        users[i].pod.finished = i == 0;
        if (strcmp(users[i].pod.uid, uid) == 0)
            return &users[i];
    }
    return NULL;
}

/* The drain ends when all of them are gone, and the first is the first to end. */
static void test_pods_of_a_claim(void **state) {
    static char users[3][KUBE_UID_MAX] = {"u0", "u1", "u2"};
    struct slot_claim claim = {.npods = 3, .pods = users};
    struct gpu_object gpu = {.index = 0};

    (void) state;
    add_pod(0);
    pods[0].grant.claim = &claim;
    shares.pods = (struct pods *) &shares; /* pods_find() is the test's */
    judge();
    (void) health_cards_maintain(&health, CARD, HEALTH_ORDER_DRAIN, "by order");
    device_object_evict(&shares, &health, CARD, 0, &gpu);
    assert_string_equal(gpu.evict, "team/user-1/u1 team/user-2/u2 ");
    shares.pods = NULL;
}

static void test_pods_of_a_cordoned_card(void **state) {
    struct gpu_object gpu = {.index = 0};

    (void) state;
    add_pod(0);
    judge();
    (void) health_cards_maintain(&health, CARD, HEALTH_ORDER_CORDON, "by order");
    device_object_evict(&shares, &health, CARD, 0, &gpu);
    assert_string_equal(gpu.evict, "");
}

/* What is not said of the device any more is taken away by null. */
static void test_why_claims_get_nothing(void **state) {
    static const char begin[] =
        "{\"metadata\":{\"name\":\"g\"},"
        "\"spec\":{\"index\":0,\"memory\":1,\"nodeName\":\"n\",\"uuid\":\"" CARD "\"},";
    struct gpu_object gpu = {.state = "Healthy",
                             .claims = {DRA_KUBE_SCHEDULER, "no shares of devices"}};
    _cleanup_buf_ struct buf status = BUF_INIT(0), object = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct gpu_object back;
    struct json json;

    (void) state;
    gpu_object_encode_status(&gpu, &status);
    buf_printf(&object, "%s%s", begin, buf_str(&status) + 1);
    assert_int_equal(json_open(buf_str(&object), object.len, &parser, &json, NULL), 0);
    assert_int_equal(gpu_object_parse(json, &back, NULL), 0);
    assert_int_equal(back.claims.allocator, DRA_KUBE_SCHEDULER);
    assert_string_equal(back.claims.message, "no shares of devices");
    assert_true(device_object_same_claims(&back, &gpu));
    gpu.claims.message[0] = 0;
    assert_false(device_object_same_claims(&back, &gpu));
    gpu.claims.allocator = DRA_NONE;
    buf_reset(&status);
    gpu_object_encode_status(&gpu, &status);
    assert_non_null(strstr(buf_str(&status), "\"resourceClaims\":null"));
}

/* As the command line reads it. */
static void test_the_order_that_is_followed(void **state) {
    static const char begin[] = "{\"metadata\":{\"name\":\"g\"},\"spec\":{\"index\":0,\"memory\":1,"
                                "\"nodeName\":\"n\",\"uuid\":\"u\"},";
    const struct gpu_object gpu = {
        .state = "Draining",
        .maintenance = "drain",
        .reset = {.order = "now", .failed = true, .message = "reset failed: no"}};
    _cleanup_buf_ struct buf status = BUF_INIT(0), object = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct gpu_object back;
    struct json json;

    (void) state;
    gpu_object_encode_status(&gpu, &status);
    buf_printf(&object, "%s%s", begin, buf_str(&status) + 1);
    assert_int_equal(json_open(buf_str(&object), object.len, &parser, &json, NULL), 0);
    assert_int_equal(gpu_object_parse(json, &back, NULL), 0);
    assert_string_equal(back.maintenance, "drain");
    assert_string_equal(back.reset.order, "now");
    assert_true(back.reset.failed);
    assert_string_equal(back.reset.message, "reset failed: no");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pods_take_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pods_of_a_cordoned_card, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pods_of_a_claim, setup, teardown),
        cmocka_unit_test(test_the_order_that_is_followed),
        cmocka_unit_test(test_why_claims_get_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
