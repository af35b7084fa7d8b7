/* SPDX-License-Identifier: Apache-2.0 */

/* nvidia-smi asks for a private table and gives up without it. It gets one in which every slot
 * refuses; what it then asks of the public functions is answered. The size is that of 535. */

#include <string.h>

#include "sim/nvml/nvml.h"

#define SLOTS 244

static nvmlReturn_t refuse(void) {
    return NVML_ERROR_NOT_SUPPORTED;
}

struct table {
    size_t bytes;
    nvmlReturn_t (*slot[SLOTS])(void);
};

static struct table table;

nvmlReturn_t nvmlInternalGetExportTable(const void **out, const void *id) {
    static const unsigned char known[16] = {0x6c, 0x3e, 0xfe, 0xc4, 0x8f, 0xc9, 0x4c, 0x6e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    static const unsigned char as_written[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                                 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    if (!out || !id)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memcmp(id, known, sizeof(known)) != 0 && memcmp(id, as_written, sizeof(as_written)) != 0)
        return NVML_ERROR_NOT_FOUND;
    for (size_t i = 0; i < SLOTS; i++)
        table.slot[i] = refuse;
    table.bytes = sizeof(table);
    *out = &table;
    return NVML_SUCCESS;
}
