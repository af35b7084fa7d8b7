/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/num.h"
#include "base/opt.h"
#include "base/step.h"
#include "base/text.h"

static void test_err_chain(void **state) {
    (void) state;
    struct err err;
    assert_int_equal(err_errno(&err, ENOENT, "cannot open %s", "x"), -ENOENT);
    assert_int_equal(err_wrap(&err, "config"), -ENOENT);
    assert_string_equal(err.text, "config: cannot open x: No such file or directory");
    assert_int_equal(err_set(NULL, EIO, "no listener"), -EIO);
}

static void test_err_is_a_failure_without_a_code(void **state) {
    (void) state;
    struct err err = {0};
    assert_int_equal(err_wrap(&err, "config"), -EIO);
    assert_int_equal(err_errno(&err, 0, "the connection is lost"), -EIO);
    assert_int_equal(err.code, EIO);
    assert_string_equal(err.text, "the connection is lost: Input/output error");
    assert_int_equal(err_set(NULL, 0, "no listener"), -EIO);
}

static void test_err_long_text_is_cut(void **state) {
    (void) state;
    struct err err;
    char text[2 * ERR_TEXT_MAX];
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(err_errno(&err, EIO, "%s", text), -EIO);
    assert_int_equal(err_wrap(&err, "%s", text), -EIO);
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
}

static void test_buf_appends_and_consumes(void **state) {
    (void) state;
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    assert_string_equal(buf_str(&b), "");
    buf_puts(&b, "abc");
    buf_printf(&b, "%d", 42);
    buf_putc(&b, '!');
    assert_string_equal(buf_str(&b), "abc42!");
    buf_consume(&b, 3);
    assert_string_equal(buf_str(&b), "42!");
    assert_int_equal(buf_error(&b), 0);
}

static void test_buf_keeps_its_bound(void **state) {
    (void) state;
    _cleanup_buf_ struct buf b = BUF_INIT(4);
    buf_puts(&b, "abcd");
    assert_int_equal(buf_error(&b), 0);
    buf_putc(&b, 'e');
    assert_int_equal(buf_error(&b), -EMSGSIZE);
    assert_string_equal(buf_str(&b), "abcd");
    buf_reset(&b);
    buf_printf(&b, "%s", "12345");
    assert_int_equal(buf_error(&b), -EMSGSIZE);
}

static void test_array_grows(void **state) {
    (void) state;
    size_t room = 0;
    volatile size_t too_many = SIZE_MAX; /* the compiler refuses such a constant */
    int *list = NULL;
    assert_int_equal(array_reserve(&list, &room, 0, sizeof(*list)), 0);
    assert_null(list);
    for (size_t n = 0; n < 100; n++) {
        assert_int_equal(array_reserve(&list, &room, n + 1, sizeof(*list)), 0);
        assert_true(room > n);
        list[n] = (int) n;
    }
    assert_int_equal(array_reserve(&list, &room, 1000, sizeof(*list)), 0);
    assert_int_equal(room, 1000);
    const int *before = list;
    assert_int_equal(array_reserve(&list, &room, too_many, sizeof(*list)), -ENOMEM);
    assert_ptr_equal(list, before);
    assert_int_equal(room, 1000);
    for (int i = 0; i < 100; i++)
        assert_int_equal(list[i], i);
    free(list);
}

static void test_numbers(void **state) {
    (void) state;
    static const struct {
        const char *text;
        int result;
        uint64_t value;
    } rows[] = {
        {"0", 0, 0},
        {"4Gi", 0, UINT64_C(4) << 30},
        {"1k", 0, 1000},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"16384Pi", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"1gi", -EINVAL, 0},
        {"Gi", -EINVAL, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t value = 0;
        assert_int_equal(num_parse_size(rows[i].text, &value), rows[i].result);
        if (rows[i].result == 0)
            assert_true(value == rows[i].value);
    }
}

