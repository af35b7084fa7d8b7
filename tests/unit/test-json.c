/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "wire/json.h"
#include "wire/json_fields.h"
#include "wire/json_write.h"

static int setup(void **state) {
    *state = json_parser_new();
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    *state = json_parser_free(*state);
    return 0;
}

static struct json parse(void **state, const char *text) {
    struct json root;
    struct err err = {0};
    if (json_parse(*state, text, strlen(text), &root, &err) < 0)
        fail_msg("%s", err.text);
    return root;
}

static void test_look_up(void **state) {
    struct json root = parse(state, "{\"a\":{\"b\":[1,-2,\"x\",true,null,1.5]},\"Name\":\"n\"}");
    assert_int_equal(json_type(root), JSON_OBJECT);
    assert_int_equal(json_size(root), 2);
    assert_string_equal(json_string(json_get_nocase(root, "NAME")), "n");
    assert_null(json_string(json_get(root, "NAME")));

    struct json list = JSON_PATH(root, "a", "b");
    assert_int_equal(json_size(list), 6);
    struct json_iter it = json_iter(list);
    struct json item;
    uint64_t u = 7;
    int64_t i = 7;
    bool b = false;
    assert_true(json_next(&it, NULL, &item) && json_u64(item, &u) && u == 1);
    assert_true(json_next(&it, NULL, &item) && !json_u64(item, &u) && json_i64(item, &i));
    assert_int_equal(i, -2);
    assert_true(json_next(&it, NULL, &item));
    assert_string_equal(json_string(item), "x");
    assert_true(json_next(&it, NULL, &item) && json_bool(item, &b) && b);
    assert_true(json_next(&it, NULL, &item));
    assert_int_equal(json_type(item), JSON_NULL);
    assert_true(json_next(&it, NULL, &item) && !json_u64(item, &u));
    assert_false(json_next(&it, NULL, &item));
}

static void test_compare_and_find(void **state) {
    struct json root = parse(state, "{\"list\":[7,{\"type\":1},{\"type\":\"A\",\"n\":1},"
                                    "{\"type\":\"B\",\"n\":2},{\"type\":\"B\",\"n\":3}],"
                                    "\"map\":{\"x\":{\"type\":\"A\"}},"
                                    "\"texts\":[1,\"a\",\"b\"],\"flat\":{\"x\":\"A\"}}");
    struct json list = json_get(root, "list");
    uint64_t n = 0;
    assert_true(json_u64(json_get(json_find(list, "type", "B"), "n"), &n) && n == 2);
    assert_false(json_valid(json_find(list, "type", "C")));
    assert_false(json_valid(json_find(list, "type", NULL)));
    assert_false(json_valid(json_find(json_get(root, "map"), "type", "A")));
    assert_false(json_valid(json_find((struct json){0}, "type", "A")));
    assert_true(json_has_string(json_get(root, "texts"), "b"));
    assert_false(json_has_string(json_get(root, "texts"), "c"));
    assert_false(json_has_string(json_get(root, "texts"), NULL));
    assert_false(json_has_string(json_get(root, "flat"), "A")); /* no array */
    assert_false(json_has_string((struct json){0}, "a"));
    struct json type = json_get(json_find(list, "type", "A"), "type");
    assert_true(json_is_string(type, "A"));
    assert_false(json_is_string(type, "B"));
    assert_false(json_is_string(type, NULL));
    assert_false(json_is_string(list, "A"));
    assert_string_equal(json_string_or(type, "-"), "A");
    assert_string_equal(json_string_or(list, "-"), "-");
}

static void test_members_in_order(void **state) {
    struct json_iter it = json_iter(parse(state, "{\"x\":1,\"y\\u0000z\":2,\"x\":3}"));
    const char *key;
    struct json value;
    uint64_t n;
    assert_true(json_next(&it, &key, &value));
    assert_string_equal(key, "x");
    assert_true(json_next(&it, &key, &value));
    assert_null(key);
    assert_true(json_next(&it, &key, &value));
    assert_true(json_u64(value, &n) && n == 3);
    assert_false(json_next(&it, &key, &value));
    assert_true(json_u64(json_get(parse(state, "{\"x\":1,\"x\":3}"), "x"), &n) && n == 1);
}

static void test_absent_is_harmless(void **state) {
    struct json root = parse(state, "{\"a\":\"text\"}");
    struct json none = JSON_PATH(root, "a", "b", "c");
    assert_false(json_valid(none));
    assert_int_equal(json_type(none), JSON_INVALID);
    assert_null(json_string(none));
    assert_int_equal(json_size(none), 0);
    struct json_iter it = json_iter(none);
    assert_false(json_next(&it, NULL, &none));
    it = json_iter(json_get(root, "a"));
    assert_false(json_next(&it, NULL, &none));
}

