/* SPDX-License-Identifier: Apache-2.0 */

/* The catalogue of XIDs, and the rules that depart from it. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/xid.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

static void expect_resolution(enum xid_resolution resolution, const uint32_t *codes, size_t n,
                              size_t *total) {
    for (size_t i = 0; i < n; i++) {
        const struct xid *x = xid_find(codes[i]);

        assert_non_null(x);
        assert_int_equal(x->resolution, resolution);
    }
    *total += n;
}

/* Against the lists as NVIDIA publishes them, and not one code more. */
static void test_catalogue(void **state) {
    static const uint32_t restart[] = {8,   11,  13,  25,  31,  32,  39,  40,  41,  60,  68,  69,
                                       70,  71,  72,  75,  76,  77,  80,  82,  83,  84,  85,  86,
                                       88,  89,  94,  96,  97,  98,  99,  100, 101, 102, 103, 104,
                                       105, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139};
    static const uint32_t ignore[] = {37,  38,  43,  44,  63,  66,  67,  92,  93, 106,
                                      107, 121, 137, 141, 152, 153, 157, 160, 161};
    static const uint32_t reset[] = {46,  62,  64,  95,  109, 110, 119,
                                     120, 136, 140, 143, 155, 156, 158};
    static const uint32_t nvlink5[] = {144, 145, 146, 147, 148, 149, 150};
    static const uint32_t open[] = {162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172};
    static const struct {
        enum xid_resolution resolution;
        uint32_t code;
    } single[] = {{XID_RESOLUTION_RESTART_BM, 79},          {XID_RESOLUTION_RESTART_VM, 151},
                  {XID_RESOLUTION_CHECK_MECHANICALS, 54},   {XID_RESOLUTION_UPDATE_SWFW, 78},
                  {XID_RESOLUTION_CONTACT_SUPPORT, 142},    {XID_RESOLUTION_CHECK_UVM, 159},
                  {XID_RESOLUTION_WORKFLOW_XID_45, 45},     {XID_RESOLUTION_WORKFLOW_XID_48, 48},
                  {XID_RESOLUTION_WORKFLOW_NVLINK_ERR, 74}, {XID_RESOLUTION_XID_154_EVAL, 154}};
    size_t total = 0, rows = 0;

    (void) state;
    expect_resolution(XID_RESOLUTION_RESTART_APP, restart, N(restart), &total);
    expect_resolution(XID_RESOLUTION_IGNORE, ignore, N(ignore), &total);
    expect_resolution(XID_RESOLUTION_RESET_GPU, reset, N(reset), &total);
    expect_resolution(XID_RESOLUTION_WORKFLOW_NVLINK5_ERR, nvlink5, N(nvlink5), &total);
    expect_resolution(XID_RESOLUTION_UNRESOLVED, open, N(open), &total);
    for (size_t i = 0; i < N(single); i++)
        expect_resolution(single[i].resolution, &single[i].code, 1, &total);
    for (; xid_at(rows); rows++)
        assert_true(rows == 0 || xid_at(rows - 1)->code < xid_at(rows)->code);
    assert_int_equal(rows, total);
    assert_null(xid_find(0));
    assert_null(xid_find(999));
}

static enum xid_action by_catalogue(uint32_t code) {
    static const struct xid_rules none;

    return xid_action(&none, code);
}

static void test_actions(void **state) {
    static const uint32_t out[] = {46,  48,  54,  62,  64,  74,  79,  95,  109, 110,
                                   119, 120, 136, 140, 142, 143, 151, 155, 156, 158};
    size_t n = 0;

    (void) state;
    for (size_t i = 0; i < N(out); i++)
        assert_int_equal(by_catalogue(out[i]), XID_TAKE_OUT);
    for (uint32_t code = 0; code < 2000; code++)
        n += by_catalogue(code) == XID_TAKE_OUT;
    assert_int_equal(n, N(out));
    assert_int_equal(by_catalogue(13), XID_NONE);
    assert_int_equal(by_catalogue(45), XID_NONE);
    assert_int_equal(by_catalogue(94), XID_NONE);
    assert_int_equal(by_catalogue(146), XID_EVALUATE);
    assert_int_equal(by_catalogue(154), XID_EVALUATE);
    assert_int_equal(by_catalogue(999), XID_NONE);
    assert_true(xid_reset_helps(48));
    assert_true(xid_reset_helps(999));
    assert_false(xid_reset_helps(79));
    assert_false(xid_reset_helps(142));
    assert_false(xid_reset_helps(151));
    assert_false(xid_reset_helps(54));
}

static void test_texts(void **state) {
    char text[160], cut[16];

    (void) state;
    xid_describe(48, text, sizeof(text));
    assert_string_equal(text, "XID 48 (double-bit ECC error): the card needs a reset");
    xid_describe(7, text, sizeof(text));
    assert_string_equal(text, "XID 7, which is not in the catalogue");
    xid_describe(48, cut, sizeof(cut));
    assert_string_equal(cut, "XID 48 (double-");
    assert_string_equal(xid_resolution_name(XID_RESOLUTION_RESTART_BM), "RESTART_BM");
    for (size_t i = 0; xid_at(i); i++) {
        assert_true(strlen(xid_at(i)->text) > 0);
        assert_true(strlen(xid_remedy(xid_at(i)->resolution)) > 0);
    }
}

