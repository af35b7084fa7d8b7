/* SPDX-License-Identifier: Apache-2.0 */

/* mig-parted's file from ConfigMaps; the test is the reflectors. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/mig/source.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "fake-reflector.h"
#include "wire/json.h"

#define TEXT(name) "version: v1\\nmig-configs: {" name ": [{devices: all, mig-enabled: false}]}\\n"
#define DATA(name) "{\"config.yaml\":\"" TEXT(name) "\"}"

static struct world {
    unsigned files;
    bool refused;
    struct json_parser *parser;
    struct mig_source *source;
    char dir[64], file[128], trouble[ERR_TEXT_MAX];
} w;

bool __wrap_kube_reflector_is_refused(const struct kube_reflector *r);
bool __wrap_kube_reflector_is_refused(const struct kube_reflector *r) {
    (void) r;
    return w.refused;
}

static void on_file(void *userdata) {
    (void) userdata;
    w.files++;
}

static void on_trouble(const char *why, void *userdata) {
    (void) userdata;
    (void) snprintf(w.trouble, sizeof(w.trouble), "%s", why);
}

static void start(const char *maps) {
    const struct mig_source_options options = {.maps = maps,
                                               .namespace = "ns",
                                               .file = w.file,
                                               .on_file = on_file,
                                               .on_trouble = on_trouble};

    nreflectors = 0;
    assert_int_equal(mig_source_start(NULL, &options, &w.source, NULL), 0);
}

static int set_up(void **state) {
    (void) state;
    memset(&w, 0, sizeof(w));
    reflectors_stopped = 0;
    w.parser = json_parser_new();
    (void) snprintf(w.dir, sizeof(w.dir), "/tmp/aliquot-source-XXXXXX");
    if (!mkdtemp(w.dir))
        return -1;
    (void) snprintf(w.file, sizeof(w.file), "%s/file", w.dir);
    return 0;
}

static int tear_down(void **state) {
    (void) state;
    mig_source_stop(w.source);
    json_parser_free(w.parser);
    return dir_remove(w.dir, NULL);
}

/* ---- the API server ---- */

static void show(unsigned i, enum kube_event event, const char *data) {
    char text[1024];
    struct json root;

    (void) snprintf(text, sizeof(text), "{\"data\":%s}", data);
    assert_int_equal(json_parse(w.parser, text, strlen(text), &root, NULL), 0);
    reflector_show(&reflectors[i], event, root);
}

static void list(unsigned i, const char *data) {
    reflector_list_begins(&reflectors[i]);
    if (data)
        show(i, KUBE_ADDED, data);
    reflector_list_ends(&reflectors[i]);
}

/* The file has the configuration of that name. */
static void expect(const char *name, unsigned files) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);

    assert_int_equal(file_read(w.file, 4096, &text, NULL), 0);
    assert_non_null(strstr(buf_str(&text), name));
    assert_int_equal(w.files, files);
    assert_string_equal(w.trouble, "");
    assert_true(mig_source_is_known(w.source));
    assert_null(mig_source_missing(w.source));
}

/* ---- tests ---- */

static void lists_of_names(void **state) {
    static const struct {
        const char *maps, *why; /* NULL: it is one */
    } rows[] = {
        {"a", NULL},
        {"gpu-operator/default-mig-parted-config,node.a-mig-config", NULL},
        {"a,b,c,d", NULL},
        {"", "names no ConfigMap"},
        {"a,b,c,d,e", "more than 4 ConfigMaps"},
        {"a,,b", "not ''"},
        {"/a", "not '/a'"},
        {"a/", "not 'a/'"},
        {"a/b/c", "not 'a/b/c'"},
        {"A", "not 'A'"},
        {"a?b", "not 'a?b'"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = {0};
        int r = mig_source_check(rows[i].maps, &err);

        if (r != (rows[i].why ? -EINVAL : 0) || (rows[i].why && !strstr(err.text, rows[i].why)))
            fail_msg("%s: %d, %s", rows[i].maps, r, err.text);
    }
}

static void a_text_becomes_the_file(void **state) {
    (void) state;
    start("m");
    assert_string_equal(reflectors[0].watched,
                        "/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Dm");
    assert_false(mig_source_is_known(w.source));
    list(0, DATA("first"));
    expect("first", 1);
    show(0, KUBE_MODIFIED, DATA("second"));
    expect("second", 2);
    show(0, KUBE_MODIFIED, DATA("second"));
    list(0, DATA("second"));
    expect("second", 2);
}

/* Each with its reason, and what was there before applies. */
static void what_cannot_be_used_changes_nothing(void **state) {
    static const struct {
        const char *data, *why;
    } rows[] = {
        {"{\"config.yaml\":\"version: v1\\nmig-config: {}\\n\"}",
         "ConfigMap ns/m, entry config.yaml: line 2, column 1: unknown key 'mig-config'; did you "
         "mean 'mig-configs'?"},
        {"{\"a\":\"\",\"b\":\"\"}", "ConfigMap ns/m has no entry config.yaml; it has: a, b"},
        {"{}", "ConfigMap ns/m has no entry config.yaml; it has: nothing"},
        {"{\"config.yaml\":\"\"}", "ConfigMap ns/m, entry config.yaml: line 1"},
        {NULL, "there is no ConfigMap ns/m"},
    };
    unsigned files = 0;

    (void) state;
    start("m");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        list(0, rows[i].data);
        assert_non_null(strstr(w.trouble, rows[i].why));
        assert_non_null(strstr(mig_source_missing(w.source), rows[i].why));
        assert_true(mig_source_is_known(w.source));
    }
    list(0, DATA("good"));
    expect("good", ++files);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        list(0, rows[i].data);
        assert_non_null(strstr(w.trouble, rows[i].why));
        w.trouble[0] = 0;
        expect("good", files);
        list(0, DATA("good"));
        expect("good", files);
    }
}

