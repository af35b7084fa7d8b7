/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* mig-parted's hooks file, version v1: programs that are run around a division. Pure. */

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/yaml.h"

#define MIG_HOOKS_MAX 32
#define MIG_HOOK_WORDS_MAX 64
#define MIG_HOOK_ENVS_MAX 64
#define MIG_HOOK_TIMEOUT_MS 300000 /* of a hook that does not say */

/* When a hook is run. */
enum mig_hook_point {
    MIG_HOOK_APPLY_START,
    MIG_HOOK_PRE_APPLY_MODE,
    MIG_HOOK_PRE_APPLY_CONFIG,
    MIG_HOOK_APPLY_EXIT,
};
#define MIG_HOOK_POINTS 4

/* Texts borrow from the document. */
struct mig_hook {
    enum mig_hook_point point;
    const char *words[MIG_HOOK_WORDS_MAX + 1]; /* the command, its arguments, NULL */
    const char *workdir;                       /* NULL: none */
    struct {
        const char *name, *value;
    } envs[MIG_HOOK_ENVS_MAX];
    size_t nwords, nenvs;
    uint32_t timeout_ms;
};

struct mig_hooks {
    struct yaml_doc *doc;
    struct mig_hook *hooks; /* those of one point in their order */
    size_t n, room;
};

/* "pre-apply-mode" */
const char *mig_hook_point_name(enum mig_hook_point point);

/* Fills *ret only on success. -EINVAL or -EBADMSG: the text names line and column; -EFBIG, -ENOMEM.
 */
int mig_hooks_parse(const char *text, size_t len, struct mig_hooks *ret, struct err *err);

void mig_hooks_done(struct mig_hooks *hooks);

#define _cleanup_mig_hooks_ __attribute__((cleanup(mig_hooks_done)))
