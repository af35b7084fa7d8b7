/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot mig assert`. */

#include <stdio.h>

#include "cli/args.h"
#include "cli/mig/environment.h"
#include "cli/mig/mig.h"
#include "gpu/mig/machine.h"

static const struct opt_usage usage = {
    .synopsis = "aliquot mig assert [-f FILE] [-c CONFIG] [-m] [-a]",
    .purpose = "Checks whether the GPUs are divided as a configuration says. It is not, too, where "
               "a GPU has "
               "no\n"
               "entry in the configuration.",
    .epilog = "The status is 0 where it is so, and 1 otherwise.",
};

struct assertion {
    struct mig_selection selection;
    bool mode_only, valid_config;
};

/* Text of what differs, or 0. */
static int check_card(const struct assertion *a, const struct mig_machine_card *of,
                      struct err *err) {
    const struct mig_spec *spec =
        mig_file_match(&a->selection.configs, a->selection.first, of->index, of->pci);
    struct mig_devices present[MIG_DEVICES_MAX];
    uint32_t n;

    if (!spec)
        return a->mode_only ? 0 : err_set(err, ENOENT, "GPU %u has no entry", of->index);
    if (!of->card->capable && spec->enabled)
        return err_set(err, EOPNOTSUPP, "GPU %u has no MIG", of->index);
    if (!of->card->capable)
        return 0;
    if (of->card->enabled != spec->enabled)
        return err_set(err, ENOENT, "MIG mode of GPU %u is %s", of->index,
                       of->card->enabled ? "on" : "off");
    n = mig_want_present(of->card, present, MIG_DEVICES_MAX);
    if (!a->mode_only &&
        (n > MIG_DEVICES_MAX || !mig_want_same(spec->devices, spec->ndevices, present, n)))
        return err_set(err, ENOENT, "GPU %u has other MIG devices", of->index);
    return 0;
}

static int check_cards(struct assertion *a, struct err *err) {
    _cleanup_machine_ struct mig_machine m = {0};
    bool needs_cards = !a->valid_config || !a->selection.file;
    int r = needs_cards ? mig_machine_open(&m, MIG_MACHINE_LIBRARY, 0, err) : 0;

    if (r >= 0)
        r = mig_selection_read(&a->selection, &m, err);
    for (uint32_t i = 0; r >= 0 && !a->valid_config && i < m.n; i++) {
        r = check_card(a, &m.of[i], err);
        if (r < 0)
            return err_wrap(err, "%s is not applied", a->selection.first->config);
    }
    if (r >= 0)
        r = mig_machine_check(&m, err);
    if (r >= 0)
        (void) printf("%s is %s\n", a->selection.first->config,
                      a->valid_config ? "valid" : "applied");
    return r;
}

int mig_assert(int argc, char **argv, bool debug) {
    struct assertion a = {.selection = {.file = env_text("MIG_PARTED_CONFIG_FILE"),
                                        .name = env_text("MIG_PARTED_SELECTED_CONFIG")},
                          .mode_only = env_flag("MIG_PARTED_MODE_CHANGE_ONLY"),
                          .valid_config = env_flag("MIG_PARTED_VALID_CONFIG")};
    const struct opt options[] = {
        MIG_SELECTION_OPTIONS(&a.selection),
        {"mode-only", 'm', NULL, "check the MIG mode only", opt_flag, &a.mode_only},
        {"valid-config", 'a', NULL, "check only that the file is valid and has the configuration",
         opt_flag, &a.valid_config},
        OPT_END,
    };
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);

    (void) debug;
    if (r >= 0)
        r = check_cards(&a, &err);
    mig_file_done(&a.selection.configs);
    return mig_exit("assert", r, &err);
}
