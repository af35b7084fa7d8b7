/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Certificates and keys (P-256) between PEM and GnuTLS' objects, and how one is made. Functions
 * that return int return GnuTLS' codes; certificate_error() makes an error of them. */

#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

#define CERTIFICATE_SKEW 3600 /* seconds by which the clocks of others may be behind */
#define CERTIFICATE_PEM_MAX ((size_t) 64 << 10)

int certificate_error(struct err *err, const char *what, int r);

/* NULL: it is not there or cannot be read. */
gnutls_x509_crt_t certificate_load(const struct buf *pem);
gnutls_x509_privkey_t certificate_load_key(const struct buf *pem);
int certificate_save(gnutls_x509_crt_t cert, struct buf *out);
int certificate_save_key(gnutls_x509_privkey_t key, struct buf *out);
int certificate_new_key(gnutls_x509_privkey_t *ret);

/* Whether both are there and the key is the certificate's. */
bool certificate_has_key(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key);
bool certificate_is_signed_by(gnutls_x509_crt_t cert, gnutls_x509_crt_t issuer);

/* What a certificate says. It is valid since CERTIFICATE_SKEW before `now`. */
struct certificate_terms {
    const char *name;             /* the common name */
    const char *const *dns_names; /* up to a NULL; NULL: none */
    const char *purpose;          /* GNUTLS_KP_TLS_WWW_SERVER ...; NULL: it is an authority's */
    gnutls_x509_privkey_t key;    /* its own, or that of `request` */
    gnutls_x509_crq_t request;
    int64_t now, seconds;
};

/* Signed by `issuer`, which is the authority of `issuer_key`; NULL: by itself. */
int certificate_make(const struct certificate_terms *terms, gnutls_x509_crt_t issuer,
                     gnutls_x509_privkey_t issuer_key, gnutls_x509_crt_t *ret);

/* Of a datum that GnuTLS has made: overwrites its content and frees it. */
void certificate_free_secret(gnutls_datum_t *secret);
