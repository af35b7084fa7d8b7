/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs another program on the agent's loop and collects what it prints. A program that does not end
 * in time is killed with its process group. One thread. */

#include <stdbool.h>
#include <uv.h>

struct command;
struct err;

#define COMMAND_OUTPUT_MAX 4096 /* bytes of standard output and error; the rest is dropped */
#define COMMAND_INPUT_MAX 4096

struct command_result {
    int status;         /* exit status; -1: ended by a signal, or late */
    int signal;         /* that ended it; 0: none */
    bool late;          /* it ran past its deadline and was killed */
    const char *output; /* standard output and error together; valid during the call */
};

struct command_options {
    const char *const *argv; /* argv[0] is the path of the program; NULL at the end */
    const char *const *env;  /* NULL: the agent's */
    const char *input;       /* standard input, at most COMMAND_INPUT_MAX bytes; NULL: none */
    int inherited;           /* descriptor that the program has as its 3; 0: none */
    unsigned deadline_ms;
    /* Called once, unless the command is cancelled; it may start another command. */
    void (*done)(const struct command_result *result, void *userdata);
    void *userdata;
};

/* Starts the program in a session of its own. The options are copied. An error names the program:
 * -ENOENT, -EACCES, -ENOMEM, -E2BIG ... */
int command_start(uv_loop_t *loop, const struct command_options *options, struct command **ret,
                  struct err *err);

/* Kills it; `done` is not called. The loop must run for it to be freed. */
void command_cancel(struct command *c);
