/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the simulated libnvidia-ml.so.1. */

#include "abi/nvml.h"
#include "sim/client.h"

#define NVML_FN(symbol, params, args)                                                              \
    __attribute__((visibility("default"))) nvmlReturn_t symbol params;
#include "abi/hooks.def"

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result);
__attribute__((visibility("default"))) nvmlReturn_t nvmlInternalGetExportTable(const void **table,
                                                                               const void *id);

struct nvmlDevice_st {
    unsigned int index; /* among the devices of this process */
    const struct sim_page *page;
};

/* The connection, for requests. Usable after a successful nvml_enter() or nvml_ready(). */
struct client *nvml_client(void);

/* Initialised and connected? A forked child gets a connection of its own here. */
nvmlReturn_t nvml_ready(void);

/* nvml_ready(), and `device` is one of ours. Every function about a device begins with it. */
nvmlReturn_t nvml_enter(nvmlDevice_t device);

unsigned int nvml_device_count(void);
nvmlDevice_t nvml_device_at(unsigned int index);

/* One request about a device; what the daemon answers, as NVML says it. */
nvmlReturn_t nvml_ask(nvmlDevice_t device, uint32_t op, uint64_t a, struct client_answer *answer);

/* Copies a string out by NVML's rules: INSUFFICIENT_SIZE unless all of it fits. */
nvmlReturn_t nvml_put_string(char *out, unsigned int length, const char *text);

/* Percent of the last second, of the GPU and of its memory interface. */
nvmlReturn_t nvml_load(nvmlDevice_t device, unsigned int *ret_gpu, unsigned int *ret_memory);
