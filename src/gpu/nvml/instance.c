/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/instance.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define MODEL_MARK " MIG " /* between the card's model and the profile */

unsigned int instance_count(const struct nvml *n, nvmlDevice_t card) {
    unsigned int count = 0;

    if (!n->nvmlDeviceGetMigDeviceHandleByIndex || !n->nvmlDeviceGetGpuInstanceId ||
        !n->nvmlDeviceGetComputeInstanceId || !n->nvmlDeviceGetMaxMigDeviceCount ||
        n->nvmlDeviceGetMaxMigDeviceCount(card, &count) != NVML_SUCCESS)
        return 0;
    return count < GPU_CARDS_MAX ? count : GPU_CARDS_MAX;
}

/* "NVIDIA A100-SXM4-80GB MIG 1g.10gb": model and profile. */
static void read_name(const struct nvml *n, nvmlDevice_t instance, struct gpu_message_device *d) {
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE] = "", *mark;

    (void) n->nvmlDeviceGetName(instance, name, sizeof(name));
    name[sizeof(name) - 1] = 0;
    text_copy(d->model, sizeof(d->model), name);
    mark = strstr(name, MODEL_MARK);
    if (mark)
        text_copy(d->mig.profile, sizeof(d->mig.profile), mark + strlen(MODEL_MARK));
}

static void read_attributes(const struct nvml *n, nvmlDevice_t instance, struct gpu_mig *m) {
    nvmlDeviceAttributes_t a = {0};

    if (!n->nvmlDeviceGetAttributes_v2 ||
        n->nvmlDeviceGetAttributes_v2(instance, &a) != NVML_SUCCESS)
        return;
    m->gi_slices = a.gpuInstanceSliceCount;
    m->ci_slices = a.computeInstanceSliceCount;
    m->multiprocessors = a.multiprocessorCount;
    m->copy_engines = a.sharedCopyEngineCount;
    m->decoders = a.sharedDecoderCount;
    m->encoders = a.sharedEncoderCount;
    m->jpegs = a.sharedJpegCount;
    m->ofas = a.sharedOfaCount;
}

/* Those of the largest profile, which is the whole card. */
static uint32_t card_slices(const struct nvml *n, nvmlDevice_t card) {
    /* NVML's numbers of the profiles of 8, 7, 6 and 4 slices. */
    static const unsigned int largest[] = {5, 4, 6, 3};
    nvmlGpuInstanceProfileInfo_t info = {0};

    for (size_t i = 0; i < sizeof(largest) / sizeof(largest[0]); i++)
        if (n->nvmlDeviceGetGpuInstanceProfileInfo &&
            n->nvmlDeviceGetGpuInstanceProfileInfo(card, largest[i], &info) == NVML_SUCCESS)
            return info.sliceCount;
    return 0;
}

static void read_placement(const struct nvml *n, nvmlDevice_t card, struct gpu_mig *m) {
    nvmlGpuInstance_t gi = NULL;
    nvmlGpuInstanceInfo_t info = {0};

    if (!n->nvmlDeviceGetGpuInstanceById || !n->nvmlGpuInstanceGetInfo ||
        n->nvmlDeviceGetGpuInstanceById(card, m->gi, &gi) != NVML_SUCCESS ||
        n->nvmlGpuInstanceGetInfo(gi, &info) != NVML_SUCCESS)
        return;
    m->profile_id = info.profileId;
    m->start = info.placement.start;
    m->size = info.placement.size;
}

bool instance_read(const struct nvml *n, nvmlDevice_t card, unsigned int number,
                   const struct gpu_message_device *of, struct gpu_message_device *ret,
                   nvmlDevice_t *ret_instance) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    nvmlDevice_t instance = NULL;
    unsigned int gi = 0, ci = 0;

    /* It can be destroyed between two of the calls. */
    if (n->nvmlDeviceGetMigDeviceHandleByIndex(card, number, &instance) != NVML_SUCCESS ||
        n->nvmlDeviceGetUUID(instance, uuid, sizeof(uuid)) != NVML_SUCCESS ||
        n->nvmlDeviceGetGpuInstanceId(instance, &gi) != NVML_SUCCESS ||
        n->nvmlDeviceGetComputeInstanceId(instance, &ci) != NVML_SUCCESS || !uuid[0] ||
        strlen(uuid) >= sizeof(ret->uuid) || gi >= GPU_MIG_IDS || ci >= GPU_MIG_IDS)
        return false;
    ret->kind = GPU_MIG_INSTANCE;
    ret->minor = of->minor;
    ret->mig.gi = gi;
    ret->mig.ci = ci;
    memcpy(ret->uuid, uuid, strlen(uuid) + 1);
    memcpy(ret->parent, of->uuid, sizeof(ret->parent));
    memcpy(ret->pci, of->pci, sizeof(ret->pci));
    read_name(n, instance, ret);
    read_attributes(n, instance, &ret->mig);
    read_placement(n, card, &ret->mig);
    ret->mig.card_slices = card_slices(n, card);
    *ret_instance = instance;
    return true;
}
