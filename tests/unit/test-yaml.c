/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fail-malloc.h"
#include "wire/yaml.h"

static const struct yaml *parse(struct yaml_doc **doc, const char *text) {
    const struct yaml *root = NULL;
    struct err err = {0};

    if (yaml_parse(text, strlen(text), doc, &root, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return root;
}

static void refuse(const char *text, int code, const char *why) {
    struct yaml_doc *doc = NULL;
    const struct yaml *root = NULL;
    struct err err = {0};

    assert_int_equal(yaml_parse(text, strlen(text), &doc, &root, &err), -code);
    if (!strstr(err.text, why))
        fail_msg("'%s' is refused with '%s', not with '%s'", text, err.text, why);
    assert_null(doc);
    assert_null(root);
}

static const char sample[] = "version: v1\n"
                             "flags:\n"
                             "  migStrategy: \"none\"\n"
                             "sharing:\n"
                             "  - {name: a, replicas: 10}\n"
                             "  - name: 'b'\n"
                             "    replicas: ~\n";

static void positions(void **state) {
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    const struct yaml *root = parse(&doc, sample), *v;

    (void) state;
    assert_int_equal(root->type, YAML_MAP);
    assert_int_equal(root->size, 3);
    assert_null(root->key);
    v = yaml_get(yaml_get(root, "flags"), "migStrategy");
    assert_string_equal(v->text, "none");
    assert_string_equal(v->key->text, "migStrategy");
    assert_int_equal(v->line, 3);
    assert_int_equal(v->column, 16);
    assert_int_equal(v->key->line, 3);
    assert_int_equal(v->key->column, 3);
    v = yaml_get(root, "sharing");
    assert_int_equal(v->type, YAML_LIST);
    assert_int_equal(v->size, 2);
    assert_int_equal(yaml_get(v->first, "replicas")->type, YAML_NUMBER);
    assert_int_equal(yaml_get(v->first->next, "replicas")->type, YAML_NULL);
    assert_int_equal(v->first->next->line, 6);
    assert_null(v->first->next->next);
    assert_null(yaml_get(root, "absent"));
    assert_null(yaml_get(v, "version"));
    assert_null(yaml_get(NULL, "version"));
}

/* The same tree, as JSON. */
static void json_is_yaml(void **state) {
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    const struct yaml *root =
        parse(&doc, "{\"version\":\"v1\",\n\t\"flags\": {\"migStrategy\": null},"
                    "\"list\":[1,-2.5e3,\"x\\u00e9\\n\",true,[],{}]}");
    const struct yaml *v = yaml_get(root, "list");
    static const enum yaml_type types[] = {YAML_NUMBER, YAML_NUMBER, YAML_STRING,
                                           YAML_BOOL,   YAML_LIST,   YAML_MAP};

    (void) state;
    assert_int_equal(v->size, 6);
    v = v->first;
    for (size_t i = 0; i < 6; i++, v = v->next)
        assert_int_equal(v->type, types[i]);
    assert_string_equal(yaml_get(root, "list")->first->next->next->text, "x\xc3\xa9\n");
    assert_int_equal(yaml_get(yaml_get(root, "flags"), "migStrategy")->type, YAML_NULL);
    assert_int_equal(yaml_get(root, "flags")->line, 2);
}

static void scalar_types(void **state) {
    static const struct {
        const char *text;
        enum yaml_type type;
    } rows[] = {{"", YAML_NULL},          {"~", YAML_NULL},         {"null", YAML_NULL},
                {"yes", YAML_BOOL},       {"False", YAML_BOOL},     {"ON", YAML_BOOL},
                {"tRue", YAML_STRING},    {"'true'", YAML_STRING},  {"\"\"", YAML_STRING},
                {"0", YAML_NUMBER},       {"-7", YAML_NUMBER},      {"+1.5", YAML_NUMBER},
                {".5", YAML_NUMBER},      {"5.", YAML_NUMBER},      {"1e9", YAML_NUMBER},
                {".", YAML_STRING},       {"1e", YAML_STRING},      {"1.2.3", YAML_STRING},
                {"0:1", YAML_STRING},     {"1g.5gb", YAML_STRING},  {"-", YAML_LIST},
                {"!!str 5", YAML_STRING}, {"!!int 5", YAML_NUMBER}, {"|\n  true\n", YAML_STRING}};

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_yaml_ struct yaml_doc *doc = NULL;
        const struct yaml *root = parse(&doc, rows[i].text);

        if (root->type != rows[i].type)
            fail_msg("'%s' is %s", rows[i].text, yaml_type_name(root));
    }
}

static void aliases_and_merges(void **state) {
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    const struct yaml *root = parse(&doc, "base: &b {x: 1, y: 2}\n"
                                          "one: *b\n"
                                          "two:\n"
                                          "  y: 3\n"
                                          "  <<: *b\n"
                                          "  z: 4\n"
                                          "three: {<<: [{x: 5}, *b]}\n"
                                          "list: [&s text, *s]\n");
    const struct yaml *v = yaml_get(root, "one");

    (void) state;
    assert_int_equal(v->line, 2);
    assert_int_equal(v->column, 6);
    assert_string_equal(v->key->text, "one");
    assert_string_equal(yaml_get(v, "y")->text, "2");
    v = yaml_get(root, "two");
    assert_int_equal(v->size, 3);
    assert_string_equal(yaml_get(v, "x")->text, "1");
    assert_int_equal(yaml_get(v, "x")->line, 1);
    assert_string_equal(yaml_get(v, "y")->text, "3");
    assert_null(yaml_get(v, "<<"));
    v = yaml_get(root, "three");
    assert_int_equal(v->size, 2);
    assert_string_equal(yaml_get(v, "x")->text, "5");
    assert_string_equal(yaml_get(v, "y")->text, "2");
    assert_string_equal(yaml_get(root, "list")->first->next->text, "text");
}

static void bad_documents(void **state) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"a: 1\nb: 2\na: 3\n", "line 3, column 1: a second key 'a'"},
        {"{\"a\":1,\"a\":2}", "line 1, column 8: a second key 'a'"},
        {"a: [1, 2\nb: 3\n", "line 2, column 2: while parsing a flow sequence"},
        {"a:\n\t- 1\n", "line 2, column 1: "},
        {"a: b: c\n", "line 1, column 5: mapping values are not allowed"},
        {"? [1]\n: 2\n", "line 1, column 3: a key that is a list or a map"},
        {"a: *none\n", "line 1, column 4: no complete node before it has the anchor 'none'"},
        {"a: &x [*x]\n", "line 1, column 8: no complete node before it"},
        {"a: 1\n---\nb: 2\n", "line 2, column 1: a second document"},
        {"a: !!binary aGk=\n", "line 1, column 4: a tag that has no meaning here: '!!binary'"},
        {"a: !mine x\n", "a tag that has no meaning here: '!mine'"},
        {"a: \"x\\0y\"\n", "line 1, column 4: a text with a NUL in it"},
        {"a: {<<: 7}\n", "line 1, column 9: '<<' takes a map"},
        {"a: \xff\n", "invalid leading UTF-8 octet"},
        {"'open\n", "line 2, column 1: while scanning a quoted scalar"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        refuse(rows[i].text, EBADMSG, rows[i].why);
}

