/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages of protobuf-c into buffers. */

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"

/* protobuf-c writes through char *, and changes nothing. */
#define PB_TEXT(s) ((char *) (uintptr_t) (s))

static inline void pb_pack(const ProtobufCMessage *message, struct buf *out) {
    size_t size = protobuf_c_message_get_packed_size(message);
    void *room = buf_reserve(out, size ? size : 1);

    if (!room)
        return;
    (void) protobuf_c_message_pack(message, room);
    buf_commit(out, size);
}