static void test_bad_input_is_refused(void **state) {
    static const char *const bad[] = {
        "", "{", "{\"a\":1,}", "[1]x", "nul", "\"\xff\"", "{\"a\":\"\n\"}", "01", "[NaN]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct json root;
        struct err err = {0};
        assert_int_equal(json_parse(*state, bad[i], strlen(bad[i]), &root, &err), -EBADMSG);
        assert_non_null(strstr(err.text, "bad JSON"));
    }

    char deep[2 * JSON_DEPTH_MAX + 3];
    memset(deep, '[', JSON_DEPTH_MAX + 1);
    memset(deep + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    struct json root;
    assert_int_equal(json_parse(*state, deep, 2 * JSON_DEPTH_MAX + 2, &root, NULL), -EBADMSG);
}

static void test_written_text_is_valid(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    json_put_string(&w, "s", "q\"\\\n\x01\xc3\xa4");
    json_put_string(&w, "bad", "\xff\xc3(\xed\xa0\x80");
    json_put_string(&w, "yaml", "\x7f\xc2\x85\xe2\x80\xa8\xef\xbb\xbf\xef\xbf\xbd\xe2\x82\xac");
    json_put_string(&w, "none", NULL);
    json_array_begin(&w, "list");
    json_put_u64(&w, NULL, UINT64_MAX);
    json_put_i64(&w, NULL, -1);
    json_put_bool(&w, NULL, true);
    json_object_begin(&w, NULL);
    json_object_end(&w);
    json_array_end(&w);
    json_put_stringf(&w, "f", "%d%%", 30);
    json_put_raw(&w, "raw", "[]");
    json_object_end(&w);
    assert_int_equal(buf_error(&out), 0);

    struct json root = parse(state, buf_str(&out));
    assert_string_equal(json_string(json_get(root, "s")), "q\"\\\n\x01\xc3\xa4");
    assert_string_equal(json_string(json_get(root, "bad")),
                        "\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    /* Printable characters stay as they are. */
    assert_non_null(
        strstr(buf_str(&out), "\"\\u007f\\u0085\\u2028\\ufeff\xef\xbf\xbd\xe2\x82\xac\""));
    assert_string_equal(json_string(json_get(root, "f")), "30%");
    assert_int_equal(json_size(json_get(root, "list")), 4);

    _cleanup_buf_ struct buf again = BUF_INIT(0);
    json_print(&again, json_get(root, "list"));
    assert_string_equal(buf_str(&again), "[18446744073709551615,-1,true,{}]");
}

static void test_parser_grows(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    for (int round = 0; round < 3; round++) {
        buf_reset(&text);
        buf_putc(&text, '[');
        for (int i = 0; i < 100 << (4 * round); i++)
            buf_printf(&text, "%s%d", i ? "," : "", i);
        buf_putc(&text, ']');
        assert_int_equal(json_size(parse(state, buf_str(&text))), 100 << (4 * round));
    }
}

static void test_texts_of_an_array(void **state) {
    struct json_text texts[4];
    struct json_iter it = json_iter(parse(state, "[\"a\",\"\",\"\\u0042c\",\"d\\u0000\",\"e\"]"));
    struct json item;
    assert_int_equal(json_next_texts(&it, texts, 2), 2);
    assert_string_equal(texts[0].data, "a");
    assert_int_equal(texts[1].len, 0);
    assert_int_equal(json_next_texts(&it, texts, 4), 1); /* the NUL ends it */
    assert_string_equal(texts[0].data, "Bc");
    assert_int_equal(texts[0].len, 2);
    assert_int_equal(json_next_texts(&it, texts, 4), 0);
    assert_true(json_next(&it, NULL, &item) && !json_string(item));
    assert_int_equal(json_next_texts(&it, texts, 4), 1);
    assert_int_equal(json_next_texts(&it, texts, 4), 0);
    it = json_iter(parse(state, "[\"a\",1]"));
    assert_int_equal(json_next_texts(&it, texts, 4), 1);
    assert_int_equal(json_next_texts(&it, texts, 4), 0);
    it = json_iter(parse(state, "{\"a\":\"b\"}"));
    assert_int_equal(json_next_texts(&it, texts, 4), 0);
    it = json_iter(parse(state, "1"));
    assert_int_equal(json_next_texts(&it, texts, 4), 0);
}

static void test_members_by_type(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json_writer w = {.out = &text};
    const char name[] = "a";
    const char *none = NULL;
    uint32_t narrow = UINT32_MAX;
    uint64_t wide = UINT64_MAX;
    int64_t negative = -1;
    uint8_t byte = 7;
    bool yes = true;
    (void) state;
    json_object_begin(&w, NULL);
    json_put(&w, "name", name);
    json_put(&w, "none", none, "narrow", narrow, "wide", wide, "negative", negative, "byte", byte,
             "yes", yes, "no", (bool) false, "last", name);
    json_object_end(&w);
    assert_string_equal(buf_str(&text), "{\"name\":\"a\",\"none\":null,\"narrow\":4294967295,"
                                        "\"wide\":18446744073709551615,\"negative\":-1,\"byte\":7,"
                                        "\"yes\":true,\"no\":false,\"last\":\"a\"}");
}

struct sample {
    char name[8];
    const char *pointer;
    char *owned;
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    int32_t bits;
    uint64_t wide;
    bool is, flag;
};

static const struct json_field sample_fields[] = {
    JSON_FIELD(struct sample, "name", name),   JSON_FIELD(struct sample, "pointer", pointer),
    JSON_FIELD(struct sample, "owned", owned), JSON_FIELD(struct sample, "byte", byte),
    JSON_FIELD(struct sample, "half", half),   JSON_FIELD(struct sample, "word", word),
    JSON_FIELD(struct sample, "bits", bits),   JSON_FIELD(struct sample, "wide", wide),
    JSON_FIELD(struct sample, "is", is),       JSON_NUMBER(struct sample, "flag", flag),
};

static void test_fields_by_a_table(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json_writer w = {.out = &text};
    char owned[] = "o";
    const struct sample from = {.name = "a",
                                .owned = owned,
                                .byte = UINT8_MAX,
                                .half = UINT16_MAX,
                                .word = UINT32_MAX,
                                .bits = -1,
                                .wide = UINT64_MAX,
                                .is = true,
                                .flag = true};
    struct sample back = {.name = "left", .owned = owned};
    json_object_begin(&w, NULL);
    JSON_PUT_FIELDS(&w, sample_fields, &from);
    json_object_end(&w);
    assert_string_equal(buf_str(&text),
                        "{\"name\":\"a\",\"pointer\":null,\"owned\":\"o\",\"byte\":255,"
                        "\"half\":65535,\"word\":4294967295,\"bits\":4294967295,"
                        "\"wide\":18446744073709551615,\"is\":true,\"flag\":1}");
    assert_true(JSON_READ_FIELDS(parse(state, buf_str(&text)), sample_fields, &back));
    assert_int_equal(back.byte, UINT8_MAX);
    assert_int_equal(back.half, UINT16_MAX);
    assert_int_equal(back.word, UINT32_MAX);
    assert_int_equal(back.bits, -1);
    assert_true(back.wide == UINT64_MAX);
    assert_true(back.is && back.flag);
    assert_string_equal(back.name, "left");
    assert_ptr_equal(back.owned, owned);
}

static void test_fields_that_do_not_fit(void **state) {
    static const char *const tight[] = {"{\"byte\":256}", "{\"half\":65536}",
                                        "{\"word\":4294967296}", "{\"flag\":2}"};
    struct sample s = {.byte = 1, .half = 2, .word = 3, .is = true};
    for (size_t i = 0; i < sizeof(tight) / sizeof(tight[0]); i++)
        assert_false(JSON_READ_FIELDS(parse(state, tight[i]), sample_fields, &s));
    /* What is of another type is as missing; the others are read. */
    assert_true(JSON_READ_FIELDS(parse(state, "{\"byte\":\"9\",\"is\":0,\"half\":-1,\"wide\":5}"),
                                 sample_fields, &s));
    assert_true(JSON_READ_FIELDS(parse(state, "7"), sample_fields, &s));
    assert_true(JSON_READ_FIELDS((struct json){0}, sample_fields, &s));
    assert_int_equal(s.byte, 1);
    assert_int_equal(s.half, 2);
    assert_int_equal(s.word, 3);
    assert_int_equal(s.wide, 5);
    assert_true(s.is && !s.flag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_look_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_compare_and_find, setup, teardown),
        cmocka_unit_test_setup_teardown(test_members_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_absent_is_harmless, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_input_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_written_text_is_valid, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parser_grows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_texts_of_an_array, setup, teardown),
        cmocka_unit_test_setup_teardown(test_members_by_type, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fields_by_a_table, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fields_that_do_not_fit, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
