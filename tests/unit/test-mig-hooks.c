/* SPDX-License-Identifier: Apache-2.0 */

/* mig-parted's hooks: what of their file is read and refused, and how the programs are run. */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "gpu/mig/hook_program.h"
#include "gpu/mig/run_hooks.h"

/* ---- the file ---- */

/* As mig-parted's package installs it. */
static const char shipped[] = "version: v1\n"
                              "hooks:\n"
                              "    apply-start:\n"
                              "    - workdir: \"/etc/nvidia-mig-manager\"\n"
                              "      command: \"/bin/bash\"\n"
                              "      args: [\"-x\", \"-c\", \"source hooks.sh; apply-start\"]\n"
                              "    apply-exit:\n"
                              "    - command: first\n"
                              "      envs: {NAME: value, NUMBER: 7, EMPTY: \"\"}\n"
                              "      timeout: 1m30s\n"
                              "    - args: [8, true]\n"
                              "      command: second\n";

static void a_file(void **state) {
    _cleanup_mig_hooks_ struct mig_hooks hooks = {0};
    struct err err;

    (void) state;
    assert_int_equal(mig_hooks_parse(shipped, sizeof(shipped) - 1, &hooks, &err), 0);
    assert_int_equal(hooks.n, 3);
    assert_int_equal(hooks.hooks[0].point, MIG_HOOK_APPLY_START);
    assert_string_equal(hooks.hooks[0].workdir, "/etc/nvidia-mig-manager");
    assert_string_equal(hooks.hooks[0].words[0], "/bin/bash");
    assert_string_equal(hooks.hooks[0].words[3], "source hooks.sh; apply-start");
    assert_null(hooks.hooks[0].words[4]);
    assert_int_equal(hooks.hooks[0].timeout_ms, MIG_HOOK_TIMEOUT_MS);
    assert_int_equal(hooks.hooks[1].point, MIG_HOOK_APPLY_EXIT);
    assert_null(hooks.hooks[1].workdir);
    assert_int_equal(hooks.hooks[1].nenvs, 3);
    assert_string_equal(hooks.hooks[1].envs[1].value, "7");
    assert_int_equal(hooks.hooks[1].timeout_ms, 90000);
    assert_string_equal(hooks.hooks[2].words[0], "second");
    assert_string_equal(hooks.hooks[2].words[2], "true");
}

static void no_hooks(void **state) {
    static const char *const texts[] = {"version: v1", "hooks: {}", "version: v1\nhooks:",
                                        "hooks: {apply-start: [], apply-exit: }"};
    struct err err;

    (void) state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        _cleanup_mig_hooks_ struct mig_hooks hooks = {0};

        assert_int_equal(mig_hooks_parse(texts[i], strlen(texts[i]), &hooks, &err), 0);
        assert_int_equal(hooks.n, 0);
    }
}

#define HOOK "hooks: {apply-start: ["

static void refused(void **state) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "line 1, column 1: expected version and hooks"},
        {"version: v2", "unknown version"},
        {"hooks: {pre-apply: []}", "line 1, column 9: unknown key 'pre-apply'"},
        {"hooks: {apply-start: {command: a}}", "apply-start: expected a list"},
        {HOOK "{args: [a]}]}", "command"},
        {HOOK "{command: [a]}]}", "expected a program"},
        {HOOK "{command: \"\"}]}", "expected a program"},
        {HOOK "a]}", "expected a map with a command"},
        {HOOK "{command: a, args: [[b]]}]}", "expected a word"},
        {HOOK "{command: a, args: [null]}]}", "expected a word"},
        {HOOK "{command: a, env: {}}]}", "unknown key 'env'; did you mean 'envs'?"},
        {HOOK "{command: a, envs: [b]}]}", "expected a map of variables"},
        {HOOK "{command: a, envs: {b: [c]}}]}", "expected a text"},
        {HOOK "{command: a, envs: {\"b=c\": d}}]}", "'b=c' is no name of a variable"},
        {HOOK "{command: a, timeout: 0s}]}", "a timeout is from 1s to 1h"},
        {HOOK "{command: a, timeout: 2h}]}", "a timeout is from 1s to 1h"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mig_hooks hooks = {0};
        struct err err = {0};

        if (mig_hooks_parse(rows[i].text, strlen(rows[i].text), &hooks, &err) >= 0 ||
            !strstr(err.text, rows[i].why) || hooks.doc)
            fail_msg("%s: %s", rows[i].text, err.text);
    }
}

/* ---- programs ---- */

static char dir[64];

