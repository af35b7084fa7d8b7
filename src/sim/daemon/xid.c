/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/xid.h"

#include <stddef.h>

#include "abi/cuda.h"

static const struct {
    uint32_t xid;
    enum xid_effect effect;
    CUresult result;
} rows[] = {
    {8, XID_CONTEXT, CUDA_ERROR_LAUNCH_TIMEOUT},      /* the watchdog's limit */
    {13, XID_CONTEXT, CUDA_ERROR_LAUNCH_FAILED},      /* graphics engine exception */
    {31, XID_CONTEXT, CUDA_ERROR_ILLEGAL_ADDRESS},    /* page fault */
    {43, XID_CONTEXT, CUDA_ERROR_LAUNCH_FAILED},      /* the channel stopped */
    {45, XID_CONTEXT, CUDA_ERROR_LAUNCH_FAILED},      /* torn down after another error */
    {46, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},        /* no answer in time */
    {48, XID_RESET, CUDA_ERROR_ECC_UNCORRECTABLE},    /* double bit error */
    {62, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},        /* microcontroller halted */
    {64, XID_RESET, CUDA_ERROR_ECC_UNCORRECTABLE},    /* a row could not be remapped */
    {68, XID_CONTEXT, CUDA_ERROR_LAUNCH_FAILED},      /* video processor exception */
    {69, XID_CONTEXT, CUDA_ERROR_LAUNCH_FAILED},      /* class error */
    {74, XID_RESET, CUDA_ERROR_NVLINK_UNCORRECTABLE}, /* NVLink */
    {79, XID_LOST, CUDA_ERROR_DEVICE_UNAVAILABLE},    /* off the bus */
    {94, XID_CONTEXT, CUDA_ERROR_ECC_UNCORRECTABLE},  /* contained error */
    {95, XID_RESET, CUDA_ERROR_ECC_UNCORRECTABLE},    /* uncontained error */
    {109, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},       /* context switch timeout */
    {110, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},       /* security fault */
    {119, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},       /* GSP timeout */
    {120, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},       /* GSP error */
    {136, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},       /* link training */
    {140, XID_RESET, CUDA_ERROR_ECC_UNCORRECTABLE},   /* unrecovered ECC error */
    {143, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},       /* initialisation */
    {155, XID_RESET, CUDA_ERROR_NVLINK_UNCORRECTABLE}, {156, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},
    {158, XID_RESET, CUDA_ERROR_LAUNCH_FAILED},
};

enum xid_effect xid_effect(uint32_t xid, uint32_t *ret_result) {
    *ret_result = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].xid != xid)
            continue;
        *ret_result = (uint32_t) rows[i].result;
        return rows[i].effect;
    }
    return XID_TOLD;
}
