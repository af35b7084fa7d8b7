/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The layer between a stream of bytes and HTTP/2, without I/O: ciphertext in, ciphertext out.
 * tls.h makes one; a link that has none needs no TLS library.
 */

#include <stddef.h>
#include <sys/types.h>

struct buf;
struct err;

struct security {
    /* Bytes that came from the peer. */
    int (*feed)(struct security *security, const void *data, size_t size);
    /* Continues the handshake. 1: done, 0: needs more from the peer, negative: failed, `err`
     * says why. Output may be waiting in any case. */
    int (*handshake)(struct security *security, struct err *err);
    /* Decrypted bytes; 0: none now; -ESHUTDOWN: the peer ended it; other negative: broken. */
    ssize_t (*read)(struct security *security, void *ret, size_t size, struct err *err);
    /* Encrypts all of data into the output. */
    int (*write)(struct security *security, const void *data, size_t size);
    /* Bytes for the peer; the sender consumes them. */
    struct buf *(*output)(struct security *security);
    void (*free)(struct security *security);
};
