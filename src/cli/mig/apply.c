/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot mig apply`. */

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/mig/environment.h"
#include "cli/mig/mig.h"
#include "gpu/mig/apply.h"
#include "gpu/mig/held_devices.h"
#include "gpu/mig/lock.h"
#include "gpu/mig/machine.h"
#include "gpu/mig/run_hooks.h"

#define KUBELET_DIR "/var/lib/kubelet"

static const struct opt_usage usage = {
    .synopsis = "aliquot mig apply [-f FILE] [-c CONFIG] [-k FILE] [-m] [-s]",
    .purpose = "Divides the GPUs as a configuration says. Instances that are wanted and exist "
               "stay, those in\n"
               "use always; idle ones that are not wanted are destroyed; the rest is made. Nothing "
               "of a GPU "
               "is\n"
               "changed unless all that is wanted of it can be reached.",
    .epilog =
        "The status is 0 where the configuration is applied, and 1 otherwise: with \"pending\" in "
        "the\n"
        "message where instances in use are in the way. It is safe to run it again at any time.",
};

struct apply {
    struct mig_selection selection;
    bool mode_only, skip_reset, debug;
    const char *kubelet_dir; /* NULL: the default, which need not be there */
    const char *pod_logs;
    const char *lock;
    struct held_devices held;
    struct gpu_mig_hooks hooks;
};

/* What the callbacks need of one card. */
struct job {
    const struct mig_spec *spec;
    const struct nvml *nvml;
    nvmlDevice_t device;
    struct apply *apply;
    uint32_t index;
    bool debug;
};

static int want_spec(const struct mig_card *card, void *userdata, struct mig_want *ret,
                     struct err *err) {
    const struct mig_spec *spec = ((const struct job *) userdata)->spec;

    return mig_want_devices(card, spec->devices, spec->ndevices, ret, err);
}

/* A node whose kubelet is elsewhere has to say where: what its pods hold would be destroyed. */
static int read_held(struct apply *a, struct err *err) {
    const char *dir = a->kubelet_dir ? a->kubelet_dir : KUBELET_DIR;
    int r = held_devices_read(dir, a->pod_logs, &a->held, err);

    return r == -ENOENT && !a->kubelet_dir ? 0 : r;
}

static void warn_without_kubelet(const struct apply *a) {
    if (!a->kubelet_dir && access(KUBELET_DIR "/" HELD_DEVICES_FILE, F_OK) < 0)
        (void) fprintf(stderr, "aliquot mig apply: warning: no " KUBELET_DIR "/" HELD_DEVICES_FILE
                               ": no pod is known to hold a device (--kubelet-dir names kubelet's "
                               "directory)\n");
}

static int mark_held(struct mig_card *card, void *userdata, struct err *err) {
    const struct job *job = userdata;
    int r = read_held(job->apply, err);

    if (r >= 0)
        held_devices_mark(&job->apply->held, job->nvml, job->device, card);
    return r < 0 ? r : 0;
}

/* What a hook has stopped is in use no longer. */
static int begin(const struct mig_card *card, const struct mig_plan *plan, void *userdata,
                 struct err *err) {
    const struct job *job = userdata;
    int r = gpu_mig_hooks_before(&job->apply->hooks, plan->set_mode, err);

    (void) card;
    return r > 0 ? -EAGAIN : r;
}

static void print_hook(const char *text, void *userdata) {
    const struct apply *a = userdata;

    if (a->debug)
        (void) fprintf(stderr, "%s\n", text);
}

static void print_step(const char *text, void *userdata) {
    const struct job *job = userdata;

    if (job->debug)
        (void) fprintf(stderr, "GPU %u: %s\n", job->index, text);
}

static int apply_card(struct apply *a, const struct mig_machine *m, uint32_t i,
                      const struct mig_spec *spec, bool *ret_pending, struct err *err) {
    struct job job = {.spec = spec,
                      .nvml = &m->nvml,
                      .device = m->devices[i],
                      .apply = a,
                      .index = m->of[i].index,
                      .debug = a->debug};
    const struct gpu_mig_request request = {.enabled = spec->enabled,
                                            .mode_only = a->mode_only,
                                            .want = want_spec,
                                            .mark = mark_held,
                                            .begin = begin,
                                            .step = print_step,
                                            .userdata = &job};
    struct gpu_mig_result result = {0};
    int r = gpu_mig_apply(&m->nvml, m->devices[i], &request, &result, err);

    if (result.lost[0])
        (void) fprintf(stderr, "aliquot mig apply: GPU %u: could not be put back: %s\n", job.index,
                       result.lost);
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
static int apply_cards(struct apply *a, const struct mig_machine *m, bool *ret_pending,
                       struct err *err) {
    int r = gpu_mig_hooks_start(&a->hooks, err);

    for (uint32_t i = 0; r >= 0 && i < m->n; i++) {
        const struct mig_spec *spec;

        r = mig_selection_spec(&a->selection, &m->of[i], &spec, err);
        if (r >= 0 && spec)
            r = apply_card(a, m, i, spec, ret_pending, err);
    }
    return r < 0 ? r : mig_machine_check(m, err);
}

static int divide(struct apply *a, struct err *err) {
    _cleanup_machine_ struct mig_machine m = {0};
    _cleanup_close_ int lock = gpu_mig_lock(a->lock, err);
    bool pending = false;
    int r = lock < 0 ? lock : mig_machine_open(&m, MIG_MACHINE_LIBRARY, 0, err);

    if (r >= 0)
        r = mig_selection_read(&a->selection, &m, err);
    if (r >= 0)
        r = mig_selection_check(&a->selection, &m, a->mode_only, err);
    if (r >= 0)
        r = read_held(a, err);
    if (r >= 0)
        r = gpu_mig_hooks_open(&a->hooks, err);
    if (r < 0)
        return r;
    warn_without_kubelet(a);
    a->hooks.config_file = a->selection.file;
    a->hooks.selected_config = a->selection.first->config;
    a->hooks.mode_only = a->mode_only;
    a->hooks.skip_reset = a->skip_reset;
    r = gpu_mig_hooks_end(&a->hooks, apply_cards(a, &m, &pending, err), err);
    if (r >= 0 && pending)
        return err_set(err, EBUSY, "%s is pending; run it again when those have ended",
                       a->selection.first->config);
    if (r >= 0)
        (void) printf("%s is applied\n", a->selection.first->config);
    return r;
}

int mig_apply(int argc, char **argv, bool debug) {
    const char *lock = env_text("ALIQUOT_MIG_LOCK");
    struct apply a = {.selection = {.file = env_text("MIG_PARTED_CONFIG_FILE"),
                                    .name = env_text("MIG_PARTED_SELECTED_CONFIG")},
                      .mode_only = env_flag("MIG_PARTED_MODE_CHANGE_ONLY"),
                      .skip_reset = env_flag("MIG_PARTED_SKIP_RESET"),
                      .debug = debug,
                      .pod_logs = "/var/log/pods",
                      .lock = lock ? lock : GPU_MIG_LOCK,
                      .hooks = {.root = "",
                                .output = debug,
                                .tell = print_hook,
                                .userdata = &a,
                                .hooks_file = env_text("MIG_PARTED_HOOKS_FILE")}};
    const struct opt options[] = {
        MIG_SELECTION_OPTIONS(&a.selection),
        {"hooks-file", 'k', "FILE",
         "mig-parted's hooks file: programs to run before and after changes", opt_string,
         &a.hooks.hooks_file},
        {"mode-only", 'm', NULL, "change the MIG mode only", opt_flag, &a.mode_only},
        {"skip-reset", 's', NULL, "no failure where a mode waits for a reset of the GPU", opt_flag,
         &a.skip_reset},
        {"kubelet-dir", 0, "DIR",
         "kubelet's directory: what its pods hold is in use "
         "(default " KUBELET_DIR ")",
         opt_string, &a.kubelet_dir},
        {"pod-logs", 0, "DIR", "where kubelet keeps logs: names of pods (default /var/log/pods)",
         opt_string, &a.pod_logs},
        {"lock-file", 0, "FILE",
         "held meanwhile, against a second division (default $ALIQUOT_MIG_LOCK, or " GPU_MIG_LOCK
         ", which the agent holds)",
         opt_string, &a.lock},
        OPT_END,
    };
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);

    if (r >= 0)
        r = divide(&a, &err);
    held_devices_done(&a.held);
    gpu_mig_hooks_done(&a.hooks);
    mig_file_done(&a.selection.configs);
    return mig_exit("apply", r, &err);
}
