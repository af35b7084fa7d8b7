/* SPDX-License-Identifier: Apache-2.0 */

/* Pods that name a scheduler which does not ask here: one Event each, and the page /explain. */

#include "scheduler-world.h"
#include "scheduler/daemon/foreign_pods.h"
#include "scheduler/daemon/scheduler.h"
#include "scheduler/pages/pages.h"

static struct scheduler s;
static bool leads;

bool __wrap_scheduler_leads(const struct scheduler *scheduler);

bool __wrap_scheduler_leads(const struct scheduler *scheduler) {
    (void) scheduler;
    return leads;
}

static int begin(void **state) {
    int r = setup(state);
    struct world *w = *state;
    leads = true;
    s = (struct scheduler){.state = w->state, .events = w->events};
    s.profiles.n = 2;
    (void) snprintf(s.profiles.names[0], KUBE_NAME_MAX, "aliquot-scheduler");
    (void) snprintf(s.profiles.names[1], KUBE_NAME_MAX, "volcano");
    return r;
}

/* The watch shows the pod, twice. */
static void show(struct world *w, const char *uid, const char *scheduler, const char *node,
                 const char *limits) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json object;
    struct pod pod;
    buf_printf(&text,
               "{\"metadata\":{\"uid\":\"%s\",\"name\":\"%s\",\"namespace\":\"d\"},\"spec\":{"
               "\"schedulerName\":\"%s\",\"nodeName\":\"%s\",\"containers\":[{\"name\":\"c\","
               "\"resources\":{\"limits\":{%s}}}]}}",
               uid, uid, scheduler, node, limits);
    assert_int_equal(json_open(buf_str(&text), text.len, &parser, &object, NULL), 0);
    assert_int_equal(pod_parse(object, &pod, NULL), 0);
    assert_string_equal(pod.scheduler, scheduler);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(state_pod_seen(w->state, &pod, w->now), 0);
        foreign_pods_see(&s, &pod);
    }
    pod_done(&pod);
}

#define SHARE "\"elasticgpu.io/gpu-core\":\"10\""

static void check_told(struct world *w) {
    assert_int_equal(w->nasked, 1);
    const char *body = buf_str(&w->asked[0].body);
    assert_non_null(strstr(body, "\"reason\":\"ForeignScheduler\""));
    assert_non_null(strstr(body, "names the scheduler gpu-scheduler, which does not ask Aliquot"));
    assert_non_null(strstr(body, "or name aliquot-scheduler"));
    assert_non_null(strstr(body, "\"count\":1"));
    respond(w, 0, 201, false, "{}");
}

static void test_told_once(void **state) {
    struct world *w = *state;
    show(w, "p", "gpu-scheduler", "", SHARE);
    check_told(w);
    show(w, "p", "gpu-scheduler", "", SHARE);
    foreign_pods_tell(&s);
    event_writer_run(w->events, scheduler_now(&s) + 3600000);
    assert_int_equal(w->nasked, 0);
}

/* A replica that only waits writes nothing; what it has seen it tells when it leads. */
static void test_told_by_the_leader(void **state) {
    struct world *w = *state;
    leads = false;
    show(w, "p", "gpu-scheduler", "", SHARE);
    event_writer_run(w->events, scheduler_now(&s));
    assert_int_equal(w->nasked, 0);
    leads = true;
    foreign_pods_tell(&s);
    check_told(w);
    foreign_pods_tell(&s);
    assert_int_equal(w->nasked, 0);
}

static void test_left_alone(void **state) {
    struct world *w = *state;
    show(w, "first", "aliquot-scheduler", "", SHARE);
    show(w, "second", "volcano", "", SHARE);
    show(w, "unnamed", "", "", SHARE); /* no pod of an API server */
    show(w, "bound", "gpu-scheduler", "n", SHARE);
    show(w, "plain", "gpu-scheduler", "", "\"cpu\":\"1\"");
    s.profiles.n = 0; /* which names ask is not known */
    show(w, "unknown", "gpu-scheduler", "", SHARE);
    foreign_pods_tell(&s);
    assert_int_equal(w->nasked, 0);
}

static void test_explained(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf page = BUF_INIT(0), other = BUF_INIT(0);
    show(w, "p", "gpu-scheduler", "", SHARE);
    check_told(w);
    show(w, "q", "volcano", "", SHARE);
    assert_true(scheduler_write_explanation(&s, "d", "p", &page));
    assert_non_null(strstr(buf_str(&page), "\"foreignScheduler\":\"gpu-scheduler\""));
    assert_true(scheduler_write_explanation(&s, "d", "q", &other));
    assert_null(strstr(buf_str(&other), "foreignScheduler"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_told_once, begin, teardown),
        cmocka_unit_test_setup_teardown(test_told_by_the_leader, begin, teardown),
        cmocka_unit_test_setup_teardown(test_left_alone, begin, teardown),
        cmocka_unit_test_setup_teardown(test_explained, begin, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
