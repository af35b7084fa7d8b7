/* SPDX-License-Identifier: Apache-2.0 */

/* kube-scheduler's version against the API server's, which the test plays, with its own clock. */

#include <math.h>

#include "scheduler-world.h"
#include "scheduler/cluster/version_skew.h"

static struct version_skew begin(struct world *w) {
    struct version_skew v = {.api = {fake_request, w},
                             .name_space = "aliquot-system",
                             .pod = "replica",
                             .events = w->events};
    version_skew_init(&v);
    return v;
}

static void answer_pod(struct world *w, const char *containers) {
    char body[512];
    /* Each time another pod, so that each Event is a new one. */
    (void) snprintf(body, sizeof(body),
                    "{\"metadata\":{\"uid\":\"%" PRIu64 "\"},\"spec\":{\"containers\":[%s]}}",
                    w->now, containers);
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/aliquot-system/pods/replica");
    respond(w, 0, 200, false, body);
}

static void check(struct world *w, struct version_skew *v, const char *server, const char *image) {
    char text[256];
    version_skew_run(v, w->now, false);
    assert_string_equal(w->asked[0].path, "/version");
    (void) snprintf(text, sizeof(text), "{\"gitVersion\":\"%s\"}", server);
    respond(w, 0, 200, false, text);
    (void) snprintf(text, sizeof(text),
                    "{\"name\":\"scheduler\",\"image\":\"aliquot-scheduler:v9.9.9\"},"
                    "{\"name\":\"kube-scheduler\",\"image\":\"%s\"}",
                    image);
    answer_pod(w, text);
}

#define REGISTRY "registry.k8s.io/kube-scheduler:"

/* What the one Event says, or NULL for no Event. */
static void test_what_suits_and_what_does_not(void **state) {
    struct world *w = *state;
    static const struct {
        const char *server, *image;
        double ahead; /* NAN: not known */
        const char *says;
    } rows[] = {
        {"v1.36.3", REGISTRY "v1.36.3", 0, NULL},
        {"v1.36.3", REGISTRY "v1.36.9", 0, NULL},
        {"v1.36.3", REGISTRY "v1.35.0", -1, NULL},
        {"v1.33.5-eks-3025e55", REGISTRY "v1.33.5", 0, NULL},
        {"v1.34.1+k3s1", "registry:5000/kube-scheduler:1.34.1@sha256:00", 0, NULL},
        {"v1.36.3", REGISTRY "v1.37.0", 1,
         "kube-scheduler v1.37.0 is newer than the API server, v1.36.3, which Kubernetes does not "
         "support: set the tag of its image to v1.36.3"},
        {"v1.35.5-eks-3025e55", REGISTRY "v1.33.1", -2,
         "kube-scheduler v1.33.1 is more than one minor version older than the API server, "
         "v1.35.5-eks-3025e55, which Kubernetes does not support: set the tag of its image to "
         "v1.35.5"},
        {"v1.36.3", "kube-scheduler@sha256:00", NAN, NULL},
        {"v1.36.3", "registry:5000/kube-scheduler", NAN, NULL},
        {"v1.36.3", REGISTRY "latest", NAN, NULL},
        {"v2.0.0", REGISTRY "v1.36.3", NAN, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct version_skew v = begin(w);
        check(w, &v, rows[i].server, rows[i].image);
        assert_int_equal(isnan(v.ahead) != 0, isnan(rows[i].ahead) != 0);
        if (!isnan(v.ahead))
            assert_int_equal((int) v.ahead, (int) rows[i].ahead);
        assert_int_equal(w->nasked, 0); /* only the leader tells */
        version_skew_run(&v, w->now, true);
        version_skew_run(&v, w->now, true); /* and once */
        assert_int_equal(w->nasked, rows[i].says ? 1 : 0);
        if (rows[i].says) {
            assert_non_null(strstr(buf_str(&w->asked[0].body), rows[i].says));
            assert_non_null(
                strstr(buf_str(&w->asked[0].body), "\"reason\":\"KubeSchedulerVersionSkew\""));
            respond(w, 0, 201, false, "{}");
        }
        w->now += VERSION_SKEW_CHECK_MS;
    }
}

static void test_looked_at_again_after_an_upgrade(void **state) {
    struct world *w = *state;
    struct version_skew v = begin(w);
    check(w, &v, "v1.35.2", REGISTRY "v1.35.2");
    w->now += VERSION_SKEW_CHECK_MS - 1;
    version_skew_run(&v, w->now, false);
    assert_int_equal(w->nasked, 0);
    w->now += 1;
    check(w, &v, "v1.37.0", REGISTRY "v1.35.2");
    assert_int_equal((int) v.ahead, -2);
}

static void test_asked_again_soon_after_an_error(void **state) {
    struct world *w = *state;
    struct version_skew v = begin(w);
    version_skew_run(&v, w->now, false);
    version_skew_run(&v, w->now + VERSION_SKEW_CHECK_MS, false); /* during a check: no second one */
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 503, false, NULL);
    w->now += VERSION_SKEW_RETRY_MS;
    version_skew_run(&v, w->now, false);
    respond(w, 0, 200, false, "{\"gitVersion\":\"v1.36.3\"}");
    respond(w, 0, 500, false, NULL);
    w->now += VERSION_SKEW_RETRY_MS;
    check(w, &v, "v1.36.3", REGISTRY "v1.36.3");
    assert_int_equal((int) v.ahead, 0);
}

/* Replicas that run elsewhere than in such a pod. */
static void test_nothing_is_known_without_the_container(void **state) {
    struct world *w = *state;
    struct version_skew v = begin(w);
    version_skew_run(&v, w->now, false);
    respond(w, 0, 200, false, "{\"gitVersion\":\"v1.36.3\"}");
    answer_pod(w, "{\"name\":\"scheduler\",\"image\":\"x:v1.36.3\"}");
    assert_true(isnan(v.ahead));
    w->now += VERSION_SKEW_CHECK_MS;
    version_skew_run(&v, w->now, false);
    respond(w, 0, 200, false, "{\"gitVersion\":\"v1.36.3\"}");
    respond(w, 0, 404, false, NULL);
    assert_true(isnan(v.ahead));
    w->now += VERSION_SKEW_RETRY_MS;
    version_skew_run(&v, w->now, false);
    assert_int_equal(w->nasked, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_suits_and_what_does_not, setup, teardown),
        cmocka_unit_test_setup_teardown(test_looked_at_again_after_an_upgrade, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked_again_soon_after_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_known_without_the_container, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
