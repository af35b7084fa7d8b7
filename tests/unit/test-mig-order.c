/* SPDX-License-Identifier: Apache-2.0 */

/* Orders of MIG instances: what the agent makes of one, and both texts. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "mig/order.h"

static const struct {
    const char *name;
    uint32_t size, most, starts;
} profiles[] = {
    {"1g.10gb", 1, 7, 0x7f}, {"1g.10gb+me", 1, 1, 0x7f}, {"2g.20gb", 2, 3, 0x15},
    {"3g.40gb", 4, 2, 0x11}, {"7g.80gb", 8, 1, 0x01},
};

static struct mig_place place(const char *name, uint32_t start) {
    struct mig_place p = {.start = start};

    assert_int_equal(mig_name_parse(name, &p.name, NULL), 0);
    return p;
}

static void fill(struct mig_card *card) {
    *card = (struct mig_card){.capable = true, .enabled = true};
    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
        card->profiles[card->nprofiles++] =
            (struct mig_card_profile){.name = place(profiles[i].name, 0).name,
                                      .size = profiles[i].size,
                                      .most = profiles[i].most,
                                      .starts = profiles[i].starts,
                                      .engines = {i == 1, 0, 0, 0}};
}

static void add(struct mig_card *card, const char *name, uint32_t start, bool used) {
    const struct mig_name parsed = place(name, start).name;
    const struct mig_card_profile *p = mig_card_find(card, &parsed);

    card->instances[card->ninstances++] =
        (struct mig_instance){.profile = (uint32_t) (p - card->profiles),
                              .start = start,
                              .ncompute = 1,
                              .compute = {{.slices = parsed.slices}},
                              .in_use = used};
}

static void order(struct mig_order *o, const char *name, uint32_t start, bool withdrawn) {
    o->list[o->n++] =
        (struct mig_ordered){.place = place(name, start), .owner = "uid", .withdrawn = withdrawn};
}

/* "1g.10gb@6 3g.40gb@0" */
static const char *tell_want(const struct mig_card *card, const struct mig_want *want) {
    static char text[512];
    char name[MIG_PROFILE_NAME_MAX];
    size_t n = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < want->n; i++)
        n += (size_t) snprintf(
            text + n, sizeof(text) - n, "%s%s@%u", i ? " " : "",
            mig_name_format(&card->profiles[want->instances[i].profile].name, name),
            want->instances[i].start);
    return text;
}

static const char *carry_out(const struct mig_order *o, struct mig_report *report) {
    struct mig_edit edit;
    struct mig_want want;

    if (!mig_order_edit(o, report, &edit))
        return "";
    assert_int_equal(mig_want_edit(&report->card, &edit, &want, NULL), 0);
    return tell_want(&report->card, &want);
}

/* ---- the order ---- */

static void test_what_is_there_stays(void **state) {
    struct mig_report report = {0};
    struct mig_order o = {0};
    (void) state;

    fill(&report.card);
    add(&report.card, "2g.20gb", 4, false); /* of an administrator */
    add(&report.card, "1g.10gb", 6, true);
    assert_string_equal(carry_out(&o, &report), "");
    order(&o, "1g.10gb", 6, false);
    assert_string_equal(carry_out(&o, &report), "");
    order(&o, "3g.40gb", 0, false);
    assert_string_equal(carry_out(&o, &report), "2g.20gb@4 1g.10gb@6 3g.40gb@0");
    assert_int_equal(report.nfailures, 0);
    /* One that its pod needs no more is not made again. */
    o.list[1].owner[0] = 0;
    assert_string_equal(carry_out(&o, &report), "");
}

static void test_withdrawn_goes_when_idle(void **state) {
    struct mig_report report = {0};
    struct mig_order o = {0};
    (void) state;

    fill(&report.card);
    add(&report.card, "1g.10gb", 0, true);
    add(&report.card, "1g.10gb", 4, false);
    order(&o, "1g.10gb", 0, true);
    order(&o, "1g.10gb", 4, true);
    order(&o, "2g.20gb", 4, false);
    assert_string_equal(carry_out(&o, &report), "1g.10gb@0 2g.20gb@4");
    /* In the place of the one that is in use nothing is made, and the rest is. */
    order(&o, "1g.10gb+me", 0, false);
    assert_string_equal(carry_out(&o, &report), "1g.10gb@0 2g.20gb@4");
    assert_int_equal(report.nfailures, 1);
    assert_string_equal(report.failures[0].cause, "no room for 1g.10gb+me at 0: 1g.10gb is at 0");
    report.card.instances[0].in_use = false;
    assert_string_equal(carry_out(&o, &report), "2g.20gb@4 1g.10gb+me@0");
    assert_int_equal(report.nfailures, 0);
}

static void test_what_the_card_cannot_have(void **state) {
    struct mig_report report = {0};
    struct mig_order o = {0};
    (void) state;

    fill(&report.card);
    order(&o, "2g.20gb", 1, false);
    order(&o, "4g.40gb", 0, false);
    order(&o, "1g.10gb+me", 0, false);
    order(&o, "1g.10gb+me", 1, false);
    assert_string_equal(carry_out(&o, &report), "1g.10gb+me@0");
    assert_int_equal(report.nfailures, 3);
    assert_string_equal(report.failures[0].cause, "the card can have no 2g.20gb at 1");
    assert_string_equal(report.failures[1].cause, "the card can have no 4g.40gb at 0");
    assert_string_equal(report.failures[2].cause, "a card can have 1 instances of 1g.10gb+me");
}

