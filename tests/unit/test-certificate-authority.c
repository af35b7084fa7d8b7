/* SPDX-License-Identifier: Apache-2.0 */

/* The life of an authority and its certificate over years, by a clock that the test moves. */

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
#include "base/file.h"
#include "fail-malloc.h"
#include "freed-keys.h"
#include "wire/certificate_authority.h"
#include "wire/server_cert.h"

#define DAY INT64_C(86400)
#define BEGIN INT64_C(1790000000)

static const char *const names[] = {"aliquot-webhook.aliquot-system.svc",
                                    "aliquot-webhook.aliquot-system.svc.cluster.local", NULL};

/* Whether a client that has `bundle` accepts what the server shows, at that time. */
static bool accepts(const char *bundle, const char *cert, int64_t now) {
    gnutls_x509_trust_list_t list;
    gnutls_x509_crt_t shown;
    gnutls_datum_t ca = {(unsigned char *) (uintptr_t) bundle, (unsigned) strlen(bundle)};
    gnutls_datum_t pem = {(unsigned char *) (uintptr_t) cert, (unsigned) strlen(cert)};
    unsigned status = 0;
    assert_int_equal(gnutls_x509_trust_list_init(&list, 0), 0);
    assert_true(gnutls_x509_trust_list_add_trust_mem(list, &ca, NULL, GNUTLS_X509_FMT_PEM, 0, 0) >
                0);
    assert_int_equal(gnutls_x509_crt_init(&shown), 0);
    assert_int_equal(gnutls_x509_crt_import(shown, &pem, GNUTLS_X509_FMT_PEM), 0);
    int r = gnutls_x509_trust_list_verify_crt(list, &shown, 1, GNUTLS_VERIFY_DISABLE_TIME_CHECKS,
                                              &status, NULL);
    bool in_time = gnutls_x509_crt_get_activation_time(shown) <= now &&
                   gnutls_x509_crt_get_expiration_time(shown) > now &&
                   gnutls_x509_crt_check_hostname(shown, names[0]) &&
                   gnutls_x509_crt_check_hostname(shown, names[1]);
    gnutls_x509_crt_deinit(shown);
    gnutls_x509_trust_list_deinit(list, 1);
    return r == 0 && status == 0 && in_time;
}