/* Nine levels of nine aliases: 300 bytes that are 400 million nodes. */
static void laughs_are_bounded(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(YAML_SIZE_MAX);

    (void) state;
    buf_puts(&text, "a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for (int level = 1; level < 9; level++) {
        buf_printf(&text, "a%d: &a%d [", level, level);
        for (int i = 0; i < 9; i++)
            buf_printf(&text, "%s*a%d", i ? "," : "", level - 1);
        buf_puts(&text, "]\n");
    }
    refuse(buf_str(&text), EFBIG, "more nodes than a file may have");
}

static void repeat(struct buf *text, const char *before, const char *behind, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (behind)
            buf_printf(text, "%s%u%s", before, i, behind);
        else
            buf_puts(text, before);
}

static void sizes_are_bounded(void **state) {
    static const struct {
        const char *before, *behind; /* of a number, if there is one */
        unsigned most;
        const char *why;
    } rows[] = {
        {"k", ": 1\n", YAML_KEYS_MAX, "more keys than a map may have"},
        {"- &a", " 1\n", YAML_ANCHORS_MAX, "more anchors than a file may have"},
        {"- ", "\n", YAML_NODES_MAX - 1, "more nodes than a file may have"},
        {"- ", NULL, YAML_DEPTH_MAX, "nested too deeply"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_buf_ struct buf most = BUF_INIT(2 * YAML_SIZE_MAX);
        _cleanup_buf_ struct buf more = BUF_INIT(2 * YAML_SIZE_MAX);
        _cleanup_yaml_ struct yaml_doc *doc = NULL;

        repeat(&most, rows[i].before, rows[i].behind, rows[i].most);
        repeat(&more, rows[i].before, rows[i].behind, rows[i].most + 1);
        (void) parse(&doc, buf_str(&most));
        refuse(buf_str(&more), EFBIG, rows[i].why);
    }
}

/* Two maps of the most keys that a map may have, merged into one. */
static void merged_keys_are_bounded(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(YAML_SIZE_MAX);

    (void) state;
    for (char map = 'a'; map <= 'b'; map++) {
        buf_printf(&text, "%c: &%c {", map, map);
        for (unsigned i = 0; i < YAML_KEYS_MAX; i++)
            buf_printf(&text, "%c%u: 1, ", map, i);
        buf_puts(&text, "}\n");
    }
    buf_puts(&text, "c: {<<: [*a, *b]}\n");
    refuse(buf_str(&text), EFBIG, "line 3, column 17: more keys than a map may have");
}

static void long_texts_are_refused(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(2 * YAML_SIZE_MAX);

    (void) state;
    while (text.len <= YAML_SIZE_MAX)
        buf_puts(&text, "# nothing\n");
    refuse(buf_str(&text), EFBIG, "more than 1048576 bytes");
}

/* ---- maps by a table ---- */

struct target {
    bool flag;
    const char *name;
    int strategy;
    uint32_t replicas;
    uint64_t interval;
    uint32_t sum;
};

static int add(const struct yaml *v, void *target, const void *arg, struct err *err) {
    uint32_t n = 0, *sum = target;
    int r = yaml_u32(v, &n, arg, err);

    *sum += n;
    return r;
}

static int numbers(const struct yaml *v, void *target, const void *arg, struct err *err) {
    return yaml_read_each(v, add, target, arg, err);
}

static const char *const strategies[] = {"none", "single", "mixed", NULL};
static const struct yaml_range range = {2, 1000};
static const struct yaml_field fields[] = {
    {"enabled", yaml_bool, offsetof(struct target, flag), NULL, false},
    {"name", yaml_string, offsetof(struct target, name), NULL, true},
    {"migStrategy", yaml_word, offsetof(struct target, strategy), strategies, false},
    {"replicas", yaml_u32, offsetof(struct target, replicas), &range, false},
    {"interval", yaml_duration, offsetof(struct target, interval), NULL, false},
    {"numbers", numbers, offsetof(struct target, sum), NULL, false},
    {"ignored", NULL, 0, NULL, false},
    YAML_FIELD_END,
};

static void a_map_is_read(void **state) {
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    struct target t = {.interval = 5};
    struct err err = {0};
    int r = yaml_read(parse(&doc, "enabled: On\nname: 7\nmigStrategy: mixed\nreplicas: 2\n"
                                  "interval:\nnumbers: [1, 2, 3]\nignored: {x: [y]}\n"),
                      fields, &t, &err);

    (void) state;
    if (r < 0)
        fail_msg("%s", err.text);
    assert_true(t.flag);
    assert_string_equal(t.name, "7");
    assert_int_equal(t.strategy, 2);
    assert_int_equal(t.replicas, 2);
    assert_int_equal(t.interval, 5);
    assert_int_equal(t.sum, 6);
    assert_int_equal(yaml_read(NULL, fields, &t, &err), 0);
}

static void bad_maps(void **state) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"name: x\nmigStrategie: none\n",
         "line 2, column 1: unknown key 'migStrategie'; did you mean 'migStrategy'?"},
        {"{name: x, Replicas: 2}", "column 11: unknown key 'Replicas'; did you mean 'replicas'?"},
        {"{name: x, replcias: 2}", "did you mean 'replicas'?"},
        {"{name: x, unrelated: 2}",
         "unknown key 'unrelated'; here can be: enabled, name, migStrategy, replicas, interval, "
         "numbers or ignored"},
        {"{replicas: 2}", "line 1, column 1: the key 'name' is missing"},
        {"{name: }", "line 1, column 1: the key 'name' is missing"},
        {"[name]", "line 1, column 1: expected a map of keys and values, not a list"},
        {"7", "expected a map of keys and values, not a number"},
        {"{name: [x]}", "line 1, column 8: name: expected a text, not a list"},
        {"{name: x, enabled: maybe}", "enabled: expected true or false, not a text ('maybe')"},
        {"{name: x, enabled: 'true'}", "enabled: expected true or false, not a text ('true')"},
        {"{name: x, migStrategy: singel}",
         "migStrategy: 'singel' is not none, single or mixed; did you mean 'single'?"},
        {"{name: x, migStrategy: all}", "migStrategy: 'all' is not none, single or mixed"},
        {"{name: x, migStrategy: {}}", "migStrategy: expected a text, not a map"},
        {"{name: x, replicas: 1}",
         "line 1, column 21: replicas: '1' is not a whole number from 2 to 1000"},
        {"{name: x, replicas: 1001}", "'1001' is not a whole number from 2 to 1000"},
        {"{name: x, replicas: 2.5}", "'2.5' is not a whole number from 2 to 1000"},
        {"{name: x, replicas: '7'}", "'7' is not a whole number from 2 to 1000"},
        {"{name: x, replicas: []}", "replicas: expected a number, not a list"},
        {"{name: x, numbers: 5}", "numbers: expected a list, not a number"},
        {"{name: x, numbers: [1, -2]}", "line 1, column 24: '-2' is not a whole number"},
        {"{name: x, interval: 5q}", "interval: '5q' is not a duration like 1s"},
        {"{name: x, interval: []}", "interval: expected a duration like 10s, not a list"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_yaml_ struct yaml_doc *doc = NULL;
        struct target t = {0};
        struct err err = {0};
        int r = yaml_read(parse(&doc, rows[i].text), fields, &t, &err);

        if (r != -EINVAL || !strstr(err.text, rows[i].why))
            fail_msg("'%s': %d, '%s', not '%s'", rows[i].text, r, err.text, rows[i].why);
    }
}

