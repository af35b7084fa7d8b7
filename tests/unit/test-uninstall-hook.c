/* SPDX-License-Identifier: Apache-2.0 */
/* The Job that the hook of `helm uninstall` leaves, beside one of an earlier call. */
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

static struct {
    time_t now;
    time_t job_ends, pod_ends; /* those of the earlier call, once the Job is deleted */
    bool there, deleted, created;
    unsigned owned;
} k;

time_t __wrap_time(time_t *ret);
time_t __wrap_time(time_t *ret) {
    (void) ret;
    return k.now;
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left) {
    (void) left;
    k.now += pause->tv_sec > 0 ? pause->tv_sec : 1;
    return 0;
}

static bool job_is_there(void) {
    return k.created || (k.there && (!k.deleted || k.now < k.job_ends));
}

static int not_found(struct err *err) {
    return err_set(err, ENOENT, "none");
}

/* The test is the API server. */

int api_read(const char *path, struct json_parser **ret_parser, struct json *ret, struct err *err) {
    const char *answer = "{\"metadata\":{}}";

    if (strstr(path, "/pods?"))
        answer = k.there && k.now < k.pod_ends ? "{\"items\":[{}]}" : "{\"items\":[]}";
    else if (strstr(path, "/clusterroles/"))
        answer = "{\"metadata\":{\"uid\":\"role\"}}";
    else if (!job_is_there())
        return not_found(err);
    return json_open(answer, strlen(answer), ret_parser, ret, err);
}

int api_delete(const char *path, struct buf *ret, struct err *err) {
    bool there = job_is_there();

    (void) ret;
    assert_string_equal(path, "/apis/batch/v1/namespaces/gpus/jobs/aliquot-uninstall-nodes"
                              "?propagationPolicy=Background");
    k.deleted = true;
    return there ? 0 : not_found(err);
}

int api_create(const char *path, const char *object, struct json_parser **ret_parser,
               struct json *ret, struct err *err) {
    (void) ret_parser;
    (void) ret;
    assert_string_equal(path, "/apis/batch/v1/namespaces/gpus/jobs");
    assert_string_equal(object, "{\"kind\":\"Job\"}");
    if (job_is_there())
        return err_set(err, EEXIST, "there");
    assert_false(k.there && k.now < k.pod_ends); /* it would remove the role of the new one */
    k.created = true;
    return 0;
}

int api_patch(const char *path, const char *type, const char *patch, struct err *err) {
    (void) type;
    assert_non_null(strstr(path, "/aliquot-uninstall-nodes"));
    assert_non_null(strstr(patch, "\"uid\":\"role\""));
    if (!job_is_there())
        return not_found(err);
    k.owned++;
    return 0;
}

static int leave(time_t job_ends, time_t pod_ends, struct err *err) {
    static const struct removal r = {
        .caller = REMOVAL_BY_HELM, .system = "gpus", .job = "{\"kind\":\"Job\"}", .limit_s = 60};

    memset(&k, 0, sizeof(k));
    k.now = 1000;
    k.job_ends = job_ends;
    k.pod_ends = pod_ends;
    k.there = job_ends > 0;
    return removal_leave_job(&r, err);
}

static void there_is_no_earlier_job(void **state) {
    struct err err;

    (void) state;
    assert_int_equal(leave(0, 0, &err), 0);
    assert_true(k.created && k.owned == 3);
    assert_int_equal(k.now, 1000);
}

/* It may have failed, or be on its way out with its role. */
static void an_earlier_job_is_replaced(void **state) {
    struct err err;

    (void) state;
    assert_int_equal(leave(1020, 1040, &err), 0);
    assert_true(k.created && k.owned == 3);
    assert_in_range(k.now, 1040, 1042);
}

static void an_earlier_job_does_not_end(void **state) {
    struct err err;

    (void) state;
    assert_int_equal(leave(1000000, 0, &err), -ETIMEDOUT);
    assert_false(k.created);
    assert_in_range(k.now, 1000 + 60, 1000 + 62);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_no_earlier_job),
        cmocka_unit_test(an_earlier_job_is_replaced),
        cmocka_unit_test(an_earlier_job_does_not_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
