/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVML inside a share: it shows the container's cards only, and of a card that is shared only the
 * container's part. A card without limits belongs to the container as it is: there the driver's
 * answers are not changed. */

#include "abi/nvml.h"
#include "abi/try.h"
#include "intercept/memory/view.h"

/* NVML_SUCCESS; NVML_ERROR_NO_PERMISSION for a device of others; the driver's error where it cannot
 * identify the device. */
nvmlReturn_t nvml_part_of(nvmlDevice_t device, struct part *ret);

/* Whether the container has only a part of any of its cards. */
bool nvml_limited(void);

/* The container's processes. */
#define MEMBERS_MAX LEDGER_SLOTS

struct member {
    uint32_t pid;    /* as the caller sees it */
    uint64_t booked; /* bytes of the part */
};

struct members {
    unsigned int n;
    struct member one[MEMBERS_MAX];
};

/* Those that live and that the caller can see, each once; to be freed. NULL: no memory. */
struct members *members_new(const struct part *part);
const struct member *members_find(const struct members *members, unsigned int pid);

/* Whether the PIDs that the driver gives are those of the caller's PID namespace. */
enum nvml_pids { PIDS_OF_LISTS, PIDS_OF_SAMPLES, PIDS_OF_RECORDS };
bool nvml_pids_are_ours(enum nvml_pids kind);

/* How busy the container keeps the device, percent of its part. */
struct load {
    unsigned int sm, memory, encoder, decoder, jpeg, optical_flow;
};
nvmlReturn_t part_load(nvmlDevice_t device, const struct part *part, struct load *ret);
