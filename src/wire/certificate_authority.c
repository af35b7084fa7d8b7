/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/certificate_authority.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "wire/certificate.h"

#define DAY INT64_C(86400)
#define BUNDLE_MAX 4

void certificate_authority_init(struct certificate_authority *a) {
    a->bundle = a->ca_key = a->cert = a->key = BUF_INIT(CERTIFICATE_AUTHORITY_PEM_MAX);
}

void certificate_authority_done(struct certificate_authority *a) {
    buf_done(&a->bundle);
    buf_done(&a->cert);
    buf_wipe(&a->ca_key);
    buf_wipe(&a->key);
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

static void load(const struct certificate_authority *a, struct loaded *ret) {
    gnutls_datum_t data = datum(&a->bundle);
    *ret = (struct loaded){.ncas = BUNDLE_MAX};
    if (a->bundle.len == 0 ||
        gnutls_x509_crt_list_import(ret->cas, &ret->ncas, &data, GNUTLS_X509_FMT_PEM, 0) < 0)
        ret->ncas = 0;
    ret->ca_key = certificate_load_key(&a->ca_key);
    ret->cert = certificate_load(&a->cert);
    ret->key = certificate_load_key(&a->key);
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
    return l->ncas == 0 || !certificate_has_key(l->cas[0], l->ca_key) ||
           ends_within(l->cas[0], now, CERTIFICATE_AUTHORITY_CA_SPARE) || is_early(l->cas[0], now);
}

static bool ca_has_settled(const struct loaded *l, int64_t now) {
    return now - CERTIFICATE_SKEW - (int64_t) gnutls_x509_crt_get_activation_time(l->cas[0]) >=
           CERTIFICATE_AUTHORITY_SETTLE_S;
}

static bool is_signed_by(const struct loaded *l, unsigned ca) {
    return certificate_is_signed_by(l->cert, l->cas[ca]);
}

/* Whether an authority that clients trust has signed a certificate that is valid now. */
static bool cert_works(const struct loaded *l, const char *const *names, int64_t now) {
    if (!certificate_has_key(l->cert, l->key) || ends_within(l->cert, now, 0) ||
        is_early(l->cert, now))
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

/* The time in the name distinguishes successive authorities. */
static int make_ca(gnutls_x509_crt_t *ret, gnutls_x509_privkey_t key, int64_t now) {
    char name[64];
    (void) snprintf(name, sizeof(name), "aliquot-ca-%lld", (long long) now);
    const struct certificate_terms terms = {
        .name = name, .key = key, .now = now, .seconds = CERTIFICATE_AUTHORITY_CA_DAYS * DAY};
    return certificate_make(&terms, NULL, NULL, ret);
}

/* The newest authority in front, then those that may have signed a certificate in use. */
static int renew_ca(struct loaded *l, int64_t now, struct certificate_authority *ret) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t ca = NULL;
    int r = certificate_new_key(&key);
    if (r >= 0)
        r = make_ca(&ca, key, now);
    if (r >= 0)
        r = certificate_save(ca, &ret->bundle);
    for (unsigned i = 0; r >= 0 && i < l->ncas && i < BUNDLE_MAX - 1; i++)
        if (!ends_within(l->cas[i], now, 0))
            r = certificate_save(l->cas[i], &ret->bundle);
    if (r >= 0)
        r = certificate_save_key(key, &ret->ca_key);
    if (ca)
        gnutls_x509_crt_deinit(ca);
    if (key)
        gnutls_x509_privkey_deinit(key);
    return r;
}

static int renew_cert(struct loaded *l, const char *const *names, int64_t now,
                      struct certificate_authority *ret) {
    struct certificate_terms terms = {.name = "aliquot",
                                      .dns_names = names,
                                      .purpose = GNUTLS_KP_TLS_WWW_SERVER,
                                      .now = now,
                                      .seconds = CERTIFICATE_AUTHORITY_CERT_DAYS * DAY};
    gnutls_x509_crt_t cert = NULL;
    int r = certificate_new_key(&terms.key);
    if (r >= 0)
        r = certificate_make(&terms, l->cas[0], l->ca_key, &cert);
    if (r >= 0)
        r = certificate_save(cert, &ret->cert);
    if (r >= 0)
        r = certificate_save_key(terms.key, &ret->key);
    if (cert)
        gnutls_x509_crt_deinit(cert);
    if (terms.key)
        gnutls_x509_privkey_deinit(terms.key);
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
        return certificate_error(err, "cannot make a certificate", r);
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

/* ---- certificates of others ---- */

static int issue(const struct certificate_authority *a, const struct certificate_terms *terms,
                 struct buf *ret_cert, struct err *err) {
    gnutls_x509_crt_t cert = NULL;
    struct loaded l;
    int r;
    load(a, &l);
    if (l.ncas == 0 || !certificate_has_key(l.cas[0], l.ca_key)) {
        r = err_set(err, EAGAIN, "there is no authority yet");
    } else if ((r = certificate_make(terms, l.cas[0], l.ca_key, &cert)) < 0 ||
               (r = certificate_save(cert, ret_cert)) < 0) {
        r = certificate_error(err, "cannot make a certificate", r);
    }
    if (cert)
        gnutls_x509_crt_deinit(cert);
    loaded_done(&l);
    return r;
}

int certificate_authority_issue_client(const struct certificate_authority *a, const char *name,
                                       int64_t seconds, int64_t now, struct buf *ret_cert,
                                       struct buf *ret_key, struct err *err) {
    struct certificate_terms terms = {
        .name = name, .purpose = GNUTLS_KP_TLS_WWW_CLIENT, .now = now, .seconds = seconds};
    int r = certificate_new_key(&terms.key);
    if (r >= 0)
        r = certificate_save_key(terms.key, ret_key);
    r = r < 0 ? certificate_error(err, "cannot make a key", r) : issue(a, &terms, ret_cert, err);
    if (terms.key)
        gnutls_x509_privkey_deinit(terms.key);
    return r;
}

/* One common name, which is the whole subject, and no other name. */
static bool is_named(gnutls_x509_crq_t request, const char *name) {
    char found[512];
    size_t size = sizeof(found);
    unsigned type = 0;
    if (gnutls_x509_crq_get_dn_by_oid(request, GNUTLS_OID_X520_COMMON_NAME, 0, 0, found, &size) <
            0 ||
        strlen(found) != size || strcmp(found, name) != 0)
        return false;
    size = sizeof(found);
    if (gnutls_x509_crq_get_dn_oid(request, 1, found, &size) !=
        GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
        return false;
    size = sizeof(found);
    return gnutls_x509_crq_get_subject_alt_name(request, 0, found, &size, &type, NULL) ==
           GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE;
}

static bool has_key_of_p256(gnutls_x509_crq_t request) {
    gnutls_pubkey_t key = NULL;
    gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
    if (gnutls_pubkey_init(&key) < 0)
        return false;
    bool good = gnutls_pubkey_import_x509_crq(key, request, 0) >= 0 &&
                gnutls_pubkey_export_ecc_raw(key, &curve, NULL, NULL) >= 0 &&
                curve == GNUTLS_ECC_CURVE_SECP256R1;
    gnutls_pubkey_deinit(key);
    return good;
}

static int check_request(gnutls_x509_crq_t request, const char *name, struct err *err) {
    if (!has_key_of_p256(request))
        return err_set(err, EACCES, "its key is none of P-256");
    if (gnutls_x509_crq_verify(request, 0) < 0)
        return err_set(err, EACCES, "it is not signed by its own key");
    if (!is_named(request, name))
        return err_set(err, EACCES, "it has other names than the common name %s", name);
    return 0;
}

int certificate_authority_sign(const struct certificate_authority *a, const char *request,
                               size_t request_len, const char *name, const char *const *dns_names,
                               int64_t seconds, int64_t now, struct buf *ret_cert,
                               struct err *err) {
    const gnutls_datum_t pem = {(unsigned char *) (uintptr_t) request, (unsigned) request_len};
    struct certificate_terms terms = {.name = name,
                                      .dns_names = dns_names,
                                      .purpose = GNUTLS_KP_TLS_WWW_SERVER,
                                      .now = now,
                                      .seconds = seconds};
    int r = gnutls_x509_crq_init(&terms.request);
    if (r < 0)
        return certificate_error(err, "cannot read the request", r);
    r = gnutls_x509_crq_import(terms.request, &pem, GNUTLS_X509_FMT_PEM);
    r = r < 0 ? err_set(err, EACCES, "it cannot be read: %s", gnutls_strerror(r))
              : check_request(terms.request, name, err);
    if (r == 0)
        r = issue(a, &terms, ret_cert, err);
    gnutls_x509_crq_deinit(terms.request);
    return r;
}
