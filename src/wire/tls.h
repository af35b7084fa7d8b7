/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The client side of TLS (1.2 or 1.3), on GnuTLS. The server must show a certificate for `host`
 * that leads to a given CA; nothing else is trusted.
 */

#include "wire/security.h"

/* GnuTLS' name for what we speak, as client and as server. */
#define TLS_PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct tls_client_options {
    const char *ca_file; /* PEM, one or more certificates; or as text: */
    const char *ca;
    const char *cert, *key; /* PEM, shown to a server that asks; NULL: none */
    const char *host; /* DNS name or IP address as text; it is checked against the certificate */
    const char *alpn; /* the protocol both must speak ("h2"); NULL: none is negotiated */
};

/* Copies what it needs. End it with its free(). */
int tls_client_new(const struct tls_client_options *options, struct security **ret,
                   struct err *err);
