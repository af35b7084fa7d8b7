/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot mig`: the commands and options of mig-parted, beside instances in use. */

#include "cli/mig/mig.h"

#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "cli/cli.h"
#include "cli/mig/machine.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv, bool debug);
} commands[] = {
    {"apply", mig_apply},
    {"assert", mig_assert},
    {"export", mig_export_command},
    {"generate-config", mig_generate_command},
};

static const struct opt_usage usage = {
    .synopsis = "aliquot mig [-d] COMMAND [options]",
    .purpose = "Divides the GPUs of this machine into MIG instances, as a configuration file of mig-parted\n"
    "says. Instances in use stay: what they are in the way of waits.",
    .epilog = "Commands:\n"
    "  apply            make the division of a configuration\n"
    "  assert           check whether the division is that of a configuration\n"
    "  export           print the division as a configuration file\n"
    "  generate-config  print the configurations that the GPUs can have\n"
    "\n`aliquot mig COMMAND --help` describes a command. The status is 0, or 1 for any failure.",
};

int cmd_mig(int argc, char **argv) {
    bool debug = env_flag("MIG_PARTED_DEBUG");
    const struct opt options[] = {
        {"debug", 'd', NULL, "say what is done", opt_flag, &debug},
        OPT_END,
    };
    struct err err;
    int at = opt_parse(options, &usage, argc, argv, &err);

    if (at >= 0 && at == argc)
        at = err_set(&err, EINVAL, "no command; see aliquot mig --help");
    if (at < 0)
        return mig_exit("", at, &err);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(commands[i].name, argv[at]) == 0)
            return commands[i].run(argc - at, argv + at, debug);
    return mig_exit("", err_set(&err, EINVAL, "no command '%s'; see aliquot mig --help", argv[at]),
                    &err);
}