/* An answer about one that comes before is waited for. */
static void the_first_that_exists_applies(void **state) {
    (void) state;
    start("operator/custom,node-mig-config");
    assert_non_null(strstr(reflectors[0].watched, "/namespaces/operator/configmaps"));
    assert_non_null(strstr(reflectors[1].watched, "/namespaces/ns/configmaps"));
    list(1, DATA("node"));
    assert_int_equal(w.files, 0);
    list(0, NULL);
    expect("node", 1);
    show(0, KUBE_ADDED, DATA("custom"));
    expect("custom", 2);
    show(1, KUBE_MODIFIED, DATA("other"));
    expect("custom", 2);
    show(0, KUBE_DELETED, "{}");
    expect("other", 3);
    show(1, KUBE_DELETED, "{}");
    assert_string_equal(w.trouble, "there is no ConfigMap operator/custom, nor ns/node-mig-config");
}

/* It is told, and not taken for an answer. */
static void a_right_is_missing(void **state) {
    (void) state;
    start("operator/custom");
    reflectors[0].handlers.on_trouble("cannot list configmaps: 403", 1000, reflectors[0].userdata);
    assert_string_equal(w.trouble, "cannot list configmaps: 403");
    assert_false(mig_source_is_known(w.source));
    list(0, DATA("custom"));
    expect("custom", 1);
    reflectors[0].handlers.on_trouble("cannot watch: 503", 1000, reflectors[0].userdata);
    expect("custom", 1);
}

/* The cards take pods after a time, and the configurations apply with the right. */
static void a_right_stays_missing(void **state) {
    (void) state;
    start("operator/custom,b");
    reflectors[0].handlers.on_trouble("cannot list configmaps: 503", 1000, reflectors[0].userdata);
    mig_source_pass(w.source, 1000);
    mig_source_pass(w.source, 1000 + 2 * MIG_SOURCE_REFUSED_MS);
    assert_false(mig_source_is_known(w.source)); /* the API server is away */
    w.refused = true;
    reflectors[0].handlers.on_trouble("cannot list configmaps: 403", 1000, reflectors[0].userdata);
    mig_source_pass(w.source, 200000);
    mig_source_pass(w.source, 200000 + MIG_SOURCE_REFUSED_MS - 1);
    assert_false(mig_source_is_known(w.source));
    w.refused = false;
    mig_source_pass(w.source, 300000);
    w.refused = true;
    mig_source_pass(w.source, 300001);
    mig_source_pass(w.source, 300000 + MIG_SOURCE_REFUSED_MS);
    assert_false(mig_source_is_known(w.source));
    mig_source_pass(w.source, 300001 + MIG_SOURCE_REFUSED_MS);
    assert_true(mig_source_is_known(w.source));
    assert_string_equal(w.trouble,
                        "the agent has no right to list and watch ConfigMap operator/custom, and "
                        "the cards take pods as they are (cannot list configmaps: 403)");
    assert_string_equal(mig_source_missing(w.source), w.trouble);
    reflectors[0].handlers.on_trouble("cannot list configmaps: 403 again", 1000,
                                      reflectors[0].userdata);
    assert_non_null(strstr(w.trouble, "no right"));
    list(0, DATA("custom"));
    expect("custom", 1);
}

/* What was read for other names is not what these have. */
static void another_list_has_another_file(void **state) {
    (void) state;
    start("m");
    list(0, DATA("before"));
    mig_source_stop(w.source);
    start("m,other");
    assert_false(mig_source_is_known(w.source));
    list(0, DATA("before"));
    expect("before", 2);
}

static void the_file_outlives_the_agent(void **state) {
    (void) state;
    start("m");
    list(0, DATA("before"));
    mig_source_stop(w.source);
    start("m");
    expect("before", 1);
    list(0, DATA("before"));
    expect("before", 1);
    list(0, DATA("after"));
    expect("after", 2);
    assert_int_equal(reflectors_stopped, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_names),
        cmocka_unit_test_setup_teardown(a_text_becomes_the_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_used_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_that_exists_applies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_right_is_missing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_right_stays_missing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_list_has_another_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_file_outlives_the_agent, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