/* An instance that is divided further is not the one that was ordered. */
static void test_parts_are_not_whole(void **state) {
    struct mig_report report = {0};
    struct mig_order o = {0};
    (void) state;

    fill(&report.card);
    add(&report.card, "3g.40gb", 4, false);
    report.card.instances[0].ncompute = 2;
    report.card.instances[0].compute[0].slices = 1;
    report.card.instances[0].compute[1].slices = 2;
    order(&o, "3g.40gb", 4, true);
    assert_string_equal(carry_out(&o, &report), "");
    o.list[0].withdrawn = false;
    assert_string_equal(carry_out(&o, &report), "");
    assert_int_equal(report.nfailures, 1);
}

/* ---- texts ---- */

static void test_order_as_text(void **state) {
    static const char text[] =
        "{\"serial\":7,\"instances\":[{\"profile\":\"1g.10gb+me\",\"start\":6,\"for\":\"u-1\"},"
        "{\"profile\":\"3g.40gb\",\"start\":0,\"withdrawn\":true}]}";
    _cleanup_buf_ struct buf out = BUF_INIT(MIG_ORDER_TEXT_MAX);
    struct mig_order o;
    (void) state;

    assert_int_equal(mig_order_parse(text, strlen(text), &o, NULL), 0);
    assert_int_equal(o.n, 2);
    assert_int_equal(o.serial, 7);
    assert_string_equal(o.list[0].owner, "u-1");
    assert_true(o.list[1].withdrawn);
    mig_order_encode(&o, &out);
    assert_string_equal(buf_str(&out), text);
    assert_false(o.mps);
    assert_int_equal(mig_order_parse("", 0, &o, NULL), 0);
    assert_int_equal(o.n, 0);
}

static void test_an_order_of_mps(void **state) {
    static const char text[] = "{\"serial\":3,\"mps\":true,\"instances\":[]}";
    _cleanup_buf_ struct buf out = BUF_INIT(0), patch = BUF_INIT(0);
    struct mig_order o;

    (void) state;
    assert_int_equal(mig_order_parse(text, strlen(text), &o, NULL), 0);
    assert_true(o.mps && o.n == 0 && o.serial == 3);
    mig_order_encode(&o, &out);
    assert_string_equal(buf_str(&out), text);
    mig_order_patch("12", "{}", &patch);
    assert_string_equal(
        buf_str(&patch),
        "{\"metadata\":{\"resourceVersion\":\"12\",\"annotations\":{\"" MIG_ORDER_ANNOTATION
        "\":\"{}\"}}}");
}

static void test_bad_orders(void **state) {
    static const char *const bad[] = {
        "[",
        "{}",
        "{\"serial\":-1}",
        "{\"serial\":1,\"instances\":[{}]}",
        "{\"serial\":1,\"instances\":[{\"profile\":\"1c.3g.40gb\",\"start\":0}]}",
        "{\"serial\":1,\"instances\":[{\"profile\":\"1g.10gb\",\"start\":32}]}",
        "{\"serial\":1,\"instances\":[{\"profile\":\"1g.10gb\",\"start\":0},"
        "{\"profile\":\"1g.10gb\",\"start\":0}]}",
    };
    struct mig_order o;
    struct err err;
    (void) state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_true(mig_order_parse(bad[i], strlen(bad[i]), &o, &err) < 0);
}

static void test_report_as_text(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT(65536), again = BUF_INIT(65536);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct mig_report report = {.observed = 4}, read;
    struct json_writer w = {.out = &out};
    struct json root;
    (void) state;

    fill(&report.card);
    add(&report.card, "3g.40gb", 4, true);
    add(&report.card, "1g.10gb", 2, false);
    report.nfailures = 1;
    report.failures[0] = (struct mig_failure){.place = place("7g.80gb", 0), .cause = "in use"};
    mig_report_encode(&report, &w, NULL);
    assert_int_equal(json_open(buf_str(&out), out.len, &parser, &root, NULL), 0);
    assert_int_equal(mig_report_parse(root, &read, NULL), 0);
    assert_int_equal(read.card.nprofiles, report.card.nprofiles);
    assert_memory_equal(read.card.profiles, report.card.profiles, sizeof(read.card.profiles));
    assert_memory_equal(read.card.instances, report.card.instances, sizeof(read.card.instances));
    w = (struct json_writer){.out = &again};
    mig_report_encode(&read, &w, NULL);
    assert_string_equal(buf_str(&again), buf_str(&out));
}

static void test_bad_reports(void **state) {
    static const char *const bad[] = {
        "[]",
        "{\"profiles\":[{\"profile\":\"1g.10gb\",\"size\":0,\"most\":1}]}",
        "{\"profiles\":[{\"profile\":\"1g.10gb\",\"size\":2,\"most\":1,\"starts\":[31]}]}",
        "{\"instances\":[{\"profile\":\"1g.10gb\",\"start\":0}]}",
        "{\"failed\":[{\"start\":0}]}",
    };
    (void) state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        _cleanup_json_ struct json_parser *parser = NULL;
        struct mig_report report;
        struct json root;
        struct err err;

        assert_int_equal(json_open(bad[i], strlen(bad[i]), &parser, &root, NULL), 0);
        assert_int_equal(mig_report_parse(root, &report, &err), -EINVAL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_there_stays),
        cmocka_unit_test(test_withdrawn_goes_when_idle),
        cmocka_unit_test(test_what_the_card_cannot_have),
        cmocka_unit_test(test_parts_are_not_whole),
        cmocka_unit_test(test_order_as_text),
        cmocka_unit_test(test_an_order_of_mps),
        cmocka_unit_test(test_bad_orders),
        cmocka_unit_test(test_report_as_text),
        cmocka_unit_test(test_bad_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
