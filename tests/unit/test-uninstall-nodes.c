/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot uninstall --wait` beside a kubelet that writes a plugin's resources until it has given
 * them up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/err.h"
#include "cli/cluster/api.h"
#include "cli/uninstall/uninstall.h"
#include "kube/api/client.h"

#define NODE(capacity)                                                                             \
    "{\"items\":[{\"metadata\":{\"name\":\"n\"},\"status\":{\"conditions\":[{\"type\":\"Ready\","  \
    "\"status\":\"True\"}],\"capacity\":{" capacity "},\"allocatable\":{" capacity "}}}]}"

/* kubelet writes every 10 s what is missing: an amount until it has given up the plugin, and 0 once
 * after that. */
static struct {
    time_t now, gives_up, wrote;
    time_t installed; /* 0: never */
    bool shows, zero_written;
    unsigned patches;
} k;

time_t __wrap_time(time_t *ret);
time_t __wrap_time(time_t *ret) {
    (void) ret;
    return k.now;
}

static void kubelet_writes(void) {
    bool given_up = k.now >= k.gives_up;

    if (k.now < k.wrote + 10 || (given_up && k.zero_written))
        return;
    k.wrote = k.now;
    k.shows = true;
    k.zero_written = given_up;
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left) {
    (void) left;
    k.now += pause->tv_sec;
    kubelet_writes();
    return 0;
}

/* The test is the API server. */

int api_read(const char *path, struct json_parser **ret_parser, struct json *ret, struct err *err) {
    const char *answer = "{\"metadata\":{}}";

    if (strstr(path, "/clusterrolebindings/")) {
        if (k.installed == 0 || k.now < k.installed)
            return err_set(err, ENOENT, "none");
    } else {
        assert_string_equal(path, "/api/v1/nodes");
        answer = !k.shows         ? NODE("")
                 : k.zero_written ? NODE("\"elasticgpu.io/gpu-core\":\"0\"")
                                  : NODE("\"elasticgpu.io/gpu-core\":\"200\"");
    }
    return json_open(answer, strlen(answer), ret_parser, ret, err);
}

int api_patch(const char *path, const char *type, const char *patch, struct err *err) {
    (void) patch;
    (void) err;
    assert_string_equal(path, "/api/v1/nodes/n/status");
    assert_string_equal(type, KUBE_STRATEGIC_PATCH);
    assert_true(k.installed == 0 || k.now < k.installed);
    k.patches++;
    k.shows = false;
    return 0;
}

int api_create(const char *path, const char *object, struct json_parser **ret_parser,
               struct json *ret, struct err *err) {
    (void) path;
    (void) object;
    (void) ret_parser;
    (void) ret;
    (void) err;
    fail();
    return 0;
}

int api_delete(const char *path, struct buf *ret, struct err *err) {
    (void) path;
    (void) ret;
    (void) err;
    fail();
    return 0;
}

static void begin(time_t gives_up, bool shows) {
    memset(&k, 0, sizeof(k));
    k.now = k.wrote = 1000;
    k.gives_up = gives_up;
    k.shows = shows;
}

static int wait_for(time_t gives_up, bool shows, struct err *err) {
    static const struct removal wait = {.system = "aliquot-system", .wait = true};

    begin(gives_up, shows);
    return removal_of_node_entries(&wait, err);
}

static const struct removal in_job = {
    .system = "aliquot-system", .wait = true, .caller = REMOVAL_AFTERWARDS};

static void it_ends_when_kubelet_has_written_its_zero(void **state) {
    struct err err;

    (void) state;
    assert_int_equal(wait_for(1300, true, &err), 0);
    assert_true(k.zero_written && !k.shows);
    assert_in_range(k.now, 1300 + 40, 1300 + 60);
}

/* An earlier call has just removed what is there. */
static void it_looks_again_where_nothing_is_shown(void **state) {
    struct err err;

    (void) state;
    assert_int_equal(wait_for(1300, false, &err), 0);
    assert_true(k.zero_written && !k.shows && k.patches > 1);
    assert_in_range(k.now, 1300 + 40, 1300 + 60);
}

static void it_does_not_wait_for_ever(void **state) {
    struct err err;

    (void) state;
    assert_int_equal(wait_for(1000000, true, &err), -ETIMEDOUT);
    assert_in_range(k.now, 1000 + 420, 1000 + 470);
    assert_non_null(strstr(err.text, "does a plugin of these names, or an agent, run"));
}

/* Aliquot's entries are those of the new installation, from the beginning or later on. */
static void the_job_ends_with_an_installation(void **state) {
    struct err err;

    (void) state;
    begin(1300, true);
    k.installed = 1100;
    assert_int_equal(removal_of_node_entries(&in_job, &err), 0);
    assert_in_range(k.now, 1100, 1100 + 10);
    assert_true(k.patches > 1);
    begin(1300, true);
    k.installed = 1000;
    assert_int_equal(removal_of_node_entries(&in_job, &err), 0);
    assert_int_equal(k.patches, 0);
}

/* It would be started again, and again. */
static void the_job_does_not_fail_at_its_limit(void **state) {
    struct err err;

    (void) state;
    begin(1000000, true);
    assert_int_equal(removal_of_node_entries(&in_job, &err), 0);
    assert_in_range(k.now, 1000 + 420, 1000 + 470);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_ends_when_kubelet_has_written_its_zero),
        cmocka_unit_test(it_looks_again_where_nothing_is_shown),
        cmocka_unit_test(it_does_not_wait_for_ever),
        cmocka_unit_test(the_job_ends_with_an_installation),
        cmocka_unit_test(the_job_does_not_fail_at_its_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
