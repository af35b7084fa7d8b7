/* SPDX-License-Identifier: Apache-2.0 */

/* What a server may send to our HTTP/2 client while three requests are open. */

#include <stdint.h>
#include <stdlib.h>

#include "wire/h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_field(struct h2_stream *stream, const char *name, const char *value) {
    (void) name;
    return h2_user(stream) && value[0] == '!' ? -1 : 0;
}

static void on_close(struct h2_stream *stream, uint32_t code, bool conn_lost) {
    (void) code, (void) conn_lost;
    unsigned *open = h2_user(stream);
    --*open;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct h2_handlers handlers = {.on_field = on_field, .on_close = on_close};
    static const struct h2_field fields[] = {
        {":method", "POST"}, {":scheme", "https"}, {":path", "/"}, {":authority", "x"}};
    const struct h2_options options = {.handlers = &handlers};
    struct h2_conn *conn = NULL;
    struct h2_stream *stream;
    const uint8_t *out;
    unsigned open = 0;
    if (size == 0 || h2_conn_new(&options, &conn) < 0)
        return 0;
    for (size_t i = 0; i < 3; i++)
        if (h2_request(conn, fields, 4, "body", 4, &open, &stream) == 0)
            open++;
    size_t piece = (size_t) data[0] + 1;
    for (size_t at = 1; at < size; at += piece) {
        while (h2_conn_pull(conn, &out) > 0)
            ;
        if (h2_conn_feed(conn, data + at, size - at < piece ? size - at : piece) < 0)
            break;
    }
    h2_conn_free(conn);
    if (open != 0)
        abort();
    return 0;
}
