/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/certificate_authority.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"

#define DAY INT64_C(86400)
#define SKEW 3600 /* seconds by which the clocks of others may be behind */
#define BUNDLE_MAX 4
#define SERIAL_BYTES 16

static void buf_wipe(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->len);
    buf_done(b);
}

void certificate_authority_init(struct certificate_authority *a) {
    a->bundle = a->ca_key = a->cert = a->key = BUF_INIT(CERTIFICATE_AUTHORITY_PEM_MAX);
}

void certificate_authority_done(struct certificate_authority *a) {
    buf_done(&a->bundle);
    buf_done(&a->cert);
    buf_wipe(&a->ca_key);
    buf_wipe(&a->key);
}

static int tls_error(struct err *err, const char *what, int r) {
    return err_set(err, r == GNUTLS_E_MEMORY_ERROR ? ENOMEM : EIO, "%s: %s", what,
                   gnutls_strerror(r));
}

/* ---- what there is, as objects ---- */

struct loaded {
    unsigned ncas;
    gnutls_x509_crt_t cas[BUNDLE_MAX]; /* the newest first */
    gnutls_x509_privkey_t ca_key;      /* NULL: not there or not usable */
    gnutls_x509_crt_t cert;
    gnutls_x509_privkey_t key;
};

static void loaded_done(struct loaded *l) {
    for (unsigned i = 0; i < l->ncas; i++)
        gnutls_x509_crt_deinit(l->cas[i]);
    if (l->ca_key)
        gnutls_x509_privkey_deinit(l->ca_key);
    if (l->cert)
        gnutls_x509_crt_deinit(l->cert);
    if (l->key)
        gnutls_x509_privkey_deinit(l->key);
    *l = (struct loaded){0};
}

static gnutls_datum_t datum(const struct buf *b) {
    return (gnutls_datum_t){(unsigned char *) b->data, (unsigned) b->len};
}

static gnutls_x509_crt_t load_cert(const struct buf *pem) {
    gnutls_datum_t data = datum(pem);
    gnutls_x509_crt_t cert;
    if (pem->len == 0 || gnutls_x509_crt_init(&cert) < 0)
        return NULL;
    if (gnutls_x509_crt_import(cert, &data, GNUTLS_X509_FMT_PEM) == 0)
        return cert;
    gnutls_x509_crt_deinit(cert);
    return NULL;
}

static gnutls_x509_privkey_t load_key(const struct buf *pem) {
    gnutls_datum_t data = datum(pem);
    gnutls_x509_privkey_t key;
    if (pem->len == 0 || gnutls_x509_privkey_init(&key) < 0)
        return NULL;
    if (gnutls_x509_privkey_import(key, &data, GNUTLS_X509_FMT_PEM) == 0)
        return key;
    gnutls_x509_privkey_deinit(key);
    return NULL;
}

static bool belongs(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key) {
    unsigned char of_cert[64], of_key[64];
    size_t cert_len = sizeof(of_cert), key_len = sizeof(of_key);
    return cert && key && gnutls_x509_crt_get_key_id(cert, 0, of_cert, &cert_len) == 0 &&
           gnutls_x509_privkey_get_key_id(key, 0, of_key, &key_len) == 0 && cert_len == key_len &&
           memcmp(of_cert, of_key, key_len) == 0;
}

static void load(const struct certificate_authority *a, struct loaded *ret) {
    gnutls_datum_t data = datum(&a->bundle);
    *ret = (struct loaded){.ncas = BUNDLE_MAX};
    if (a->bundle.len == 0 ||
        gnutls_x509_crt_list_import(ret->cas, &ret->ncas, &data, GNUTLS_X509_FMT_PEM, 0) < 0)
        ret->ncas = 0;
    ret->ca_key = load_key(&a->ca_key);
    ret->cert = load_cert(&a->cert);
    ret->key = load_key(&a->key);
}

/* ---- what is due ---- */

static bool ends_within(gnutls_x509_crt_t cert, int64_t now, int64_t days) {
    return (int64_t) gnutls_x509_crt_get_expiration_time(cert) - now < days * DAY;
}

/* A time before its creation means that the clock has been set; clients would refuse it. */
static bool is_early(gnutls_x509_crt_t cert, int64_t now) {
    return now < (int64_t) gnutls_x509_crt_get_activation_time(cert);
}

static bool ca_is_due(const struct loaded *l, int64_t now) {
    return l->ncas == 0 || !belongs(l->cas[0], l->ca_key) ||
           ends_within(l->cas[0], now, CERTIFICATE_AUTHORITY_CA_SPARE) || is_early(l->cas[0], now);
}

