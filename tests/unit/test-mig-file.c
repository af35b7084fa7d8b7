/* SPDX-License-Identifier: Apache-2.0 */

/* mig-parted's file: what is read, what is refused and where, and the files that are made. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "mig/generate.h"

#define A100 0x20B010DEu
#define A30 0x20B710DEu

static const char good[] = "version: v1\n"
                           "mig-configs:\n"
                           "  all-disabled:\n"
                           "  - devices: all\n"
                           "    mig-enabled: false\n"
                           "  custom:\n"
                           "  - devices: all\n"
                           "    mig-enabled: true\n"
                           "    mig-devices: {}\n"
                           "  - device-filter: [\"0x20B010DE\", \"0x20B110DE:0x144E10DE\"]\n"
                           "    devices: [1, 2]\n"
                           "    mig-enabled: true\n"
                           "    mig-devices:\n"
                           "      \"1g.5gb\": 2\n"
                           "      \"1c.2g.10gb\": 0\n"
                           "      \"3g.20gb\": 1\n"
                           "  - device-filter: \"0x20b710de\"\n"
                           "    devices: [2]\n"
                           "    mig-enabled: false\n";

static void test_a_file(void **state) {
    _cleanup_mig_file_ struct mig_file file = {0};
    const struct mig_spec *first;
    char name[MIG_PROFILE_NAME_MAX];
    struct err err;
    (void) state;

    assert_int_equal(mig_file_parse(good, sizeof(good) - 1, &file, &err), 0);
    assert_int_equal(file.nspecs, 4);
    assert_null(mig_file_select(&file, "", &err));
    assert_non_null(strstr(err.text, "all-disabled, custom"));
    assert_null(mig_file_select(&file, "nonsense", &err));
    assert_non_null(strstr(err.text, "'nonsense'; there are: all-disabled, custom"));
    first = mig_file_select(&file, "custom", &err);
    assert_ptr_equal(first, &file.specs[1]);
    /* The last entry that is for a card counts. */
    assert_ptr_equal(mig_file_match(&file, first, 0, (struct mig_pci){A100, 0}), first);
    assert_ptr_equal(mig_file_match(&file, first, 1, (struct mig_pci){A100, 7}), first + 1);
    assert_ptr_equal(mig_file_match(&file, first, 2, (struct mig_pci){A30, 0}), first + 2);
    assert_ptr_equal(mig_file_match(&file, first, 1, (struct mig_pci){0x20B110DE, 0x144E10DE}),
                     first + 1);
    assert_ptr_equal(mig_file_match(&file, first, 1, (struct mig_pci){0x20B110DE, 1}), first);
    assert_int_equal(first[1].ndevices, 3);
    assert_string_equal(mig_name_format(&first[1].devices[2].name, name), "3g.20gb");
    first = mig_file_select(&file, "all-disabled", &err);
    assert_false(first->enabled);
}

#define HEAD "version: v1\nmig-configs:\n  c:\n  - "

static void test_refused(void **state) {
    static const struct {
        const char *text, *cause;
    } bad[] = {
        {"", "version"},
        {"[]", "version"},
        {"version: v1\n", "mig-configs"},
        {"mig-configs: {c: [{devices: all, mig-enabled: false}]}\n", "version"},
        {"version: v2\nmig-configs: {c: [{devices: all, mig-enabled: false}]}\n", "version"},
        {"version: v1\nmig-configs: {}\n", "line 2"},
        {"version: v1\nmig-configs: {c: []}\n", "line 2"},
        {"version: v1\nmig-configs: {c: {}}\n", "line 2"},
        {"version: v1\nmig-configs: {c: [{devices: all, mig-enabled: false}]}\nmore: 1\n", "more"},
        {HEAD "{mig-enabled: false}\n", "devices"},
        {HEAD "{devices: all}\n", "mig-enabled"},
        {HEAD "{devices: all, mig-enabled: false, mig-device: {}}\n", "mig-device"},
        {HEAD "{devices: some, mig-enabled: false}\n", "all"},
        {HEAD "{devices: 0, mig-enabled: false}\n", "all"},
        {HEAD "{devices: [\"0\"], mig-enabled: false}\n", "index"},
        {HEAD "{devices: [-1], mig-enabled: false}\n", "-1"},
        {HEAD "{devices: all, mig-enabled: 1}\n", "mig-enabled"},
        {HEAD "{devices: all, mig-enabled: true}\n", "mig-devices is required"},
        {HEAD "{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}\n", "false"},
        {HEAD "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}\n", "all counts are 0"},
        {HEAD "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}\n", "-1"},
        {HEAD "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: \"1\"}}\n", "number"},
        {HEAD "{devices: all, mig-enabled: true, mig-devices: {1g: 1}}\n", "'1g' is no MIG device"},
        {HEAD "{devices: all, mig-enabled: true, mig-devices: [1g.5gb]}\n", "map"},
        {HEAD "{devices: all, mig-enabled: false, device-filter: 5}\n", "quotes"},
        {HEAD "{devices: all, mig-enabled: false, device-filter: A100}\n", "PCI id"},
        {HEAD "{devices: all, mig-enabled: false, device-filter: [\"0x20B010DE:\"]}\n", "PCI id"},
    };
    struct mig_file file = {0};
    struct err err;
    (void) state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (mig_file_parse(bad[i].text, strlen(bad[i].text), &file, &err) >= 0)
            fail_msg("accepted: %s", bad[i].text);
        if (!strstr(err.text, bad[i].cause))
            fail_msg("%s: %s", bad[i].text, err.text);
        assert_null(file.specs);
    }
}

