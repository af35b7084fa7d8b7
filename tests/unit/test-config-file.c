/* SPDX-License-Identifier: Apache-2.0 */

/* The configuration's file changes in every way in which files change. */

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
#include <unistd.h>
#include <uv.h>

#include "agent/config/config_file.h"
#include "agent/config/node_config.h"
#include "base/err.h"
#include "base/file.h"

#define TIMEOUT_MS 60000
#define IN_FORCE_MS 2000 /* within which a change has to take effect */
#define SCALING(factor)                                                                            \
    "version: v1\naliquot: {cards: [{devices: all, memoryScaling: " factor "}]}\n"
#define BAD "version: v1\nflag: {}\n"

static const struct config_overrides none = {0};

struct fixture {
    uv_loop_t loop;
    uv_timer_t timeout;
    bool timed_out, closed;
    char dir[64], path[96], saved[96];
    struct config_file *file;
    struct node_config *config;
    unsigned configs, troubles;
    char trouble[ERR_TEXT_MAX];
};

static void on_config(struct node_config *config, void *userdata) {
    struct fixture *f = userdata;

    (void) node_config_free(f->config);
    f->config = config;
    f->configs++;
}

static void on_trouble(const char *why, void *userdata) {
    struct fixture *f = userdata;

    (void) snprintf(f->trouble, sizeof(f->trouble), "%s", why);
    f->troubles++;
}

static void on_timeout(uv_timer_t *timer) {
    struct fixture *f = timer->data;

    f->timed_out = true;
}

#define RUN_UNTIL(f, condition)                                                                    \
    do {                                                                                           \
        (f)->timed_out = false;                                                                    \
        (void) uv_timer_start(&(f)->timeout, on_timeout, TIMEOUT_MS, 0);                           \
        while (!(condition) && !(f)->timed_out)                                                    \
            (void) uv_run(&(f)->loop, UV_RUN_ONCE);                                                \
        (void) uv_timer_stop(&(f)->timeout);                                                       \
        assert_true(condition);                                                                    \
    } while (0)

static void write_file(const char *path, const char *text) {
    struct err err;

    if (file_replace(path, text, strlen(text), 0644, &err) < 0)
        fail_msg("%s", err.text);
}

static void start(struct fixture *f) {
    const struct config_file_options options = {.path = f->path,
                                                .saved = f->saved,
                                                .node = "node-1",
                                                .overrides = &none,
                                                .on_config = on_config,
                                                .on_trouble = on_trouble,
                                                .userdata = f};

    assert_int_equal(config_file_start(&f->loop, &options, &f->file, NULL), 0);
}

static void on_closed(void *userdata) {
    struct fixture *f = userdata;

    f->closed = true;
}

static void stop(struct fixture *f) {
    f->closed = false;
    config_file_stop(f->file, on_closed, f);
    f->file = NULL;
    RUN_UNTIL(f, f->closed);
    f->config = node_config_free(f->config);
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));

    *state = f;
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-config-XXXXXX");
    if (!mkdtemp(f->dir) || uv_loop_init(&f->loop) < 0)
        return -1;
    (void) snprintf(f->path, sizeof(f->path), "%s/config.yaml", f->dir);
    (void) snprintf(f->saved, sizeof(f->saved), "%s/saved.yaml", f->dir);
    (void) uv_timer_init(&f->loop, &f->timeout);
    f->timeout.data = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    if (f->file)
        stop(f);
    uv_close((uv_handle_t *) &f->timeout, NULL);
    (void) uv_run(&f->loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&f->loop);
    (void) dir_remove(f->dir, NULL);
    (void) node_config_free(f->config);
    free(f);
    return 0;
}

static uint32_t scaling(const struct fixture *f) {
    return f->config->ncards > 0 ? f->config->cards[0].memory_scaling : 0;
}

static void changes_take_effect(void **state) {
    struct fixture *f = *state;
    uint64_t begin;

    write_file(f->path, SCALING("1.5"));
    start(f);
    assert_int_equal(f->configs, 1);
    assert_int_equal(scaling(f), 1500);
    begin = uv_hrtime();
    write_file(f->path, SCALING("2"));
    RUN_UNTIL(f, scaling(f) == 2000);
    assert_true((uv_hrtime() - begin) / 1000000 < IN_FORCE_MS);
    assert_int_equal(f->configs, 2);
    assert_int_equal(f->troubles, 0);
}

/* Two in a row, of which the first may be seen or not. */
static void the_last_one_counts(void **state) {
    struct fixture *f = *state;

    write_file(f->path, SCALING("1.5"));
    start(f);
    write_file(f->path, SCALING("2"));
    write_file(f->path, SCALING("3"));
    RUN_UNTIL(f, scaling(f) == 3000);
    assert_true(f->configs <= 3);
}

