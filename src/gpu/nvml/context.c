/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/context.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "base/err.h"
#include "gpu/nvml/nvml.h"

#define PROCESSES_MAX 256

#define CUDA_BINDING(X)                                                                            \
    X(cuInit, (unsigned int) )                                                                     \
    X(cuDeviceGetCount, (int *) )                                                                  \
    X(cuDeviceGetUuid, (CUuuid *, CUdevice))                                                       \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))

struct cuda {
#define CUDA_POINTER(name, params) CUresult(*name) params;
    CUDA_BINDING(CUDA_POINTER)
#undef CUDA_POINTER
};

static int load_cuda(const char *nvml_library, struct cuda *ret) {
    const char *slash = strrchr(nvml_library, '/');
    char path[512];
    void *library;

    (void) snprintf(path, sizeof(path), "%.*slibcuda.so.1",
                    slash ? (int) (slash - nvml_library + 1) : 0, nvml_library);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return -ENOENT;
#define CUDA_FIND(name, params)                                                                    \
    *(void **) &ret->name = dlsym(library, #name);                                                 \
    if (!ret->name)                                                                                \
        return -ENOTSUP;
    CUDA_BINDING(CUDA_FIND)
#undef CUDA_FIND
    return 0;
}

static void format_uuid(const CUuuid *uuid, char ret[static 48]) {
    size_t at = (size_t) snprintf(ret, 48, "GPU");

    for (size_t i = 0; i < sizeof(uuid->bytes); i++)
        at += (size_t) snprintf(ret + at, 48 - at, "%s%02x",
                                i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                (unsigned char) uuid->bytes[i]);
}

/* NVML's card with that UUID, or NULL. */
static nvmlDevice_t find_card(const struct nvml *nvml, const char *uuid) {
    unsigned int count = 0;

    (void) nvml->nvmlDeviceGetCount_v2(&count);
    for (unsigned int i = 0; i < count; i++) {
        char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
        nvmlDevice_t card;

        if (nvml->nvmlDeviceGetHandleByIndex_v2(i, &card) == NVML_SUCCESS &&
            nvml->nvmlDeviceGetUUID(card, text, sizeof(text)) == NVML_SUCCESS &&
            strcmp(text, uuid) == 0)
            return card;
    }
    return NULL;
}

static uint64_t held_by_us(const struct nvml *nvml, nvmlDevice_t card) {
    nvmlProcessInfo_v2_t list[PROCESSES_MAX];
    unsigned int count = PROCESSES_MAX;

    if (!nvml->nvmlDeviceGetComputeRunningProcesses_v3 ||
        nvml->nvmlDeviceGetComputeRunningProcesses_v3(card, &count, list) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < count && i < PROCESSES_MAX; i++)
        if (list[i].pid == (unsigned int) getpid() &&
            list[i].usedGpuMemory != NVML_VALUE_NOT_AVAILABLE_ULL)
            return list[i].usedGpuMemory;
    return 0;
}

int gpu_context_measure(const char *nvml_library,
                        void (*report)(const char *uuid, uint64_t bytes, void *userdata),
                        void *userdata) {
    struct nvml nvml;
    struct cuda cuda;
    int count = 0;
    int r = load_cuda(nvml_library, &cuda);

    if (r < 0)
        return r;
    if (nvml_load(nvml_library, &nvml, NULL) < 0 || nvml.nvmlInit_v2() != NVML_SUCCESS ||
        cuda.cuInit(0) != CUDA_SUCCESS || cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return -ENOTSUP;
    for (int i = 0; i < count; i++) {
        CUcontext context;
        nvmlDevice_t card;
        CUuuid uuid;
        char text[48];
        uint64_t bytes;

        if (cuda.cuDeviceGetUuid(&uuid, i) != CUDA_SUCCESS)
            continue;
        format_uuid(&uuid, text);
        card = find_card(&nvml, text);
        if (!card || cuda.cuDevicePrimaryCtxRetain(&context, i) != CUDA_SUCCESS)
            continue;
        bytes = held_by_us(&nvml, card);
        if (bytes > 0)
            report(text, bytes, userdata);
    }
    return 0;
}

static int check_cuda(CUresult code, const char *call, struct err *err) {
    return code == CUDA_SUCCESS ? 0 : err_set(err, EIO, "%s: error %d", call, (int) code);
}

int gpu_context_probe(const char *nvml_library, struct err *err) {
    struct cuda cuda;
    CUcontext context;
    int count = 0, r;

    if (load_cuda(nvml_library, &cuda) < 0)
        return err_set(err, EIO, "cannot load libcuda.so.1");
    r = check_cuda(cuda.cuInit(0), "cuInit", err);
    if (r == 0)
        r = check_cuda(cuda.cuDeviceGetCount(&count), "cuDeviceGetCount", err);
    if (r == 0 && count == 0)
        r = err_set(err, EIO, "CUDA does not show the device");
    if (r == 0)
        r = check_cuda(cuda.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain", err);
    return r;
}
