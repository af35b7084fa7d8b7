/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One card in a process of its own, which makes some calls of NVML for it and ends: a call that
 * hangs holds up nothing else, and the end of the process closes the card. */

#include "gpu/nvml/nvml.h"

/* Loads the library and finds the card. The process ends with the agent. Negative: it cannot be
 * done, and the reason is on standard output. */
int one_card_open(struct nvml *n, const char *library, const char *uuid, nvmlDevice_t *ret);

/* Calls a function that the library may lack. */
#define ONE_CARD_CALL(n, function, ...)                                                            \
    ((n)->function ? (n)->function(__VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND)

/* Reads a setting of the card into `mode`, a variable of that type, and sets it to *want, unless
 * that is NULL or the same. Ends the caller with its exit status where a call fails. */
#define ONE_CARD_SET(n, setting, device, mode, want)                                               \
    do {                                                                                           \
        nvmlReturn_t code_ = ONE_CARD_CALL(n, nvmlDeviceGet##setting, device, &(mode));            \
                                                                                                   \
        if (code_ != NVML_SUCCESS)                                                                 \
            return one_card_fail(n, "nvmlDeviceGet" #setting, code_);                              \
        if ((want) && (uint64_t) (mode) != *(want))                                                \
            code_ = ONE_CARD_CALL(n, nvmlDeviceSet##setting, device, (__typeof__(mode)) *(want));  \
        if (code_ != NVML_SUCCESS)                                                                 \
            return one_card_fail(n, "nvmlDeviceSet" #setting, code_);                              \
    } while (0)

/* Prints "CALL: reason", and returns the exit status for it. */
int one_card_fail(const struct nvml *n, const char *call, nvmlReturn_t code);