static int set_up(void **state) {
    (void) state;
    (void) snprintf(dir, sizeof(dir), "/tmp/aliquot-hooks-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state) {
    (void) state;
    return dir_remove(dir, NULL);
}

static unsigned tellings;

static void count(unsigned seconds, void *userdata) {
    (void) seconds, (void) userdata;
    tellings++;
}

static int run_shell(const char *script, unsigned timeout_ms, struct err *err) {
    const char *const argv[] = {"sh", "-c", script, NULL}, *const env[] = {"A=1", NULL};
    const struct hook_program p = {.argv = argv,
                                   .env = env,
                                   .root = "",
                                   .workdir = dir,
                                   .timeout_ms = timeout_ms,
                                   .tell_ms = 10,
                                   .tell = count};

    tellings = 0;
    return hook_program_run(&p, err);
}

static void a_program(void **state) {
    struct err err = {0};
    char kept[] = "/proc/self/fd/000";
    int fd = open("/dev/null", O_RDONLY), status;
    char script[256];

    (void) state;
    assert_int_equal(run_shell("exec >&- 2>&-; test \"$A\" = 1 -a -z \"$HOME\"", 60000, &err), 0);
    assert_int_equal(run_shell("echo one; echo two >&2; echo; exit 3", 60000, &err), -EINVAL);
    assert_string_equal(err.text, "sh ended with status 3: two");
    assert_int_equal(run_shell("kill -TERM $$", 60000, &err), -EINVAL);
    assert_string_equal(err.text, "sh was ended by signal 15");
    assert_int_equal(run_shell("pwd; exit 1", 60000, &err), -EINVAL);
    assert_non_null(strstr(err.text, dir));
    /* More than a pipe has room for. */
    assert_int_equal(
        run_shell("i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done", 60000, &err),
        0);
    /* What this process has open is not the program's. */
    (void) snprintf(kept, sizeof(kept), "/proc/self/fd/%d", fd);
    (void) snprintf(script, sizeof(script), "test ! -e %s", kept);
    status = run_shell(script, 60000, &err);
    (void) close(fd);
    assert_int_equal(status, 0);
}

/* It is killed, and what it has started with it. */
static void a_program_that_does_not_end(void **state) {
    struct err err = {0};

    (void) state;
    assert_int_equal(run_shell("echo waits; sleep 600 & sleep 600", 200, &err), -EINVAL);
    assert_string_equal(err.text, "sh has not ended within 0 s and was killed: waits");
    assert_true(tellings > 0);
    /* It prints without end. */
    assert_int_equal(run_shell("yes waits; exit 0", 200, &err), -EINVAL);
    assert_non_null(strstr(err.text, "sh has not ended within 0 s and was killed: "));
    /* A daemon keeps the output open, and what it prints is not waited for. */
    assert_int_equal(run_shell("yes & exit 0", 1000, &err), 0);
    assert_int_equal(run_shell("sleep 3 & exit 0", 1000, &err), 0);
}

static void a_program_that_cannot_be_run(void **state) {
    const char *const missing[] = {"/no/such", NULL}, *const sh[] = {"sh", NULL},
                      *const env[] = {NULL};
    struct hook_program p = {.argv = missing,
                             .env = env,
                             .root = "",
                             .timeout_ms = 60000,
                             .tell_ms = 60000,
                             .tell = count};
    struct err err = {0};

    (void) state;
    assert_int_equal(hook_program_run(&p, &err), -ENOENT);
    assert_string_equal(err.text, "cannot run /no/such: No such file or directory");
    p.argv = sh;
    p.workdir = "/no/such";
    assert_int_equal(hook_program_run(&p, &err), -ENOENT);
}

/* ---- around a division ---- */

/* Each hook adds its name to the file `log`; what has the name `fails` fails. */
static void open_hooks(struct gpu_mig_hooks *h, const char *mark, const char *fails) {
    static char path[128], mark_path[128];
    _cleanup_buf_ struct buf text = BUF_INIT(0);

    buf_puts(&text, "version: v1\nhooks:\n");
    for (int i = 0; i < MIG_HOOK_POINTS; i++) {
        const char *name = mig_hook_point_name((enum mig_hook_point) i);

        buf_printf(&text,
                   "  %s:\n  - {command: sh, workdir: %s, args: [\"-c\", \"echo %s "
                   "$MIG_PARTED_SELECTED_CONFIG $B >>log; test %s != '%s'\"], envs: "
                   "{MIG_PARTED_SELECTED_CONFIG: other, B: b}}\n",
                   name, dir, name, name, fails);
    }
    (void) snprintf(path, sizeof(path), "%s/hooks", dir);
    (void) snprintf(mark_path, sizeof(mark_path), "%s/%s", dir, mark ? mark : "");
    assert_int_equal(file_replace(path, text.data, text.len, 0644, NULL), 0);
    *h = (struct gpu_mig_hooks){
        .root = "", .hooks_file = path, .selected_config = "all", .mark = mark ? mark_path : NULL};
    assert_int_equal(gpu_mig_hooks_open(h, NULL), 0);
}

static void expect_log(const char *expected) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    char path[128];

    (void) snprintf(path, sizeof(path), "%s/log", dir);
    (void) file_read(path, 4096, &text, NULL);
    assert_string_equal(buf_str(&text), expected);
    (void) unlink(path);
}

static void expect_mark(bool there) {
    char path[128];

    (void) snprintf(path, sizeof(path), "%s/mark", dir);
    assert_int_equal(access(path, F_OK) == 0, there);
}

