/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/capabilities.h"

#include <errno.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/num.h"
#include "gpu/driver/proc_value.h"

#define CAPABILITIES "/proc/driver/nvidia/capabilities"
#define MINORS "/proc/driver/nvidia-caps/mig-minors"
#define FILE_MAX ((size_t) 1 << 20)

int capability_number(const char *text, const char *key, uint32_t *ret) {
    char digits[16];
    uint64_t n;

    if (!proc_value(text, key, digits, sizeof(digits)) || num_parse_u64(digits, UINT32_MAX, &n) < 0)
        return -EBADMSG;
    *ret = (uint32_t) n;
    return 0;
}

static int read_number(const char *root, const char *file, const char *key, uint32_t *ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(2 * FILE_MAX);
    char path[512];
    int r;

    (void) snprintf(path, sizeof(path), "%s%s", root, file);
    r = file_read(path, FILE_MAX, &text, NULL);
    return r < 0 ? r : capability_number(buf_str(&text), key, ret);
}

/* The file of an instance exists as long as the instance. mig-minors lists the numbers of all
 * instances that a card can have, by which NVIDIA's tools find them. */
static int find(const char *root, const char *file, const char *key, uint32_t *ret,
                struct err *err) {
    int r = read_number(root, file, "DeviceFileMinor:", ret);

    if (r == -ENOENT)
        return err_set(err, ENODEV, "the driver has no such MIG instance (%s%s does not exist)",
                       root, file);
    if (r == -EBADMSG)
        r = read_number(root, MINORS, key, ret);
    return r < 0 ? err_set(err, EBADMSG, "neither %s%s nor %s%s has its device number", root, file,
                           root, MINORS)
                 : 0;
}

int capability_of_gpu_instance(const char *root, int32_t card, uint32_t gi, uint32_t *ret,
                               struct err *err) {
    char file[128], key[64];

    (void) snprintf(file, sizeof(file), CAPABILITIES "/gpu%d/mig/gi%u/access", card, gi);
    (void) snprintf(key, sizeof(key), "gpu%d/gi%u/access", card, gi);
    return find(root, file, key, ret, err);
}

int capability_of_compute_instance(const char *root, int32_t card, uint32_t gi, uint32_t ci,
                                   uint32_t *ret, struct err *err) {
    char file[128], key[64];

    (void) snprintf(file, sizeof(file), CAPABILITIES "/gpu%d/mig/gi%u/ci%u/access", card, gi, ci);
    (void) snprintf(key, sizeof(key), "gpu%d/gi%u/ci%u/access", card, gi, ci);
    return find(root, file, key, ret, err);
}
