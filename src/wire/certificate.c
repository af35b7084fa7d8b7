/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/certificate.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <string.h>

#include "base/err.h"

#define SERIAL_BYTES 16

int certificate_error(struct err *err, const char *what, int r) {
    return err_set(err, r == GNUTLS_E_MEMORY_ERROR ? ENOMEM : EIO, "%s: %s", what,
                   gnutls_strerror(r));
}

void certificate_free_secret(gnutls_datum_t *secret) {
    if (secret->data)
        explicit_bzero(secret->data, secret->size);
    gnutls_free(secret->data);
}

/* ---- PEM ---- */

static gnutls_datum_t datum(const struct buf *b) {
    return (gnutls_datum_t){(unsigned char *) b->data, (unsigned) b->len};
}

/* A function that reads an object of GnuTLS of this kind. */
#define LOADER(name, kind)                                                                         \
    gnutls_x509_##kind##_t name(const struct buf *pem) {                                           \
        gnutls_datum_t data = datum(pem);                                                          \
        gnutls_x509_##kind##_t object;                                                             \
                                                                                                   \
        if (pem->len == 0 || gnutls_x509_##kind##_init(&object) < 0)                               \
            return NULL;                                                                           \
        if (gnutls_x509_##kind##_import(object, &data, GNUTLS_X509_FMT_PEM) == 0)                  \
            return object;                                                                         \
        gnutls_x509_##kind##_deinit(object);                                                       \
        return NULL;                                                                               \
    }

LOADER(certificate_load, crt)
LOADER(certificate_load_key, privkey)

static int take_pem(int r, gnutls_datum_t *pem, struct buf *out) {
    if (r < 0)
        return r;
    buf_append(out, pem->data, pem->size);
    certificate_free_secret(pem);
    return buf_error(out) < 0 ? GNUTLS_E_MEMORY_ERROR : 0;
}

int certificate_save(gnutls_x509_crt_t cert, struct buf *out) {
    gnutls_datum_t pem = {0};
    return take_pem(gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &pem), &pem, out);
}

int certificate_save_key(gnutls_x509_privkey_t key, struct buf *out) {
    gnutls_datum_t pem = {0};
    return take_pem(
        gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &pem),
        &pem, out);
}

/* ---- what belongs together ---- */

bool certificate_has_key(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key) {
    unsigned char of_cert[64], of_key[64];
    size_t cert_len = sizeof(of_cert), key_len = sizeof(of_key);
    return cert && key && gnutls_x509_crt_get_key_id(cert, 0, of_cert, &cert_len) == 0 &&
           gnutls_x509_privkey_get_key_id(key, 0, of_key, &key_len) == 0 && cert_len == key_len &&
           memcmp(of_cert, of_key, key_len) == 0;
}

bool certificate_is_signed_by(gnutls_x509_crt_t cert, gnutls_x509_crt_t issuer) {
    unsigned status = 0;
    return gnutls_x509_crt_check_issuer(cert, issuer) == 1 &&
           gnutls_x509_crt_verify(cert, &issuer, 1, GNUTLS_VERIFY_DISABLE_TIME_CHECKS, &status) ==
               0 &&
           status == 0;
}

/* ---- making ---- */

int certificate_new_key(gnutls_x509_privkey_t *ret) {
    int r = gnutls_x509_privkey_init(ret);
    if (r < 0)
        return r;
    return gnutls_x509_privkey_generate(*ret, GNUTLS_PK_ECDSA,
                                        GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
}

static int set_key(gnutls_x509_crt_t cert, const struct certificate_terms *terms) {
    gnutls_pubkey_t public = NULL;
    if (!terms->request)
        return gnutls_x509_crt_set_key(cert, terms->key);
    int r = gnutls_pubkey_init(&public);
    if (r < 0)
        return r;
    r = gnutls_pubkey_import_x509_crq(public, terms->request, 0);
    if (r >= 0)
        r = gnutls_x509_crt_set_pubkey(cert, public);
    gnutls_pubkey_deinit(public);
    return r;
}

/* Everything that all certificates have in common. */
static int begin(gnutls_x509_crt_t cert, const struct certificate_terms *terms) {
    unsigned char serial[SERIAL_BYTES], id[64];
    size_t id_len = sizeof(id);
    int r = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof(serial));
    serial[0] = (unsigned char) (serial[0] & 0x7f) | 0x40; /* positive, of full length */
    if (r >= 0)
        r = gnutls_x509_crt_set_version(cert, 3);
    if (r >= 0)
        r = gnutls_x509_crt_set_serial(cert, serial, sizeof(serial));
    if (r >= 0)
        r = gnutls_x509_crt_set_activation_time(cert, (time_t) (terms->now - CERTIFICATE_SKEW));
    if (r >= 0)
        r = gnutls_x509_crt_set_expiration_time(cert, (time_t) (terms->now + terms->seconds));
    if (r >= 0)
        r = gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, terms->name,
                                          (unsigned) strlen(terms->name));
    if (r >= 0)
        r = set_key(cert, terms);
    if (r >= 0)
        r = gnutls_x509_crt_get_key_id(cert, 0, id, &id_len);
    return r < 0 ? r : gnutls_x509_crt_set_subject_key_id(cert, id, id_len);
}

static int set_purpose(gnutls_x509_crt_t cert, const struct certificate_terms *terms) {
    int r = 0;
    if (!terms->purpose) {
        r = gnutls_x509_crt_set_basic_constraints(cert, 1, 0);
        return r < 0 ? r : gnutls_x509_crt_set_key_usage(cert, GNUTLS_KEY_KEY_CERT_SIGN);
    }
    for (size_t i = 0; r >= 0 && terms->dns_names && terms->dns_names[i]; i++)
        r = gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_DNSNAME, terms->dns_names[i],
                                                 (unsigned) strlen(terms->dns_names[i]),
                                                 GNUTLS_FSAN_APPEND);
    if (r >= 0)
        r = gnutls_x509_crt_set_basic_constraints(cert, 0, -1);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_usage(cert, GNUTLS_KEY_DIGITAL_SIGNATURE);
    return r < 0 ? r : gnutls_x509_crt_set_key_purpose_oid(cert, terms->purpose, 0);
}

static int sign(gnutls_x509_crt_t cert, gnutls_x509_crt_t issuer, gnutls_x509_privkey_t key) {
    unsigned char id[64];
    size_t id_len = sizeof(id);
    int r = issuer == cert ? 0 : gnutls_x509_crt_get_subject_key_id(issuer, id, &id_len, NULL);
    if (r >= 0 && issuer != cert)
        r = gnutls_x509_crt_set_authority_key_id(cert, id, id_len);
    return r < 0 ? r : gnutls_x509_crt_sign2(cert, issuer, key, GNUTLS_DIG_SHA256, 0);
}

int certificate_make(const struct certificate_terms *terms, gnutls_x509_crt_t issuer,
                     gnutls_x509_privkey_t issuer_key, gnutls_x509_crt_t *ret) {
    gnutls_x509_crt_t cert;
    int r = gnutls_x509_crt_init(&cert);
    if (r < 0)
        return r;
    r = begin(cert, terms);
    if (r >= 0)
        r = set_purpose(cert, terms);
    if (r >= 0)
        r = sign(cert, issuer ? issuer : cert, issuer ? issuer_key : terms->key);
    if (r < 0)
        gnutls_x509_crt_deinit(cert);
    else
        *ret = cert;
    return r;
}
