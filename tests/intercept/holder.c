/* SPDX-License-Identifier: Apache-2.0 */

/* Does what it is told, a command a line on standard input, and answers each with a line:
 *
 *     take BYTES   cuMemAlloc            -> "0", or the error's number
 *     info         cuMemGetInfo          -> "FREE TOTAL"
 *     pids         NVML's process list   -> the PIDs on device 0, sorted as NVML has them, with
 * bytes: "PID:BYTES ..." memory       nvmlDeviceGetMemoryInfo and its second version -> "USED FREE
 * TOTAL USED FREE TOTAL" fork BYTES   a child that has not used CUDA yet takes so much   -> its
 * answer to take, then "USED" in the parent pid          -> its PID */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "abi/nvml.h"

#define CUDA_FN(base, symbol, since, until, stream, params, args) CUresult symbol params;
#define NVML_FN(symbol, params, args) nvmlReturn_t symbol params;
#include "abi/hooks.def"

static int begun;

static int begin(void) {
    CUcontext context;
    CUresult r = CUDA_SUCCESS;

    if (!begun) {
        r = cuInit(0);
        if (r == CUDA_SUCCESS)
            r = cuDevicePrimaryCtxRetain(&context, 0);
        if (r == CUDA_SUCCESS)
            r = cuCtxSetCurrent(context);
        begun = r == CUDA_SUCCESS;
    }
    return (int) r;
}

static int take(size_t bytes) {
    CUdeviceptr p;
    int r = begin();

    return r ? r : (int) cuMemAlloc_v2(&p, bytes);
}

static void info(void) {
    size_t free_bytes = 0, total = 0;

    (void) begin();
    (void) cuMemGetInfo_v2(&free_bytes, &total);
    (void) printf("%zu %zu\n", free_bytes, total);
}

static void pids(void) {
    nvmlProcessInfo_t list[64];
    nvmlProcessInfo_v1_t old[64];
    unsigned int n = 0, n_old = 64, sized;
    nvmlDevice_t device;
    nvmlReturn_t r;

    (void) nvmlInit_v2();
    if (nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS)
        exit(5);
    r = nvmlDeviceGetComputeRunningProcesses_v3(device, &n, NULL);
    if (r != NVML_SUCCESS && r != NVML_ERROR_INSUFFICIENT_SIZE)
        exit(6);
    sized = n;
    if (n > 64 || nvmlDeviceGetComputeRunningProcesses_v3(device, &n, list) != NVML_SUCCESS ||
        n != sized)
        exit(7);
    if (nvmlDeviceGetComputeRunningProcesses(device, &n_old, old) != NVML_SUCCESS || n_old != n)
        exit(8);
    for (unsigned int i = 0; i < n; i++) {
        if (old[i].pid != list[i].pid || old[i].usedGpuMemory != list[i].usedGpuMemory)
            exit(9);
        (void) printf("%s%u:%llu", i ? " " : "", list[i].pid, list[i].usedGpuMemory);
    }
    (void) printf("\n");
}

static void memory(void) {
    nvmlMemory_v2_t second = {.version = NVML_STRUCT_VERSION_OF(nvmlMemory_v2_t, 2)};
    nvmlMemory_t first;
    nvmlDevice_t device;

    (void) nvmlInit_v2();
    if (nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS ||
        nvmlDeviceGetMemoryInfo(device, &first) != NVML_SUCCESS ||
        nvmlDeviceGetMemoryInfo_v2(device, &second) != NVML_SUCCESS)
        exit(5);
    (void) printf("%llu %llu %llu %llu %llu %llu\n", first.used, first.free, first.total,
                  second.used, second.free, second.total);
}

static void fork_and_take(size_t bytes) {
    int status, ends[2];
    pid_t pid;

    if (pipe(ends) < 0)
        exit(10);
    pid = fork();
    if (pid == 0)
        _exit(take(bytes));
    if (waitpid(pid, &status, 0) != pid)
        exit(11);
    (void) printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128);
}

int main(void) {
    char line[128];

    while (fgets(line, sizeof(line), stdin)) {
        char *argument = strchr(line, ' ');
        size_t number = argument ? strtoull(argument, NULL, 10) : 0;

        if (strncmp(line, "take", 4) == 0)
            (void) printf("%d\n", take(number));
        else if (strncmp(line, "info", 4) == 0)
            info();
        else if (strncmp(line, "pids", 4) == 0)
            pids();
        else if (strncmp(line, "memory", 6) == 0)
            memory();
        else if (strncmp(line, "fork", 4) == 0)
            fork_and_take(number);
        else
            (void) printf("%d\n", (int) getpid());
        (void) fflush(stdout);
    }
    return 0;
}