static bool ca_has_settled(const struct loaded *l, int64_t now) {
    return now - SKEW - (int64_t) gnutls_x509_crt_get_activation_time(l->cas[0]) >=
           CERTIFICATE_AUTHORITY_SETTLE_S;
}

static bool is_signed_by(const struct loaded *l, unsigned ca) {
    unsigned status = 0;
    return gnutls_x509_crt_check_issuer(l->cert, l->cas[ca]) == 1 &&
           gnutls_x509_crt_verify(l->cert, &l->cas[ca], 1, GNUTLS_VERIFY_DISABLE_TIME_CHECKS,
                                  &status) == 0 &&
           status == 0;
}

/* Whether an authority that clients trust has signed a certificate that is valid now. */
static bool cert_works(const struct loaded *l, const char *const *names, int64_t now) {
    if (!belongs(l->cert, l->key) || ends_within(l->cert, now, 0) || is_early(l->cert, now))
        return false;
    for (; *names; names++)
        if (!gnutls_x509_crt_check_hostname(l->cert, *names))
            return false;
    for (unsigned i = 0; i < l->ncas; i++)
        if (is_signed_by(l, i))
            return true;
    return false;
}

static bool cert_is_due(const struct loaded *l, const char *const *names, int64_t now) {
    if (!cert_works(l, names, now))
        return true;
    return ca_has_settled(l, now) &&
           (!is_signed_by(l, 0) || ends_within(l->cert, now, CERTIFICATE_AUTHORITY_CERT_SPARE));
}

/* ---- making ---- */

static int make_key(gnutls_x509_privkey_t *ret) {
    int r = gnutls_x509_privkey_init(ret);
    if (r < 0)
        return r;
    return gnutls_x509_privkey_generate(*ret, GNUTLS_PK_ECDSA,
                                        GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
}

/* Everything that an authority's and a server's certificate have in common. */
static int begin_cert(gnutls_x509_crt_t *ret, gnutls_x509_privkey_t key, const char *name,
                      int64_t now, int64_t days) {
    unsigned char serial[SERIAL_BYTES], id[64];
    size_t id_len = sizeof(id);
    int r = gnutls_x509_crt_init(ret);
    if (r >= 0)
        r = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof(serial));
    serial[0] = (unsigned char) (serial[0] & 0x7f) | 0x40; /* positive, of full length */
    if (r >= 0)
        r = gnutls_x509_crt_set_version(*ret, 3);
    if (r >= 0)
        r = gnutls_x509_crt_set_serial(*ret, serial, sizeof(serial));
    if (r >= 0)
        r = gnutls_x509_crt_set_activation_time(*ret, (time_t) (now - SKEW));
    if (r >= 0)
        r = gnutls_x509_crt_set_expiration_time(*ret, (time_t) (now + days * DAY));
    if (r >= 0)
        r = gnutls_x509_crt_set_dn_by_oid(*ret, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                          (unsigned) strlen(name));
    if (r >= 0)
        r = gnutls_x509_crt_set_key(*ret, key);
    if (r >= 0)
        r = gnutls_x509_crt_get_key_id(*ret, 0, id, &id_len);
    return r < 0 ? r : gnutls_x509_crt_set_subject_key_id(*ret, id, id_len);
}

/* The time in the name distinguishes successive authorities. */
static int make_ca(gnutls_x509_crt_t *ret, gnutls_x509_privkey_t key, int64_t now) {
    char name[64];
    (void) snprintf(name, sizeof(name), "aliquot-ca-%lld", (long long) now);
    int r = begin_cert(ret, key, name, now, CERTIFICATE_AUTHORITY_CA_DAYS);
    if (r >= 0)
        r = gnutls_x509_crt_set_basic_constraints(*ret, 1, 0);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_usage(*ret, GNUTLS_KEY_KEY_CERT_SIGN);
    return r < 0 ? r : gnutls_x509_crt_sign2(*ret, *ret, key, GNUTLS_DIG_SHA256, 0);
}

