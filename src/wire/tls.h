/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The client side of TLS (1.2 or 1.3) without I/O, on GnuTLS: ciphertext in, ciphertext out. The
 * server must show a certificate for `host` that leads to a given CA; nothing else is trusted.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct err;
struct tls_client;

/*
 * ca_file: PEM, one or more certificates. host: DNS name or IP address as text; it is checked
 * against the certificate. alpn: the protocol both must speak ("h2").
 */
int tls_client_new(const char *ca_file, const char *host, const char *alpn, struct tls_client **ret,
                   struct err *err);
void tls_client_free(struct tls_client *tls); /* takes NULL */

/* Bytes that came from the peer. */
int tls_client_feed(struct tls_client *tls, const void *data, size_t size);

/* Goes on with the handshake. 1: done, 0: needs more from the peer, negative: failed, `err` says
 * why. Output may be waiting in any case. */
int tls_client_handshake(struct tls_client *tls, struct err *err);

/* Decrypted bytes; 0: none now; -ESHUTDOWN: the peer ended the session; other negative: broken. */
ssize_t tls_client_read(struct tls_client *tls, void *ret, size_t size, struct err *err);

/* Encrypts all of data into the output. */
int tls_client_write(struct tls_client *tls, const void *data, size_t size);

/* Bytes for the peer; whoever sends them consumes them. */
struct buf *tls_client_output(struct tls_client *tls);
