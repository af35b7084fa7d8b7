/* SPDX-License-Identifier: Apache-2.0 */

/* Reservations and ResourceClaims: a pod that a reservation is for takes of what is reserved. */

#include "claim-members-world.h"

#include "kube/objects/reservation_object.h"

#define NOW INT64_C(1767225600) /* 2026-01-01T00:00:00Z */
#define QUEUE(name) ",'labels':{'elasticgpu.io/queue':'" name "'}," CREATED
#define CREATED "'creationTimestamp':'2026-01-02T00:00:00Z'"

static char told[4096]; /* the last status */

static void on_status(const char *name, const struct reservation_status *status, void *userdata) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    (void) name, (void) userdata;
    reservation_encode_status(status, &text);
    (void) snprintf(told, sizeof(told), "%s", buf_str(&text));
}

static void tick(struct stage *s) {
    told[0] = '\0';
    reservations_tick(&s->reservations, NOW, 9, on_status, NULL);
}

/* 50 percent of a card for the queue "fast". */
static void reserve(struct stage *s, const char *status) {
    char text[8192];
    struct reservation_object object;
    struct json json;
    struct err err;
    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"name\":\"r\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\"},"
                    "\"spec\":{\"owners\":[{\"namespace\":\"d\",\"queue\":\"fast\"}],\"resources\":"
                    "{\"elasticgpu.io/gpu-core\":50}},\"status\":%s}",
                    status);
    assert_int_equal(json_parse(s->w->parser, text, strlen(text), &json, &err), 0);
    assert_int_equal(reservation_object_parse(json, &object, &err), 0);
    assert_int_equal(reservations_seen(&s->reservations, &object), 0);
    tick(s);
}

static uint32_t core_left(struct stage *s) {
    return (uint32_t) (free_of(s->d, "n", 0).core + free_of(s->d, "n", 1).core);
}

static void ask(struct stage *s, const char *pod, const char *claim, const char *amounts,
                const char *meta) {
    see_share(s->d, claim, amounts);
    show_user(s, pod, claim, meta, "," GATED, "");
    s->w->now += 1000;
    run(s->d);
    answer_events(s);
}

static void test_who_it_is_for_takes_of_it(void **state) {
    struct stage *s = *state;
    reserve(s, "null");
    assert_int_equal(core_left(s), 150);
    ask(s, "mine", "a", CORE("50"), QUEUE("fast"));
    assert_int_equal(pod_of(s, "mine")->stage, POD_ASSUMED);
    assert_int_equal(core_left(s), 150); /* counted once */
    answer_claim(s->d, "a", "", 2, "delete-protection");
    answer_claim(s->d, "a", "/status", 3, "allocationTimestamp");
    open_gate(s->d, "mine");
    assert_int_equal(core_left(s), 150);
    show_user(s, "mine", "a", QUEUE("fast"), ",'nodeName':'n'", "");
    tick(s);
    assert_non_null(strstr(told, "d/mine"));
    /* A second one has to do with what is free of that card for all. */
    ask(s, "more", "b", CORE("50"), QUEUE("fast"));
    assert_int_equal(core_left(s), 100);
    /* It has its share of the same card, and takes of what is reserved as soon as that is free. */
    see_gone(s->d, DRA_CLAIMS,
             "{'metadata':{'name':'a','namespace':'d','uid':'u-a','resourceVersion':'9'},"
             "'spec':{'devices':{}}}");
    assert_int_equal(core_left(s), 150);
}

static void test_others_leave_it_alone(void **state) {
    struct stage *s = *state;
    reserve(s, "null");
    ask(s, "other", "a", CORE("100"), QUEUE("slow"));
    assert_int_equal(pod_of(s, "other")->stage, POD_ASSUMED);
    ask(s, "another", "b", CORE("60"), QUEUE("slow"));
    assert_int_equal(pod_of(s, "another")->stage, POD_PENDING);
    ask(s, "mine", "c", CORE("50"), QUEUE("fast"));
    assert_int_equal(pod_of(s, "mine")->stage, POD_ASSUMED);
}

/* A scheduler that starts later finds what was taken of it by the cards. */
static void test_after_a_restart(void **state) {
    struct stage *s = *state;
    char status[4096];
    reserve(s, "null");
    memcpy(status, told, sizeof(status));
    reservations_gone(&s->reservations, "r");
    assert_int_equal(core_left(s), 200);
    see_claim(s->d, "a", 9, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "50", "40Gi"), "mine"));
    show_user(s, "mine", "a", QUEUE("fast"), ",'nodeName':'n'", "");
    reserve(s, status);
    assert_int_equal(core_left(s), 150);
    tick(s);
    assert_int_equal(core_left(s), 150);
    assert_non_null(pod_of(s, "mine")->draws);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_stage, clear_stage)
    const struct CMUnitTest tests[] = {
        TEST(test_who_it_is_for_takes_of_it),
        TEST(test_others_leave_it_alone),
        TEST(test_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
