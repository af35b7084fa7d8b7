/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot mig apply`. */

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/mig/machine.h"
#include "cli/mig/mig.h"
#include "cli/mig/pods.h"
#include "gpu/mig/apply.h"

#define KUBELET_DIR "/var/lib/kubelet"

static const struct opt_usage usage = {
    .synopsis = "aliquot mig apply [-f FILE] [-c CONFIG] [-m] [-s]",
    .purpose = "Divides the GPUs as a configuration says. Instances that are wanted and exist stay, those in\n"
    "use always; idle ones that are not wanted are destroyed; the rest is made. Nothing of a GPU "
    "is\n"
    "changed unless all that is wanted of it can be reached.",
    .epilog = "The status is 0 where the configuration is applied, and 1 otherwise: with \"pending\" in the\n"
    "message where instances in use are in the way. It is safe to run it again at any time.",
};

struct apply {
    struct mig_selection selection;
    bool mode_only, skip_reset, debug;
    const char *kubelet_dir; /* NULL: the default, which need not be there */
    const char *pod_logs;
    struct held_devices held;
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

static void mark_instance(struct mig_card *card, unsigned int gi, unsigned int ci,
                          const char *pod) {
    for (uint32_t i = 0; i < card->ninstances; i++) {
        struct mig_instance *instance = &card->instances[i];

        if (instance->id != gi)
            continue;
        instance->in_use = true;
        mig_card_add_holder(instance->holders, pod);
        for (uint32_t k = 0; k < instance->ncompute; k++)
            if (instance->compute[k].id == ci)
                instance->compute[k].in_use = true;
    }
}

/* Whether pods hold that device; `part` is it, or the card. */
static void mark_device(const struct job *job, nvmlDevice_t part, struct mig_card *card) {
    const struct nvml *n = job->nvml;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    const char *pod;

    if (n->nvmlDeviceGetUUID(part, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return;
    for (size_t i = 0; (pod = held_devices_pod(&job->apply->held, uuid, i)); i++) {
        unsigned int gi, ci;

        if (part == job->device) {
            card->in_use = true;
            mig_card_add_holder(card->holders, pod);
        } else if (n->nvmlDeviceGetGpuInstanceId(part, &gi) == NVML_SUCCESS &&
                   n->nvmlDeviceGetComputeInstanceId(part, &ci) == NVML_SUCCESS) {
            mark_instance(card, gi, ci, pod);
        }
    }
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
    unsigned int most = 0;
    int r = read_held(job->apply, err);

    if (r < 0)
        return r;
    mark_device(job, job->device, card);
    if (!card->enabled || !job->nvml->nvmlDeviceGetMaxMigDeviceCount ||
        job->nvml->nvmlDeviceGetMaxMigDeviceCount(job->device, &most) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < most; i++) {
        nvmlDevice_t part;

        if (job->nvml->nvmlDeviceGetMigDeviceHandleByIndex(job->device, i, &part) == NVML_SUCCESS)
            mark_device(job, part, card);
    }
    return 0;
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
static int apply_cards(struct apply *a, struct err *err) {
    _cleanup_machine_ struct mig_machine m = {0};
    bool pending = false;
    int r = mig_machine_open(&m, err);

    if (r >= 0)
        r = mig_selection_read(&a->selection, &m, err);
    if (r >= 0)
        r = check_cards(a, &m, err);
    if (r >= 0)
        r = read_held(a, err);
    if (r >= 0)
        warn_without_kubelet(a);
    for (uint32_t i = 0; r >= 0 && i < m.n; i++) {
        const struct mig_spec *spec;

        r = find_spec(a, &m.of[i], &spec, err);
        if (r >= 0 && spec)
            r = apply_card(a, &m, i, spec, &pending, err);
    }
    if (r >= 0)
        r = mig_machine_check(&m, err);
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
                      .debug = debug,
                      .pod_logs = "/var/log/pods"};
    const struct opt options[] = {
        {"config-file", 'f', "FILE",
         "mig-parted's configuration file, or - (default: what the GPUs can have)", opt_string,
         &a.selection.file},
        {"selected-config", 'c', "CONFIG", "which of its configurations (default: the only one)",
         opt_string, &a.selection.name},
        {"mode-only", 'm', NULL, "change the MIG mode only", opt_flag, &a.mode_only},
        {"skip-reset", 's', NULL, "no failure where a mode waits for a reset of the GPU", opt_flag,
         &a.skip_reset},
        {"kubelet-dir", 0, "DIR",
         "kubelet's directory: what its pods hold is in use "
         "(default " KUBELET_DIR ")",
         opt_string, &a.kubelet_dir},
        {"pod-logs", 0, "DIR", "where kubelet keeps logs: names of pods (default /var/log/pods)",
         opt_string, &a.pod_logs},
        OPT_END,
    };
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);

    if (r >= 0)
        r = apply_cards(&a, &err);
    held_devices_done(&a.held);
    mig_file_done(&a.selection.configs);
    return mig_exit("apply", r, &err);
}
