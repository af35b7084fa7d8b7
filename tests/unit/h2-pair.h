/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Two ends of an HTTP/2 connection in memory, and what an HTTP client sees of one exchange. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/h2.h"

/* Carries bytes both ways until neither has any; a negative errno from either ends it. */
int h2_pair_pump(struct h2_conn *client, struct h2_conn *server);

/* A client's view of an exchange: pass it as `user` to h2_request. */
struct h2_seen {
    int status;      /* HTTP; 0: none yet */
    int grpc_status; /* -1: none yet */
    char message[128];
    struct buf body;
    bool ended;  /* END_STREAM came */
    bool closed; /* on_close came; code is set */
    bool lost;   /* with its connection */
    uint32_t code;
};

#define H2_SEEN_INIT                                                                               \
    { .grpc_status = -1 }

/* For h2_options.handlers of the client; conn_user is not used. */
extern const struct h2_handlers h2_seen_handlers;
