/* SPDX-License-Identifier: Apache-2.0 */

/* Which pods are evicted from drained cards: only those on the node of the GPU object that names
 * them, and each as often as needed. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "kube/api/event_writer.h"
#include "scheduler/preemption/drain.h"
#include "wire/json.h"

#define CALLS_MAX 32

static struct call {
    char method[8], path[512], body[1024];
    kube_response_cb on_response;
    void *userdata;
} calls[CALLS_MAX];
static unsigned ncalls, nanswered;
static uint64_t now;
static bool leading;
static char event[4096]; /* the last one that was written */
static struct drainer d;

static int request(void *context, const char *method, const char *path, const char *content_type,
                   const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                   void *userdata, struct err *err) {
    struct call *c = &calls[ncalls++];

    (void) context, (void) content_type, (void) timeout_ms, (void) err;
    assert_true(ncalls <= CALLS_MAX);
    text_copy(c->method, sizeof(c->method), method);
    text_copy(c->path, sizeof(c->path), path);
    (void) snprintf(c->body, sizeof(c->body), "%.*s", (int) size, body ? body : "");
    c->on_response = on_response;
    c->userdata = userdata;
    return 0;
}

static uint64_t clock_now(void *userdata) {
    (void) userdata;
    return now;
}

static bool leads(void *userdata) {
    (void) userdata;
    return leading;
}

static int write_event(void *context, const char *method, const char *path,
                       const char *content_type, const char *body, size_t size, unsigned timeout_ms,
                       kube_response_cb on_response, void *userdata, struct err *err) {
    (void) context, (void) method, (void) path, (void) content_type, (void) timeout_ms, (void) err;
    (void) on_response, (void) userdata;
    (void) snprintf(event, sizeof(event), "%.*s", (int) size, body);
    return 0;
}

static int setup(void **state) {
    const struct event_writer_options options = {.component = "test", .request = write_event};

    (void) state;
    ncalls = nanswered = 0;
    now = 1000;
    leading = true;
    event[0] = 0;
    d = (struct drainer){.api = {request, NULL},
                         .events = event_writer_new(&options),
                         .leads = leads,
                         .now = clock_now};
    return d.events ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    drainer_done(&d);
    event_writer_free(d.events);
    assert_int_equal(d.in_flight, 0);
    assert_int_equal(nanswered, ncalls);
    return 0;
}

static void see(const char *gpu, const char *node, const char *evict) {
    struct gpu_object object = {.index = 0};

    text_copy(object.name, sizeof(object.name), gpu);
    text_copy(object.node, sizeof(object.node), node);
    text_copy(object.evict, sizeof(object.evict), evict);
    assert_int_equal(drainer_see(&d, &object), 0);
}

/* The next request, which is answered. */
static void answer(const char *method, const char *path, int status, const char *text) {
    struct json_parser *parser = NULL;
    struct kube_response response = {.status = status, .text = "the API server's reason"};
    struct call *c;

    assert_true(nanswered < ncalls);
    c = &calls[nanswered++];
    assert_string_equal(c->method, method);
    assert_string_equal(c->path, path);
    if (text)
        assert_int_equal(json_open(text, strlen(text), &parser, &response.body, NULL), 0);
    c->on_response(&response, c->userdata);
    json_parser_free(parser);
}

static void expect_event(const char *reason, const char *message) {
    assert_non_null(strstr(event, reason));
    assert_non_null(strstr(event, message));
}

static void expect_nothing(void) {
    drainer_run(&d);
    assert_int_equal(nanswered, ncalls);
}

#define POD "/api/v1/namespaces/team/pods/train"
#define ON(node) "{\"metadata\":{\"uid\":\"u1\"},\"spec\":{\"nodeName\":\"" node "\"}}"

static void test_evicted(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    drainer_run(&d);
    drainer_run(&d); /* it is in flight */
    answer("GET", POD, 200, ON("a"));
    assert_non_null(strstr(calls[1].body, "\"uid\":\"u1\""));
    answer("POST", POD "/eviction", 201, NULL);
    assert_int_equal(d.evicted, 1);
    expect_event("\"GPUDrained\"", "GPU gpu-a of node a is drained\"");
    now += 59999;
    expect_nothing(); /* it is ending */
    now += 1;
    drainer_run(&d); /* something keeps it */
    answer("GET", POD, 200, ON("a"));
    answer("POST", POD "/eviction", 201, NULL);
    see("gpu-a", "a", "");
    now += 120000;
    expect_nothing();
}

static void test_budget(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    drainer_run(&d);
    answer("GET", POD, 200, ON("a"));
    answer("POST", POD "/eviction", 429, NULL);
    assert_int_equal(d.refused, 1);
    expect_event("\"GPUDrainDelayed\"",
                 "The eviction from drained GPU gpu-a of node a was refused: "
                 "the API server's reason\"");
    assert_int_equal(d.evicted, 0);
    now += 14999;
    expect_nothing();
    now += 1;
    drainer_run(&d);
    answer("GET", POD, 200, ON("a"));
    answer("POST", POD "/eviction", 201, NULL);
    assert_int_equal(d.evicted, 1);
}

/* An agent can name any pod of the cluster. */
static void test_of_another_node(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    drainer_run(&d);
    answer("GET", POD, 200, ON("b"));
    now += 60000;
    expect_nothing();
    now += 60000;
    drainer_run(&d);
    answer("GET", POD, 200, "{\"metadata\":{\"uid\":\"u1\"},\"spec\":{}}");
    assert_int_equal(d.evicted, 0);
}

