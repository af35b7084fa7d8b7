/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/shares/slot.h"
#include "base/buf.h"
#include "gpu/device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct gpu_snapshot s;
    struct slot_grant g, again;

    if (gpu_snapshot_decode((const char *) data, size, &s, NULL) == 0)
        gpu_snapshot_done(&s);
    if (slot_record_decode((const char *) data, size, &g, NULL) < 0)
        return 0;
    /* What was read can be written, and read again. */
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    slot_record_encode(&g, &text);
    if (slot_record_decode(buf_str(&text), text.len, &again, NULL) < 0 ||
        again.ndevices != g.ndevices)
        abort();
    slot_grant_done(&g);
    slot_grant_done(&again);
    return 0;
}
