/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what NVML says, one key=value a line: what a monitoring program in a container would see.
 */

#include <inttypes.h>

#include "abi/nvml.h"
#include "driver.h"

#define LIBRARY "libnvidia-ml.so.1"
#define PROCESSES_MAX 64
#define NVML(name, params) CALL(LIBRARY, name, nvmlReturn_t, params)

static int check(nvmlReturn_t result, const char *what) {
    if (result == NVML_SUCCESS)
        return 0;
    (void) printf("error=%s answered %d\n", what, (int) result);
    return -1;
}

static int report_processes(unsigned index, nvmlDevice_t device) {
    nvmlProcessInfo_t processes[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;

    if (check(NVML(nvmlDeviceGetComputeRunningProcesses_v3,
                   (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *) )(device, &count, processes),
              "nvmlDeviceGetComputeRunningProcesses") < 0)
        return -1;
    (void) printf("device%u.processes=%u\n", index, count);
    for (unsigned i = 0; i < count; i++)
        (void) printf("device%u.process%u=pid:%u,used:%llu\n", index, i, processes[i].pid,
                      processes[i].usedGpuMemory);
    return 0;
}

static int report_device(unsigned index) {
    nvmlDevice_t device;
    nvmlMemory_t memory;
    char uuid[96], name[96];

    if (check(NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t *) )(index, &device),
              "nvmlDeviceGetHandleByIndex") < 0 ||
        check(
            NVML(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned) )(device, uuid, sizeof(uuid)),
            "nvmlDeviceGetUUID") < 0 ||
        check(
            NVML(nvmlDeviceGetName, (nvmlDevice_t, char *, unsigned) )(device, name, sizeof(name)),
            "nvmlDeviceGetName") < 0 ||
        check(NVML(nvmlDeviceGetMemoryInfo, (nvmlDevice_t, nvmlMemory_t *) )(device, &memory),
              "nvmlDeviceGetMemoryInfo") < 0)
        return -1;
    (void) printf("device%u.uuid=%s\ndevice%u.name=%s\n", index, uuid, index, name);
    (void) printf("device%u.total=%llu\ndevice%u.used=%llu\ndevice%u.free=%llu\n", index,
                  memory.total, index, memory.used, index, memory.free);
    return report_processes(index, device);
}

int main(void) {
    unsigned count = 0;
    int bad = 0;

    if (check(NVML(nvmlInit_v2, (void) )(), "nvmlInit") < 0 ||
        check(NVML(nvmlDeviceGetCount_v2, (unsigned *) )(&count), "nvmlDeviceGetCount") < 0)
        return EXIT_FAILURE;
    (void) printf("devices=%u\n", count);
    for (unsigned i = 0; i < count; i++)
        bad |= report_device(i);
    (void) NVML(nvmlShutdown, (void) )();
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
