/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/card_read.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/units.h"
#include "gpu/nvml/nvml.h"

#define HANDLES_MAX 64
#define PROCESSES_MAX 256
#define COMPUTE_NUMBERS 9 /* NVML_COMPUTE_INSTANCE_PROFILE_...: 0 to 8 */

int gpu_mig_error(const struct nvml *n, nvmlReturn_t code, const char *call, struct err *err) {
    return err_set(err, EIO, "%s: %s", call, n->error_string(code));
}

/* A profile of another model, or of a newer driver. */
static bool is_absent(nvmlReturn_t code) {
    return code == NVML_ERROR_NOT_SUPPORTED || code == NVML_ERROR_INVALID_ARGUMENT;
}

/* ---- profiles ---- */

static nvmlReturn_t read_placements(const struct nvml *n, nvmlDevice_t device,
                                    struct mig_card_profile *p) {
    nvmlGpuInstancePlacement_t list[MIG_SLICES_MAX];
    unsigned int count = MIG_SLICES_MAX;
    nvmlReturn_t r = n->nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, p->id, list, &count);

    if (r != NVML_SUCCESS)
        return r;
    for (unsigned int i = 0; i < count && i < MIG_SLICES_MAX; i++) {
        if (list[i].size == 0 || list[i].size > MIG_SLICES_MAX ||
            list[i].start > MIG_SLICES_MAX - list[i].size)
            return NVML_ERROR_UNKNOWN;
        p->starts |= 1u << list[i].start;
        p->size = list[i].size;
    }
    return NVML_SUCCESS;
}

static void describe_profile(struct mig_card_profile *p, uint32_t number,
                             const nvmlGpuInstanceProfileInfo_t *info, uint64_t total) {
    *p = (struct mig_card_profile){
        .number = number,
        .id = info->id,
        .name = {.compute = info->sliceCount,
                 .slices = info->sliceCount,
                 .gb = mig_name_gb(info->memorySizeMB, total)},
        .most = info->instanceCount,
        .memory = info->memorySizeMB * MIB,
        .engines = {info->decoderCount, info->encoderCount, info->jpegCount, info->ofaCount}};
    (void) snprintf(p->name.attributes, sizeof(p->name.attributes), "%s",
                    mig_name_attributes(number));
}

static int read_profiles(const struct nvml *n, nvmlDevice_t device, struct mig_card *card,
                         struct err *err) {
    nvmlMemory_t memory;
    nvmlReturn_t r = n->nvmlDeviceGetMemoryInfo(device, &memory);

    if (r != NVML_SUCCESS)
        return gpu_mig_error(n, r, "nvmlDeviceGetMemoryInfo", err);
    for (uint32_t number = 0; number < MIG_PROFILE_NUMBERS; number++) {
        struct mig_card_profile *p = &card->profiles[card->nprofiles];
        nvmlGpuInstanceProfileInfo_t info = {0};

        r = n->nvmlDeviceGetGpuInstanceProfileInfo(device, number, &info);
        if (is_absent(r))
            continue;
        if (r != NVML_SUCCESS)
            return gpu_mig_error(n, r, "nvmlDeviceGetGpuInstanceProfileInfo", err);
        describe_profile(p, number, &info, memory.total);
        r = read_placements(n, device, p);
        if (r != NVML_SUCCESS && card->enabled)
            return gpu_mig_error(n, r, "nvmlDeviceGetGpuInstancePossiblePlacements", err);
        if (r != NVML_SUCCESS) {
            card->nprofiles = 0; /* told only in MIG mode */
            return 0;
        }
        card->nprofiles += p->starts != 0 && p->most <= HANDLES_MAX;
    }
    return 0;
}

/* ---- instances ---- */

static bool has_compute(const struct mig_instance *gi, uint32_t id) {
    for (uint32_t i = 0; i < gi->ncompute; i++)
        if (gi->compute[i].id == id)
            return true;
    return false;
}