/* kubelet's way: config.yaml -> ..data/config.yaml, and ..data -> a directory for each version. */
static void a_mounted_config_map(void **state) {
    struct fixture *f = *state;
    char path[192], data[96], next[96];

    for (int version = 1; version <= 2; version++) {
        (void) snprintf(path, sizeof(path), "%s/..v%d", f->dir, version);
        assert_int_equal(mkdir(path, 0755), 0);
        (void) snprintf(path, sizeof(path), "%s/..v%d/config.yaml", f->dir, version);
        write_file(path, version == 1 ? SCALING("1.5") : SCALING("2"));
    }
    (void) snprintf(data, sizeof(data), "%s/..data", f->dir);
    (void) snprintf(next, sizeof(next), "%s/..data_tmp", f->dir);
    assert_int_equal(symlink("..v1", data), 0);
    assert_int_equal(symlink("..data/config.yaml", f->path), 0);
    start(f);
    assert_int_equal(scaling(f), 1500);
    assert_int_equal(symlink("..v2", next), 0);
    assert_int_equal(rename(next, data), 0);
    RUN_UNTIL(f, scaling(f) == 2000);
}

static void a_bad_file_changes_nothing(void **state) {
    struct fixture *f = *state;

    write_file(f->path, SCALING("1.5"));
    start(f);
    write_file(f->path, BAD);
    RUN_UNTIL(f, f->troubles == 1);
    assert_non_null(strstr(f->trouble, f->path));
    assert_non_null(strstr(f->trouble, "line 2, column 1: unknown key 'flag'; did you mean"));
    assert_int_equal(f->configs, 1);
    assert_int_equal(unlink(f->path), 0);
    RUN_UNTIL(f, f->troubles == 2);
    assert_non_null(strstr(f->trouble, "No such file"));
    /* The same text as before: nothing changes but the trouble. */
    write_file(f->path, SCALING("1.5"));
    RUN_UNTIL(f, f->troubles == 3);
    assert_string_equal(f->trouble, "");
    assert_int_equal(f->configs, 1);
    write_file(f->path, SCALING("4"));
    RUN_UNTIL(f, scaling(f) == 4000);
    assert_int_equal(f->troubles, 3);
}

/* A restarted agent goes on with the last good one. */
static void a_start_with_a_bad_file(void **state) {
    struct fixture *f = *state;

    write_file(f->path, BAD);
    start(f);
    assert_int_equal(f->configs, 1);
    assert_int_equal(scaling(f), 0);
    assert_int_equal(f->troubles, 1);
    write_file(f->path, SCALING("1.5"));
    RUN_UNTIL(f, scaling(f) == 1500);
    stop(f);
    write_file(f->path, BAD);
    start(f);
    assert_int_equal(scaling(f), 1500);
    assert_non_null(strstr(f->trouble, "unknown key"));
    /* Not the first text of this agent, but the one that it has already. */
    f->configs = 0;
    write_file(f->path, SCALING("1.5"));
    RUN_UNTIL(f, !f->trouble[0]);
    assert_int_equal(f->configs, 0);
}

static void a_file_that_appears_later(void **state) {
    struct fixture *f = *state;
    char dir[96];

    (void) snprintf(dir, sizeof(dir), "%s/mount", f->dir);
    (void) snprintf(f->path, sizeof(f->path), "%s/mount/c", f->dir);
    start(f);
    assert_int_equal(f->configs, 1);
    assert_non_null(strstr(f->trouble, "No such file"));
    assert_int_equal(mkdir(dir, 0755), 0);
    write_file(f->path, SCALING("2"));
    RUN_UNTIL(f, scaling(f) == 2000);
    assert_string_equal(f->trouble, "");
}

/* A source that is read later: whether it has a text is not known at the start. */
static void a_text_that_is_offered(void **state) {
    struct fixture *f = *state;
    struct config_file_options options = {.saved = f->saved,
                                          .node = "node-1",
                                          .overrides = &none,
                                          .on_config = on_config,
                                          .on_trouble = on_trouble,
                                          .userdata = f};

    assert_int_equal(config_file_start(&f->loop, &options, &f->file, NULL), 0);
    assert_false(config_file_is_known(f->file));
    config_file_refuse(f->file, "there is no ConfigMap");
    assert_true(config_file_is_known(f->file));
    config_file_offer(f->file, "ConfigMap", SCALING("1.5"));
    assert_true(config_file_is_known(f->file));
    assert_string_equal(f->trouble, "");
    stop(f);
    assert_int_equal(config_file_start(&f->loop, &options, &f->file, NULL), 0);
    assert_true(config_file_is_known(f->file)); /* the text from before the restart */
    assert_int_equal(scaling(f), 1500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(changes_take_effect, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_one_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_mounted_config_map, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bad_file_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_start_with_a_bad_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_appears_later, setup, teardown),
        cmocka_unit_test_setup_teardown(a_text_that_is_offered, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
