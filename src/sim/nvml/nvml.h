/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the simulated libnvidia-ml.so.1. */

#include "abi/nvml.h"
#include "abi/try.h"
#include "sim/client.h"
#ifndef SIM_EXPORTS
#include "nvml-names.h" /* the functions below get names of their own: see generate.py */
#endif

#define NVML_FN(symbol, params, args)                                                              \
    __attribute__((visibility("default"))) nvmlReturn_t symbol params;
#include "abi/hooks.def"

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result);

struct nvmlDevice_st {
    unsigned int index; /* among the devices of this process */
    const struct sim_page *page;
};

/* The connection, for requests. Usable after a successful nvml_enter() or nvml_ready(). */
struct client *nvml_client(void);

/* Checks that the library is initialised and connected. Connects a forked child anew. */
nvmlReturn_t nvml_ready(void);

/* nvml_ready(), and `device` is one of ours. Every function about a device begins with it. */
nvmlReturn_t nvml_enter(nvmlDevice_t device);

/* nvml_enter(), and the card works. Every function about a card's activity begins with it. */
nvmlReturn_t nvml_enter_working(nvmlDevice_t device);

/* The result of a function that is not simulated. */
nvmlReturn_t nvml_refuse(void);

/* The minor number of the card that a handle, or an index, is of; CLIENT_NO_CARD: of none. */
uint32_t nvml_card_of(nvmlDevice_t device);
uint32_t nvml_card_at(unsigned int index);

unsigned int nvml_device_count(void);
nvmlDevice_t nvml_device_at(unsigned int index);

/* From the first handle of a card on, the process has it open. */
void nvml_open(nvmlDevice_t device);

/* A MIG device that exists or existed. */
bool nvml_is_part(nvmlDevice_t device);
/* The handle of the MIG device that is this unit of the card. */
nvmlReturn_t nvml_part(nvmlDevice_t card, unsigned int unit, nvmlDevice_t *ret);
nvmlReturn_t nvml_part_by_uuid(const char *uuid, nvmlDevice_t *ret);

/* The figures of all instances of a card together are for administrators and for processes with the
 * monitor's capability: NO_PERMISSION for others. SUCCESS for a device that is not divided. */
nvmlReturn_t nvml_may_aggregate(nvmlDevice_t device);

/* Whether the card is divided and has GPU instances. */
bool nvml_has_instances(nvmlDevice_t device);

/* One request about a device; the daemon's answer as an NVML result. */
nvmlReturn_t nvml_request(nvmlDevice_t device, uint32_t op, uint64_t a,
                          struct client_answer *answer);

struct nvml_list {
    void *entries; /* malloc'ed, the caller's to free */
    unsigned int count;
};

/* The same for an answer that is a list of at most `most` entries. `ret` is set on success. */
nvmlReturn_t nvml_request_list(nvmlDevice_t device, uint32_t op, uint64_t a, size_t entry_size,
                               unsigned int most, struct nvml_list *ret);

/* The memory limit and the use of the caller's control group. False: it has no limit. */
bool nvml_own_limit(nvmlDevice_t device, unsigned long long *ret_hard,
                    unsigned long long *ret_used);

/* Checks a pointer to a versioned structure. */
#define NVML_CHECK_VERSION(info, type, number)                                                     \
    do {                                                                                           \
        if (!(info))                                                                               \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
        if ((info)->version != NVML_STRUCT_VERSION_OF(type, number))                               \
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;                                           \
    } while (0)

/* Bodies of the functions that return one value of a device's page. */
#define NVML_GIVE(device, out, value)                                                              \
    do {                                                                                           \
        NVML_TRY(nvml_enter(device));                                                              \
        NVML_RETURN_VALUE(out, value);                                                             \
    } while (0)

#define NVML_GIVE_STRING(device, out, length, text)                                                \
    do {                                                                                           \
        nvmlReturn_t _r = nvml_enter(device);                                                      \
        return _r == NVML_SUCCESS ? nvml_put_string((out), (length), (text)) : _r;                 \
    } while (0)

#define NVML_IDLE_CLOCK_MHZ 210u
#define NVML_IDLING_CARD_MW 200000u /* cards with a lower power limit have an idle state */

/* The two forms of a PCI address, from the numbers. */
void nvml_pci_texts(nvmlPciInfo_t *info);

/* Copies a string out by NVML's rules: INSUFFICIENT_SIZE unless all of it fits. */
nvmlReturn_t nvml_put_string(char *out, unsigned int length, const char *text);

/* Percent of the last second, of the GPU and of its memory interface. */
nvmlReturn_t nvml_load(nvmlDevice_t device, unsigned int *ret_gpu, unsigned int *ret_memory);
