/* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static int cmd_version(int argc, char **argv);
static int cmd_help(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"sim", cmd_sim, "run a command on simulated NVIDIA GPUs, or serve them to a node"},
    {"run", cmd_run, "run a command on a slice of a GPU, without Kubernetes"},
    {"gpus", cmd_gpus, "show the GPUs of a cluster, their allocations and their use"},
    {"inspect", cmd_inspect, "show allocations by node, card, pod or namespace"},
    {"explain", cmd_explain, "explain why a pod is pending, or where its share is"},
    {"limits", cmd_limits, "show and change the limits of `aliquot run` processes"},
    {"mig", cmd_mig, "divide GPUs into MIG instances, beside those in use"},
    {"defrag", cmd_defrag, "plan moves of pods that free whole cards"},
    {"replay", cmd_replay, "place the pods of a trace on nodes, without a cluster"},
    {"version", cmd_version, "print the version"},
    {"help", cmd_help, "print this help"},
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *f) {
    (void) fprintf(f, "Usage: aliquot COMMAND [options] ...\n\n"
                      "Shares GPUs between the pods of a Kubernetes cluster.\n\nCommands:\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        (void) fprintf(f, "  %-9s %s\n", commands[i].name, commands[i].help);
    (void) fprintf(f, "\n`aliquot COMMAND --help` describes a command.\n");
}

static int cmd_version(int argc, char **argv) {
    (void) argc;
    (void) argv;
    (void) puts("aliquot " ALIQUOT_VERSION);
    return 0;
}

static int cmd_help(int argc, char **argv) {
    (void) argc;
    (void) argv;
    print_help(stdout);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0)
        name = "version";
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    (void) fprintf(stderr, "aliquot: no command '%s'; see `aliquot help`\n", name);
    return EXIT_USAGE;
}