static void test_hexadecimal_bytes(void **state) {
    (void) state;
    assert_int_equal(num_hex_byte("00"), 0);
    assert_int_equal(num_hex_byte("aF9"), 0xaf);
    assert_int_equal(num_hex_byte("fF"), 0xff);
    assert_int_equal(num_hex_byte("g0"), -1);
    assert_int_equal(num_hex_byte("0x"), -1);
    assert_int_equal(num_hex_byte(" 1"), -1);
    assert_int_equal(num_hex_byte("-1"), -1);
    assert_int_equal(num_hex_byte("a"), -1);
    assert_int_equal(num_hex_byte(""), -1);
}

static void test_bytes_for_people(void **state) {
    (void) state;
    char out[24];
    assert_string_equal(num_format_bytes(0, out), "0 B");
    assert_string_equal(num_format_bytes(1023, out), "1023 B");
    assert_string_equal(num_format_bytes(UINT64_C(80) << 30, out), "80 GiB");
    assert_string_equal(num_format_bytes((UINT64_C(1) << 30) * 3 / 2, out), "1.5 GiB");
    assert_string_equal(num_format_bytes(UINT64_C(2000) << 20, out), "2000 MiB");
    assert_string_equal(num_format_bytes((UINT64_C(2000) << 20) + 1, out), "1.9 GiB");
    assert_string_equal(num_format_bytes(UINT64_MAX, out), "15.9 EiB");
    assert_string_equal(num_format_bytes(UINT64_MAX, out), "15.9 EiB");
}

struct parsed {
    bool flag;
    uint64_t size;
    const char *name;
    uint32_t count;
};

static int parse(struct parsed *p, int argc, char **argv, struct err *err) {
    const struct opt options[] = {
        {"flag", 'f', NULL, "a flag", opt_flag, &p->flag},
        {"size", 's', "SIZE", "a size", opt_size, &p->size},
        {"name", 0, "NAME", "a name", opt_string, &p->name},
        {"count", 'c', "N", "a number", opt_u32, &p->count},
        OPT_END,
    };
    const struct opt_usage usage = {
        .synopsis = "test [options]",
        .purpose = "A test.",
    };
    return opt_parse(options, &usage, argc, argv, err);
}

#define ARGV(...) ((char *[]){(char[]){"test"}, __VA_ARGS__, NULL})

static void test_options(void **state) {
    (void) state;
    struct err err;
    struct parsed p = {0};
    char a[] = "--size", b[] = "4Gi", c[] = "-f", d[] = "--name=x", e[] = "--", f[] = "--count";
    assert_int_equal(parse(&p, 7, ARGV(a, b, c, d, e, f), &err), 6);
    assert_true(p.flag);
    assert_true(p.size == UINT64_C(4) << 30);
    assert_string_equal(p.name, "x");

    assert_int_equal(parse(&p, 2, ARGV(f), &err), -EINVAL);
    assert_string_equal(err.text, "option '--count' needs a value; see --help");
    char bad[] = "--what";
    assert_int_equal(parse(&p, 2, ARGV(bad), &err), -EINVAL);
    assert_string_equal(err.text, "unknown option '--what'; see --help");
    char wrong[] = "4 GB";
    assert_int_equal(parse(&p, 3, ARGV(a, wrong), &err), -EINVAL);
    assert_string_equal(err.text, "--size '4 GB': is not a size such as 4Gi, 512Mi, 2G or 1000000");
}

static void test_nearest_words(void **state) {
    static const char *const words[] = {"gpus", "mig", "replicas", "renameByDefault", NULL};
    static const struct {
        const char *word, *meant;
    } rows[] = {
        {"migs", "mig"},
        {"gpu", "gpus"},
        {"replicsa", "replicas"},
        {"REPLICAS", "replicas"},
        {"renameDefault", "renameByDefault"},
        {"x", NULL},
        {"", NULL},
        {"abc", NULL},
        {"name", NULL},
        {"replacement", NULL},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *meant = text_nearest(rows[i].word, words);

        if (!meant != !rows[i].meant || (meant && strcmp(meant, rows[i].meant) != 0))
            fail_msg("%s: %s", rows[i].word, meant ? meant : "nothing");
    }
}

