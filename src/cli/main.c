/* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "cli/cli.h"
#include "cli/kubectl_options.h"
#include "cli/login.h"

#define WORDS_MAX 8 /* behind `help` */

static int cmd_version(int argc, char **argv);
static int cmd_help(int argc, char **argv);

static const struct command {
    struct opt_word word;
    int (*run)(int argc, char **argv);
} commands[] = {
    {{"sim", NULL, "run a command on simulated NVIDIA GPUs, or serve them to a node", true},
     cmd_sim},
    {{"run", NULL, "run a command on a share of a GPU, without Kubernetes", true}, cmd_run},
    {{"gpus", NULL, "show the GPUs of a cluster, their allocations and their use", true}, cmd_gpus},
    {{"top", NULL, "watch GPUs, containers, nodes and waiting pods on a screen", true}, cmd_top},
    {{"web", NULL, "show the same in a browser of this machine", true}, cmd_web},
    {{"inspect", NULL, "show allocations by node, card, pod or namespace", true}, cmd_inspect},
    {{"explain", NULL, "explain why a pod is pending, or where its share is", true}, cmd_explain},
    {{"doctor", NULL, "check an installation, and say what to do", true}, cmd_doctor},
    {{"uninstall", NULL, "remove an installation, and what is left of one", true}, cmd_uninstall},
    {{"card", NULL, "cordon, drain, release or reset GPUs of a cluster", true}, cmd_card},
    {{"node", NULL, "have a node's agent release its GPUs, for an upgrade of their driver", true},
     cmd_node},
    {{"limits", NULL, "show and change the limits of `aliquot run` processes", true}, cmd_limits},
    {{"mig", NULL, "divide GPUs into MIG instances, beside those in use", true}, cmd_mig},
    {{"recommend", NULL, "say what containers could ask, by what they were seen to use", true},
     cmd_recommend},
    {{"plan", NULL, "plan how many cards the waiting pods need", true}, cmd_plan},
    {{"defrag", NULL, "plan moves of pods that free whole cards", true}, cmd_defrag},
    {{"replay", NULL, "place the pods of a trace on nodes, without a cluster", true}, cmd_replay},
    {{"version", NULL, "print the version", false}, cmd_version},
    {{"help", "[COMMAND]", "print this text, or that of a command", false}, cmd_help},
    {OPT_END, NULL},
};

static bool arg_version;

static const struct opt options[] = {
    {"version", 0, NULL, "print the version and exit", opt_flag, &arg_version},
    KUBECTL_OPTIONS,
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot [options] COMMAND [options] ...",
    .purpose = "Shares GPUs between the pods of a Kubernetes cluster.",
    .epilog = "`aliquot COMMAND --help` describes a command; --help=man prints it as a man page.",
    .title = "Commands",
    .words = &commands[0].word,
    .stride = sizeof(commands[0]),
};

static int cmd_version(int argc, char **argv) {
    (void) argc;
    (void) argv;
    (void) puts("aliquot " ALIQUOT_VERSION);
    return 0;
}

static int run_command(int argc, char **argv) {
    const struct command *command = opt_word_find(&usage, argv[0]);
    char meant[OPT_MEANT_SIZE];

    if (command)
        return command->run(argc, argv);
    (void) fprintf(stderr, "aliquot: no command '%s'; %s\n", argv[0],
                   opt_meant(&usage, argv[0], meant));
    return EXIT_USAGE;
}

static int print_help(void) {
    struct err err;
    char *argv[] = {(char[]){"aliquot"}, (char[]){"--help"}, NULL};

    (void) opt_parse(options, &usage, 2, argv, &err);
    return 0;
}

/* `aliquot help mig apply` is `aliquot mig apply --help`. */
static int cmd_help(int argc, char **argv) {
    char *args[WORDS_MAX + 2] = {NULL};
    int n = argc - 1 < WORDS_MAX ? argc - 1 : WORDS_MAX;

    if (n == 0)
        return print_help();
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "version") == 0)
        return print_help();
    memcpy(args, argv + 1, (size_t) n * sizeof(args[0]));
    args[n] = (char[]){"--help"};
    return run_command(n + 1, args);
}

int main(int argc, char **argv) {
    struct err err;
    int at = opt_parse(options, &usage, argc, argv, &err);

    if (at == -ECANCELED)
        return 0;
    if (at < 0) {
        (void) fprintf(stderr, "aliquot: %s\n", err.text);
        return EXIT_USAGE;
    }
    if (arg_version)
        return cmd_version(0, NULL);
    if (at == argc) {
        (void) fprintf(stderr, "aliquot: no command; see --help\n");
        return EXIT_USAGE;
    }
    if (login_receive(&err) < 0) {
        (void) fprintf(stderr, "aliquot: %s\n", err.text);
        return EXIT_USAGE;
    }
    return run_command(argc - at, argv + at);
}
