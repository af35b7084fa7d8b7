/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/hooks.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"

#define TIMEOUT_MIN_MS 1000u
#define TIMEOUT_MAX_MS 3600000u

static const char *const names[MIG_HOOK_POINTS] = {
    [MIG_HOOK_APPLY_START] = "apply-start",
    [MIG_HOOK_PRE_APPLY_MODE] = "pre-apply-mode",
    [MIG_HOOK_PRE_APPLY_CONFIG] = "pre-apply-config",
    [MIG_HOOK_APPLY_EXIT] = "apply-exit",
};

const char *mig_hook_point_name(enum mig_hook_point point) {
    return names[point];
}

/* ---- a hook ---- */

static int read_command(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct mig_hook *hook = target;

    if (v->type != YAML_STRING || !v->text[0])
        return yaml_error(v, err, "expected a program");
    return yaml_string(v, &hook->words[0], arg, err);
}

static int add_word(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct mig_hook *hook = target;

    (void) arg;
    if (hook->nwords == MIG_HOOK_WORDS_MAX)
        return yaml_error(v, err, "more than %d words", MIG_HOOK_WORDS_MAX);
    if (!v->text || v->type == YAML_NULL)
        return yaml_error(v, err, "expected a word");
    hook->words[hook->nwords++] = v->text;
    return 0;
}

static int read_args(const struct yaml *v, void *target, const void *arg, struct err *err) {
    return yaml_read_each(v, add_word, target, arg, err);
}

static int read_envs(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct mig_hook *hook = target;

    (void) arg;
    if (v->type != YAML_MAP)
        return yaml_error(v, err, "expected a map of variables and their values");
    for (const struct yaml *e = v->first; e; e = e->next) {
        if (hook->nenvs == MIG_HOOK_ENVS_MAX)
            return yaml_error(e->key, err, "more than %d variables", MIG_HOOK_ENVS_MAX);
        if (!e->key->text[0] || strchr(e->key->text, '='))
            return yaml_error(e->key, err, "'%.40s' is no name of a variable", e->key->text);
        if (!e->text || e->type == YAML_NULL)
            return yaml_error(e, err, "expected a text");
        hook->envs[hook->nenvs].name = e->key->text;
        hook->envs[hook->nenvs++].value = e->text;
    }
    return 0;
}

static int read_timeout(const struct yaml *v, void *target, const void *arg, struct err *err) {
    struct mig_hook *hook = target;
    uint64_t ns = 0, ms;
    int r = yaml_duration(v, &ns, arg, err);

    if (r < 0)
        return r;
    ms = ns / 1000000;
    if (ms < TIMEOUT_MIN_MS || ms > TIMEOUT_MAX_MS)
        return yaml_error(v, err, "a timeout is from 1s to 1h");
    hook->timeout_ms = (uint32_t) ms;
    return 0;
}

static const struct yaml_field hook_fields[] = {
    {.key = "command", .read = read_command, .required = true},
    {.key = "args", .read = read_args},
    {.key = "envs", .read = read_envs},
    {.key = "workdir", .read = yaml_string, .offset = offsetof(struct mig_hook, workdir)},
    {.key = "timeout", .read = read_timeout},
    YAML_FIELD_END,
};

/* ---- the file ---- */

static int read_hook(const struct yaml *v, void *target, const void *arg, struct err *err) {
    const enum mig_hook_point *point = arg;
    struct mig_hooks *hooks = target;
    struct mig_hook *hook;

    if (hooks->n == MIG_HOOKS_MAX)
        return yaml_error(v, err, "more than %d hooks", MIG_HOOKS_MAX);
    if (v->type != YAML_MAP)
        return yaml_error(v, err, "expected a map with a command");
    if (array_reserve(&hooks->hooks, &hooks->room, hooks->n + 1, sizeof(*hook)) < 0)
        return err_errno(err, ENOMEM, "cannot keep the hooks");
    hook = &hooks->hooks[hooks->n++];
    *hook = (struct mig_hook){.point = *point, .nwords = 1, .timeout_ms = MIG_HOOK_TIMEOUT_MS};
    return yaml_read(v, hook_fields, hook, err);
}

static int read_point(const struct yaml *v, void *target, const void *arg, struct err *err) {
    return yaml_read_each(v, read_hook, target, arg, err);
}

static const enum mig_hook_point points[MIG_HOOK_POINTS] = {
    MIG_HOOK_APPLY_START,
    MIG_HOOK_PRE_APPLY_MODE,
    MIG_HOOK_PRE_APPLY_CONFIG,
    MIG_HOOK_APPLY_EXIT,
};

static const struct yaml_field point_fields[] = {
    {.key = "apply-start", .read = read_point, .arg = &points[0]},
    {.key = "pre-apply-mode", .read = read_point, .arg = &points[1]},
    {.key = "pre-apply-config", .read = read_point, .arg = &points[2]},
    {.key = "apply-exit", .read = read_point, .arg = &points[3]},
    YAML_FIELD_END,
};

static int read_points(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) arg;
    return yaml_read(v, point_fields, target, err);
}

static int read_version(const struct yaml *v, void *target, const void *arg, struct err *err) {
    (void) target, (void) arg;
    if (v->type != YAML_STRING || strcmp(v->text, "v1") != 0)
        return yaml_error(v, err, "unknown version; this is a file of version v1");
    return 0;
}

static const struct yaml_field file_fields[] = {
    {.key = "version", .read = read_version},
    {.key = "hooks", .read = read_points},
    YAML_FIELD_END,
};

int mig_hooks_parse(const char *text, size_t len, struct mig_hooks *ret, struct err *err) {
    _cleanup_mig_hooks_ struct mig_hooks hooks = {0};
    int r = yaml_read_text(text, len, "version and hooks", file_fields, &hooks, &hooks.doc, err);

    if (r < 0)
        return r;
    *ret = take_struct(hooks);
    return 0;
}

void mig_hooks_done(struct mig_hooks *hooks) {
    free(hooks->hooks);
    hooks->doc = yaml_doc_free(hooks->doc);
    *hooks = (struct mig_hooks){0};
}
