/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory of a card that belongs to no process in NVML's list. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/nvml.h"

#define CARD_USE_PROCESSES 1024

struct card_use {
    /* Bytes in use for no living process, at most. Memory of a process that is ending counts, for
     * it may be left behind already. */
    uint64_t most;
    /* Bytes in use for no listed process, at least. 0 where the list is not complete, or does not
     * say of each process what it holds. */
    uint64_t least;
    uint32_t pids[CARD_USE_PROCESSES];  /* the listed processes */
    uint64_t bytes[CARD_USE_PROCESSES]; /* what each holds; 0 where the list does not say so */
    size_t npids;
};

/* `nvml` is the library, initialized. False: the driver does not answer. One thread at a time. */
bool card_use_read(void *nvml, nvmlDevice_t device, struct card_use *ret);
bool card_use_read_uuid(void *nvml, const char *uuid, struct card_use *ret);
