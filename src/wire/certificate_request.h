/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The side of a TLS server that gets its certificate from an authority elsewhere: a key with a
 * request for it, and what its certificate is worth. All PEM, time is an argument. */

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

/* A new key and a request for a certificate of that common name. */
int certificate_request_make(const char *name, struct buf *ret_key, struct buf *ret_request,
                             struct err *err);

/* A new key and a certificate that no authority has signed: for clients that verify nothing. */
int certificate_self_signed(const char *name, int64_t now, struct buf *ret_key,
                            struct buf *ret_cert, struct err *err);

/* When a certificate is to be renewed, in seconds since 1970: at two thirds of its time, but not
 * before all clients know the newest of the authorities in `bundle`, by which the next one will be
 * signed. 0: at once, because it is missing, is not that of `key`, or is of none of them. */
int64_t certificate_renewal(const struct buf *cert, const struct buf *key, const char *bundle);
