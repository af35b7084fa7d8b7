/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot uninstall`: takes an installation away, also what is left of one. */

#include "cli/uninstall/uninstall.h"

#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/cluster/api.h"
#include "cli/kubectl_options.h"
#include "model/dialect.h"

static int parse_crds(const char *value, void *target, struct err *err) {
    bool removed = strcmp(value, "delete") == 0;

    if (!removed && strcmp(value, "keep") != 0)
        return err_set(err, EINVAL, "--crds: '%s' is neither keep nor delete", value);
    *(bool *) target = removed;
    return 0;
}

/* Names that nothing on a Node is of (dialect_leave()), as those of --served-elsewhere of agents.
 */
static int parse_left(const char *value, void *target, struct err *err) {
    (void) target;
    return dialect_leave(value, err);
}

static int parse_hook(const char *value, void *target, struct err *err) {
    bool before = strcmp(value, "before") == 0;

    if (!before && strcmp(value, "after") != 0)
        return err_set(err, EINVAL, "--hook: '%s' is neither before nor after", value);
    *(enum removal_caller *) target = before ? REMOVAL_BY_HELM : REMOVAL_AFTERWARDS;
    return 0;
}

static struct removal arg = {.limit_s = 60};

#define USER (1 << REMOVAL_BY_USER)
#define HELM (1 << REMOVAL_BY_HELM)
#define AFTERWARDS (1 << REMOVAL_AFTERWARDS)

/* Nothing is removed before the first step agrees. Those that write end before what they write to:
 * the nodes come last, when kubelet has noticed the end of the plugins. */
static const struct {
    int (*take)(const struct removal *r, struct err *err);
    int callers;
} steps[] = {
    {removal_check_users, USER | HELM},
    {removal_of_apis, USER | HELM},
    {removal_of_release, USER},
    {removal_of_monitoring, USER},
    {removal_of_admission, USER | HELM},
    {removal_of_host_files, USER | HELM},
    {removal_of_workloads, USER | HELM},
    {removal_of_rights, USER | HELM},
    {removal_of_devices, USER | HELM},
    {removal_of_finalizers, USER | HELM},
    {removal_of_gpus, USER | HELM},
    {removal_of_state, USER | HELM},
    {removal_of_crds, USER},
    {removal_of_namespace, USER},
    {removal_of_location, USER | HELM},
    {removal_of_node_entries, USER | HELM | AFTERWARDS},
    {removal_leave_job, HELM},
    {removal_of_last_rights, AFTERWARDS},
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
    {"served-elsewhere", 0, "NAMES",
     "resources of other plugins, as the agents have been told; by itself while their DaemonSet is "
     "there",
     parse_left, NULL},
    {"hook", 0, "before|after",
     "in the chart's Jobs: before `helm uninstall`, without what that removes itself; after it, "
     "until kubelet shows no resources of plugins any more",
     parse_hook, &arg.caller},
    {"job", 0, "JSON", "with --hook=before: the Job with --hook=after", opt_string, &arg.job},
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

/* More than 0: something is left. */
static int take_steps(const struct removal *r, struct err *err) {
    int e = 0;
    bool left = false;

    for (size_t i = 0; e >= 0 && i < sizeof(steps) / sizeof(steps[0]); i++)
        if (steps[i].callers & 1 << r->caller) {
            e = steps[i].take(r, err);
            left = left || e > 0;
        }
    return e < 0 ? e : left;
}

static int remove_installation(struct removal *r, struct err *err) {
    bool begin = true;
    int e = 0;

    if (r->system && !api_is_name(r->system))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", r->system);
    if (r->caller == REMOVAL_BY_HELM)
        e = removal_is_of_helm(r, &begin, err);
    if (e < 0 || !begin)
        return e;
    if (r->caller != REMOVAL_AFTERWARDS)
        e = removal_locate(r, err);
    if (e >= 0)
        e = take_steps(r, err);
    if (e < 0 && r->caller == REMOVAL_BY_HELM)
        removal_leave_nothing(r);
    return e;
}

int cmd_uninstall(int argc, char **argv) {
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    bool understood = r == 0;

    if (understood)
        r = remove_installation(&arg, &err);
    /* What helm removes goes in every case; what is left has been said. */
    if (r > 0 && arg.caller == REMOVAL_BY_USER)
        r = err_set(&err, EAGAIN, "something is left, see above; run this command again then");
    return args_exit("uninstall", r, understood, &err);
}
