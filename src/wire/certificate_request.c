/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/certificate_request.h"

#include <string.h>

#include "base/err.h"
#include "wire/certificate.h"
#include "wire/certificate_authority.h"

#define SELF_SIGNED_SECONDS (INT64_C(365) * 86400)
#define AUTHORITIES_MAX 8

/* GnuTLS' own PEM begins with NEW CERTIFICATE REQUEST, which the API server does not take. */
static int save_request(gnutls_x509_crq_t request, struct buf *out) {
    gnutls_datum_t der = {0}, pem = {0};
    int r = gnutls_x509_crq_export2(request, GNUTLS_X509_FMT_DER, &der);
    if (r < 0)
        return r;
    r = gnutls_pem_base64_encode2("CERTIFICATE REQUEST", &der, &pem);
    gnutls_free(der.data);
    if (r < 0)
        return r;
    buf_append(out, pem.data, pem.size);
    gnutls_free(pem.data);
    return buf_error(out) < 0 ? GNUTLS_E_MEMORY_ERROR : 0;
}

static int write_request(gnutls_x509_crq_t request, const char *name, gnutls_x509_privkey_t key,
                         struct buf *out) {
    int r = gnutls_x509_crq_set_version(request, 1);
    if (r >= 0)
        r = gnutls_x509_crq_set_dn_by_oid(request, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                          (unsigned) strlen(name));
    if (r >= 0)
        r = gnutls_x509_crq_set_key(request, key);
    if (r >= 0)
        r = gnutls_x509_crq_sign2(request, key, GNUTLS_DIG_SHA256, 0);
    return r < 0 ? r : save_request(request, out);
}

int certificate_request_make(const char *name, struct buf *ret_key, struct buf *ret_request,
                             struct err *err) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crq_t request = NULL;
    int r = certificate_new_key(&key);
    if (r >= 0)
        r = gnutls_x509_crq_init(&request);
    if (r >= 0)
        r = write_request(request, name, key, ret_request);
    if (r >= 0)
        r = certificate_save_key(key, ret_key);
    if (request)
        gnutls_x509_crq_deinit(request);
    if (key)
        gnutls_x509_privkey_deinit(key);
    return r < 0 ? certificate_error(err, "cannot request a certificate", r) : 0;
}

int certificate_self_signed(const char *name, int64_t now, struct buf *ret_key,
                            struct buf *ret_cert, struct err *err) {
    const char *const names[] = {name, NULL};
    struct certificate_terms terms = {.name = name,
                                      .dns_names = names,
                                      .purpose = GNUTLS_KP_TLS_WWW_SERVER,
                                      .now = now,
                                      .seconds = SELF_SIGNED_SECONDS};
    gnutls_x509_crt_t cert = NULL;
    int r = certificate_new_key(&terms.key);
    if (r >= 0)
        r = certificate_make(&terms, NULL, NULL, &cert);
    if (r >= 0)
        r = certificate_save(cert, ret_cert);
    if (r >= 0)
        r = certificate_save_key(terms.key, ret_key);
    if (cert)
        gnutls_x509_crt_deinit(cert);
    if (terms.key)
        gnutls_x509_privkey_deinit(terms.key);
    return r < 0 ? certificate_error(err, "cannot make a certificate", r) : 0;
}

/* `ret_settled`: when all clients know the newest authority. */
static bool is_of_bundle(gnutls_x509_crt_t cert, const char *bundle, int64_t *ret_settled) {
    const gnutls_datum_t pem = {(unsigned char *) (uintptr_t) bundle, (unsigned) strlen(bundle)};
    gnutls_x509_crt_t authorities[AUTHORITIES_MAX];
    unsigned n = AUTHORITIES_MAX;
    bool found = false;
    if (pem.size == 0 ||
        gnutls_x509_crt_list_import(authorities, &n, &pem, GNUTLS_X509_FMT_PEM, 0) < 0)
        return false;
    *ret_settled = n == 0 ? 0
                          : (int64_t) gnutls_x509_crt_get_activation_time(authorities[0]) +
                                CERTIFICATE_SKEW + CERTIFICATE_AUTHORITY_SETTLE_S;
    for (unsigned i = 0; i < n; i++) {
        found = found || certificate_is_signed_by(cert, authorities[i]);
        gnutls_x509_crt_deinit(authorities[i]);
    }
    return found;
}

int64_t certificate_renewal(const struct buf *cert_pem, const struct buf *key_pem,
                            const char *bundle) {
    gnutls_x509_crt_t cert = certificate_load(cert_pem);
    gnutls_x509_privkey_t key = certificate_load_key(key_pem);
    int64_t renewal = 0, settled;
    if (certificate_has_key(cert, key) && is_of_bundle(cert, bundle, &settled)) {
        int64_t begin = (int64_t) gnutls_x509_crt_get_activation_time(cert) + CERTIFICATE_SKEW;
        int64_t end = (int64_t) gnutls_x509_crt_get_expiration_time(cert);
        renewal = begin + (end - begin) * 2 / 3;
        if (settled > renewal && settled < end - CERTIFICATE_AUTHORITY_SETTLE_S)
            renewal = settled;
    }
    if (cert)
        gnutls_x509_crt_deinit(cert);
    if (key)
        gnutls_x509_privkey_deinit(key);
    return renewal;
}
