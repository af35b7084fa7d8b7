/* SPDX-License-Identifier: Apache-2.0 */

/* NVML's queries of memory: in a share, a device is as large as the part. */

#include "intercept/nvml/nvml.h"

#include "intercept/resolve/driver.h"

/* An answer of the driver's, brought down to the container's part. True if it changed. */
static bool present(const struct part *part, unsigned long long *total, unsigned long long *free,
                    unsigned long long *used) {
    struct figures figures = {.total = *total, .free = *free, .used = *used};

    part_figures(part, &figures);
    if (figures.total == *total && figures.free == *free && figures.used == *used)
        return false;
    *total = figures.total;
    *free = figures.free;
    *used = figures.used;
    return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct part part;

    NVML_TRY(nvml_part_of(device, &part));
    NVML_TRY(driver.nvmlDeviceGetMemoryInfo(device, memory));
    if (memory)
        (void) present(&part, &memory->total, &memory->free, &memory->used);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct part part;

    NVML_TRY(nvml_part_of(device, &part));
    NVML_TRY(driver.nvmlDeviceGetMemoryInfo_v2(device, memory));
    if (memory && present(&part, &memory->total, &memory->free, &memory->used))
        memory->reserved = 0; /* the driver's part of the card is not in the limit */
    return NVML_SUCCESS;
}

/* Of a card in confidential mode, all memory is protected; of others, none. */
nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
                                                          nvmlMemory_t *memory) {
    struct part part;

    NVML_TRY(nvml_part_of(device, &part));
    NVML_TRY(driver.nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory));
    if (memory && memory->total > 0)
        (void) present(&part, &memory->total, &memory->free, &memory->used);
    return NVML_SUCCESS;
}

/* Has the driver answer; the caller is done where no share is asked about. */
#define ASK_IN_SHARE(answer, part, call)                                                           \
    do {                                                                                           \
        NVML_TRY(nvml_part_of(device, part));                                                      \
        NVML_TRY(driver.call);                                                                     \
        if (!(answer) || !(part)->share)                                                           \
            return NVML_SUCCESS;                                                                   \
    } while (0)

/* The window through which the processor accesses the card is not divided into shares. What is
 * mapped there is at most what the container has on the card. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1_memory) {
    struct figures figures;
    struct part part;

    ASK_IN_SHARE(bar1_memory, &part, nvmlDeviceGetBAR1MemoryInfo(device, bar1_memory));
    figures = (struct figures){.total = bar1_memory->bar1Total, .free = bar1_memory->bar1Free};
    part_figures(&part, &figures);
    if (figures.used < bar1_memory->bar1Used)
        bar1_memory->bar1Used = figures.used;
    bar1_memory->bar1Free = bar1_memory->bar1Total - bar1_memory->bar1Used;
    return NVML_SUCCESS;
}

/* The driver's own limits of a control group (from 615 on). Whichever group a container names, it
 * gets its own limits. */
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
    struct figures figures;
    struct part part;

    ASK_IN_SHARE(limits, &part, nvmlDeviceGetMemoryLimits_v1(device, limits));
    figures = (struct figures){.total = limits->hardLimit};
    part_figures(&part, &figures);
    limits->hardLimit = figures.total;
    limits->currentUsed = figures.used;
    if (limits->softLimit > limits->hardLimit)
        limits->softLimit = limits->hardLimit;
    return NVML_SUCCESS;
}
