/* SPDX-License-Identifier: Apache-2.0 */

/* Which requests the authority signs, and what comes of them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>

#include "base/err.h"
#include "wire/certificate.h"
#include "wire/certificate_authority.h"
#include "wire/certificate_request.h"

#define DAY INT64_C(86400)
#define BEGIN INT64_C(1790000000)

static const char *const own_names[] = {"aliquot.svc", NULL};
static const char *const dns_names[] = {"node-a.agents.elasticgpu.io", "agents.elasticgpu.io",
                                        NULL};

struct world {
    struct certificate_authority authority;
    struct buf key, request, cert;
};

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    struct err err;
    certificate_authority_init(&w->authority);
    w->key = w->request = w->cert = BUF_INIT(CERTIFICATE_PEM_MAX);
    assert_int_equal(certificate_authority_renew(&w->authority, own_names, BEGIN, &err), 1);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    certificate_authority_done(&w->authority);
    buf_done(&w->key);
    buf_done(&w->request);
    buf_done(&w->cert);
    free(w);
    return 0;
}

static int sign_at(struct world *w, const char *name, int64_t now, struct err *err) {
    return certificate_authority_sign(&w->authority, buf_str(&w->request), w->request.len, name,
                                      dns_names, DAY, now, &w->cert, err);
}

static int sign(struct world *w, const char *name, struct err *err) {
    return sign_at(w, name, BEGIN, err);
}

static void assert_refused(struct world *w, const char *why) {
    struct err err;
    assert_int_equal(sign(w, "node-a", &err), -EACCES);
    assert_non_null(strstr(err.text, why));
    assert_int_equal(w->cert.len, 0);
}

/* Whether a client that has the authority accepts the certificate for that purpose and name. */
static bool accepts(const struct world *w, const struct buf *cert, const char *purpose,
                    const char *host) {
    gnutls_x509_trust_list_t list;
    const gnutls_datum_t ca = {(unsigned char *) w->authority.bundle.data,
                               (unsigned) w->authority.bundle.len};
    gnutls_typed_vdata_st data[] = {
        {.type = GNUTLS_DT_KEY_PURPOSE_OID, .data = (unsigned char *) (uintptr_t) purpose},
        {.type = GNUTLS_DT_DNS_HOSTNAME, .data = (unsigned char *) (uintptr_t) host}};
    gnutls_x509_crt_t shown = certificate_load(cert);
    unsigned status = 0;
    assert_non_null(shown);
    assert_int_equal(gnutls_x509_trust_list_init(&list, 0), 0);
    assert_true(gnutls_x509_trust_list_add_trust_mem(list, &ca, NULL, GNUTLS_X509_FMT_PEM, 0, 0) >
                0);
    int r = gnutls_x509_trust_list_verify_crt2(list, &shown, 1, data, host ? 2 : 1,
                                               GNUTLS_VERIFY_DISABLE_TIME_CHECKS, &status, NULL);
    gnutls_x509_crt_deinit(shown);
    gnutls_x509_trust_list_deinit(list, 1);
    return r == 0 && status == 0;
}

static void test_signed(void **state) {
    struct world *w = *state;
    struct err err;
    assert_int_equal(certificate_request_make("node-a", &w->key, &w->request, &err), 0);
    /* As the API server wants it. */
    assert_ptr_equal(strstr(buf_str(&w->request), "-----BEGIN CERTIFICATE REQUEST-----\n"),
                     buf_str(&w->request));
    assert_int_equal(sign(w, "node-a", &err), 0);
    assert_true(accepts(w, &w->cert, GNUTLS_KP_TLS_WWW_SERVER, "node-a.agents.elasticgpu.io"));
    assert_true(accepts(w, &w->cert, GNUTLS_KP_TLS_WWW_SERVER, "agents.elasticgpu.io"));
    /* Neither for another node, nor under the bare name, nor as a client, nor as an authority. */
    assert_false(accepts(w, &w->cert, GNUTLS_KP_TLS_WWW_SERVER, "node-b.agents.elasticgpu.io"));
    assert_false(accepts(w, &w->cert, GNUTLS_KP_TLS_WWW_SERVER, "node-a"));
    assert_false(accepts(w, &w->cert, GNUTLS_KP_TLS_WWW_CLIENT, NULL));
    gnutls_x509_crt_t cert = certificate_load(&w->cert);
    assert_int_equal(gnutls_x509_crt_get_ca_status(cert, NULL), 0);
    assert_int_equal(gnutls_x509_crt_get_expiration_time(cert), BEGIN + DAY);
    gnutls_x509_crt_deinit(cert);
}

