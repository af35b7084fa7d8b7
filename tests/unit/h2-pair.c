/* SPDX-License-Identifier: Apache-2.0 */
#include "h2-pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1: something went over, 0: nothing, negative: the connection is broken. */
static int carry(struct h2_conn *from, struct h2_conn *to) {
    int moved = 0;
    for (;;) {
        const uint8_t *data;
        ssize_t n = h2_conn_pull(from, &data);
        if (n <= 0)
            return n < 0 ? (int) n : moved;
        int r = h2_conn_feed(to, data, (size_t) n);
        if (r < 0)
            return r;
        moved = 1;
    }
}

int h2_pair_pump(struct h2_conn *client, struct h2_conn *server) {
    for (;;) {
        int there = carry(client, server);
        if (there < 0)
            return there;
        int back = carry(server, client);
        if (back < 0)
            return back;
        if (!there && !back)
            return 0;
    }
}

static int on_field(struct h2_stream *stream, const char *name, const char *value) {
    struct h2_seen *seen = h2_user(stream);
    if (!seen)
        return 0;
    if (strcmp(name, ":status") == 0)
        seen->status = (int) strtol(value, NULL, 10);
    else if (strcmp(name, "grpc-status") == 0)
        seen->grpc_status = (int) strtol(value, NULL, 10);
    else if (strcmp(name, "grpc-message") == 0)
        (void) snprintf(seen->message, sizeof(seen->message), "%s", value);
    return 0;
}

static int on_data(struct h2_stream *stream, const uint8_t *data, size_t size) {
    struct h2_seen *seen = h2_user(stream);
    if (seen)
        buf_append(&seen->body, data, size);
    return seen ? buf_error(&seen->body) : 0;
}

static int on_end(struct h2_stream *stream) {
    struct h2_seen *seen = h2_user(stream);
    if (seen)
        seen->ended = true;
    return 0;
}

static void on_close(struct h2_stream *stream, uint32_t code, bool conn_lost) {
    struct h2_seen *seen = h2_user(stream);
    if (!seen)
        return;
    seen->closed = true;
    seen->lost = conn_lost;
    seen->code = code;
}

const struct h2_handlers h2_seen_handlers = {
    .on_field = on_field,
    .on_data = on_data,
    .on_end = on_end,
    .on_close = on_close,
};
