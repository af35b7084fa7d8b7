/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>

#include "agent/os/kmsg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What counts as an XID has the driver's address and number, and is of the kernel. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kmsg_xid x = {0};

    if (kmsg_parse((const char *) data, size, &x) <= 0)
        return 0;
    if (x.xid == UINT32_MAX || x.domain == UINT32_MAX || size < sizeof("6,1,;NVRM: Xid (PCI:") ||
        (data[1] >= '0' && data[1] <= '9' && data[0] >= '1'))
        abort();
    return 0;
}
