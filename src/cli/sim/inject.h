/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Subcommands of `aliquot sim` for a machine that runs; argv[0] is the subcommand's name. */
int cmd_sim_inject(int argc, char **argv);
int cmd_sim_show(int argc, char **argv);