static int read_compute(const struct nvml *n, nvmlGpuInstance_t handle, struct mig_instance *gi,
                        struct err *err) {
    for (unsigned int number = 0; number < COMPUTE_NUMBERS; number++) {
        nvmlComputeInstanceProfileInfo_t profile = {0};
        nvmlComputeInstance_t list[HANDLES_MAX];
        unsigned int count = HANDLES_MAX;
        nvmlReturn_t r = n->nvmlGpuInstanceGetComputeInstanceProfileInfo(
            handle, number, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &profile);

        if (is_absent(r) || (r == NVML_SUCCESS && profile.instanceCount > HANDLES_MAX))
            continue;
        if (r == NVML_SUCCESS)
            r = n->nvmlGpuInstanceGetComputeInstances(handle, profile.id, list, &count);
        for (unsigned int i = 0; r == NVML_SUCCESS && i < count && i < HANDLES_MAX; i++) {
            nvmlComputeInstanceInfo_t info = {0};

            r = n->nvmlComputeInstanceGetInfo_v2(list[i], &info);
            if (r == NVML_SUCCESS &&
                (profile.sliceCount > MIG_COMPUTE_MAX || info.placement.start > MIG_COMPUTE_MAX))
                return err_set(err, EIO, "a compute instance of %u slices at %u",
                               profile.sliceCount, info.placement.start);
            if (r == NVML_SUCCESS && !has_compute(gi, info.id) && gi->ncompute < MIG_COMPUTE_MAX)
                gi->compute[gi->ncompute++] = (struct mig_compute){
                    .id = info.id, .slices = profile.sliceCount, .start = info.placement.start};
        }
        if (r != NVML_SUCCESS)
            return gpu_mig_error(n, r, "nvmlGpuInstanceGetComputeInstances", err);
    }
    return 0;
}

/* The instances of one profile. */
static int read_instances_of(const struct nvml *n, nvmlDevice_t device, uint32_t profile,
                             struct mig_card *card, struct err *err) {
    nvmlGpuInstance_t list[HANDLES_MAX];
    unsigned int count = HANDLES_MAX;
    nvmlReturn_t r = n->nvmlDeviceGetGpuInstances(device, card->profiles[profile].id, list, &count);

    for (unsigned int i = 0; r == NVML_SUCCESS && i < count && i < HANDLES_MAX; i++) {
        nvmlGpuInstanceInfo_t info = {0};
        struct mig_instance *gi = &card->instances[card->ninstances];

        r = n->nvmlGpuInstanceGetInfo(list[i], &info);
        if (r != NVML_SUCCESS)
            break;
        if (!mig_card_may_start(&card->profiles[profile], info.placement.start))
            return err_set(err, EIO, "an instance at %u, where none of its profile may be",
                           info.placement.start);
        if (card->ninstances == MIG_CARD_INSTANCES_MAX)
            return err_set(err, EIO, "more than %d GPU instances", MIG_CARD_INSTANCES_MAX);
        *gi =
            (struct mig_instance){.id = info.id, .profile = profile, .start = info.placement.start};
        int e = read_compute(n, list[i], gi, err);
        if (e < 0)
            return e;
        card->ninstances++;
    }
    return r == NVML_SUCCESS ? 0 : gpu_mig_error(n, r, "nvmlDeviceGetGpuInstances", err);
}

/* ---- use ---- */

#define MPS_COMM "nvidia-cuda-mps" /* 15 characters of the name */

static void name_process(uint32_t pid, char ret[static 64]) {
    _cleanup_buf_ struct buf comm = BUF_INIT(65536);
    char path[40];

    (void) snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    if (file_read(path, 256, &comm, NULL) < 0)
        (void) snprintf(ret, 64, "process %u", pid);
    else
        (void) snprintf(ret, 64, "process %u (%.*s)", pid, (int) strcspn(buf_str(&comm), "\n"),
                        buf_str(&comm));
}

/* Marks the compute instance, its GPU instance and the card; the card alone where the driver names
 * no instance. An MPS server without clients is no use: the driver lists the clients by themselves,
 * and refuses what a server is in the way of. */
static void add_process(struct mig_card *card, const nvmlProcessInfo_v2_t *p) {
    char name[64];

    name_process(p->pid, name);
    if (strstr(name, "(" MPS_COMM ")"))
        return;
    card->in_use = true;
    for (uint32_t i = 0; i < card->ninstances; i++) {
        struct mig_instance *gi = &card->instances[i];

        if (gi->id != p->gpuInstanceId)
            continue;
        gi->in_use = true;
        for (uint32_t k = 0; k < gi->ncompute; k++)
            if (gi->compute[k].id == p->computeInstanceId)
                gi->compute[k].in_use = true;
        if (!strstr(gi->holders, name))
            mig_card_add_holder(gi->holders, name);
        return;
    }
    if (!strstr(card->holders, name))
        mig_card_add_holder(card->holders, name);
}

