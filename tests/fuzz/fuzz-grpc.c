/* SPDX-License-Identifier: Apache-2.0 */

/* gRPC's own texts and frames: the first byte chooses what the rest is given to, and how. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/grpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The messages must be the same whatever the pieces: a second deframer takes all at once. */
static void deframe(const uint8_t *data, size_t size, size_t piece) {
    struct grpc_deframer cut, whole;
    grpc_deframer_init(&cut, 4096);
    grpc_deframer_init(&whole, 4096);
    for (size_t at = 0, at_whole = 0; at < size;) {
        size_t n = size - at < piece ? size - at : piece, used = 0, used_whole = 0;
        int r = grpc_deframer_feed(&cut, data + at, n, &used);
        if (used > n || cut.have > cut.want || cut.capacity > 4096)
            abort();
        at += used;
        if (r == 0)
            continue;
        int r_whole = grpc_deframer_feed(&whole, data + at_whole, size - at_whole, &used_whole);
        at_whole += used_whole;
        if (r != r_whole || at != at_whole)
            abort();
        if (r < 0)
            break;
        if (cut.want != whole.want ||
            (cut.want > 0 && memcmp(cut.message, whole.message, cut.want) != 0))
            abort();
    }
    grpc_deframer_done(&cut);
    grpc_deframer_done(&whole);
}

static void texts(const uint8_t *data, size_t size) {
    char plain[512], escaped[2048], again[2048];
    uint64_t ms;
    size_t n = grpc_message_unescape((const char *) data, size, plain, sizeof(plain));
    if (n >= sizeof(plain) || strlen(plain) != n)
        abort();
    (void) grpc_message_escape(plain, escaped, sizeof(escaped));
    (void) grpc_message_unescape(escaped, strlen(escaped), again, sizeof(again));
    if (strcmp(plain, again) != 0)
        abort();
    (void) grpc_timeout_parse((const char *) data, size, &ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    if (data[0] < 128)
        deframe(data + 1, size - 1, (size_t) data[0] + 1);
    else
        texts(data + 1, size - 1);
    return 0;
}
