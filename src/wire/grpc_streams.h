/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls of a server that stay open and get a message whenever there is news. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/grpc_server.h"

#define GRPC_STREAMS_MAX 8

struct grpc_streams {
    struct grpc_call *list[GRPC_STREAMS_MAX];
    size_t n;
};

/* Keeps the call until its client is gone: `on_gone` is called then, and calls grpc_streams_end().
 * False: there are too many, and the call has ended with RESOURCE_EXHAUSTED. */
static inline bool grpc_streams_add(struct grpc_streams *s, struct grpc_call *call,
                                    void (*on_gone)(struct grpc_call *call, void *userdata),
                                    void *userdata) {
    if (s->n == GRPC_STREAMS_MAX) {
        grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "too many watchers");
        return false;
    }
    s->list[s->n++] = call;
    grpc_call_on_cancel(call, on_gone, userdata);
    return true;
}

/* Ends the call. Whether it was one of them. */
static inline bool grpc_streams_end(struct grpc_streams *s, struct grpc_call *call) {
    size_t i = 0;

    while (i < s->n && s->list[i] != call)
        i++;
    bool was_kept = i < s->n;
    if (was_kept)
        s->list[i] = s->list[--s->n];
    grpc_call_finish(call, GRPC_OK, NULL);
    return was_kept;
}