typedef nvmlReturn_t (*list_fn)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);

/* Of the card, or of one of its MIG devices, whose ids are then `gi` and `ci`. */
static void read_processes(const struct nvml *n, nvmlDevice_t device, const unsigned int *gi,
                           const unsigned int *ci, struct mig_card *card) {
    const list_fn lists[] = {n->nvmlDeviceGetComputeRunningProcesses_v3,
                             n->nvmlDeviceGetGraphicsRunningProcesses_v3,
                             n->nvmlDeviceGetMPSComputeRunningProcesses_v3};

    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        nvmlProcessInfo_v2_t list[PROCESSES_MAX];
        unsigned int count = PROCESSES_MAX;

        if (!lists[k] || lists[k](device, &count, list) != NVML_SUCCESS)
            continue;
        for (unsigned int i = 0; i < count && i < PROCESSES_MAX; i++) {
            if (gi) {
                list[i].gpuInstanceId = *gi;
                list[i].computeInstanceId = *ci;
            }
            add_process(card, &list[i]);
        }
    }
}

static bool has_instance(const struct mig_card *card, unsigned int gi) {
    for (uint32_t i = 0; i < card->ninstances; i++)
        if (card->instances[i].id == gi)
            return true;
    return false;
}

/* A MIG device of an instance that was not read: a plan would take its slices as free. */
static int read_use(const struct nvml *n, nvmlDevice_t device, struct mig_card *card,
                    struct err *err) {
    unsigned int most = 0;

    if (!card->enabled) {
        read_processes(n, device, NULL, NULL, card);
        return 0;
    }
    if (!n->nvmlDeviceGetMaxMigDeviceCount || !n->nvmlDeviceGetMigDeviceHandleByIndex ||
        !n->nvmlDeviceGetGpuInstanceId || !n->nvmlDeviceGetComputeInstanceId ||
        n->nvmlDeviceGetMaxMigDeviceCount(device, &most) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < most; i++) {
        nvmlDevice_t part;
        unsigned int gi, ci;

        if (n->nvmlDeviceGetMigDeviceHandleByIndex(device, i, &part) != NVML_SUCCESS ||
            n->nvmlDeviceGetGpuInstanceId(part, &gi) != NVML_SUCCESS ||
            n->nvmlDeviceGetComputeInstanceId(part, &ci) != NVML_SUCCESS)
            continue;
        if (!has_instance(card, gi))
            return err_set(err, EIO,
                           "GPU instance %u has a profile that is not known here, or another "
                           "program has just made it",
                           gi);
        read_processes(n, part, &gi, &ci, card);
    }
    return 0;
}

int gpu_mig_read(const struct nvml *n, nvmlDevice_t device, struct mig_card *ret, struct err *err) {
    struct mig_card card = {0};
    unsigned int mode = 0, next = 0;
    nvmlReturn_t code = n->nvmlDeviceGetMigMode ? n->nvmlDeviceGetMigMode(device, &mode, &next)
                                                : NVML_ERROR_NOT_SUPPORTED;

    if (code != NVML_SUCCESS && code != NVML_ERROR_NOT_SUPPORTED)
        return gpu_mig_error(n, code, "nvmlDeviceGetMigMode", err);
    card.capable = code == NVML_SUCCESS && n->nvmlDeviceGetGpuInstancePossiblePlacements_v2 &&
                   n->nvmlDeviceCreateGpuInstanceWithPlacement && n->nvmlComputeInstanceGetInfo_v2;
    card.enabled = mode != 0;
    if (card.capable) {
        int r = read_profiles(n, device, &card, err);

        for (uint32_t i = 0; r >= 0 && card.enabled && i < card.nprofiles; i++)
            r = read_instances_of(n, device, i, &card, err);
        if (r >= 0)
            r = read_use(n, device, &card, err);
        if (r < 0)
            return r;
    }
    *ret = card;
    return 0;
}
