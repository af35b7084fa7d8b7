/* SPDX-License-Identifier: Apache-2.0 */

/* The names that a kube-scheduler serves, from its configuration file. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "scheduler/cluster/profiles.h"

#define HEAD "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

static void test_names_in_the_order_of_the_file(void **state) {
    (void) state;
    static const struct {
        const char *text, *names; /* with blanks between */
    } rows[] = {
        {HEAD "profiles:\n  - schedulerName: aliquot-scheduler\n  - schedulerName: volcano\n"
              "extenders: []\n",
         "aliquot-scheduler volcano"},
        {HEAD "profiles:\n  - plugins: {}\n  - schedulerName: b\n", "default-scheduler b"},
        {HEAD "profiles: []\n", "default-scheduler"},
        {HEAD, "default-scheduler"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_buf_ struct buf names = BUF_INIT(0);
        struct profiles p;
        struct err err;
        if (profiles_parse(rows[i].text, strlen(rows[i].text), &p, &err) < 0)
            fail_msg("%s: %s", rows[i].text, err.text);
        for (uint32_t n = 0; n < p.n; n++) {
            buf_printf(&names, "%s%s", n ? " " : "", p.names[n]);
            assert_true(profiles_have(&p, p.names[n]));
        }
        assert_string_equal(buf_str(&names), rows[i].names);
        assert_false(profiles_have(&p, "another"));
    }
}

static void test_what_is_no_configuration(void **state) {
    (void) state;
    _cleanup_buf_ struct buf many = BUF_INIT(0), long_name = BUF_INIT(0);
    buf_puts(&many, HEAD "profiles:\n");
    for (int i = 0; i <= PROFILES_MAX; i++)
        buf_printf(&many, "  - schedulerName: s%d\n", i);
    buf_printf(&long_name, HEAD "profiles:\n  - schedulerName: %0*d\n", KUBE_NAME_MAX, 0);
    const struct {
        const char *text, *says;
    } rows[] = {
        {"kind: Policy\n", "kind"},
        {"", "kind"},
        {"- a\n", "kind"},
        {"{", "line"},
        {HEAD "profiles: {a: b}\n", "list"},
        {buf_str(&many), "more than"},
        {buf_str(&long_name), "longer"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct profiles p = {.n = 7};
        struct err err;
        assert_true(profiles_parse(rows[i].text, strlen(rows[i].text), &p, &err) < 0);
        if (!strstr(err.text, rows[i].says))
            fail_msg("%.60s: %s", rows[i].text, err.text);
        assert_int_equal(p.n, 7);
    }
}

static void test_the_file_is_named(void **state) {
    (void) state;
    struct profiles p;
    struct err err;
    assert_int_equal(profiles_read("/nonexistent/file", &p, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_in_the_order_of_the_file),
        cmocka_unit_test(test_what_is_no_configuration),
        cmocka_unit_test(test_the_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
