/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot mig apply`. */

#include <inttypes.h>
#include <stdio.h>

#include "cli/args.h"
#include "cli/mig/machine.h"
#include "cli/mig/mig.h"
#include "gpu/mig/apply.h"

static const struct opt_usage usage = {
    "aliquot mig apply [-f FILE] [-c CONFIG] [-m] [-s]",
    "Divides the GPUs as a configuration says. Instances that are wanted and exist stay, those in\n"
    "use always; idle ones that are not wanted are destroyed; the rest is made. Nothing of a GPU "
    "is\n"
    "changed unless all that is wanted of it can be reached.",
    "The status is 0 where the configuration is applied, and 1 otherwise: with \"pending\" in the\n"
    "message where instances in use are in the way. It is safe to run it again at any time.",
};

struct apply {
    struct mig_selection selection;
    bool mode_only, skip_reset, debug;
};

/* What the callbacks need of one card. */
struct job {
    const struct mig_spec *spec;
    uint32_t index;
    bool debug;
};

static int want_spec(const struct mig_card *card, void *userdata, struct mig_want *ret,
                     struct err *err) {
    const struct mig_spec *spec = ((const struct job *) userdata)->spec;

    return mig_want_devices(card, spec->devices, spec->ndevices, ret, err);
}

static void print_step(const char *text, void *userdata) {
    const struct job *job = userdata;

    if (job->debug)
        (void) fprintf(stderr, "GPU %u: %s\n", job->index, text);
}

/* The entry of a card; NULL where it is left as it is. */
static int find_spec(const struct apply *a, const struct mig_machine_card *of,
                     const struct mig_spec **ret, struct err *err) {
    const struct mig_spec *spec =
        mig_file_match(&a->selection.configs, a->selection.first, of->index, of->pci);

    if (spec && !of->card->capable) {
        if (spec->enabled && !spec->all)
            return err_set(err, EOPNOTSUPP, "GPU %u has no MIG", of->index);
        spec = NULL;
    }
    *ret = spec;
    return 0;
}

/* Before anything is changed: whether each card can be what is wanted of it at all. */
static int check_cards(const struct apply *a, const struct mig_machine *m, struct err *err) {
    for (uint32_t i = 0; i < m->n; i++) {
        const struct mig_card *card = m->of[i].card;
        struct mig_want want = {0};
        const struct mig_spec *spec;
        struct mig_plan plan;
        int r = find_spec(a, &m->of[i], &spec, err);

        if (r < 0)
            return r;
        if (!spec || !spec->enabled || a->mode_only || card->nprofiles == 0)
            continue;
        r = mig_want_devices(card, spec->devices, spec->ndevices, &want, err);
        if (r >= 0)
            r = mig_plan(card, &want, &plan, err);
        if (r < 0)
            return err_wrap(err, "GPU %u", m->of[i].index);
    }
    return 0;
}

static int apply_card(const struct apply *a, const struct mig_machine *m, uint32_t i,
                      const struct mig_spec *spec, bool *ret_pending, struct err *err) {
    struct job job = {.spec = spec, .index = m->of[i].index, .debug = a->debug};
    const struct gpu_mig_request request = {.enabled = spec->enabled,
                                            .mode_only = a->mode_only,
                                            .want = want_spec,
                                            .step = print_step,
                                            .userdata = &job};
    struct gpu_mig_result result = {0};
    int r = gpu_mig_apply(&m->nvml, m->devices[i], &request, &result, err);

    if (r == -EBUSY && a->skip_reset)
        r = 0;
    if (r < 0)
        return err_wrap(err, "GPU %u", job.index);
    if (result.pending)
        (void) fprintf(stderr, "aliquot mig apply: GPU %u: pending: %s\n", job.index,
                       result.reason);
    *ret_pending = *ret_pending || result.pending;
    if (a->debug)
        (void) fprintf(
            stderr, "GPU %u: %u changes in %" PRIu64 " us, of them in the driver %" PRIu64 " us\n",
            job.index, result.changes, result.total_ns / 1000, result.driver_ns / 1000);
    return 0;
}

/* The other cards do not wait for one that is pending. */
static int apply_cards(struct apply *a, struct err *err) {
    _cleanup_machine_ struct mig_machine m = {0};
    bool pending = false;
    int r = mig_machine_open(&m, err);

    if (r >= 0)
        r = mig_selection_read(&a->selection, &m, err);
    if (r >= 0)
        r = check_cards(a, &m, err);
    for (uint32_t i = 0; r >= 0 && i < m.n; i++) {
        const struct mig_spec *spec;

        r = find_spec(a, &m.of[i], &spec, err);
        if (r >= 0 && spec)
            r = apply_card(a, &m, i, spec, &pending, err);
    }
    if (r >= 0 && pending)
        return err_set(err, EBUSY, "%s is pending; run it again when those have ended",
                       a->selection.first->config);
    if (r >= 0)
        (void) printf("%s is applied\n", a->selection.first->config);
    return r;
}

int mig_apply(int argc, char **argv, bool debug) {
    struct apply a = {.selection = {.file = env_text("MIG_PARTED_CONFIG_FILE"),
                                    .name = env_text("MIG_PARTED_SELECTED_CONFIG")},
                      .mode_only = env_flag("MIG_PARTED_MODE_CHANGE_ONLY"),
                      .skip_reset = env_flag("MIG_PARTED_SKIP_RESET"),
                      .debug = debug};
    const struct opt options[] = {
        {"config-file", 'f', "FILE",
         "mig-parted's configuration file, or - (default: what the GPUs can have)", opt_string,
         &a.selection.file},
        {"selected-config", 'c', "CONFIG", "which of its configurations (default: the only one)",
         opt_string, &a.selection.name},
        {"mode-only", 'm', NULL, "change the MIG mode only", opt_flag, &a.mode_only},
        {"skip-reset", 's', NULL, "no failure where a mode waits for a reset of the GPU", opt_flag,
         &a.skip_reset},
        OPT_END,
    };
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);

    if (r >= 0)
        r = apply_cards(&a, &err);
    mig_file_done(&a.selection.configs);
    return mig_exit("apply", r, &err);
}