/* ---- files that are made ---- */

static void add(struct mig_card *card, const char *name, uint32_t most, uint32_t starts,
                uint32_t size) {
    struct mig_card_profile *p = &card->profiles[card->nprofiles++];

    *p = (struct mig_card_profile){
        .id = card->nprofiles, .most = most, .starts = starts, .size = size};
    assert_int_equal(mig_name_parse(name, &p->name, NULL), 0);
}

static void put(struct mig_card *card, uint32_t profile, uint32_t start, uint32_t compute) {
    struct mig_instance *gi = &card->instances[card->ninstances++];

    *gi = (struct mig_instance){.profile = profile, .start = start, .ncompute = 1};
    gi->compute[0].slices = compute;
}

static void fill(struct mig_card *a100, struct mig_card *a30) {
    *a100 = (struct mig_card){.capable = true, .enabled = true};
    add(a100, "1g.5gb", 7, 0x7f, 1);
    add(a100, "1g.5gb+me", 1, 0x7f, 1);
    add(a100, "1g.10gb", 4, 0x55, 2);
    add(a100, "2g.10gb", 3, 0x15, 2);
    add(a100, "3g.20gb", 2, 0x11, 4);
    add(a100, "4g.20gb", 1, 0x01, 4);
    add(a100, "7g.40gb", 1, 0x01, 8);
    *a30 = (struct mig_card){.capable = true};
    add(a30, "1g.6gb", 4, 0x0f, 1);
    add(a30, "2g.12gb", 3, 0x05, 2); /* the driver's number is wrong */
    add(a30, "4g.24gb", 1, 0x01, 4);
}

/* In the order of mig-parted: digits count as numbers. */
static const char generated[] = "version: v1\n"
                                "mig-configs:\n"
                                "  all-1g.5gb:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices:\n"
                                "      1g.5gb: 7\n"
                                "  all-1g.5gb.me:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices:\n"
                                "      1g.5gb+me: 1\n"
                                "  all-1g.10gb:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices:\n"
                                "      1g.10gb: 4\n"
                                "  all-2g.10gb:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices:\n"
                                "      2g.10gb: 3\n"
                                "  all-3g.20gb:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices:\n"
                                "      3g.20gb: 2\n"
                                "  all-4g.20gb:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices:\n"
                                "      4g.20gb: 1\n"
                                "  all-7g.40gb:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices:\n"
                                "      7g.40gb: 1\n"
                                "  all-balanced:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices:\n"
                                "      1g.5gb: 2\n"
                                "      2g.10gb: 1\n"
                                "      3g.20gb: 1\n"
                                "  all-disabled:\n"
                                "  - devices: all\n"
                                "    mig-enabled: false\n"
                                "    mig-devices: {}\n"
                                "  all-enabled:\n"
                                "  - devices: all\n"
                                "    mig-enabled: true\n"
                                "    mig-devices: {}\n";

static void test_generated_for_one_model(void **state) {
    static struct mig_card a100, a30;
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    _cleanup_mig_file_ struct mig_file file = {0}, again = {0};
    (void) state;

    fill(&a100, &a30);
    const struct mig_machine_card cards[] = {{&a100, 0, {A100, 0}}, {&a100, 1, {A100, 0}}};
    assert_int_equal(mig_generate(cards, 2, &file, NULL), 0);
    mig_file_write_yaml(&file, &text);
    assert_string_equal(buf_str(&text), generated);
    assert_int_equal(mig_file_parse(text.data, text.len, &again, NULL), 0);
    assert_int_equal(again.nspecs, file.nspecs);
}

