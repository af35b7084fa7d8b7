/* SPDX-License-Identifier: Apache-2.0 */

/* What NVML calls cost: nanoseconds of CPU time a call, the least of 9 rounds. Run it as it is and
 * in a slice; the difference is what libaliquot.so adds:
 *
 *     aliquot sim -- nvml-calls
 *     aliquot sim -- aliquot run --memory 4Gi -- nvml-calls */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "abi/nvml.h"

#define NVML_FN(symbol, params, args) nvmlReturn_t symbol params;
#include "abi/hooks.def"

#define ROUNDS 9

static nvmlDevice_t card;

static void uuid(void) {
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

    (void) nvmlDeviceGetUUID(card, text, sizeof(text));
}

static void memory(void) {
    nvmlMemory_t info;

    (void) nvmlDeviceGetMemoryInfo(card, &info);
}

static void handle(void) {
    nvmlDevice_t found;

    (void) nvmlDeviceGetHandleByIndex_v2(0, &found);
}

static void processes(void) {
    nvmlProcessInfo_t list[64];
    unsigned int n = 64;

    (void) nvmlDeviceGetComputeRunningProcesses_v3(card, &n, list);
}

static void load(void) {
    nvmlUtilization_t rates;

    (void) nvmlDeviceGetUtilizationRates(card, &rates);
}

static uint64_t cpu_ns(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static double least(void (*call)(void), unsigned int calls) {
    uint64_t best = UINT64_MAX;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin = cpu_ns(), took;

        for (unsigned int i = 0; i < calls; i++)
            call();
        took = cpu_ns() - begin;
        if (took < best)
            best = took;
    }
    return (double) best / calls;
}

int main(void) {
    static const struct {
        const char *name;
        void (*call)(void);
        unsigned int calls;
    } all[] = {
        {"nvmlDeviceGetUUID", uuid, 100000},
        {"nvmlDeviceGetMemoryInfo", memory, 100000},
        {"nvmlDeviceGetHandleByIndex_v2", handle, 100000},
        {"nvmlDeviceGetComputeRunningProcesses_v3", processes, 2000},
        {"nvmlDeviceGetUtilizationRates", load, 2000},
    };

    if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &card) != NVML_SUCCESS)
        return EXIT_FAILURE;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        (void) printf("%s\t%.0f\n", all[i].name, least(all[i].call, all[i].calls));
    return EXIT_SUCCESS;
}
