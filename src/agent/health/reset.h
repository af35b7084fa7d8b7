/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The reset of one card: the agent's processes close it, its persistence mode is turned off, the
 * command runs, and the persistence mode is restored, also after a failure. Each step can be
 * repeated, so that a restarted agent begins again. One thread, on a libuv loop. */

#include <stdbool.h>
#include <uv.h>

struct err;
struct reset;

enum reset_result {
    RESET_SUCCEEDED,
    RESET_FAILED, /* it was not possible, or the command has failed */
    RESET_TIMED_OUT,
    RESET_NO_EFFECT, /* the command has succeeded, and the card is as before; not of a `done` */
    RESET_RESULTS,
};

/* As in aliquot_gpu_resets_total{result}. */
const char *reset_result_name(enum reset_result result);

struct reset_options {
    const char *program; /* the agent's binary: "/proc/self/exe" */
    const char *library; /* path of the NVML library */
    const char *uuid;    /* of the card */
    /* The command: its words up to a NULL, in which "UUID" stands for the card's; its environment,
     * NULL: the agent's. */
    const char *const *command;
    const char *const *env;
    unsigned timeout_ms; /* of the command */
    /* A file that the command keeps locked: one that has outlived its agent is waited for. */
    const char *lock;
    bool persistent;   /* a former agent has turned the persistence mode off for a reset */
    bool only_restore; /* no reset: the persistence mode is restored, which failed before */
    /* Has the agent's processes close the card; whether none has it open. Called until then. */
    bool (*close)(const char *uuid, void *userdata);
    /* Before the persistence mode is turned off, and when it is restored: to be kept over a restart
     * of the agent. */
    void (*on_persistent)(const char *uuid, bool off, void *userdata);
    /* Once, at the end; the reset is freed afterwards. `error`: why it failed; NULL: the command
     * has succeeded. */
    void (*done)(const char *uuid, enum reset_result result, const char *error, void *userdata);
    void *userdata;
    unsigned close_ms; /* for `close` and for an earlier command; 0: 10 s */
};

/* Texts and lists are copied. -ENOMEM, -E2BIG. */
int reset_start(uv_loop_t *loop, const struct reset_options *options, struct reset **ret,
                struct err *err);

/* Tries to close the card again; for when a process has ended. */
void reset_poke(struct reset *r);
