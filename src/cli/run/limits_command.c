/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot limits`: limits and use of this user's runs, and how to change the limits of a running
 * one. */

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "base/opt.h"
#include "cli/cli.h"
#include "cli/run/arbitrate.h"
#include "cli/run/compute_options.h"
#include "cli/run/run_shares.h"
#include "cli/table.h"
#include "share/compute.h"
#include "share/ledger.h"

enum column { SHARE, GPU, MEMORY, USED, CORE, POLICY, TIME, WAITED, STATE, COLUMNS };

static uint64_t arg_memory = UINT64_MAX;
static uint32_t arg_share;
static struct compute_options arg_terms = COMPUTE_OPTIONS_NONE;

static const struct opt set_options[] = {
    {"share", 's', "PID", "PID of the `aliquot run` (default: the only one)", opt_u32, &arg_share},
    {"memory", 'm', "SIZE", "device memory on each GPU, such as 4Gi; 0: no limit", opt_size,
     &arg_memory},
    COMPUTE_OPTIONS_OPTIONS(arg_terms),
    OPT_END,
};

static const struct opt_usage set_usage = {
    .synopsis = "aliquot limits set [options]",
    .purpose = "Changes the limits of a running `aliquot run`; limits that are not given stay.\n"
               "A memory limit below the use frees nothing: allocations are refused until enough "
               "has been\n"
               "freed.",
    .epilog = COMPUTE_OPTIONS_HELP
    "Exit status: 0; 1 when the limits cannot be changed; 2 for wrong options.",
};

static const struct opt show_options[] = {OPT_END};

static const struct opt_word words[] = {
    {"set", "[options]", "change the limits of a running `aliquot run`", true},
    OPT_END,
};

static const struct opt_usage show_usage = {
    .synopsis = "aliquot limits | aliquot limits set [options]",
    .purpose = "Shows limits and use of each GPU for each `aliquot run` of this user.",
    .title = "Commands",
    .words = words,
    .epilog = "TIME: GPU time charged for launches; WAITED: time for which launches were delayed.",
};

/* ---- showing ---- */

static void put_memory(struct table *t, const struct share_limits *limits, uint32_t i,
                       struct ledger *ledger) {
    uint64_t limit = limits->device[i].memory_bytes, used;
    struct ledger_usage usage;
    char text[24];

    table_set(t, MEMORY, "%s", limit ? num_format_bytes(limit, text) : "all");
    if (!ledger || ledger_snapshot(ledger, &usage) < 0) {
        table_set(t, STATE, "ledger damaged: allocations are refused");
        return;
    }
    used = usage.used[i] + limits->more[i].overhead_bytes;
    table_set(t, USED, "%s", num_format_bytes(used, text));
    if (limit && used > limit)
        table_set(t, STATE, "over its limit: allocations are refused");
}

static void put_time(struct table *t, const struct share_device *d, uint32_t i,
                     const struct compute *compute) {
    struct compute_usage usage;
    enum share_policy policy = (enum share_policy) d->policy;

    if (policy == SHARE_DEFAULT)
        policy = d->core_percent ? SHARE_FIXED : SHARE_BEST_EFFORT;
    if (d->core_percent)
        table_set(t, CORE, "%u %%", d->core_percent);
    table_set(t, POLICY, "%s", share_policy_name(policy));
    if (!compute || compute_read(compute, i, &usage) < 0)
        return;
    table_set(t, TIME, "%" PRIu64 ".%03" PRIu64 " s", usage.charged / 1000000000,
              usage.charged / 1000000 % 1000);
    table_set(t, WAITED, "%" PRIu64 ".%03" PRIu64 " s", usage.waited / 1000000000,
              usage.waited / 1000000 % 1000);
}

static void put_share(const struct run_share *place, void *userdata) {
    struct table *t = userdata;
    struct share_limits limits;
    struct compute *compute = NULL;
    struct ledger *ledger = NULL;
    char path[96], grants[96];

    run_shares_path(place->dir, "limits", path);
    if (limits_read(path, &limits, NULL) < 0)
        return;
    run_shares_path(place->dir, "ledger", path);
    (void) ledger_open(path, &ledger, NULL);
    run_shares_path(place->dir, "compute", path);
    run_shares_path(place->dir, "grants", grants);
    (void) compute_open(grants, path, &compute, NULL);
    for (uint32_t i = 0; i < limits.ndevices; i++) {
        table_row(t);
        table_set(t, SHARE, "%d", (int) place->pid);
        table_set(t, GPU, "%s", limits.device[i].uuid);
        if (kill(place->pid, 0) < 0 && errno == ESRCH)
            table_set(t, STATE, "processes left in the background");
        put_memory(t, &limits, i, ledger);
        put_time(t, &limits.device[i], i, compute);
    }
    ledger_free(ledger);
    compute_free(compute);
}

static int show_limits(int argc, char **argv, struct err *err) {
    static const char *const titles[COLUMNS] = {"SHARE",  "GPU",  "MEMORY", "USED", "CORE",
                                                "POLICY", "TIME", "WAITED", "STATE"};
    _cleanup_(table_done) struct table table = {.columns = COLUMNS};
    int r = opt_parse(show_options, &show_usage, argc, argv, err);

    if (r < 0)
        return r;
    if (r < argc)
        return err_set(err, EINVAL, "unexpected argument '%s'; see --help", argv[r]);
    table_row(&table);
    for (size_t i = 0; i < COLUMNS; i++)
        table_set(&table, i, "%s", titles[i]);
    run_shares_each(put_share, &table);
    return table_show(&table, err);
}

/* ---- changing ---- */

struct search {
    pid_t pid; /* 0: any */
    struct run_share found;
    unsigned n;
};

static void match_share(const struct run_share *place, void *userdata) {
    struct search *s = userdata;

    if (s->pid != 0 && s->pid != place->pid)
        return;
    s->found = *place;
    s->n++;
}

static int find_share(struct run_share *ret, struct err *err) {
    struct search s = {.pid = (pid_t) arg_share};

    run_shares_each(match_share, &s);
    *ret = s.found;
    if (s.n == 1)
        return 0;
    if (s.n > 1)
        return err_set(err, EINVAL, "there are %u shares: choose one with --share", s.n);
    if (s.pid)
        return err_set(err, EINVAL, "--share %u: no such `aliquot run` of this user", arg_share);
    return err_set(err, EINVAL, "no `aliquot run` of this user is running");
}

static int check_memory(const struct share_device *d, struct err *err) {
    if (arg_memory == 0 || arg_memory > d->context_bytes)
        return 0;
    return err_set(err, EINVAL,
                   "--memory: a CUDA context alone takes %" PRIu64 " bytes on this GPU",
                   d->context_bytes);
}

static int change_limits(const struct run_share *place, struct err *err) {
    struct share_limits limits;
    char path[96];
    /* One writer at a time. */
    _cleanup_close_ int lock = open(place->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return err_errno(err, errno, "cannot lock %s", place->dir);
    run_shares_path(place->dir, "limits", path);
    r = limits_read(path, &limits, err);
    for (uint32_t i = 0; r == 0 && i < limits.ndevices; i++) {
        r = check_memory(&limits.device[i], err);
        if (arg_memory != UINT64_MAX)
            limits.device[i].memory_bytes = arg_memory;
        if (r == 0)
            r = compute_options_apply(&arg_terms, &limits.device[i], err);
    }
    return r < 0 ? r : limits_update(path, &limits, err);
}

static int set_limits(int argc, char **argv, struct err *err) {
    struct run_share place;
    int r = opt_parse(set_options, &set_usage, argc, argv, err);

    if (r < 0)
        return r;
    if (r < argc)
        return err_set(err, EINVAL, "unexpected argument '%s'; see --help", argv[r]);
    r = compute_options_check(&arg_terms, err);
    if (r == 0)
        r = find_share(&place, err);
    if (r == 0)
        r = change_limits(&place, err);
    if (r == 0)
        arbitrate_notice(place.dir);
    return r;
}

int cmd_limits(int argc, char **argv) {
    bool changes = argc > 1 && strcmp(argv[1], "set") == 0;
    struct err err;
    int r = changes ? set_limits(argc - 1, argv + 1, &err) : show_limits(argc, argv, &err);

    if (r >= 0 || r == -ECANCELED)
        return 0;
    (void) fprintf(stderr, "aliquot limits: %s\n", err.text);
    return r == -EINVAL ? EXIT_USAGE : 1;
}
