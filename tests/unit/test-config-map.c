/* SPDX-License-Identifier: Apache-2.0 */

/* The entry of a ConfigMap that the node's label chooses; the test is the reflector. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "agent/cluster/config_map.h"
#include "agent/config/config_file.h"
#include "agent/config/node_config.h"
#include "base/err.h"
#include "base/file.h"
#include "fake-reflector.h"

/* ---- the choice ---- */

static void choices(void **state) {
    static const char *const two[] = {"a100", "default"}, *const one[] = {"only"};
    static const struct {
        const char *label, *name, *fallbacks;
        const char *const *names;
        size_t n;
        int index; /* -2: refused */
        const char *why;
    } rows[] = {
        {"a100", NULL, "", two, 2, 0, NULL},
        {"a100", "default", "named", two, 2, 0, NULL},
        {"", "default", "single", two, 2, 1, NULL},
        {"nonsense", "default", "named,single,empty", two, 2, -2,
         "the node's label names the entry 'nonsense'; the ConfigMap has: a100, default"},
        {"", "gone", "named", two, 2, -2, "the default is the entry 'gone'; the ConfigMap has"},
        {"", NULL, "named,single,empty", two, 2, 1, NULL},
        {"", NULL, "single,named", two, 2, 1, NULL},
        {"", NULL, "named,single", one, 1, 0, NULL},
        {"", NULL, "named,empty", one, 1, CONFIG_CHOICE_EMPTY, NULL},
        {"", NULL, "empty,single", one, 1, CONFIG_CHOICE_EMPTY, NULL},
        {"", NULL, "named", one, 1, -2, "no default or fallback applies; the ConfigMap has: only"},
        {"", NULL, "named,single", NULL, 0, -2, "the ConfigMap has: nothing"},
        {"", NULL, "", one, 1, -2, "the node has no label"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct config_choice c = {rows[i].name, rows[i].fallbacks};
        struct err err = {0};
        int index = -2;
        int r = config_choose(&c, rows[i].label, rows[i].names, rows[i].n, &index, &err);

        if (index != rows[i].index || r != (rows[i].why ? -ENOENT : 0))
            fail_msg("row %zu: %d, index %d", i, r, index);
        if (rows[i].why && !strstr(err.text, rows[i].why))
            fail_msg("row %zu: %s", i, err.text);
    }
}

static void fallbacks_have_names(void **state) {
    static const char *const good[] = {"", "named", "named,single,empty", "empty"};
    static const char *const bad[] = {"first", "named,", "named single", ",named"};
    struct err err = {0};

    (void) state;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(config_choice_check(&(struct config_choice){NULL, good[i]}, &err), 0);
    for (size_t i = 0; i < 4; i++) {
        int r = config_choice_check(&(struct config_choice){NULL, bad[i]}, &err);

        if (r != (i == 1 ? 0 : -EINVAL))
            fail_msg("%s", bad[i]);
    }
}

/* ---- the ConfigMap and the node change ---- */

struct world {
    struct json_parser *parser;
    struct config_map *map;
    char entry[64], text[64], trouble[ERR_TEXT_MAX];
    unsigned calls;
};

static void on_text(const char *entry, const char *text, void *userdata) {
    struct world *w = userdata;

    (void) snprintf(w->entry, sizeof(w->entry), "%s", entry);
    (void) snprintf(w->text, sizeof(w->text), "%s", text);
    w->trouble[0] = 0;
    w->calls++;
}

static void on_trouble(const char *why, void *userdata) {
    struct world *w = userdata;

    (void) snprintf(w->trouble, sizeof(w->trouble), "%s", why);
    w->calls++;
}

static struct json parse(struct world *w, const char *text) {
    struct json root;

    assert_int_equal(json_parse(w->parser, text, strlen(text), &root, NULL), 0);
    return root;
}

static void show_node(struct world *w, const char *label) {
    char text[256];

    (void) snprintf(text, sizeof(text), "{\"metadata\":{\"labels\":{%s%s%s}}}",
                    label ? "\"l\":\"" : "", label ? label : "", label ? "\"" : "");
    config_map_see_node(w->map, parse(w, text));
}

static void show_map(struct world *w, enum kube_event event, const char *data) {
    char text[512];

    (void) snprintf(text, sizeof(text), "{\"data\":%s}", data);
    reflector_show(reflector_of(""), event, parse(w, text));
}

static void list_map(struct world *w, const char *data) {
    reflector_list_begins(reflector_of(""));
    if (data)
        show_map(w, KUBE_ADDED, data);
    reflector_list_ends(reflector_of(""));
}

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    const struct config_map_options options = {.namespace = "ns",
                                               .name = "m",
                                               .label = "l",
                                               .choice = {NULL, "named"},
                                               .on_text = on_text,
                                               .on_trouble = on_trouble,
                                               .userdata = w};

    *state = w;
    w->parser = json_parser_new();
    return config_map_start(NULL, &options, &w->map, NULL);
}