static void test_sets(void **state) {
    struct xid_set set = {0};

    (void) state;
    assert_int_equal(xid_set_add(&set, 63), 0);
    assert_int_equal(xid_set_add(&set, 64), 0);
    assert_int_equal(xid_set_add(&set, XID_CODES_MAX - 1), 0);
    assert_int_equal(xid_set_add(&set, XID_CODES_MAX), -ERANGE);
    assert_true(xid_set_has(&set, 63) && xid_set_has(&set, 64));
    assert_true(xid_set_has(&set, XID_CODES_MAX - 1));
    assert_false(xid_set_has(&set, 62) || xid_set_has(&set, 65));
    assert_false(xid_set_has(&set, XID_CODES_MAX));
}

/* ---- DP_DISABLE_HEALTHCHECKS, DP_ENABLE_HEALTHCHECKS ---- */

enum { N0 = XID_NONE, EV = XID_EVALUATE, OUT = XID_TAKE_OUT };

static void test_variables(void **state) {
    static const struct {
        const char *disable, *enable;
        int of_48, of_94, of_13, of_154, of_999;
        size_t bad;
        const char *first_bad;
    } cases[] = {
        {NULL, NULL, OUT, N0, N0, EV, N0, 0, ""},
        {"", "", OUT, N0, N0, EV, N0, 0, ""},
        {"48", NULL, N0, N0, N0, EV, N0, 0, ""},
        {" 48 ,\t94,", NULL, N0, N0, N0, EV, N0, 0, ""},
        {"154", NULL, OUT, N0, N0, N0, N0, 0, ""},
        /* All of them, in each form. */
        {"all", NULL, N0, N0, N0, N0, N0, 0, ""},
        {"xids", NULL, N0, N0, N0, N0, N0, 0, ""},
        {"ALL", NULL, N0, N0, N0, N0, N0, 0, ""},
        {"0", NULL, N0, N0, N0, N0, N0, 0, ""},
        {"94, Xids", NULL, N0, N0, N0, N0, N0, 0, ""},
        /* No checks at all, whatever number is enabled. */
        {"all", "48", N0, N0, N0, N0, N0, 0, ""},
        {"all", "all", OUT, OUT, OUT, OUT, OUT, 0, ""},
        {NULL, "all", OUT, OUT, OUT, OUT, OUT, 0, ""},
        {"48", "13,xids", OUT, OUT, OUT, OUT, OUT, 0, ""},
        {NULL, "0", OUT, OUT, OUT, OUT, OUT, 0, ""},
        /* Enabled wins. */
        {"94,48", "94", N0, OUT, N0, EV, N0, 0, ""},
        {NULL, "13,999", OUT, N0, OUT, EV, OUT, 0, ""},
        /* What is no number is left out, and the rest counts. */
        {"+48,-1,48x,,94 94", "0x30", OUT, N0, N0, EV, N0, 5, "+48"},
        {"nonsense,48", NULL, N0, N0, N0, EV, N0, 1, "nonsense"},
        {"18446744073709551615", NULL, OUT, N0, N0, EV, N0, 0, ""},
        {"18446744073709551616", NULL, OUT, N0, N0, EV, N0, 1, "18446744073709551616"},
        {"alll", "al", OUT, N0, N0, EV, N0, 2, "alll"},
        {NULL, "a-text-that-is-longer-than-the-buffer", OUT, N0, N0, EV, N0, 1,
         "a-text-that-is-longer-than-the-"},
    };

    (void) state;
    for (size_t i = 0; i < N(cases); i++) {
        struct xid_rules rules;
        char bad[32];

        assert_int_equal(xid_rules_read(cases[i].disable, cases[i].enable, &rules, bad),
                         cases[i].bad);
        assert_string_equal(bad, cases[i].first_bad);
        assert_int_equal(xid_action(&rules, 48), cases[i].of_48);
        assert_int_equal(xid_action(&rules, 94), cases[i].of_94);
        assert_int_equal(xid_action(&rules, 13), cases[i].of_13);
        assert_int_equal(xid_action(&rules, 154), cases[i].of_154);
        assert_int_equal(xid_action(&rules, 999), cases[i].of_999);
    }
}

static void test_override(void **state) {
    struct xid_rules file = {0}, over;
    char bad[32];

    (void) state;
    assert_int_equal(xid_set_add(&file.fatal, 45), 0);
    assert_int_equal(xid_set_add(&file.fatal, 94), 0);
    assert_int_equal(xid_set_add(&file.ignored, 48), 0);
    assert_int_equal(xid_set_add(&file.ignored, 79), 0);
    assert_int_equal(xid_action(&file, 45), XID_TAKE_OUT);
    assert_int_equal(xid_action(&file, 48), XID_NONE);
    (void) xid_rules_read("94", "48", &over, bad);
    xid_rules_override(&file, &over);
    assert_int_equal(xid_action(&file, 45), XID_TAKE_OUT);
    assert_int_equal(xid_action(&file, 94), XID_NONE);
    assert_int_equal(xid_action(&file, 48), XID_TAKE_OUT);
    assert_int_equal(xid_action(&file, 79), XID_NONE);
    (void) xid_rules_read("all", NULL, &over, bad);
    xid_rules_override(&file, &over);
    assert_int_equal(xid_action(&file, 45), XID_NONE);
    (void) xid_rules_read(NULL, "all", &over, bad);
    xid_rules_override(&file, &over);
    assert_int_equal(xid_action(&file, 79), XID_TAKE_OUT);
    (void) xid_rules_read("all", NULL, &over, bad);
    xid_rules_override(&file, &over);
    assert_int_equal(xid_action(&file, 48), XID_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalogue), cmocka_unit_test(test_actions),
        cmocka_unit_test(test_texts),     cmocka_unit_test(test_sets),
        cmocka_unit_test(test_variables), cmocka_unit_test(test_override),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
