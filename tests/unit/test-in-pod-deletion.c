/* SPDX-License-Identifier: Apache-2.0 */
/* What `aliquot-kubectl delete` asks of the API server, which the test is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "cli/in_pod/deletion.h"
#include "cli/in_pod/request.h"

static struct {
    char asked[1024]; /* a line for each request */
    const char *list; /* the answer with items */
    const char *error;
} api;

int request_send(const struct request *request, struct buf *ret, struct err *err) {
    size_t len = strlen(api.asked);

    assert_null(request->body);
    (void) snprintf(api.asked + len, sizeof(api.asked) - len, "%s %s\n", request->method,
                    request->path);
    if (api.error)
        return err_set(err, EREMOTEIO, "%s", api.error);
    buf_puts(ret, api.list);
    return 0;
}

static void begin(const char *list) {
    memset(&api, 0, sizeof(api));
    api.list = list;
}

#define LIST(name)                                                                                 \
    "{\"items\":[{\"metadata\":{\"name\":\"" name "1\",\"namespace\":\"gpus\"}},"                  \
    "{\"metadata\":{\"name\":\"" name "2\",\"namespace\":\"gpus\"}}]}"

static void all_of_a_kind_is_one_request(void **state) {
    const struct deletion d = {.kinds = "gpus.elasticgpu.io", .namespace = "gpus", .all = true};
    struct buf out = BUF_INIT(0);
    struct err err;

    (void) state;
    begin(LIST("n-0"));
    assert_int_equal(deletion_run(&d, &out, &err), 0);
    assert_string_equal(api.asked,
                        "DELETE /apis/elasticgpu.io/v1alpha1/gpus?propagationPolicy=Background\n");
    assert_string_equal(buf_str(&out), "gpus.elasticgpu.io/n-01\ngpus.elasticgpu.io/n-02\n");
    buf_done(&out);
}

/* No right to a whole kind is needed, also with --all. */
static void what_a_selector_finds_goes_by_name(void **state) {
    struct deletion d = {.kinds = "jobs,roles", .namespace = "gpus", .selector = "a=b"};

    (void) state;
    for (int i = 0; i < 2; i++) {
        struct buf out = BUF_INIT(0);
        struct err err;

        begin(LIST("x"));
        d.all = i > 0;
        assert_int_equal(deletion_run(&d, &out, &err), 0);
        assert_string_equal(
            api.asked,
            "GET /apis/batch/v1/namespaces/gpus/jobs?labelSelector=a%3Db\n"
            "DELETE /apis/batch/v1/namespaces/gpus/jobs/x1?propagationPolicy=Background\n"
            "DELETE /apis/batch/v1/namespaces/gpus/jobs/x2?propagationPolicy=Background\n"
            "GET /apis/rbac.authorization.k8s.io/v1/namespaces/gpus/roles?labelSelector=a%3Db\n"
            "DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/gpus/roles/x1"
            "?propagationPolicy=Background\n"
            "DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/gpus/roles/x2"
            "?propagationPolicy=Background\n");
        assert_string_equal(buf_str(&out), "jobs/x1\njobs/x2\nroles/x1\nroles/x2\n");
        buf_done(&out);
    }
}

static void what_is_gone_is_no_error(void **state) {
    static const char *const names[] = {"a", "b"};
    const struct deletion d = {.kinds = "nodes", .names = names, .n = 2, .namespace = "gpus"};
    struct buf out = BUF_INIT(0);
    struct err err;

    (void) state;
    begin("{}");
    api.error = "(NotFound): none";
    assert_int_equal(deletion_run(&d, &out, &err), 0);
    assert_int_equal(out.len, 0);
    assert_string_equal(api.asked, "DELETE /api/v1/nodes/a?propagationPolicy=Background\n"
                                   "DELETE /api/v1/nodes/b?propagationPolicy=Background\n");
    api.error = "(Forbidden): no";
    assert_int_equal(deletion_run(&d, &out, &err), -EREMOTEIO);
    assert_string_equal(err.text, "(Forbidden): no");
    buf_done(&out);
}

static void something_has_to_say_which(void **state) {
    struct deletion d = {.kinds = "nodes", .namespace = "gpus"};
    struct buf out = BUF_INIT(0);
    struct err err;

    (void) state;
    begin("{}");
    assert_int_equal(deletion_run(&d, &out, &err), -EINVAL);
    d = (struct deletion){.kinds = "things", .namespace = "gpus", .all = true};
    assert_int_equal(deletion_run(&d, &out, &err), -EINVAL);
    assert_string_equal(err.text, "no kind things is known to aliquot-kubectl");
    assert_string_equal(api.asked, "");
    buf_done(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_kind_is_one_request),
        cmocka_unit_test(what_a_selector_finds_goes_by_name),
        cmocka_unit_test(what_is_gone_is_no_error),
        cmocka_unit_test(something_has_to_say_which),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
