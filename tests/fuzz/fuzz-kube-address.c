/* SPDX-License-Identifier: Apache-2.0 */

/* URLs of API servers, and lines of watches in pieces. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/api/config.h"
#include "wire/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count(const char *line, size_t size, void *user) {
    if (memchr(line, '\n', size))
        abort();
    *(size_t *) user += size + 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char url[512];
    struct kube_address address;
    (void) snprintf(url, sizeof(url), "https://%.*s", (int) (size < 400 ? size : 400),
                    (const char *) data);
    if (kube_address_parse(url, &address, NULL) == 0 && (!address.host[0] || !address.port[0]))
        abort();

    struct line_splitter lines;
    size_t seen = 0, piece = size > 0 ? (size_t) data[0] % 7 + 1 : 1;
    line_splitter_init(&lines, 1 << 20);
    for (size_t at = 0; at < size; at += piece)
        if (line_splitter_feed(&lines, (const char *) data + at,
                               size - at < piece ? size - at : piece, count, &seen) < 0)
            abort();
    if (seen + lines.part.len != size)
        abort();
    line_splitter_done(&lines);
    return 0;
}
