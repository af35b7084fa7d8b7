/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/mig/held_devices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Which pods hold what: all of them, where kubelet has just written the file, and those that have a
 * directory; none has. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_held_devices_ struct held_devices held = {0}, old = {0};
    struct err err = {0};
    int r = held_devices_parse((const char *) data, size, "/nonexistent", "/nonexistent", true,
                               &held, &err);

    if (r < 0 && (!err.text[0] || held.n > 0))
        abort();
    for (size_t i = 0; i < held.n; i++) {
        const struct held_device *d = &held.list[i];

        if ((strncmp(d->uuid, "GPU-", 4) != 0 && strncmp(d->uuid, "MIG-", 4) != 0) ||
            strchr(d->uuid, ':') || strncmp(d->pod, "pod ", 4) != 0 ||
            !held_devices_pod(&held, d->uuid, 0))
            abort();
    }
    if (held_devices_parse((const char *) data, size, "/nonexistent", "/nonexistent", false, &old,
                           &err) != r ||
        old.n > 0)
        abort();
    return 0;
}
