/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mig/hooks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct mig_hook *hook) {
    size_t n = 0;

    if (hook->point >= MIG_HOOK_POINTS || !hook->words[0] || !hook->words[0][0])
        abort();
    while (hook->words[n])
        n++;
    if (n != hook->nwords || n > MIG_HOOK_WORDS_MAX || hook->nenvs > MIG_HOOK_ENVS_MAX)
        abort();
    for (size_t i = 0; i < hook->nenvs; i++)
        if (!hook->envs[i].name[0] || strchr(hook->envs[i].name, '=') || !hook->envs[i].value)
            abort();
    if (hook->timeout_ms == 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_mig_hooks_ struct mig_hooks hooks = {0};
    struct err err = {0};

    if (mig_hooks_parse((const char *) data, size, &hooks, &err) < 0) {
        if (hooks.doc || hooks.hooks || !err.text[0])
            abort();
        return 0;
    }
    if (hooks.n > MIG_HOOKS_MAX)
        abort();
    for (size_t i = 0; i < hooks.n; i++)
        check(&hooks.hooks[i]);
    return 0;
}