/* Each model is named by its id, and those with other numbers have entries of their own. */
static void test_generated_for_two_models(void **state) {
    static struct mig_card a100, a30;
    _cleanup_mig_file_ struct mig_file file = {0};
    const struct mig_spec *s;
    struct err err;
    (void) state;

    fill(&a100, &a30);
    add(&a30, "1g.5gb", 4, 0x0f, 1);
    const struct mig_machine_card cards[] = {{&a100, 0, {A100, 0}}, {&a30, 1, {A30, 0}}};
    assert_int_equal(mig_generate(cards, 2, &file, NULL), 0);
    s = mig_file_select(&file, "all-1g.5gb", &err);
    assert_int_equal(mig_file_match(&file, s, 0, cards[0].pci)->devices[0].count, 7);
    assert_int_equal(mig_file_match(&file, s, 1, cards[1].pci)->devices[0].count, 4);
    s = mig_file_select(&file, "all-2g.12gb", &err);
    assert_int_equal(s->devices[0].count, 2);
    assert_null(mig_file_match(&file, s, 0, cards[0].pci));
    s = mig_file_select(&file, "all-balanced", &err);
    assert_int_equal(mig_file_match(&file, s, 0, cards[0].pci)->ndevices, 3);
    assert_int_equal(mig_file_match(&file, s, 1, cards[1].pci)->ndevices, 2);
    s = mig_file_select(&file, "all-disabled", &err);
    assert_int_equal(s->nfilters, 0);
}

static void test_exported(void **state) {
    static struct mig_card a100, other, whole, a30;
    char longest[MIG_CONFIG_NAME_MAX + 1] = "";
    _cleanup_buf_ struct buf text = BUF_INIT(65536), json = BUF_INIT(65536);
    _cleanup_mig_file_ struct mig_file file = {0}, one = {0};
    (void) state;

    fill(&a100, &a30);
    other = a100;
    whole = a100;
    whole.enabled = false;
    put(&a100, 4, 0, 3);
    put(&a100, 0, 4, 1);
    put(&a100, 0, 5, 1);
    put(&a100, 3, 6, 1); /* 1c.2g.10gb */
    put(&other, 0, 6, 1);
    put(&other, 3, 4, 1);
    put(&other, 0, 2, 1);
    put(&other, 4, 0, 3);
    const struct mig_machine_card cards[] = {
        {&a100, 0, {A100, 1}}, {&whole, 1, {A100, 1}}, {&other, 2, {A100, 1}}, {&a30, 3, {A30, 1}}};
    assert_int_equal(mig_export(cards, 4, "current", &file, NULL), 0);
    mig_file_write_yaml(&file, &text);
    assert_string_equal(buf_str(&text), "version: v1\n"
                                        "mig-configs:\n"
                                        "  current:\n"
                                        "  - device-filter: \"0x20B010DE\"\n"
                                        "    devices: [0, 2]\n"
                                        "    mig-enabled: true\n"
                                        "    mig-devices:\n"
                                        "      1c.2g.10gb: 1\n"
                                        "      1g.5gb: 2\n"
                                        "      3g.20gb: 1\n"
                                        "  - device-filter: [\"0x20B010DE\", \"0x20B710DE\"]\n"
                                        "    devices: [1, 3]\n"
                                        "    mig-enabled: false\n"
                                        "    mig-devices: {}\n");
    memset(longest, 'x', sizeof(longest) - 1);
    assert_int_equal(mig_export(cards + 3, 1, longest, &one, NULL), -EINVAL);
    assert_int_equal(mig_export(cards + 3, 1, "", &one, NULL), -EINVAL);
    longest[MIG_CONFIG_NAME_MAX - 1] = 0;
    assert_int_equal(mig_export(cards + 3, 1, longest, &one, NULL), 0);
    assert_string_equal(one.specs[0].config, longest);
    mig_file_done(&one);
    assert_int_equal(mig_export(cards + 3, 1, "x", &one, NULL), 0);
    mig_file_write_json(&one, &json);
    assert_string_equal(buf_str(&json),
                        "{\"version\":\"v1\",\"mig-configs\":{\"x\":[{\"devices\":\"all\","
                        "\"mig-enabled\":false,\"mig-devices\":{}}]}}");
}

static void test_two_names_of_the_same_devices(void **state) {
    static const char text[] = HEAD "{devices: all, mig-enabled: true, mig-devices: "
                                    "{3g.20gb: 1, 1g.5gb: 1, 3c.3g.20gb: 1}}\n";
    _cleanup_mig_file_ struct mig_file file = {0};
    (void) state;

    assert_int_equal(mig_file_parse(text, strlen(text), &file, NULL), 0);
    assert_int_equal(file.specs[0].ndevices, 2);
    assert_int_equal(file.specs[0].devices[0].count, 2);
    assert_int_equal(file.specs[0].devices[1].count, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_generated_for_one_model),
        cmocka_unit_test(test_generated_for_two_models),
        cmocka_unit_test(test_exported),
        cmocka_unit_test(test_two_names_of_the_same_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