static int teardown(void **state) {
    struct world *w = *state;

    config_map_stop(w->map);
    json_parser_free(w->parser);
    free(w);
    return 0;
}

#define DATA "{\"default\":\"d\",\"big\":\"b\"}"

static void nothing_is_chosen_too_early(void **state) {
    struct world *w = *state;

    assert_string_equal(reflector_of("")->watched,
                        "/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Dm");
    reflector_list_begins(reflector_of(""));
    show_map(w, KUBE_ADDED, DATA);
    show_node(w, "big");
    assert_int_equal(w->calls, 0);
    reflector_list_ends(reflector_of(""));
    assert_string_equal(w->entry, "big");
    assert_string_equal(w->text, "b");
}

static void the_label_changes(void **state) {
    struct world *w = *state;

    list_map(w, DATA);
    assert_int_equal(w->calls, 0);
    show_node(w, NULL);
    assert_string_equal(w->entry, "default");
    show_node(w, "big");
    assert_string_equal(w->entry, "big");
    assert_int_equal(w->calls, 2);
    show_node(w, "big");
    assert_int_equal(w->calls, 2);
    show_node(w, "nonsense");
    assert_string_equal(w->trouble, "ConfigMap ns/m: the node's label names the entry 'nonsense'; "
                                    "the ConfigMap has: default, big");
    assert_string_equal(w->entry, "big");
    show_node(w, NULL);
    assert_string_equal(w->entry, "default");
    assert_string_equal(w->trouble, "");
}

static void the_map_changes(void **state) {
    struct world *w = *state;

    show_node(w, "big");
    list_map(w, NULL);
    assert_string_equal(w->trouble, "there is no ConfigMap ns/m");
    show_map(w, KUBE_ADDED, DATA);
    assert_string_equal(w->text, "b");
    show_map(w, KUBE_MODIFIED, "{\"big\":\"c\",\"odd\":7}");
    assert_string_equal(w->text, "c");
    show_map(w, KUBE_DELETED, "{}");
    assert_non_null(strstr(w->trouble, "no ConfigMap"));
    list_map(w, DATA);
    assert_string_equal(w->text, "b");
    assert_string_equal(w->trouble, "");
    list_map(w, NULL);
    assert_non_null(strstr(w->trouble, "no ConfigMap"));
}

/* ---- its texts are configurations ---- */

static const struct config_overrides none = {0};
static unsigned configs;
static uint32_t scaling;
static char file_trouble[ERR_TEXT_MAX];

static void take_config(struct node_config *config, void *userdata) {
    (void) userdata;
    configs++;
    scaling = config->ncards > 0 ? config->cards[0].memory_scaling : 0;
    (void) node_config_free(config);
}

static void take_trouble(const char *why, void *userdata) {
    (void) userdata;
    (void) snprintf(file_trouble, sizeof(file_trouble), "%s", why);
}

static void on_closed(void *userdata) {
    (void) userdata;
}

static void texts_are_configurations(void **state) {
    char dir[] = "/tmp/aliquot-config-XXXXXX", saved[64];
    const struct config_file_options options = {.saved = saved,
                                                .node = "n",
                                                .overrides = &none,
                                                .on_config = take_config,
                                                .on_trouble = take_trouble};
    struct config_file *f = NULL;
    uv_loop_t loop;

    (void) state;
    assert_non_null(mkdtemp(dir));
    (void) snprintf(saved, sizeof(saved), "%s/saved", dir);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(config_file_start(&loop, &options, &f, NULL), 0);
    assert_int_equal(configs, 1); /* the defaults, until the API server has answered */
    config_file_offer(f, "entry a",
                      "version: v1\naliquot: {cards: [{devices: all, memoryScaling: 2}]}\n");
    assert_int_equal(configs, 2);
    assert_int_equal(scaling, 2000);
    config_file_offer(f, "entry b", "version: v2\n");
    assert_non_null(strstr(file_trouble, "entry b: line 1, column 10: version: 'v2'"));
    config_file_refuse(f, "the label is nonsense");
    assert_string_equal(file_trouble, "the label is nonsense");
    assert_int_equal(configs, 2);
    config_file_offer(f, "entry a",
                      "version: v1\naliquot: {cards: [{devices: all, memoryScaling: 2}]}\n");
    assert_string_equal(file_trouble, "");
    assert_int_equal(configs, 2);
    config_file_stop(f, on_closed, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    /* A restarted agent does not wait for the API server. */
    assert_int_equal(config_file_start(&loop, &options, &f, NULL), 0);
    assert_int_equal(configs, 3);
    assert_int_equal(scaling, 2000);
    config_file_stop(f, on_closed, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    (void) dir_remove(dir, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),
        cmocka_unit_test(fallbacks_have_names),
        cmocka_unit_test_setup_teardown(nothing_is_chosen_too_early, setup, teardown),
        cmocka_unit_test_setup_teardown(the_label_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(the_map_changes, setup, teardown),
        cmocka_unit_test(texts_are_configurations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
