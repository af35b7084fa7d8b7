/* SPDX-License-Identifier: Apache-2.0 */

/* What a peer may send to our gRPC server: the input is its side of a connection. */

#include <stdint.h>
#include <stdlib.h>

#include "wire/grpc_service.h"
#include "wire/h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned open_calls;

static void echo(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) userdata;
    grpc_call_reply(call, request, size);
}

static void on_cancel(struct grpc_call *call, void *userdata) {
    (void) userdata;
    open_calls--;
    grpc_call_finish(call, GRPC_CANCELLED, NULL);
}

static void watch(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) userdata;
    open_calls++;
    grpc_call_on_cancel(call, on_cancel, NULL);
    (void) grpc_call_send(call, request, size);
}

static uint64_t now_ms(void *clock) {
    (void) clock;
    return 0;
}

static void drain(struct h2_conn *conn) {
    const uint8_t *out;
    while (h2_conn_pull(conn, &out) > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct grpc_method methods[] = {{"/t/Echo", echo}, {"/t/Watch", watch}};
    struct grpc_service service = {.methods = methods,
                                   .n_methods = 2,
                                   .max_request = 65536,
                                   .max_queued = 65536,
                                   .now_ms = now_ms};
    struct grpc_peer peer = {.service = &service};
    struct h2_conn *conn = NULL;
    if (size == 0 || grpc_service_accept(&peer, &conn) < 0)
        return 0;
    /* The first byte is the size of the pieces, so that borders fall everywhere. */
    size_t piece = (size_t) data[0] + 1;
    for (size_t at = 1; at < size; at += piece) {
        if (h2_conn_feed(conn, data + at, size - at < piece ? size - at : piece) < 0)
            break;
        drain(conn);
    }
    if (size % 2)
        grpc_service_shutdown(&service);
    h2_conn_free(conn);
    if (open_calls != 0 || service.calls)
        abort();
    return 0;
}
