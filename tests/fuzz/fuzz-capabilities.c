/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "gpu/driver/capabilities.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A key, a line feed, and a file of the driver. A number that was read is found in the file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_buf_ struct buf key = BUF_INIT(65536), text = BUF_INIT(1 << 20);
    const uint8_t *end = memchr(data, '\n', size);
    char digits[16];
    uint32_t n;

    if (!end)
        return 0;
    buf_append(&key, data, (size_t) (end - data));
    buf_append(&text, end + 1, size - (size_t) (end + 1 - data));
    if (buf_error(&key) < 0 || buf_error(&text) < 0 ||
        capability_number(buf_str(&text), buf_str(&key), &n) < 0)
        return 0;
    (void) snprintf(digits, sizeof(digits), "%u", n);
    if (!strstr(buf_str(&text), digits) || !strstr(buf_str(&text), buf_str(&key)))
        abort();
    return 0;
}
