/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What gRPC adds to HTTP/2, without any I/O: status codes, the five-byte message frame, the
 * escaping of grpc-message and the format of grpc-timeout. Source: the gRPC project's
 * PROTOCOL-HTTP2.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
};

/* The five bytes before each message: a compression flag and the length, big endian. */
#define GRPC_PREFIX_SIZE 5

/* Name of a status as gRPC libraries print it ("Unavailable"); never NULL. */
const char *grpc_status_name(int status);

/* Writes the prefix of an uncompressed message of `size` bytes. size <= UINT32_MAX. */
void grpc_put_prefix(uint8_t prefix[GRPC_PREFIX_SIZE], size_t size);

/*
 * Takes messages out of a stream of bytes that arrives in any pieces. It holds at most one message
 * at a time, and its memory grows with the bytes that really came, not with the length a peer
 * claims.
 */
struct grpc_deframer {
    size_t max_message;
    uint8_t prefix[GRPC_PREFIX_SIZE];
    size_t prefix_have;
    uint8_t *message;
    size_t have, capacity, want;
};

void grpc_deframer_init(struct grpc_deframer *d, size_t max_message);
void grpc_deframer_done(struct grpc_deframer *d);

/*
 * Consumes from data[0..size) up to the end of one message; *ret_used tells how much. 1: a message
 * is complete (see d->message, d->want bytes, valid until the next call), 0: everything was used
 * and more is needed, -EMSGSIZE: longer than max_message, -EOPNOTSUPP: compressed, -EPROTO: flag is
 * neither 0 nor 1, -ENOMEM.
 */
int grpc_deframer_feed(struct grpc_deframer *d, const uint8_t *data, size_t size, size_t *ret_used);

/* Whether the stream may end here: true between messages. */
bool grpc_deframer_idle(const struct grpc_deframer *d);

/*
 * Escapes a text for grpc-message (bytes outside of 0x20..0x7e, and '%', become %XX) or reverses
 * it. The result is always terminated and cut to fit, never in the middle of an escape. Returns its
 * length.
 */
size_t grpc_message_escape(const char *text, char *ret, size_t size);
size_t grpc_message_unescape(const char *text, size_t len, char *ret, size_t size);

/* grpc-timeout: at most 8 digits and one of H M S m u n. To milliseconds, rounded up; -EINVAL when
 * malformed. */
int grpc_timeout_parse(const char *text, size_t len, uint64_t *ret_ms);
/* The reverse; size >= 12. */
void grpc_timeout_format(uint64_t ms, char *ret, size_t size);

/* The status that corresponds to an HTTP status where the server sent no grpc-status (a proxy, a
 * wrong socket). */
int grpc_status_of_http(int http_status);