static void each_is_run_once(void **state) {
    struct gpu_mig_hooks h;
    struct err err = {0};

    (void) state;
    open_hooks(&h, "mark", "");
    assert_int_equal(gpu_mig_hooks_before(&h, true, &err), 1);
    expect_log("apply-start all b\npre-apply-mode all b\n");
    expect_mark(true);
    assert_int_equal(gpu_mig_hooks_before(&h, true, &err), 0);
    assert_int_equal(gpu_mig_hooks_before(&h, false, &err), 1);
    assert_int_equal(gpu_mig_hooks_before(&h, false, &err), 0);
    expect_log("pre-apply-config all b\n");
    assert_int_equal(gpu_mig_hooks_end(&h, 0, &err), 0);
    expect_log("apply-exit all b\n");
    expect_mark(false);
    gpu_mig_hooks_done(&h);
}

static void without_a_change_none_is_run(void **state) {
    struct gpu_mig_hooks h;
    struct err err = {0};

    (void) state;
    open_hooks(&h, "mark", "");
    assert_int_equal(gpu_mig_hooks_end(&h, 0, &err), 0);
    expect_log("");
    gpu_mig_hooks_done(&h);
    h = (struct gpu_mig_hooks){.root = "", .hooks_file = ""};
    assert_int_equal(gpu_mig_hooks_open(&h, &err), 0);
    assert_int_equal(gpu_mig_hooks_before(&h, true, &err), 0);
    assert_int_equal(gpu_mig_hooks_end(&h, -EIO, &err), -EIO);
}

/* The ones after it are not run, but the last ones are: unless the first failed. */
static void one_fails(void **state) {
    struct gpu_mig_hooks h;
    struct err err = {0};
    int r;

    (void) state;
    open_hooks(&h, "mark", "pre-apply-mode");
    r = gpu_mig_hooks_before(&h, true, &err);
    assert_int_equal(r, -EINVAL);
    assert_string_equal(err.text, "hook pre-apply-mode: sh ended with status 1");
    expect_log("apply-start all b\npre-apply-mode all b\n");
    assert_int_equal(gpu_mig_hooks_before(&h, false, &err), -EINVAL);
    assert_string_equal(err.text, "hook pre-apply-mode: sh ended with status 1");
    assert_int_equal(gpu_mig_hooks_end(&h, r, &err), -EINVAL);
    expect_log("apply-exit all b\n");
    expect_mark(false);
    gpu_mig_hooks_done(&h);

    open_hooks(&h, "mark", "apply-start");
    r = gpu_mig_hooks_before(&h, true, &err);
    assert_int_equal(r, -EINVAL);
    assert_int_equal(gpu_mig_hooks_end(&h, r, &err), -EINVAL);
    assert_string_equal(err.text, "hook apply-start: sh ended with status 1");
    expect_log("apply-start all b\n");
    expect_mark(false);
    gpu_mig_hooks_done(&h);
}

/* What was stopped is started by the next division, though it changes nothing. */
static void the_last_one_fails_or_is_not_reached(void **state) {
    struct gpu_mig_hooks h;
    struct err err = {0};

    (void) state;
    open_hooks(&h, "mark", "apply-exit");
    assert_int_equal(gpu_mig_hooks_before(&h, false, &err), 1);
    assert_int_equal(gpu_mig_hooks_end(&h, 0, &err), -EINVAL);
    assert_string_equal(err.text, "hook apply-exit: sh ended with status 1");
    expect_mark(true);
    (void) err_set(&err, EIO, "GPU 0: lost");
    assert_int_equal(gpu_mig_hooks_end(&h, -EIO, &err), -EIO);
    assert_string_equal(err.text, "GPU 0: lost; then hook apply-exit: sh ended with status 1");
    gpu_mig_hooks_done(&h);
    expect_log("apply-start all b\npre-apply-config all b\napply-exit all b\napply-exit all b\n");

    open_hooks(&h, "mark", "apply-start");
    assert_int_equal(gpu_mig_hooks_before(&h, false, &err), -EINVAL);
    expect_mark(true);
    gpu_mig_hooks_done(&h);
    open_hooks(&h, "mark", "apply-exit"); /* a further one begins as every one does */
    assert_int_equal(gpu_mig_hooks_before(&h, false, &err), 1);
    assert_int_equal(gpu_mig_hooks_end(&h, 0, &err), -EINVAL);
    gpu_mig_hooks_done(&h);
    expect_log("apply-start all b\napply-start all b\npre-apply-config all b\napply-exit all b\n");

    open_hooks(&h, "mark", "");
    assert_int_equal(gpu_mig_hooks_end(&h, 0, &err), 0);
    expect_log("apply-exit all b\n");
    expect_mark(false);
    gpu_mig_hooks_done(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file),
        cmocka_unit_test(no_hooks),
        cmocka_unit_test(refused),
        cmocka_unit_test_setup_teardown(a_program, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_program_that_does_not_end, set_up, tear_down),
        cmocka_unit_test(a_program_that_cannot_be_run),
        cmocka_unit_test_setup_teardown(each_is_run_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_change_none_is_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_one_fails_or_is_not_reached, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
