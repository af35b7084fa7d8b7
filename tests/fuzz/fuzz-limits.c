/* SPDX-License-Identifier: Apache-2.0 */

/* A limits file of any content, as the library in a container may find it: read safely, or refused.
 */

#include <fcntl.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "share/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool ends(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct limits_file file = {
        .magic = LIMITS_MAGIC, .version = LIMITS_VERSION, .size = sizeof(file)};
    struct share_limits limits;
    char path[64];
    size_t whole = size % 3 == 0 ? LIMITS_SIZE_MIN : sizeof(file); /* or one of an older agent */
    int fd;

    file.size = (uint32_t) whole;
    /* The first byte says from where on the input overlays a valid file. */
    if (size > 1) {
        size_t at = (size_t) data[0] % 64 * 164, n = size - 1;
        memcpy((char *) &file + at, data + 1, n < sizeof(file) - at ? n : sizeof(file) - at);
    }
    (void) snprintf(path, sizeof(path), "/tmp/aliquot-fuzz-limits-%d", (int) getpid());
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &file, size % 17 == 16 && size < whole ? size : whole) < 0)
        abort();
    (void) close(fd);
    if (limits_read(path, &limits, NULL) == 0) {
        if (limits.ndevices > LIMITS_DEVICES_MAX || !ends(limits.pod_uid, sizeof(limits.pod_uid)) ||
            !ends(limits.pod, sizeof(limits.pod)) ||
            !ends(limits.container, sizeof(limits.container)))
            abort();
        for (uint32_t i = 0; i < limits.ndevices; i++)
            if (!ends(limits.device[i].uuid, sizeof(limits.device[i].uuid)))
                abort();
    }
    (void) unlink(path);
    return 0;
}