static void bools(void **state) {
    static const char text[] = "[y, Y, yes, Yes, YES, on, On, ON, true, True, TRUE, "
                               "n, N, no, No, NO, off, Off, OFF, false, False, FALSE]";
    _cleanup_yaml_ struct yaml_doc *doc = NULL;
    const struct yaml *root = parse(&doc, text);
    size_t i = 0;

    (void) state;
    assert_int_equal(root->size, 22);
    for (const struct yaml *v = root->first; v; v = v->next, i++) {
        bool value = i >= 11;

        assert_int_equal(yaml_bool(v, &value, NULL, NULL), 0);
        assert_int_equal(value, i < 11);
    }
}

static void durations(void **state) {
    static const struct {
        const char *text;
        uint64_t ns; /* UINT64_MAX: refused */
    } rows[] = {
        {"1s", 1000000000},
        {"250ms", 250000000},
        {"1m30s", 90000000000},
        {"1.5h", 5400000000000},
        {".5s", 500000000},
        {"10us", 10000},
        {"7ns", 7},
        {"12", 12},
        {"0s", 0},
        {"-1s", UINT64_MAX},
        {"1", 1},
        {"s", UINT64_MAX},
        {"1s2", UINT64_MAX},
        {"1.s", 1000000000},
        {".s", UINT64_MAX},
        {"1 s", UINT64_MAX},
        {"1.5", UINT64_MAX},
        {"1sec", UINT64_MAX},
        {"''", UINT64_MAX},
        {"9999999h", UINT64_MAX},
        {"-5", UINT64_MAX},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_yaml_ struct yaml_doc *doc = NULL;
        uint64_t ns = UINT64_MAX;
        int r = yaml_duration(parse(&doc, rows[i].text), &ns, NULL, NULL);

        if (ns != rows[i].ns || (r == 0) != (rows[i].ns != UINT64_MAX))
            fail_msg("%s: %d, %llu ns", rows[i].text, r, (unsigned long long) ns);
    }
}

/* Each allocation of ours fails once. */
static void no_memory(void **state) {
    static const char text[] = "a: &x {b: [1, 2]}\nc: *x\nd: {<<: *x}\n";
    bool failed = true;

    (void) state;
    for (size_t nth = 1; failed; nth++) {
        _cleanup_yaml_ struct yaml_doc *doc = NULL;
        const struct yaml *root = NULL;
        struct err err = {0};
        int r;

        fail_malloc_at(nth);
        r = yaml_parse(text, sizeof(text) - 1, &doc, &root, &err);
        failed = fail_malloc_end();
        assert_int_equal(r, failed ? -ENOMEM : 0);
        assert_true(failed ? !doc : yaml_get(root, "d")->size == 1);
        assert_true(nth < 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions),
        cmocka_unit_test(json_is_yaml),
        cmocka_unit_test(scalar_types),
        cmocka_unit_test(aliases_and_merges),
        cmocka_unit_test(bad_documents),
        cmocka_unit_test(laughs_are_bounded),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(merged_keys_are_bounded),
        cmocka_unit_test(long_texts_are_refused),
        cmocka_unit_test(a_map_is_read),
        cmocka_unit_test(bad_maps),
        cmocka_unit_test(bools),
        cmocka_unit_test(durations),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