static void test_renewal_is_due(void **state) {
    struct world *w = *state;
    struct certificate_authority other;
    struct err err;
    assert_int_equal(certificate_request_make("node-a", &w->key, &w->request, &err), 0);
    const char *bundle = buf_str(&w->authority.bundle);
    assert_int_equal(certificate_renewal(&w->cert, &w->key, bundle), 0); /* there is none */
    assert_int_equal(sign(w, "node-a", &err), 0);
    assert_int_equal(certificate_renewal(&w->cert, &w->key, bundle), BEGIN + DAY * 2 / 3);
    assert_int_equal(certificate_renewal(&w->cert, &w->key, ""), 0);
    assert_int_equal(certificate_renewal(&w->cert, &w->authority.key, bundle), 0);
    /* A new authority beside the old one changes nothing, in its place it does. */
    certificate_authority_init(&other);
    assert_int_equal(certificate_authority_renew(&other, own_names, BEGIN + 5, &err), 1);
    assert_int_equal(certificate_renewal(&w->cert, &w->key, buf_str(&other.bundle)), 0);
    buf_append(&other.bundle, bundle, strlen(bundle));
    assert_int_equal(certificate_renewal(&w->cert, &w->key, buf_str(&other.bundle)),
                     BEGIN + DAY * 2 / 3);
    certificate_authority_done(&other);
}

/* The authority gets a successor when, or after, the certificate is to be renewed: the next one
 * would be signed by an authority that some clients do not know yet. */
static void test_renewal_waits_for_a_new_authority(void **state) {
    const int64_t due = (CERTIFICATE_AUTHORITY_CA_DAYS - CERTIFICATE_AUTHORITY_CA_SPARE) * DAY;
    const struct {
        int64_t age, renewal; /* of the certificate, when the authority is made and it is renewed */
    } rows[] = {
        {DAY / 3, DAY * 2 / 3},
        {DAY * 2 / 3 - 1, DAY * 2 / 3 - 1 + CERTIFICATE_AUTHORITY_SETTLE_S},
        {DAY * 2 / 3 + 5, DAY * 2 / 3 + 5 + CERTIFICATE_AUTHORITY_SETTLE_S},
        {DAY - CERTIFICATE_AUTHORITY_SETTLE_S - 1, DAY * 2 / 3}, /* no time is left for that */
    };
    struct world *w = *state;
    struct err err;
    assert_int_equal(certificate_request_make("node-a", &w->key, &w->request, &err), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t begin = BEGIN + due + 1 - rows[i].age;
        certificate_authority_done(&w->authority);
        buf_reset(&w->cert);
        assert_int_equal(certificate_authority_renew(&w->authority, own_names, BEGIN, &err), 1);
        assert_int_equal(sign_at(w, "node-a", begin, &err), 0);
        assert_int_equal(
            certificate_authority_renew(&w->authority, own_names, begin + rows[i].age, &err), 1);
        assert_int_equal(certificate_renewal(&w->cert, &w->key, buf_str(&w->authority.bundle)),
                         begin + rows[i].renewal);
    }
}

static void test_self_signed(void **state) {
    struct world *w = *state;
    struct err err;
    assert_int_equal(certificate_self_signed("node-a", BEGIN, &w->key, &w->cert, &err), 0);
    assert_false(accepts(w, &w->cert, GNUTLS_KP_TLS_WWW_SERVER, "node-a"));
    assert_int_equal(certificate_renewal(&w->cert, &w->key, buf_str(&w->authority.bundle)), 0);
}

static void test_client(void **state) {
    struct world *w = *state;
    struct err err;
    assert_int_equal(certificate_authority_issue_client(&w->authority, "aliquot-scheduler", DAY,
                                                        BEGIN, &w->cert, &w->key, &err),
                     0);
    assert_true(accepts(w, &w->cert, GNUTLS_KP_TLS_WWW_CLIENT, NULL));
    assert_false(accepts(w, &w->cert, GNUTLS_KP_TLS_WWW_SERVER, NULL));
}

