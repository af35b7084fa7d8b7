/* SPDX-License-Identifier: Apache-2.0 */

/* Which ResourceClaimTemplates aliquot-scheduler has made, and which only look so. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kube/objects/claim_template.h"

#define NAME "aliquot-native-core-30"

static bool is_made(const char *name, const char *maker, const char *request) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;
    char text[512];

    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"name\":\"%s\",\"labels\":{\"gpu.elasticgpu.io/made-by\":"
                    "\"%s\"}},\"spec\":{\"metadata\":{\"annotations\":{"
                    "\"gpu.elasticgpu.io/request\":\"%s\"}}}}",
                    name, maker, request);
    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    return claim_template_is_made(root);
}

static void copies_are_of_users(void **state) {
    (void) state;
    assert_true(is_made(NAME, "aliquot-scheduler", NAME));
    assert_false(is_made("mine", "aliquot-scheduler", NAME));
    assert_false(is_made("mine", "aliquot-scheduler", "mine"));
    assert_false(is_made("aliquot-native-core-40", "aliquot-scheduler", NAME));
    assert_false(is_made(NAME, "mine", NAME));
    assert_false(is_made(NAME, "aliquot-scheduler", ""));
    assert_false(claim_template_is_made((struct json){0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_of_users),
    };

    return cmocka_run_group_tests_name("claim-template", tests, NULL, NULL);
}
