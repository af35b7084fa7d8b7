/* SPDX-License-Identifier: Apache-2.0 */

/* Multi-instance GPUs. Handles are places in tables of this process: they stay what they are for
 * as long as the ids mean the same instance. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/mig.h"
#include "sim/nvml/nvml.h"

#define ENTRIES_MAX (SIM_GPU_INSTANCES_MAX * 8u)
#define COMPUTE_MAX 7u

struct nvmlComputeInstance_st {
    nvmlGpuInstance_t parent;
    unsigned int id;
};

struct nvmlGpuInstance_st {
    nvmlDevice_t device;
    unsigned int id;
    struct nvmlComputeInstance_st compute[COMPUTE_MAX];
};

static struct nvmlGpuInstance_st instances[SIM_MAX_GPUS][SIM_GPU_INSTANCES_MAX];

static nvmlReturn_t status_of(int r) {
    switch (r) {
    case 0:
        return NVML_SUCCESS;
    case -EPERM:
    case -EACCES:
        return NVML_ERROR_NO_PERMISSION;
    case -EINVAL:
        return NVML_ERROR_INVALID_ARGUMENT;
    case -ENOSPC:
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case -EBUSY:
        return NVML_ERROR_IN_USE;
    case -ERESTART:
        return NVML_ERROR_RESET_REQUIRED;
    case -ENOENT:
        return NVML_ERROR_NOT_FOUND;
    case -EOPNOTSUPP:
    case -ENODEV:
        return NVML_ERROR_NOT_SUPPORTED;
    default:
        return r == -EPIPE ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_UNKNOWN;
    }
}

/* A whole card of a model that can be divided; no vGPU can. */
static nvmlReturn_t enter_card(nvmlDevice_t device, const struct mig_profile **ret, size_t *ret_n) {
    NVML_TRY(nvml_enter(device));
    if (device->page->compute_slices > 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct mig_profile *rows =
        nvml_client()->host->vgpu ? NULL : mig_profiles_by_name(device->page->name, ret_n);
    if (ret)
        *ret = rows;
    return rows ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* Its GPU instances in order, each followed by its compute instances. `capability` is what the
 * caller needs for that, or 0. */
static nvmlReturn_t fetch_entries(nvmlDevice_t device, uint32_t capability,
                                  struct sim_mig_entry list[ENTRIES_MAX], unsigned int *ret_n) {
    struct client_answer a = {.list = list, .list_max = ENTRIES_MAX * sizeof(*list)};
    nvmlReturn_t r =
        status_of(client_mig(nvml_client(), device->page->minor, SIM_MIG_LIST, capability, 0, &a));
    *ret_n = r == NVML_SUCCESS && a.reply.count <= ENTRIES_MAX ? a.reply.count : 0;
    return r;
}

static nvmlReturn_t change_division(nvmlDevice_t device, enum sim_mig what, uint64_t x, uint64_t y,
                                    unsigned int *ret) {
    struct client_answer a = {.list = NULL};
    nvmlReturn_t r = status_of(client_mig(nvml_client(), device->page->minor, what, x, y, &a));
    if (r == NVML_SUCCESS && ret)
        *ret = (unsigned int) a.reply.a;
    return r;
}

nvmlReturn_t nvml_may_aggregate(nvmlDevice_t device) {
    struct client_answer a = {.list = NULL};
    if (!atomic_load(&device->page->mig))
        return NVML_SUCCESS;
    return status_of(
        client_mig(nvml_client(), device->page->minor, SIM_MIG_LIST, SIM_CAP_MONITOR, 0, &a));
}

bool nvml_has_instances(nvmlDevice_t device) {
    struct sim_mig_entry list[ENTRIES_MAX];
    unsigned int n = 0;
    return atomic_load(&device->page->mig) && fetch_entries(device, 0, list, &n) == NVML_SUCCESS &&
           n > 0;
}

/* -- mode ------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current_mode,
                                  unsigned int *pending_mode) {
    size_t n;
    NVML_TRY(enter_card(device, NULL, &n));
    if (!current_mode || !pending_mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current_mode = atomic_load(&device->page->mig);
    *pending_mode = atomic_load(&device->page->mig_pending);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                  nvmlReturn_t *activation_status) {
    size_t n;
    NVML_TRY(enter_card(device, NULL, &n));
    if (mode > 1 || !activation_status)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = change_division(device, SIM_MIG_MODE, mode, 0, NULL);
    *activation_status = r;
    return r == NVML_ERROR_IN_USE || r == NVML_ERROR_RESET_REQUIRED ? NVML_SUCCESS : r;
}

/* -- profiles -------------------------------------------------------------------------------- */

static const struct mig_profile *by_number(const struct mig_profile *rows, size_t n,
                                           unsigned int number) {
    for (size_t i = 0; i < n; i++)
        if (rows[i].nvml == number)
            return &rows[i];
    return NULL;
}

static const struct mig_profile *by_id(const struct mig_profile *rows, size_t n, unsigned int id) {
    for (size_t i = 0; i < n; i++)
        if (rows[i].id == id)
            return &rows[i];
    return NULL;
}

static nvmlReturn_t find_profile(nvmlDevice_t device, unsigned int profile,
                                 const struct mig_profile **ret) {
    const struct mig_profile *rows;
    size_t n;
    NVML_TRY(enter_card(device, &rows, &n));
    if (profile >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *ret = by_number(rows, n, profile);
    return *ret ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t *info) {
    const struct mig_profile *p;
    NVML_TRY(find_profile(device, profile, &p));
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlGpuInstanceProfileInfo_t){.id = p->id,
                                           .sliceCount = p->slices,
                                           .instanceCount = p->most,
                                           .multiprocessorCount = p->sms,
                                           .copyEngineCount = p->copy,
                                           .decoderCount = p->decode,
                                           .encoderCount = p->encode,
                                           .jpegCount = p->jpeg,
                                           .ofaCount = p->ofa,
                                           .memorySizeMB = p->memory_mib};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
                                                  nvmlGpuInstanceProfileInfo_v2_t *info) {
    nvmlGpuInstanceProfileInfo_t plain;
    const struct mig_profile *p;
    NVML_TRY(find_profile(device, profile, &p));
    NVML_TRY(nvmlDeviceGetGpuInstanceProfileInfo(device, profile, info ? &plain : NULL));
    if (info->version == NVML_STRUCT_VERSION_OF(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        /* The first version, with a version before it and a name behind it. */
        info->id = plain.id;
        memcpy(&info->isP2pSupported, &plain.isP2pSupported,
               offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB) -
                   offsetof(nvmlGpuInstanceProfileInfo_t, isP2pSupported));
        info->memorySizeMB = plain.memorySizeMB;
        (void) snprintf(info->name, sizeof(info->name), "MIG %s", p->name);
        return NVML_SUCCESS;
    }
    if (info->version != NVML_STRUCT_VERSION_OF(nvmlGpuInstanceProfileInfo_v3_t, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlGpuInstanceProfileInfo_v3_t third = {.version = info->version, .id = plain.id};
    memcpy(&third.sliceCount, &plain.sliceCount,
           offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB) -
               offsetof(nvmlGpuInstanceProfileInfo_t, sliceCount));
    third.memorySizeMB = plain.memorySizeMB;
    (void) snprintf(third.name, sizeof(third.name), "MIG %s", p->name);
    memcpy(info, &third, sizeof(third));
    return NVML_SUCCESS;
}

static uint8_t taken(const struct mig_profile *rows, size_t n, const struct sim_mig_entry *list,
                     unsigned int count) {
    uint8_t bits = 0;
    for (unsigned int i = 0; i < count; i++) {
        const struct mig_profile *p = by_id(rows, n, list[i].profile);
        if (p && list[i].ci == UINT32_MAX && list[i].start < 8)
            bits |= mig_bits(p, (int) list[i].start);
    }
    return bits;
}

/* The begin of a call that counts something of a profile. */
static nvmlReturn_t count_of_profile(nvmlDevice_t device, unsigned int profile_id,
                                     const unsigned int *count, const struct mig_profile **ret_rows,
                                     size_t *ret_n, const struct mig_profile **ret_profile) {
    NVML_TRY(enter_card(device, ret_rows, ret_n));
    *ret_profile = by_id(*ret_rows, *ret_n, profile_id);
    return count && *ret_profile ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device,
                                                           unsigned int profile_id,
                                                           nvmlGpuInstancePlacement_t *placements,
                                                           unsigned int *count) {
    const struct mig_profile *rows, *p;
    struct sim_mig_entry list[ENTRIES_MAX];
    unsigned int entries;
    size_t n;
    NVML_TRY(count_of_profile(device, profile_id, count, &rows, &n, &p));
    NVML_TRY(fetch_entries(device, SIM_CAP_CONFIG, list, &entries));
    unsigned int found = 0;
    for (unsigned int start = 0; start < 8; start++) {
        if (!(p->starts >> start & 1))
            continue;
        if (placements && found < *count)
            placements[found] = (nvmlGpuInstancePlacement_t){start, p->memory_slices};
        found++;
    }
    nvmlReturn_t r = placements && found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = found;
    return r;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profile_id,
                                                       unsigned int *count) {
    const struct mig_profile *rows, *p;
    struct sim_mig_entry list[ENTRIES_MAX];
    unsigned int entries;
    size_t n;
    NVML_TRY(count_of_profile(device, profile_id, count, &rows, &n, &p));
    if (!atomic_load(&device->page->mig))
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t r = fetch_entries(device, SIM_CAP_CONFIG, list, &entries);
    if (r == NVML_SUCCESS)
        *count = mig_room_among(rows, n, p, taken(rows, n, list, entries));
    return r;
}

/* -- GPU instances --------------------------------------------------------------------------- */

static nvmlGpuInstance_t instance_handle(nvmlDevice_t device, unsigned int id) {
    nvmlGpuInstance_t gi = &instances[device->index][id];
    gi->device = device;
    gi->id = id;
    return gi;
}

static nvmlReturn_t enter_instance(nvmlGpuInstance_t gi, const void *out) {
    NVML_TRY(nvml_ready());
    if (gi < &instances[0][0] || gi > &instances[SIM_MAX_GPUS - 1][SIM_GPU_INSTANCES_MAX - 1] ||
        !gi->device || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    return nvml_enter(gi->device);
}

/* `start` UINT32_MAX: wherever it fits. */
static nvmlReturn_t create_instance(nvmlDevice_t device, unsigned int profile_id, uint32_t start,
                                    nvmlGpuInstance_t *ret) {
    unsigned int id;
    nvmlReturn_t r = change_division(device, SIM_MIG_CREATE, profile_id, start, &id);
    if (r == NVML_SUCCESS)
        *ret = instance_handle(device, id);
    return r;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id,
                                         nvmlGpuInstance_t *gpu_instance) {
    size_t n;
    NVML_TRY(enter_card(device, NULL, &n));
    if (!gpu_instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    return create_instance(device, profile_id, UINT32_MAX, gpu_instance);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile_id,
                                                      const nvmlGpuInstancePlacement_t *placement,
                                                      nvmlGpuInstance_t *gpu_instance) {
    size_t n;
    NVML_TRY(enter_card(device, NULL, &n));
    if (!gpu_instance || !placement || placement->start > 7)
        return NVML_ERROR_INVALID_ARGUMENT;
    return create_instance(device, profile_id, placement->start, gpu_instance);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t gpu_instance) {
    nvmlReturn_t r = enter_instance(gpu_instance, gpu_instance);
    return r == NVML_SUCCESS
               ? change_division(gpu_instance->device, SIM_MIG_DESTROY, gpu_instance->id, 0, NULL)
               : r;
}

/* The entry of an instance (ci: UINT32_MAX) or of a compute instance. */
static nvmlReturn_t find_entry(nvmlDevice_t device, unsigned int gi, unsigned int ci,
                               struct sim_mig_entry *ret) {
    struct sim_mig_entry list[ENTRIES_MAX];
    unsigned int n;
    nvmlReturn_t r = fetch_entries(device, SIM_CAP_CONFIG, list, &n);
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++)
        if (list[i].gi == gi && list[i].ci == ci) {
            *ret = list[i];
            return NVML_SUCCESS;
        }
    return r == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : r;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
                                       nvmlGpuInstance_t *gpu_instances, unsigned int *count) {
    struct sim_mig_entry list[ENTRIES_MAX];
    unsigned int n, found = 0;
    size_t profiles;
    NVML_TRY(enter_card(device, NULL, &profiles));
    if (!gpu_instances || !count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!atomic_load(&device->page->mig))
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t r = fetch_entries(device, SIM_CAP_CONFIG, list, &n);
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++)
        if (list[i].ci == UINT32_MAX && list[i].profile == profile_id)
            gpu_instances[found++] = instance_handle(device, list[i].gi);
    *count = found;
    return r;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *gpu_instance) {
    struct sim_mig_entry e;
    size_t n;
    NVML_TRY(enter_card(device, NULL, &n));
    if (!gpu_instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = find_entry(device, id, UINT32_MAX, &e);
    if (r == NVML_SUCCESS)
        *gpu_instance = instance_handle(device, id);
    return r;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpu_instance, nvmlGpuInstanceInfo_t *info) {
    struct sim_mig_entry e;
    nvmlReturn_t r = enter_instance(gpu_instance, info);
    if (r == NVML_SUCCESS)
        r = find_entry(gpu_instance->device, gpu_instance->id, UINT32_MAX, &e);
    if (r == NVML_SUCCESS)
        *info = (nvmlGpuInstanceInfo_t){gpu_instance->device, e.gi, e.profile, {e.start, e.size}};
    return r;
}

/* -- compute instances ----------------------------------------------------------------------- */

/* NVML's numbers of profiles: 1, 2, 3, 4 and 7 slices. */
static const unsigned int slices_of[] = {1, 2, 3, 4, 7};

static nvmlReturn_t profile_of(nvmlGpuInstance_t gi, const struct mig_profile **ret) {
    const struct mig_profile *rows;
    struct sim_mig_entry e;
    size_t n;
    NVML_TRY(enter_card(gi->device, &rows, &n));
    NVML_TRY(find_entry(gi->device, gi->id, UINT32_MAX, &e));
    *ret = by_id(rows, n, e.profile);
    return *ret ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t gpu_instance,
                                                          unsigned int profile,
                                                          unsigned int eng_profile,
                                                          nvmlComputeInstanceProfileInfo_t *info) {
    const struct mig_profile *p;
    NVML_TRY(enter_instance(gpu_instance, info));
    NVML_TRY(profile_of(gpu_instance, &p));
    if (profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT ||
        eng_profile != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (profile >= sizeof(slices_of) / sizeof(slices_of[0]) || slices_of[profile] > p->slices)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned int slices = slices_of[profile];
    *info = (nvmlComputeInstanceProfileInfo_t){.id = profile,
                                               .sliceCount = slices,
                                               .instanceCount = p->slices / slices,
                                               .multiprocessorCount = p->sms * slices / p->slices,
                                               .sharedCopyEngineCount = p->copy,
                                               .sharedDecoderCount = p->decode,
                                               .sharedEncoderCount = p->encode,
                                               .sharedJpegCount = p->jpeg,
                                               .sharedOfaCount = p->ofa};
    return NVML_SUCCESS;
}

/* The plain one, with a version before it and a name behind it. */
nvmlReturn_t
nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t gpu_instance, unsigned int profile,
                                              unsigned int eng_profile,
                                              nvmlComputeInstanceProfileInfo_v2_t *info) {
    nvmlComputeInstanceProfileInfo_t plain;
    const struct mig_profile *p;
    NVML_TRY(nvmlGpuInstanceGetComputeInstanceProfileInfo(gpu_instance, profile, eng_profile,
                                                          info ? &plain : NULL));
    NVML_TRY(profile_of(gpu_instance, &p));
    bool third = info->version == NVML_STRUCT_VERSION_OF(nvmlComputeInstanceProfileInfo_v3_t, 3);
    if (!third && info->version != NVML_STRUCT_VERSION_OF(nvmlComputeInstanceProfileInfo_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memcpy(&info->id, &plain, sizeof(plain));
    char part[8] = "";
    if (plain.sliceCount < p->slices)
        (void) snprintf(part, sizeof(part), "%uc.", plain.sliceCount & 7);
    (void) snprintf(info->name, sizeof(info->name), "MIG %s%s", part, p->name);
    const unsigned int none = 0;
    if (third)
        memcpy((char *) info + offsetof(nvmlComputeInstanceProfileInfo_v3_t, capabilities), &none,
               sizeof(none));
    return NVML_SUCCESS;
}

/* How many more of that size fit beside what there is. */
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t gpu_instance,
                                                                unsigned int profile_id,
                                                                unsigned int *count) {
    struct sim_mig_entry list[ENTRIES_MAX];
    const struct mig_profile *p;
    unsigned int n, room = 0, run = 0;
    uint32_t bits = 0;
    nvmlReturn_t r = enter_instance(gpu_instance, count);
    if (r == NVML_SUCCESS)
        r = profile_of(gpu_instance, &p);
    if (r == NVML_SUCCESS && profile_id >= sizeof(slices_of) / sizeof(slices_of[0]))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (r == NVML_SUCCESS)
        r = fetch_entries(gpu_instance->device, SIM_CAP_CONFIG, list, &n);
    if (r != NVML_SUCCESS)
        return r;
    for (unsigned int i = 0; i < n; i++)
        if (list[i].gi == gpu_instance->id && list[i].ci != UINT32_MAX)
            bits |= ((1u << (list[i].size & 7)) - 1) << (list[i].start & 7);
    for (unsigned int k = 0; k < p->slices; k++) {
        run = bits >> k & 1 ? 0 : run + 1;
        if (run == slices_of[profile_id]) {
            room++;
            run = 0;
        }
    }
    *count = room;
    return NVML_SUCCESS;
}

static nvmlComputeInstance_t compute_handle(nvmlGpuInstance_t gi, unsigned int id) {
    gi->compute[id] = (struct nvmlComputeInstance_st){gi, id};
    return &gi->compute[id];
}

static nvmlReturn_t enter_compute(nvmlComputeInstance_t ci) {
    const char *at = (const char *) ci, *first = (const char *) instances;
    if (at < first || at >= first + sizeof(instances) || !ci->parent)
        return nvml_ready() == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : nvml_ready();
    return enter_instance(ci->parent, ci);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpu_instance,
                                                  unsigned int profile_id,
                                                  nvmlComputeInstance_t *compute_instance) {
    unsigned int id;
    NVML_TRY(enter_instance(gpu_instance, compute_instance));
    if (profile_id >= sizeof(slices_of) / sizeof(slices_of[0]))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = change_division(gpu_instance->device, SIM_MIG_CREATE_COMPUTE, gpu_instance->id,
                                     slices_of[profile_id], &id);
    if (r == NVML_SUCCESS)
        *compute_instance = compute_handle(gpu_instance, id);
    return r;
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute_instance) {
    nvmlReturn_t r = enter_compute(compute_instance);
    return r == NVML_SUCCESS
               ? change_division(compute_instance->parent->device, SIM_MIG_DESTROY_COMPUTE,
                                 compute_instance->parent->id, compute_instance->id, NULL)
               : r;
}

static unsigned int number_of(unsigned int slices) {
    unsigned int i = 0;
    while (i + 1 < sizeof(slices_of) / sizeof(slices_of[0]) && slices_of[i] != slices)
        i++;
    return i;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpu_instance,
                                                unsigned int profile_id,
                                                nvmlComputeInstance_t *compute_instances,
                                                unsigned int *count) {
    struct sim_mig_entry list[ENTRIES_MAX];
    unsigned int n, found = 0;
    NVML_TRY(enter_instance(gpu_instance, compute_instances));
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = fetch_entries(gpu_instance->device, SIM_CAP_CONFIG, list, &n);
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++)
        if (list[i].gi == gpu_instance->id && list[i].ci < COMPUTE_MAX &&
            number_of(list[i].size) == profile_id)
            compute_instances[found++] = compute_handle(gpu_instance, list[i].ci);
    *count = found;
    return r;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpu_instance, unsigned int id,
                                                   nvmlComputeInstance_t *compute_instance) {
    struct sim_mig_entry e;
    nvmlReturn_t r = enter_instance(gpu_instance, compute_instance);
    if (r == NVML_SUCCESS)
        r = id < COMPUTE_MAX ? find_entry(gpu_instance->device, gpu_instance->id, id, &e)
                             : NVML_ERROR_NOT_FOUND;
    if (r == NVML_SUCCESS)
        *compute_instance = compute_handle(gpu_instance, id);
    return r;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute_instance,
                                           nvmlComputeInstanceInfo_t *info) {
    struct sim_mig_entry e;
    nvmlReturn_t r = enter_compute(compute_instance);
    if (r == NVML_SUCCESS && !info)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (r == NVML_SUCCESS)
        r = find_entry(compute_instance->parent->device, compute_instance->parent->id,
                       compute_instance->id, &e);
    if (r == NVML_SUCCESS)
        *info = (nvmlComputeInstanceInfo_t){compute_instance->parent->device,
                                            compute_instance->parent,
                                            e.ci,
                                            number_of(e.size),
                                            {e.start, e.size}};
    return r;
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t compute_instance,
                                        nvmlComputeInstanceInfo_t *info) {
    return nvmlComputeInstanceGetInfo_v2(compute_instance, info);
}

/* -- MIG devices ----------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    size_t n;
    nvmlReturn_t r = enter_card(device, NULL, &n);
    if (r != NVML_SUCCESS && r != NVML_ERROR_NOT_SUPPORTED)
        return r;
    NVML_GIVE(device, count, r == NVML_SUCCESS ? (device->page->sm_count < 60 ? 4u : 7u) : 0u);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig_device) {
    struct sim_mig_entry list[ENTRIES_MAX];
    unsigned int n, at = 0;
    size_t profiles;
    NVML_TRY(enter_card(device, NULL, &profiles));
    if (!mig_device)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!atomic_load(&device->page->mig)) /* it could have some; only others refuse */
        return NVML_ERROR_NOT_FOUND;
    nvmlReturn_t r = fetch_entries(device, 0, list, &n);
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++) {
        nvmlDevice_t part;
        /* Those that the process may not read do not count. */
        if (list[i].ci == UINT32_MAX || nvml_part(device, list[i].unit, &part) != NVML_SUCCESS ||
            at++ != index)
            continue;
        *mig_device = part;
        return NVML_SUCCESS;
    }
    return r == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : r;
}

nvmlReturn_t nvml_part_by_uuid(const char *uuid, nvmlDevice_t *ret) {
    for (unsigned int i = 0; i < nvml_device_count(); i++) {
        nvmlDevice_t part;
        for (unsigned int k = 0;
             nvmlDeviceGetMigDeviceHandleByIndex(nvml_device_at(i), k, &part) == NVML_SUCCESS; k++)
            if (strcmp(part->page->uuid, uuid) == 0) {
                *ret = part;
                return NVML_SUCCESS;
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig_device) {
    NVML_GIVE(device, is_mig_device, device->page->compute_slices > 0);
}

static nvmlReturn_t enter_part(nvmlDevice_t device, const void *out) {
    nvmlReturn_t r = nvml_enter(device);
    if (r == NVML_SUCCESS && !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    return r == NVML_SUCCESS && device->page->compute_slices == 0 ? NVML_ERROR_NOT_SUPPORTED : r;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    nvmlReturn_t r = enter_part(device, id);
    if (r == NVML_SUCCESS)
        *id = device->page->gpu_instance;
    return r;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    nvmlReturn_t r = enter_part(device, id);
    if (r == NVML_SUCCESS)
        *id = device->page->compute_instance;
    return r;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device,
                                                          nvmlDevice_t *device) {
    nvmlReturn_t r = enter_part(mig_device, device);
    if (r == NVML_SUCCESS)
        *device = nvml_device_at(mig_device->index);
    return r;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    NVML_TRY(enter_part(device, attributes));
    const struct sim_page *p = device->page;
    *attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = p->sm_count,
                                           .sharedCopyEngineCount = p->engines[0],
                                           .sharedDecoderCount = p->engines[1],
                                           .sharedEncoderCount = p->engines[2],
                                           .sharedJpegCount = p->engines[3],
                                           .sharedOfaCount = p->engines[4],
                                           .gpuInstanceSliceCount = p->gpu_slices,
                                           .computeInstanceSliceCount = p->compute_slices,
                                           .memorySizeMB = p->memory_total >> 20};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