static int renew(struct certificate_authority *a, int64_t now) {
    struct err err;
    int r = certificate_authority_renew(a, names, now, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    return r;
}

static void test_made_at_once(void **state) {
    (void) state;
    struct certificate_authority a;
    struct server_cert *id;
    struct err err;
    certificate_authority_init(&a);
    assert_int_equal(renew(&a, BEGIN), 1);
    assert_true(accepts(buf_str(&a.bundle), buf_str(&a.cert), BEGIN));
    assert_int_equal(renew(&a, BEGIN), 0);
    assert_int_equal(renew(&a, BEGIN + DAY), 0);
    assert_int_equal(server_cert_new(buf_str(&a.cert), buf_str(&a.key), &id, &err), 0);
    server_cert_free(id);
    certificate_authority_done(&a);
}

/* Of a Secret that is being replaced. */
static int serve_files(const struct buf *cert, const struct buf *key) {
    char dir[] = "/tmp/aliquot-server-cert-XXXXXX", files[2][64];
    struct server_cert *id = NULL;
    struct err err;
    assert_non_null(mkdtemp(dir));
    (void) snprintf(files[0], sizeof(files[0]), "%s/tls.crt", dir);
    (void) snprintf(files[1], sizeof(files[1]), "%s/tls.key", dir);
    assert_int_equal(file_replace(files[0], cert->data, cert->len, 0600, &err), 0);
    assert_int_equal(file_replace(files[1], key->data, key->len, 0600, &err), 0);
    int r = server_cert_from_files(files[0], files[1], &id, &err);
    server_cert_free(id);
    assert_int_equal(dir_remove(dir, &err), 0);
    return r;
}

/* Whether they are served or do not belong to the certificate. */
static void test_keys_are_wiped(void **state) {
    (void) state;
    struct certificate_authority a, other;
    struct server_cert *id;
    struct err err;
    certificate_authority_init(&a);
    certificate_authority_init(&other);
    (void) renew(&a, BEGIN);
    (void) renew(&other, BEGIN);
    (void) freed_keys();
    assert_int_equal(server_cert_new(buf_str(&a.cert), buf_str(&other.key), &id, &err), -EINVAL);
    assert_int_equal(server_cert_new(buf_str(&a.cert), buf_str(&a.key), &id, &err), 0);
    assert_int_equal(server_cert_set(id, buf_str(&other.cert), buf_str(&other.key), &err), 0);
    server_cert_free(id);
    assert_int_equal(serve_files(&a.cert, &other.key), -EINVAL);
    assert_int_equal(serve_files(&a.cert, &a.key), 0);
    certificate_authority_done(&a);
    certificate_authority_done(&other);
    assert_int_equal(freed_keys(), 0);
}

/* Over six years, looked at once an hour: a client that knows the bundle of an hour ago always
 * gets in, and so does one that knows today's with a server that is an hour behind. */
static void test_six_years_without_a_gap(void **state) {
    (void) state;
    struct certificate_authority a;
    struct buf bundle = BUF_INIT(0), cert = BUF_INIT(0);
    unsigned changes = 0, bundles = 0;
    certificate_authority_init(&a);
    (void) renew(&a, BEGIN);
    for (int64_t now = BEGIN; now < BEGIN + 6 * 365 * DAY; now += 3600) {
        buf_reset(&bundle);
        buf_reset(&cert);
        buf_puts(&bundle, buf_str(&a.bundle));
        buf_puts(&cert, buf_str(&a.cert));
        if ((now - BEGIN) % DAY != 0 && (now - BEGIN) % DAY != 3600)
            continue; /* twice a day is enough to see every step */
        if (renew(&a, now) == 0)
            continue;
        changes++;
        bundles += strcmp(buf_str(&bundle), buf_str(&a.bundle)) != 0;
        assert_true(accepts(buf_str(&bundle), buf_str(&a.cert), now));
        assert_true(accepts(buf_str(&a.bundle), buf_str(&cert), now));
        assert_true(accepts(buf_str(&a.bundle), buf_str(&a.cert), now));
    }
    assert_int_equal(bundles, 1);     /* after four years */
    assert_in_range(changes, 33, 40); /* every sixty days */
    buf_done(&bundle);
    buf_done(&cert);
    certificate_authority_done(&a);
}

/* A server that was away for longer than its certificate lived, or its authority. */
static void test_after_a_long_sleep(void **state) {
    (void) state;
    static const int64_t sleeps[] = {70, 100, 1000, 1500, 1900, 4000};
    for (size_t i = 0; i < sizeof(sleeps) / sizeof(sleeps[0]); i++) {
        struct certificate_authority a;
        int64_t now = BEGIN + sleeps[i] * DAY;
        certificate_authority_init(&a);
        (void) renew(&a, BEGIN);
        assert_int_equal(renew(&a, now), 1);
        assert_true(accepts(buf_str(&a.bundle), buf_str(&a.cert), now));
        certificate_authority_done(&a);
    }
}

static void test_damage_is_repaired(void **state) {
    (void) state;
    struct certificate_authority a, other;
    certificate_authority_init(&a);
    certificate_authority_init(&other);
    (void) renew(&a, BEGIN);
    (void) renew(&other, BEGIN + 1);
    struct buf *parts[] = {&a.bundle, &a.ca_key, &a.cert, &a.key};
    struct buf *others[] = {&other.bundle, &other.ca_key, &other.cert, &other.key};
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < 4; i++) {
            buf_reset(parts[i]);
            buf_puts(parts[i], kind == 0 ? "" : kind == 1 ? "garbage" : buf_str(others[i]));
            assert_int_equal(renew(&a, BEGIN + 60), 1);
            assert_true(accepts(buf_str(&a.bundle), buf_str(&a.cert), BEGIN + 60));
            assert_int_equal(renew(&a, BEGIN + 61), 0);
        }
    certificate_authority_done(&a);
    certificate_authority_done(&other);
}

static void test_a_clock_that_was_set_back(void **state) {
    (void) state;
    struct certificate_authority a;
    certificate_authority_init(&a);
    (void) renew(&a, BEGIN);
    assert_int_equal(renew(&a, BEGIN - 30 * DAY), 1);
    assert_true(accepts(buf_str(&a.bundle), buf_str(&a.cert), BEGIN - 30 * DAY));
    certificate_authority_done(&a);
}

static void test_memory_runs_out(void **state) {
    (void) state;
    for (size_t nth = 1;; nth++) {
        struct certificate_authority a;
        struct err err;
        certificate_authority_init(&a);
        fail_malloc_at(nth);
        int r = certificate_authority_renew(&a, names, BEGIN, &err);
        if (!fail_malloc_end()) {
            assert_int_equal(r, 1);
            certificate_authority_done(&a);
            break;
        }
        assert_true(r < 0 || accepts(buf_str(&a.bundle), buf_str(&a.cert), BEGIN));
        certificate_authority_done(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_at_once),
        cmocka_unit_test(test_keys_are_wiped),
        cmocka_unit_test(test_six_years_without_a_gap),
        cmocka_unit_test(test_after_a_long_sleep),
        cmocka_unit_test(test_damage_is_repaired),
        cmocka_unit_test(test_a_clock_that_was_set_back),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
