/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot mig`: the commands and options of mig-parted, beside instances in use. */

#include "cli/mig/mig.h"

#include "base/opt.h"
#include "cli/cli.h"
#include "cli/mig/environment.h"

static const struct command {
    struct opt_word word;
    int (*run)(int argc, char **argv, bool debug);
} commands[] = {
    {{"apply", NULL, "make the division of a configuration", true}, mig_apply},
    {{"assert", NULL, "check whether the division is that of a configuration", true}, mig_assert},
    {{"export", NULL, "print the division as a configuration file", true}, mig_export_command},
    {{"generate-config", NULL, "print the configurations that the GPUs can have", true},
     mig_generate_command},
    {OPT_END, NULL},
};

static const struct opt_usage usage = {
    .synopsis = "aliquot mig [-d] COMMAND [options]",
    .purpose = "Divides the GPUs of this machine into MIG instances, as a configuration file of "
               "mig-parted\n"
               "says. Instances in use stay: what they are in the way of waits.",
    .epilog =
        "`aliquot mig COMMAND --help` describes a command. The status is 0, or 1 for any failure.",
    .title = "Commands",
    .words = &commands[0].word,
    .stride = sizeof(commands[0]),
};

int cmd_mig(int argc, char **argv) {
    bool debug = env_flag("MIG_PARTED_DEBUG");
    const struct opt options[] = {
        {"debug", 'd', NULL, "say what is done", opt_flag, &debug},
        OPT_END,
    };
    const struct command *command = NULL;
    char meant[OPT_MEANT_SIZE];
    struct err err;
    int at = opt_parse(options, &usage, argc, argv, &err);

    if (at >= 0 && at == argc)
        at = err_set(&err, EINVAL, "no command; see --help");
    if (at >= 0 && !(command = opt_word_find(&usage, argv[at])))
        at = err_set(&err, EINVAL, "no command '%s'; %s", argv[at],
                     opt_meant(&usage, argv[at], meant));
    return at < 0 ? mig_exit("", at, &err) : command->run(argc - at, argv + at, debug);
}
