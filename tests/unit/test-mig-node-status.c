/* SPDX-License-Identifier: Apache-2.0 */

/* The status of the division on the Node, with a clock, a timer and an API server of the test: what
 * is written, and how often where it does not stay. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/mig/node_status.h"
#include "base/err.h"
#include "kube/api/client.h"

#define MINUTE 60000

static struct world {
    uv_loop_t loop;
    struct mig_node_status *status;
    uint64_t now, due; /* 0: the timer is not started */
    uv_timer_t *timer;
    uv_timer_cb on_timer;
    kube_response_cb on_response; /* NULL: no request is under way */
    void *userdata;
    char body[2048];
    unsigned requests;
} w;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms, uint64_t repeat);
int __wrap_uv_timer_stop(uv_timer_t *timer);
int __wrap_uv_is_active(const uv_handle_t *handle);
uv_loop_t *__wrap_kube_client_loop(const struct kube_client *client);
int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err);

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

int __wrap_uv_is_active(const uv_handle_t *handle) {
    (void) handle;
    return w.due > 0;
}

uv_loop_t *__wrap_kube_client_loop(const struct kube_client *client) {
    (void) client;
    return &w.loop;
}

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err) {
    (void) client, (void) content_type, (void) timeout_ms, (void) err;
    assert_null(w.on_response);
    assert_string_equal(method, "PATCH");
    assert_string_equal(path, "/api/v1/nodes/node/status");
    w.on_response = on_response;
    w.userdata = userdata;
    (void) snprintf(w.body, sizeof(w.body), "%.*s", (int) size, body);
    *ret_call = (struct kube_call *) &w;
    w.requests++;
    return 0;
}

static int set_up(void **state) {
    (void) state;
    memset(&w, 0, sizeof(w));
    w.now = 100 * MINUTE;
    return uv_loop_init(&w.loop) < 0 ? -1 : mig_node_status_new(NULL, "node", &w.status);
}

static int tear_down(void **state) {
    (void) state;
    assert_null(w.on_response);
    mig_node_status_stop(w.status);
    (void) uv_run(&w.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&w.loop);
}

/* The clock goes on; a timer that is due calls. */
static void pass(uint64_t ms) {
    w.now += ms;
    if (w.due == 0 || w.due > w.now)
        return;
    w.due = 0;
    w.on_timer(w.timer);
}

/* A watch event of the Node (`code` 0), or the answer to the request. */
static void node(int code, const char *state) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct kube_response response = {.status = code, .text = "", .reason = ""};
    kube_response_cb on_response = w.on_response;
    char text[512];
    struct err err;

    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"labels\":{\"" MIG_STATE_LABEL "\":\"%s\"},"
                    "\"annotations\":{\"" MIG_ANNOTATION "\":\"all\"}}}",
                    state);
    assert_int_equal(json_open(text, strlen(text), &parser, &response.body, &err), 0);
    if (code == 0) {
        mig_node_status_see(w.status, response.body);
        return;
    }
    assert_non_null(on_response);
    w.on_response = NULL;
    on_response(&response, w.userdata);
}

static void set(enum mig_state state) {
    const struct mig_status status = {.state = state, .config = "all"};

    mig_node_status_set(w.status, &status);
}

static void it_is_written_and_repaired(void **state) {
    (void) state;
    set(MIG_STATE_PENDING);
    assert_int_equal(w.requests, 0);
    node(0, "");
    assert_non_null(strstr(w.body, "\"pending\""));
    set(MIG_STATE_SUCCESS); /* while the request is under way */
    node(200, "pending");
    assert_non_null(strstr(w.body, "\"success\""));
    node(200, "success");
    assert_int_equal(w.requests, 2);
    assert_string_equal(mig_node_status_trouble(w.status), "");
    pass(MINUTE);
    node(0, "failed");
    assert_int_equal(w.requests, 3);
    node(200, "success");
    /* An event that is older than the answer. */
    node(0, "failed");
    node(0, "success");
    pass(MINUTE);
    assert_int_equal(w.requests, 3);
}

/* An admission webhook changes what is written: it is tried again ever more rarely. */
static void what_does_not_stay_is_written_rarely(void **state) {
    static const unsigned gaps[] = {500, 1000, 2000, 4000, 8000, 16000, 30000, 30000};

    (void) state;
    set(MIG_STATE_SUCCESS);
    node(0, "");
    for (unsigned i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
        node(200, "changed");
        node(0, "changed");
        assert_non_null(strstr(mig_node_status_trouble(w.status), "another text"));
        pass(gaps[i] - 1);
        assert_int_equal(w.requests, i + 1);
        pass(1);
        assert_int_equal(w.requests, i + 2);
    }
    node(200, "success");
    assert_string_equal(mig_node_status_trouble(w.status), "");
}

/* Another program writes the label after each write: as above, and at once for a new status. */
static void another_writer(void **state) {
    static const unsigned gaps[] = {500, 1000, 2000};

    (void) state;
    set(MIG_STATE_PENDING);
    node(0, "");
    for (unsigned i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
        node(200, "pending");
        node(0, "other");
        pass(gaps[i] - 1);
        assert_int_equal(w.requests, i + 1);
        pass(1);
        assert_int_equal(w.requests, i + 2);
    }
    node(200, "pending");
    set(MIG_STATE_SUCCESS);
    assert_int_equal(w.requests, 5);
    node(200, "success");
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(it_is_written_and_repaired),
        T(what_does_not_stay_is_written_rarely),
        T(another_writer),
    };

    return cmocka_run_group_tests_name("mig-node-status", tests, NULL, NULL);
}
