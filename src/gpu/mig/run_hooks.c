/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/run_hooks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/text.h"
#include "gpu/mig/hook_program.h"

#define OURS 5 /* variables by mig-parted's names */

/* ---- the environment ---- */

struct variable {
    const char *name, *value;
};

static bool is_among(const struct variable list[static OURS], const char *name) {
    for (size_t i = 0; i < OURS; i++)
        if (strcmp(list[i].name, name) == 0)
            return true;
    return false;
}

static void put(struct buf *out, const char *name, const char *value) {
    buf_printf(out, "%s=%s", name, value ? value : "");
    buf_putc(out, 0);
}

/* Texts "NAME=value", each with its NUL. Ours take precedence, and nothing is inherited, as with
 * mig-parted. Returns how many there are. */
static size_t write_environment(const struct gpu_mig_hooks *h, const struct mig_hook *hook,
                                struct buf *out) {
    const struct variable ours[OURS] = {
        {"MIG_PARTED_CONFIG_FILE", h->config_file},
        {"MIG_PARTED_SELECTED_CONFIG", h->selected_config},
        {"MIG_PARTED_HOOKS_FILE", h->hooks_file},
        {"MIG_PARTED_MODE_CHANGE_ONLY", h->mode_only ? "true" : "false"},
        {"MIG_PARTED_SKIP_RESET", h->skip_reset ? "true" : "false"},
    };
    size_t n = OURS;

    for (size_t i = 0; i < OURS; i++)
        put(out, ours[i].name, ours[i].value);
    for (size_t i = 0; i < hook->nenvs; i++) {
        if (is_among(ours, hook->envs[i].name))
            continue;
        put(out, hook->envs[i].name, hook->envs[i].value);
        n++;
    }
    return n;
}

/* ---- one hook ---- */

struct telling {
    const struct gpu_mig_hooks *h;
    const struct mig_hook *hook;
};

static void tell(unsigned seconds, void *userdata) {
    const struct telling *t = userdata;
    char text[160], since[48] = "";

    if (!t->h->tell)
        return;
    if (seconds > 0)
        (void) snprintf(since, sizeof(since), " has run for %u s", seconds);
    (void) snprintf(text, sizeof(text), "hook %s: %.80s%s", mig_hook_point_name(t->hook->point),
                    t->hook->words[0], since);
    t->h->tell(text, t->h->userdata);
}

static int run_hook(const struct gpu_mig_hooks *h, const struct mig_hook *hook, struct err *err) {
    const char *env[OURS + MIG_HOOK_ENVS_MAX + 1] = {0};
    struct telling telling = {h, hook};
    _cleanup_buf_ struct buf texts = BUF_INIT(0);
    size_t n = write_environment(h, hook, &texts);
    const struct hook_program program = {.argv = hook->words,
                                         .env = env,
                                         .root = h->root,
                                         .workdir = hook->workdir,
                                         .output = h->output,
                                         .timeout_ms = hook->timeout_ms,
                                         .tell_ms = GPU_MIG_HOOK_TELL_MS,
                                         .tell = tell,
                                         .userdata = &telling};
    const char *at = buf_str(&texts);

    if (buf_error(&texts) < 0)
        return err_errno(err, ENOMEM, "cannot make the environment of a hook");
    for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
        env[i] = at;
    tell(0, &telling);
    return hook_program_run(&program, err);
}

/* ---- the hooks of one point ---- */

static bool has(const struct gpu_mig_hooks *h, enum mig_hook_point point) {
    for (size_t i = 0; i < h->hooks.n; i++)
        if (h->hooks.hooks[i].point == point)
            return true;
    return false;
}

/* 1: a program has run. */
static int run_point(struct gpu_mig_hooks *h, enum mig_hook_point point, struct err *err) {
    int ran = 0;

    if (h->done >> point & 1)
        return 0;
    for (size_t i = 0; i < h->hooks.n; i++) {
        if (h->hooks.hooks[i].point != point)
            continue;
        ran = 1;
        if (run_hook(h, &h->hooks.hooks[i], err) >= 0)
            continue;
        (void) err_wrap(err, "hook %s", mig_hook_point_name(point));
        return -EINVAL; /* another try with the same hooks is none */
    }
    h->done |= 1u << point;
    return ran;
}

static int fail(struct gpu_mig_hooks *h, int r, const struct err *err) {
    h->status = r;
    h->failure = *err;
    return r;
}

/* ---- a division ---- */

static int set_mark(const struct gpu_mig_hooks *h, struct err *err) {
    return h->mark && has(h, MIG_HOOK_APPLY_EXIT) ? file_replace(h->mark, "", 0, 0644, err) : 0;
}

static void remove_mark(const struct gpu_mig_hooks *h) {
    if (h->mark)
        (void) unlink(h->mark);
}

int gpu_mig_hooks_open(struct gpu_mig_hooks *h, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r;

    if (!h->hooks_file || !h->hooks_file[0])
        return 0;
    r = file_read(h->hooks_file, YAML_SIZE_MAX, &text, err);
    if (r >= 0)
        r = mig_hooks_parse(buf_str(&text), text.len, &h->hooks, err);
    if (r < 0)
        return err_wrap(err, "hooks file %s", h->hooks_file);
    h->exit_due = h->mark && access(h->mark, F_OK) == 0;
    return 0;
}

int gpu_mig_hooks_start(struct gpu_mig_hooks *h, struct err *err) {
    int r = h->done >> MIG_HOOK_APPLY_START & 1 ? 0 : set_mark(h, err);

    if (r >= 0)
        r = run_point(h, MIG_HOOK_APPLY_START, err);
    if (r < 0 && !h->exit_due)
        remove_mark(h);
    return r < 0 ? fail(h, r, err) : r;
}

int gpu_mig_hooks_before(struct gpu_mig_hooks *h, bool mode, struct err *err) {
    int started, r;

    if (h->status < 0)
        return err_set(err, -h->status, "%s", h->failure.text);
    started = gpu_mig_hooks_start(h, err);
    if (started < 0)
        return started;
    r = run_point(h, mode ? MIG_HOOK_PRE_APPLY_MODE : MIG_HOOK_PRE_APPLY_CONFIG, err);
    return r < 0 ? fail(h, r, err) : r | started;
}

/* After a failure the mark stays, and the next division ends with these hooks again. */
int gpu_mig_hooks_end(struct gpu_mig_hooks *h, int r, struct err *err) {
    struct err cause, first;

    if (!(h->done >> MIG_HOOK_APPLY_START & 1) && !h->exit_due)
        return r;
    if (run_point(h, MIG_HOOK_APPLY_EXIT, &cause) >= 0) {
        remove_mark(h);
        return r;
    }
    if (r >= 0) {
        *err = cause;
        return -EINVAL;
    }
    first = *err;
    return err_set(err, -r, "%.240s; then %.240s", first.text, cause.text);
}

void gpu_mig_hooks_done(struct gpu_mig_hooks *h) {
    mig_hooks_done(&h->hooks);
}