static void test_another_name(void **state) {
    struct world *w = *state;
    struct err err;
    assert_int_equal(certificate_request_make("node-b", &w->key, &w->request, &err), 0);
    assert_refused(w, "other names than the common name node-a");
}

static void test_garbage(void **state) {
    struct world *w = *state;
    assert_refused(w, "cannot be read");
    buf_puts(&w->request, "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"
                          "-----END CERTIFICATE REQUEST-----\n");
    assert_refused(w, "cannot be read");
}

/* Requests that no agent makes. */
struct odd {
    gnutls_pk_algorithm_t algorithm;
    unsigned bits;
    const char *organization, *alternative;
    bool other_signs;
};

static void make_odd(const struct odd *odd, struct buf *out) {
    gnutls_x509_privkey_t key, other;
    gnutls_x509_crq_t request;
    gnutls_datum_t pem;
    assert_int_equal(gnutls_x509_privkey_init(&key), 0);
    assert_int_equal(gnutls_x509_privkey_generate(key, odd->algorithm, odd->bits, 0), 0);
    assert_int_equal(certificate_new_key(&other), 0);
    assert_int_equal(gnutls_x509_crq_init(&request), 0);
    assert_int_equal(gnutls_x509_crq_set_version(request, 1), 0);
    assert_int_equal(
        gnutls_x509_crq_set_dn_by_oid(request, GNUTLS_OID_X520_COMMON_NAME, 0, "node-a", 6), 0);
    if (odd->organization)
        assert_int_equal(gnutls_x509_crq_set_dn_by_oid(request, GNUTLS_OID_X520_ORGANIZATION_NAME,
                                                       0, odd->organization,
                                                       (unsigned) strlen(odd->organization)),
                         0);
    if (odd->alternative)
        assert_int_equal(gnutls_x509_crq_set_subject_alt_name(
                             request, GNUTLS_SAN_DNSNAME, odd->alternative,
                             (unsigned) strlen(odd->alternative), GNUTLS_FSAN_SET),
                         0);
    assert_int_equal(gnutls_x509_crq_set_key(request, key), 0);
    assert_int_equal(
        gnutls_x509_crq_sign2(request, odd->other_signs ? other : key, GNUTLS_DIG_SHA256, 0), 0);
    assert_int_equal(gnutls_x509_crq_export2(request, GNUTLS_X509_FMT_PEM, &pem), 0);
    buf_reset(out);
    buf_append(out, pem.data, pem.size);
    gnutls_free(pem.data);
    gnutls_x509_crq_deinit(request);
    gnutls_x509_privkey_deinit(key);
    gnutls_x509_privkey_deinit(other);
}

static void test_odd_requests(void **state) {
    struct world *w = *state;
    const unsigned p256 = GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1);
    const struct {
        struct odd odd;
        const char *why;
    } rows[] = {
        {{GNUTLS_PK_RSA, 2048, NULL, NULL, false}, "none of P-256"},
        {{GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP384R1), NULL, NULL, false},
         "none of P-256"},
        {{GNUTLS_PK_ECDSA, p256, NULL, NULL, true}, "its own key"},
        {{GNUTLS_PK_ECDSA, p256, "system:masters", NULL, false}, "other names"},
        {{GNUTLS_PK_ECDSA, p256, NULL, "aliquot-webhook.aliquot-system.svc", false}, "other names"},
        {{GNUTLS_PK_ECDSA, p256, NULL, "node-a", false}, "other names"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        make_odd(&rows[i].odd, &w->request);
        assert_refused(w, rows[i].why);
    }
}

static void test_without_an_authority(void **state) {
    struct world *w = *state;
    struct err err;
    assert_int_equal(certificate_request_make("node-a", &w->key, &w->request, &err), 0);
    buf_reset(&w->authority.ca_key);
    assert_int_equal(sign(w, "node-a", &err), -EAGAIN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_signed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_renewal_is_due, setup, teardown),
        cmocka_unit_test_setup_teardown(test_renewal_waits_for_a_new_authority, setup, teardown),
        cmocka_unit_test_setup_teardown(test_self_signed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_client, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_an_authority, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
