/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs the hooks of mig-parted around one division. Each is run once: apply-start first, those
 * before a change when the first such change is planned, apply-exit last. One that fails is the
 * failure of the division. */

#include <stdbool.h>

#include "mig/hooks.h"

#define GPU_MIG_HOOK_TELL_MS 20000

struct gpu_mig_hooks {
    struct mig_hooks hooks; /* all zero: none */
    const char *root;       /* the programs run below it; "": here */
    bool output;            /* standard error has what they print */
    /* File that is there from apply-start to apply-exit, for the run that follows one that was
     * killed. NULL: none. */
    const char *mark;
    /* Before a program, and every GPU_MIG_HOOK_TELL_MS while it runs. May be NULL. */
    void (*tell)(const char *text, void *userdata);
    void *userdata;
    /* What the hooks find in their environment, by mig-parted's names. */
    const char *config_file, *selected_config, *hooks_file;
    bool mode_only, skip_reset;

    unsigned done;      /* points (bits) whose hooks were run */
    bool exit_due;      /* apply-exit is, of a former run */
    int status;         /* of the hook that failed */
    struct err failure; /* its text */
};

/* Reads `hooks_file`, if one is named. */
int gpu_mig_hooks_open(struct gpu_mig_hooks *h, struct err *err);

/* apply-start, once. */
int gpu_mig_hooks_start(struct gpu_mig_hooks *h, struct err *err);

/* Before the steps of a plan, which change the MIG mode or instances: apply-start, and the hooks
 * before such a change, once. 1: a program has run, and the card may be another one; 0. -EINVAL: a
 * hook failed, now or before. */
int gpu_mig_hooks_before(struct gpu_mig_hooks *h, bool mode, struct err *err);

/* apply-exit, after an apply-start that has succeeded. Returns `r`, the result of the division and
 * `err` its error, or where that is a success the failure of a hook. */
int gpu_mig_hooks_end(struct gpu_mig_hooks *h, int r, struct err *err);

void gpu_mig_hooks_done(struct gpu_mig_hooks *h);
