/* SPDX-License-Identifier: Apache-2.0 */

/* A child of fork gets CUDA_ERROR_NOT_INITIALIZED from what its parent opened, NVML of its own,
 * and keeps its parent's memory on the card. Prints the child's PID and lives until standard input
 * ends; the parent ends at once. */

#include <sys/wait.h>
#include <unistd.h>

#include "abi/nvml.h"
#include "check.h"

nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization);

static void child(CUdeviceptr p, nvmlDevice_t device) {
    size_t a, b;
    nvmlMemory_t memory;
    nvmlUtilization_t load;
    int n;
    EXPECT(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemGetInfo_v2(&a, &b), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemFree_v2(p), CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(nvmlDeviceGetUtilizationRates(device, &load) == NVML_SUCCESS);
    REQUIRE(nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS);
    (void) printf("%d\n", (int) getpid());
    (void) fflush(stdout);
    while (getchar() != EOF) {
    }
    exit(EXIT_SUCCESS);
}

int main(void) {
    CUdeviceptr p;
    nvmlDevice_t device;
    (void) check_start(0);
    OK(cuMemAlloc_v2(&p, (size_t) 1 << 30));
    OK(cuMemsetD8_v2(p, 1, (size_t) 1 << 20));
    REQUIRE(nvmlInit_v2() == NVML_SUCCESS);
    REQUIRE(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0)
        child(p, device);
    char byte;
    OK(cuMemcpyDtoH_v2(&byte, p, 1));
    REQUIRE(byte == 1);
    return 0;
}