/* Another pod of that name, one that is ending, and one that is gone. */
static void test_another_pod(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    drainer_run(&d);
    answer("GET", POD, 200, "{\"metadata\":{\"uid\":\"u2\"},\"spec\":{\"nodeName\":\"a\"}}");
    now += 5000;
    drainer_run(&d);
    answer("GET", POD, 200,
           "{\"metadata\":{\"uid\":\"u1\",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"},"
           "\"spec\":{\"nodeName\":\"a\"}}");
    now += 5000;
    drainer_run(&d);
    answer("GET", POD, 404, NULL);
    assert_int_equal(d.evicted + d.failed, 0);
}

/* The drain of one card ends, and the pod is on another drained one. */
static void test_two_cards(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    see("gpu-b", "a", "team/train/u1 ");
    see("gpu-b", "a", "");
    drainer_run(&d);
    answer("GET", POD, 200, ON("a"));
    answer("POST", POD "/eviction", 201, NULL);
    assert_int_equal(d.evicted, 1);
}

/* Objects of another node name the pod as well, before and after, and under another name. */
static void test_named_by_another_node(void **state) {
    (void) state;
    see("gpu-x", "x", "other/pod/u1 ");
    see("gpu-a", "a", "team/train/u1 ");
    see("gpu-y", "x", "team/train/u1 ");
    drainer_run(&d);
    answer("GET", "/api/v1/namespaces/other/pods/pod", 404, NULL);
    answer("GET", POD, 200, ON("a"));
    answer("GET", POD, 200, ON("a"));
    answer("POST", POD "/eviction", 201, NULL);
    assert_int_equal(d.evicted, 1);
}

/* However many pods an object names: those of other objects have their turn. */
static void test_turns(void **state) {
    char names[sizeof(((struct gpu_object *) NULL)->evict)];
    size_t len = 0;

    (void) state;
    for (int i = 0; i < 20; i++)
        len += (size_t) snprintf(names + len, sizeof(names) - len, "team/x%d/x%d ", i, i);
    see("gpu-x", "x", names);
    now += 1;
    see("gpu-a", "a", "team/train/u1 ");
    for (int runs = 0; d.evicted == 0; runs++) {
        assert_true(runs < 3);
        drainer_run(&d);
        while (nanswered < ncalls) {
            const struct call *c = &calls[nanswered];

            if (strstr(c->path, "/eviction"))
                answer("POST", POD "/eviction", 201, NULL);
            else
                answer("GET", c->path, 200, strcmp(c->path, POD) == 0 ? ON("a") : "{}");
        }
        now += 5000;
    }
}

/* The Lease is lost while the pod is read. */
static void test_not_the_leader(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    drainer_run(&d);
    leading = false;
    answer("GET", POD, 200, ON("a"));
    assert_int_equal(ncalls, 1);
}

/* Another list no longer has the object. */
static void test_relist(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    see("gpu-b", "a", "team/web/u2 ");
    drainer_sync_begin(&d);
    see("gpu-b", "a", "team/web/u2 ");
    drainer_sync_end(&d);
    drainer_run(&d);
    answer("GET", "/api/v1/namespaces/team/pods/web", 404, NULL);
    drainer_gone(&d, "gpu-b");
    assert_null(d.pods);
}

/* Other failures than a disruption budget are reported, and repeated at growing intervals. */
static void test_failures(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    for (uint64_t wait = 5000; wait <= 20000; wait *= 2) {
        drainer_run(&d);
        answer("GET", POD, 200, ON("a"));
        answer("POST", POD "/eviction", 500, NULL);
        now += wait - 1;
        expect_nothing();
        now += 1;
    }
    assert_int_equal(d.failed, 3);
    expect_event("\"GPUDrainDelayed\"", "The eviction from drained GPU gpu-a of node a failed: "
                                        "the API server's reason\"");
    drainer_run(&d);
    answer("GET", POD, 200, ON("a"));
    answer("POST", POD "/eviction", 429, NULL);
    now += 15000;
    drainer_run(&d);
    answer("GET", POD, 200, ON("a"));
    answer("POST", POD "/eviction", 500, NULL);
    now += 5000;
    drainer_run(&d);
    answer("GET", POD, 404, NULL);
}

/* A path is made of these texts. */
static void test_malformed(void **state) {
    (void) state;
    see("gpu-a", "a",
        "team/train team//u1 /train/u1 team/../u1 te?m/train/u1 team/tr%2fain/u1 team/train/ x ");
    expect_nothing();
    assert_null(d.pods);
}

/* The object is deleted, or names others, while requests run. */
static void test_gone_meanwhile(void **state) {
    (void) state;
    see("gpu-a", "a", "team/train/u1 ");
    see("gpu-b", "a", "team/web/u2 ");
    drainer_run(&d);
    see("gpu-a", "a", "");
    answer("GET", POD, 200, ON("a"));
    answer("GET", "/api/v1/namespaces/team/pods/web", 0, NULL);
    now += 5000;
    drainer_run(&d);
    answer("GET", "/api/v1/namespaces/team/pods/web", 200,
           "{\"metadata\":{\"uid\":\"u2\"},\"spec\":{\"nodeName\":\"a\"}}");
    see("gpu-b", "a", "");
    answer("POST", "/api/v1/namespaces/team/pods/web/eviction", 500, NULL);
    assert_int_equal(d.failed, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_evicted),         T(test_budget),
        T(test_of_another_node), T(test_another_pod),
        T(test_malformed),       T(test_gone_meanwhile),
        T(test_two_cards),       T(test_named_by_another_node),
        T(test_turns),           T(test_not_the_leader),
        T(test_relist),          T(test_failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
