/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/minor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/num.h"
#include "gpu/device.h"
#include "gpu/driver/proc_value.h"

#define FILE_MAX ((size_t) 1 << 16)

/* The module does not know the UUID of a card that no process has opened yet: only "GPU-" and
 * question marks.
 */
int minor_parse(const char *text, const char *uuid, int32_t *ret) {
    char value[GPU_UUID_MAX];
    uint64_t n;

    if (proc_value(text, "GPU UUID:", value, sizeof(value)) && !strchr(value, '?') &&
        strcmp(value, uuid) != 0)
        return -ENODEV;
    if (!proc_value(text, "Device Minor:", value, sizeof(value)) ||
        num_parse_u64(value, INT32_MAX, &n) < 0)
        return -EBADMSG;
    *ret = (int32_t) n;
    return 0;
}

/* NVML has "00000000:3B:00.0" where the kernel has "0000:3b:00.0". */
static int read_minor(const char *root, const struct gpu_device *device, const char *uuid,
                      int32_t *ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(2 * FILE_MAX);
    unsigned int domain, bus, slot, function;
    char path[512];
    int r;

    if (sscanf(device->pci, "%8x:%4x:%4x.%1x", &domain, &bus, &slot, &function) != 4)
        return -ENOENT;
    (void) snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%04x:%02x:%02x.%x/information",
                    root, domain, bus, slot, function);
    r = file_read(path, FILE_MAX, &text, NULL);
    return r < 0 ? r : minor_parse(buf_str(&text), uuid, ret);
}

/* A card that is always late works, and its containers are to start. */
static bool has_answered(const struct gpu_device *d) {
    return d->healthy && !d->saved && !d->stale && !d->released;
}

int minor_check(const char *root, const struct gpu_device *device, struct err *err) {
    const char *uuid = gpu_is_part(device) ? device->parent : device->uuid;
    int32_t minor = -1;
    int r;

    if (!has_answered(device))
        return err_set(err, ENODEV, "the number of GPU %s is not known: the card does not answer",
                       uuid);
    r = read_minor(root, device, uuid, &minor);
    if (r == -ENOENT || (r == 0 && minor == device->minor))
        return 0;
    if (r == 0 || r == -ENODEV)
        return err_set(err, ENODEV, "the driver has numbered its cards anew since GPU %s was read",
                       uuid);
    return err_set(err, ENODEV, "the driver's file with the number of GPU %s cannot be read: %s",
                   uuid, strerror(-r));
}
