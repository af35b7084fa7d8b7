/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot uninstall`: takes an installation away, also what is left of one. */

#include "cli/uninstall/uninstall.h"

#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/cluster/kubectl.h"

static int parse_crds(const char *value, void *target, struct err *err) {
    bool removed = strcmp(value, "delete") == 0;

    if (!removed && strcmp(value, "keep") != 0)
        return err_set(err, EINVAL, "--crds: '%s' is neither keep nor delete", value);
    *(bool *) target = removed;
    return 0;
}

static struct removal arg = {.limit_s = 60};

/* Nothing is removed before the first step agrees. Those that write end before what they write to:
 * the nodes come last, when kubelet has noticed the end of the plugins. */
static int (*const steps[])(const struct removal *r, struct err *err) = {
    removal_check_users,     removal_of_release, removal_of_admission,  removal_of_host_files,
    removal_of_workloads,    removal_of_rights,  removal_of_finalizers, removal_of_gpus,
    removal_of_state,        removal_of_crds,    removal_of_namespace,  removal_of_location,
    removal_of_node_entries,
};

static const struct opt options[] = {
    {"system", 0, "NAME",
     "namespace of Aliquot (default: where its agents' account is, or aliquot-system)", opt_string,
     &arg.system},
    {"force", 0, NULL, "also while pods hold shares; they go on until their containers end",
     opt_flag, &arg.force},
    {"crds", 0, "keep|delete",
     "what becomes of the CRDs, and of claims, ElasticGPUs, classes, quotas and reservations "
     "(default keep)",
     parse_crds, &arg.delete_crds},
    {"wait", 0, NULL,
     "wait until kubelet has given up the plugins' resources, 5 minutes after their end", opt_flag,
     &arg.wait},
    {"timeout", 0, "SECONDS", "how long pods of Aliquot are waited for (default 60)", opt_u32,
     &arg.limit_s},
    {"agent-image", 0, "IMAGE",
     "of the agent that cleans the nodes, where its DaemonSet is gone already, or is older than "
     "0.2",
     opt_string, &arg.image},
    KUBECTL_OPTIONS,
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot uninstall [options]",
    .purpose =
        "Removes Aliquot from the cluster and its files from the nodes, and what is left of it\n"
        "after `helm uninstall` or `kubectl delete`. Refuses while pods hold shares, and names\n"
        "them. Prints a line for each step. An interrupted removal is completed by the next.",
    .epilog = "Uses kubectl (or $KUBECTL) with your context, which needs the rights of an\n"
              "administrator. Exit status: 0; 1 when pods hold shares, a step fails or something "
              "is left;\n"
              "2 for wrong arguments.",
};

int cmd_uninstall(int argc, char **argv) {
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    bool understood = r == 0, left = false;

    if (r == 0)
        r = removal_locate(&arg, &err);
    for (size_t i = 0; understood && r >= 0 && i < sizeof(steps) / sizeof(steps[0]); i++) {
        r = steps[i](&arg, &err);
        left = left || r > 0;
    }
    if (r >= 0 && left)
        r = err_set(&err, EAGAIN, "something is left, see above; run this command again then");
    return args_exit("uninstall", r, understood, &err);
}