static void test_files(void **state) {
    (void) state;
    struct err err = {0};
    char root[] = "/tmp/aliquot-test-XXXXXX";
    assert_non_null(mkdtemp(root));

    char path[128];
    (void) snprintf(path, sizeof(path), "%s/a/b", root);
    assert_int_equal(dir_make(path, 0750, &err), 0);
    assert_int_equal(dir_make(path, 0750, &err), 0);

    (void) snprintf(path, sizeof(path), "%s/a/b/file", root);
    assert_int_equal(file_replace(path, "one", 3, 0640, &err), 0);
    assert_int_equal(file_replace(path, "two!", 4, 0600, &err), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    _cleanup_buf_ struct buf content = BUF_INIT(0);
    assert_int_equal(file_read(path, 100, &content, &err), 0);
    assert_string_equal(buf_str(&content), "two!");
    assert_int_equal(file_read(path, 3, &content, &err), -EFBIG);
    assert_int_equal(dir_make(path, 0750, &err), -ENOTDIR);

    assert_int_equal(dir_remove(root, &err), 0);
    assert_int_equal(dir_remove(root, &err), 0);
    assert_int_equal(file_read(path, 100, &content, &err), -ENOENT);
    assert_non_null(strstr(err.text, "cannot open"));
}

static void test_lists_with_commas(void **state) {
    const char *list = "a,bc,,d", *none = NULL, *item;
    static const char *const want[] = {"a", "bc", "", "d"};
    size_t len, n = 0;

    (void) state;
    for (; text_item(&list, &item, &len); n++) {
        assert_true(n < 4);
        assert_int_equal(len, strlen(want[n]));
        assert_memory_equal(item, want[n], len);
    }
    assert_int_equal(n, 4);
    assert_false(text_item(&none, &item, &len));
    list = "a,";
    assert_true(text_item(&list, &item, &len));
    assert_false(text_item(&list, &item, &len));
}

static void test_log_levels(void **state) {
    (void) state;
    assert_int_equal(log_level_parse("debug"), LOG_DEBUG);
    assert_int_equal(log_level_parse("loud"), -EINVAL);
}

static void on_urgent(void *userdata) {
    unsigned *count = userdata;
    ++*count;
    step_end(); /* of its own steps: nothing */
    errno = EPIPE;
}

static void test_steps(void **state) {
    (void) state;
    unsigned count = 0;
    step_end(); /* nothing is urgent */
    step_set_urgent(on_urgent, &count, 0);
    errno = EAGAIN;
    step_end();
    assert_int_equal(errno, EAGAIN);
    step_hold();
    step_hold();
    step_end();
    step_release();
    step_end();
    assert_int_equal(count, 1);
    step_release();
    step_end();
    assert_int_equal(count, 2);
    step_set_urgent(on_urgent, &count, UINT64_C(3600) * 1000000000);
    for (int i = 0; i < 5; i++)
        step_end(); /* not for an hour */
    assert_int_equal(count, 2);
    step_set_urgent(NULL, NULL, 0);
    step_end();
    assert_int_equal(count, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_err_chain),
        cmocka_unit_test(test_err_is_a_failure_without_a_code),
        cmocka_unit_test(test_err_long_text_is_cut),
        cmocka_unit_test(test_buf_appends_and_consumes),
        cmocka_unit_test(test_buf_keeps_its_bound),
        cmocka_unit_test(test_array_grows),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_hexadecimal_bytes),
        cmocka_unit_test(test_bytes_for_people),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_nearest_words),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_lists_with_commas),
        cmocka_unit_test(test_log_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
