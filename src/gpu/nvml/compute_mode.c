/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/compute_mode.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/err.h"
#include "base/num.h"
#include "gpu/nvml/nvml.h"

static int fail(const struct nvml *n, const char *call, nvmlReturn_t code) {
    (void) printf("%s: %s\n", call, n->error_string(code));
    return EXIT_FAILURE;
}

static int apply(const struct nvml *n, const char *uuid, const uint64_t *want) {
    nvmlComputeMode_t mode = NVML_COMPUTEMODE_DEFAULT;
    nvmlDevice_t device = NULL;
    int major = 0, minor = 0;
    nvmlReturn_t code = n->nvmlInit_v2();

    if (code != NVML_SUCCESS)
        return fail(n, "nvmlInit", code);
    code = n->nvmlDeviceGetHandleByUUID ? n->nvmlDeviceGetHandleByUUID(uuid, &device)
                                        : NVML_ERROR_FUNCTION_NOT_FOUND;
    if (code != NVML_SUCCESS)
        return fail(n, "nvmlDeviceGetHandleByUUID", code);
    code = n->nvmlDeviceGetComputeMode ? n->nvmlDeviceGetComputeMode(device, &mode)
                                       : NVML_ERROR_FUNCTION_NOT_FOUND;
    if (code != NVML_SUCCESS)
        return fail(n, "nvmlDeviceGetComputeMode", code);
    if (want && (uint64_t) mode != *want) {
        code = n->nvmlDeviceSetComputeMode
                   ? n->nvmlDeviceSetComputeMode(device, (nvmlComputeMode_t) *want)
                   : NVML_ERROR_FUNCTION_NOT_FOUND;
        if (code != NVML_SUCCESS)
            return fail(n, "nvmlDeviceSetComputeMode", code);
    }
    if (n->nvmlDeviceGetCudaComputeCapability)
        (void) n->nvmlDeviceGetCudaComputeCapability(device, &major, &minor);
    (void) printf("%d %d.%d\n", (int) mode, major, minor);
    return EXIT_SUCCESS;
}

int gpu_compute_mode_main(int argc, char **argv) {
    static struct nvml n;
    uint64_t want = 0;
    struct err err;

    if (argc < 4 || argc > 5 ||
        (argc == 5 && num_parse_u64(argv[4], GPU_COMPUTE_MODE_EXCLUSIVE_PROCESS, &want) < 0)) {
        (void) printf("%s is started by the agent itself\n", GPU_COMPUTE_MODE_COMMAND);
        return EXIT_FAILURE;
    }
    /* The next agent may want another mode. */
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (nvml_load(argv[2], &n, &err) < 0) {
        (void) printf("%s\n", err.text);
        return EXIT_FAILURE;
    }
    return apply(&n, argv[3], argc == 5 ? &want : NULL);
}