static int make_cert(gnutls_x509_crt_t *ret, gnutls_x509_privkey_t key, const char *const *names,
                     gnutls_x509_crt_t ca, gnutls_x509_privkey_t ca_key, int64_t now) {
    unsigned char id[64];
    size_t id_len = sizeof(id);
    int r = begin_cert(ret, key, "aliquot", now, CERTIFICATE_AUTHORITY_CERT_DAYS);
    for (size_t i = 0; r >= 0 && names[i]; i++)
        r = gnutls_x509_crt_set_subject_alt_name(*ret, GNUTLS_SAN_DNSNAME, names[i],
                                                 (unsigned) strlen(names[i]), GNUTLS_FSAN_APPEND);
    if (r >= 0)
        r = gnutls_x509_crt_set_basic_constraints(*ret, 0, -1);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_usage(*ret, GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_purpose_oid(*ret, GNUTLS_KP_TLS_WWW_SERVER, 0);
    if (r >= 0)
        r = gnutls_x509_crt_get_subject_key_id(ca, id, &id_len, NULL);
    if (r >= 0)
        r = gnutls_x509_crt_set_authority_key_id(*ret, id, id_len);
    return r < 0 ? r : gnutls_x509_crt_sign2(*ret, ca, ca_key, GNUTLS_DIG_SHA256, 0);
}

/* ---- writing ---- */

static int take_pem(int r, gnutls_datum_t *pem, struct buf *out) {
    if (r < 0)
        return r;
    buf_append(out, pem->data, pem->size);
    explicit_bzero(pem->data, pem->size);
    gnutls_free(pem->data);
    return buf_error(out) < 0 ? GNUTLS_E_MEMORY_ERROR : 0;
}

static int save_cert(gnutls_x509_crt_t cert, struct buf *out) {
    gnutls_datum_t pem = {0};
    return take_pem(gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &pem), &pem, out);
}

static int save_key(gnutls_x509_privkey_t key, struct buf *out) {
    gnutls_datum_t pem = {0};
    return take_pem(
        gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &pem),
        &pem, out);
}

/* The newest authority in front, then those that may have signed a certificate in use. */
static int renew_ca(struct loaded *l, int64_t now, struct certificate_authority *ret) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t ca = NULL;
    int r = make_key(&key);
    if (r >= 0)
        r = make_ca(&ca, key, now);
    if (r >= 0)
        r = save_cert(ca, &ret->bundle);
    for (unsigned i = 0; r >= 0 && i < l->ncas && i < BUNDLE_MAX - 1; i++)
        if (!ends_within(l->cas[i], now, 0))
            r = save_cert(l->cas[i], &ret->bundle);
    if (r >= 0)
        r = save_key(key, &ret->ca_key);
    if (ca)
        gnutls_x509_crt_deinit(ca);
    if (key)
        gnutls_x509_privkey_deinit(key);
    return r;
}

static int renew_cert(struct loaded *l, const char *const *names, int64_t now,
                      struct certificate_authority *ret) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t cert = NULL;
    int r = make_key(&key);
    if (r >= 0)
        r = make_cert(&cert, key, names, l->cas[0], l->ca_key, now);
    if (r >= 0)
        r = save_cert(cert, &ret->cert);
    if (r >= 0)
        r = save_key(key, &ret->key);
    if (cert)
        gnutls_x509_crt_deinit(cert);
    if (key)
        gnutls_x509_privkey_deinit(key);
    return r;
}

/* Replaces what `fresh` has something for. */
static void replace_with(struct certificate_authority *a, struct certificate_authority *fresh) {
    struct buf *to[] = {&a->bundle, &a->ca_key, &a->cert, &a->key};
    struct buf *from[] = {&fresh->bundle, &fresh->ca_key, &fresh->cert, &fresh->key};
    for (size_t i = 0; i < 4; i++) {
        if (from[i]->len == 0)
            continue;
        buf_wipe(to[i]);
        *to[i] = *from[i];
        *from[i] = BUF_INIT(CERTIFICATE_AUTHORITY_PEM_MAX);
    }
}

/* One step; 1: done, 0: nothing to do. */
static int step(struct certificate_authority *a, const char *const *names, int64_t now,
                struct err *err) {
    struct loaded l;
    _cleanup_(certificate_authority_done) struct certificate_authority fresh;
    int r = 0, due = 1;
    certificate_authority_init(&fresh);
    load(a, &l);
    if (ca_is_due(&l, now))
        r = renew_ca(&l, now, &fresh);
    else if (cert_is_due(&l, names, now))
        r = renew_cert(&l, names, now, &fresh);
    else
        due = 0;
    loaded_done(&l);
    if (r < 0)
        return tls_error(err, "cannot make a certificate", r);
    replace_with(a, &fresh);
    return due;
}

/* After a new authority the server may need a certificate at once, when it has none that works. */
int certificate_authority_renew(struct certificate_authority *a, const char *const *names,
                                int64_t now, struct err *err) {
    int first = step(a, names, now, err);
    if (first <= 0)
        return first;
    int second = step(a, names, now, err);
    return second < 0 ? second : 1;
}
