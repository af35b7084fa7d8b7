/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The subcommands of `aliquot`. argv[0] is the subcommand's name; the result is the exit status. */
int cmd_sim(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_web(int argc, char **argv);
int cmd_gpus(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_limits(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_mig(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_recommend(int argc, char **argv);
int cmd_defrag(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_uninstall(int argc, char **argv);
int cmd_card(int argc, char **argv);
int cmd_node(int argc, char **argv);

/* Statuses of the command line itself, as shells have them. */
enum {
    EXIT_USAGE = 2,
    EXIT_CANNOT_RUN = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128, /* plus the signal's number */
};
