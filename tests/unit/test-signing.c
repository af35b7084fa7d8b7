/* SPDX-License-Identifier: Apache-2.0 */

/* Signatures of assignments: against a known answer, and what is refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "fail-malloc.h"
#include "kube/objects/signing.h"

#define TEXT_MAX ((size_t) 256 << 10)

/* The key of the first test in RFC 8032, 7.1, and what openssl makes of it. */
static const char private_pem[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
    "-----END PRIVATE KEY-----\n";
static const char public_pem[] = "-----BEGIN PUBLIC KEY-----\n"
                                 "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
                                 "-----END PUBLIC KEY-----\n";
/* Of "aliquot-assignment-v1\nu\nn\n{}". */
static const char known_signature[] =
    "I2u0b/Gq29mxHWdbyirjmTAR6JzVnlR1OGIqK3WFhPS18uP8iZy5O8EjU55F2nfm4mMtuZSAt1e3wgaudS6RCQ==";
#define KNOWN_ID UINT64_C(0x06e3fd8fda29bb60)

/* A key of another kind (P-256). */
static const char other_private[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgy8l4eFUXpGupz5G/\n"
    "oRaRKm8cuqcCt5/FOUV54ADDa9uhRANCAARTIqMlajgnseLxQ/nOtjJ+Bj1Lz5gb\n"
    "f6bW2zlYGi2Z46oOuUTxwaZ0yco0kG+bToltYYR8UUCv9WcqSYrRFxB/\n"
    "-----END PRIVATE KEY-----\n";
static const char other_public[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEUyKjJWo4J7Hi8UP5zrYyfgY9S8+Y\n"
    "G3+m1ts5WBotmeOqDrlE8cGmdMnKNJBvm06JbWGEfFFAr/VnKkmK0RcQfw==\n"
    "-----END PUBLIC KEY-----\n";

static int pubkey_error; /* of the next calls; 0: none */

int __real_gnutls_pubkey_init(gnutls_pubkey_t *key);
int __wrap_gnutls_pubkey_init(gnutls_pubkey_t *key);

int __wrap_gnutls_pubkey_init(gnutls_pubkey_t *key) {
    return pubkey_error ? pubkey_error : __real_gnutls_pubkey_init(key);
}

static struct signing_key *load(void) {
    struct signing_key *key;
    struct err err;
    assert_int_equal(signing_key_load(private_pem, strlen(private_pem), &key, &err), 0);
    return key;
}

static struct signing_verifier *verifier(void) {
    struct signing_verifier *v;
    struct err err;
    assert_int_equal(signing_verifier_load(public_pem, strlen(public_pem), &v, &err), 0);
    return v;
}

/* Agents of another version, and operators with openssl, get the same signature, key and id. */
static void a_signature_is_the_known_one(void **state) {
    struct signing_key *key = load();
    struct signing_verifier *v = verifier();
    _cleanup_buf_ struct buf public = BUF_INIT(0), private = BUF_INIT(0);
    char signature[SIGNATURE_TEXT_MAX];
    struct err err;
    uint64_t id = 0;
    (void) state;
    assert_int_equal(assignment_sign(key, "u", "n", "{}", signature, &err), 0);
    assert_string_equal(signature, known_signature);
    assert_int_equal(signing_key_public(key, &public, &err), 0);
    assert_string_equal(buf_str(&public), public_pem);
    assert_int_equal(signing_key_save(key, &private, &err), 0);
    assert_string_equal(buf_str(&private), private_pem);
    assert_true(signing_key_id(key) == KNOWN_ID);
    assert_int_equal(signing_verifier_count(v), 1);
    assert_true(signing_verifier_id(v, 0) == KNOWN_ID);
    assert_int_equal(assignment_signer(v, "u", "n", "{}", signature, &id, &err), 0);
    assert_true(id == KNOWN_ID);
    assert_int_equal(assignment_verify(v, "u", "n", "{}", signature, &err), 0);
    signing_key_free(key);
    signing_verifier_free(v);
}

/* Another pod, node, text or signature is refused, and so is what is no signature, each with its
 * reason. */
static void what_is_signed_is_all_of_it(void **state) {
    static const char long_text[] =
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    static const struct {
        const char *pod, *node, *text, *signature;
        int result;
        const char *why;
    } rows[] = {
        {"u", "n", "{}", known_signature, 0, ""},
        {"v", "n", "{}", known_signature, -EKEYREJECTED, "not by the scheduler"},
        {"u", "m", "{}", known_signature, -EKEYREJECTED, "not by the scheduler"},
        {"u", "n", "{ }", known_signature, -EKEYREJECTED, "not by the scheduler"},
        {"", "u\nn", "{}", known_signature, -EINVAL, "newline"},
        {"u\n", "n", "{}", known_signature, -EINVAL, "newline"},
        {"u", "n", "{}", "", -EINVAL, "wrong length"},
        {"u", "n", "{}", long_text, -EINVAL, "wrong length"},
        {"u", "n", "{}", long_text + 1, -EINVAL, ""},
        {"u", "n", "{}", "*", -EINVAL, "not base64"},
        {"u", "n", "{}", "AAAA", -EKEYREJECTED, "not by the scheduler"},
    };
    struct signing_verifier *v = verifier();
    (void) state;
    assert_int_equal(strlen(long_text), SIGNATURE_TEXT_MAX);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = {0};
        int r =
            assignment_verify(v, rows[i].pod, rows[i].node, rows[i].text, rows[i].signature, &err);
        bool any_error = rows[i].why[0] == '\0' && rows[i].result < 0;
        if (any_error ? r >= 0 : r != rows[i].result)
            fail_msg("row %zu: %d, %s", i, r, err.text);
        if (rows[i].result < 0)
            assert_non_null(strstr(err.text, rows[i].why));
    }
    signing_verifier_free(v);
}

/* A pod or node that could be read as another one is not signed. */
static void nothing_ambiguous_is_signed(void **state) {
    struct signing_key *key = load();
    char signature[SIGNATURE_TEXT_MAX];
    struct err err;
    (void) state;
    assert_int_equal(assignment_sign(key, "u\n", "n", "{}", signature, &err), -EINVAL);
    assert_int_equal(assignment_sign(key, "u", "\nn", "{}", signature, &err), -EINVAL);
    assert_int_equal(assignment_sign(key, "u", "n", "{\n}", signature, &err), 0);
    char *text = malloc(TEXT_MAX + 1);
    assert_non_null(text);
    memset(text, 'x', TEXT_MAX);
    text[TEXT_MAX] = '\0';
    assert_true(assignment_sign(key, "u", "n", text, signature, &err) < 0);
    text[TEXT_MAX - 64] = '\0';
    assert_int_equal(assignment_sign(key, "u", "n", text, signature, &err), 0);
    free(text);
    signing_key_free(key);
}

static void other_keys_are_refused(void **state) {
    struct signing_key *key = NULL;
    struct signing_verifier *v = NULL;
    struct err err;
    (void) state;
    assert_int_equal(signing_key_load(other_private, strlen(other_private), &key, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not an Ed25519 key"));
    assert_int_equal(signing_key_load("nonsense", 8, &key, &err), -EINVAL);
    assert_non_null(strstr(err.text, "cannot read the signing key"));
    assert_null(key);
    assert_int_equal(signing_verifier_load(other_public, strlen(other_public), &v, &err), -EINVAL);
    assert_non_null(strstr(err.text, "cannot read a public key"));
    assert_int_equal(signing_verifier_load("nonsense", 8, &v, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no public key"));
    assert_null(v);
    assert_null(signing_key_free(NULL));
    assert_null(signing_verifier_free(NULL));
}

/* Blanks behind a key, up to that length and beyond it. */
static void long_keys_are_refused(void **state) {
    char *pem = malloc(TEXT_MAX + 1);
    (void) state;
    assert_non_null(pem);
    memset(pem, '\n', TEXT_MAX + 1);
    memcpy(pem, public_pem, strlen(public_pem));
    for (size_t more = 0; more < 2; more++) {
        struct signing_verifier *v = NULL;
        struct err err;
        assert_int_equal(signing_verifier_load(pem, TEXT_MAX + more, &v, &err), more ? -EINVAL : 0);
        assert_int_equal(v != NULL, !more);
        signing_verifier_free(v);
    }
    memcpy(pem, private_pem, strlen(private_pem));
    for (size_t more = 0; more < 2; more++) {
        struct signing_key *key = NULL;
        struct err err;
        assert_int_equal(signing_key_load(pem, TEXT_MAX + more, &key, &err), more ? -EINVAL : 0);
        assert_int_equal(key != NULL, !more);
        signing_key_free(key);
    }
    free(pem);
}

/* The first eight keys are read, in their order, whatever stands before and between them. */
static void eight_keys_are_read(void **state) {
    (void) state;
    for (unsigned n = 1; n <= SIGNING_KEYS_MAX + 1; n++) {
        _cleanup_buf_ struct buf pem = BUF_INIT(0);
        uint64_t ids[SIGNING_KEYS_MAX + 1];
        struct signing_verifier *v;
        struct err err;
        buf_puts(&pem, "# newest first\n");
        for (unsigned i = 0; i < n; i++) {
            struct signing_key *key;
            assert_int_equal(signing_key_generate(&key, &err), 0);
            assert_int_equal(signing_key_public(key, &pem, &err), 0);
            buf_puts(&pem, "\n");
            ids[i] = signing_key_id(key);
            signing_key_free(key);
        }
        assert_int_equal(signing_verifier_load(buf_str(&pem), pem.len, &v, &err), 0);
        assert_int_equal(signing_verifier_count(v), n < SIGNING_KEYS_MAX ? n : SIGNING_KEYS_MAX);
        for (unsigned i = 0; i < signing_verifier_count(v); i++)
            assert_true(signing_verifier_id(v, i) == ids[i]);
        signing_verifier_free(v);
    }
}

static void without_memory_there_is_no_key(void **state) {
    struct signing_key *key = NULL;
    struct signing_verifier *v = NULL;
    struct err err;
    (void) state;
    fail_malloc_at(1);
    assert_int_equal(signing_key_generate(&key, &err), -ENOMEM);
    assert_true(fail_malloc_end());
    fail_malloc_at(1);
    assert_int_equal(signing_key_load(private_pem, strlen(private_pem), &key, &err), -ENOMEM);
    assert_true(fail_malloc_end());
    fail_malloc_at(1);
    assert_int_equal(signing_verifier_load(public_pem, strlen(public_pem), &v, &err), -ENOMEM);
    assert_true(fail_malloc_end());
    assert_null(key);
    assert_null(v);
    key = load();
    v = verifier();
    char signature[SIGNATURE_TEXT_MAX];
    _cleanup_buf_ struct buf pem = BUF_INIT(0), more = BUF_INIT(0);
    fail_malloc_at(1);
    assert_int_equal(assignment_sign(key, "u", "n", "{}", signature, &err), -ENOMEM);
    assert_true(fail_malloc_end());
    fail_malloc_at(1);
    assert_int_equal(assignment_verify(v, "u", "n", "{}", known_signature, &err), -ENOMEM);
    assert_true(fail_malloc_end());
    fail_malloc_at(1);
    assert_int_equal(signing_key_public(key, &pem, &err), -ENOMEM);
    assert_true(fail_malloc_end());
    fail_malloc_at(1);
    assert_int_equal(signing_key_save(key, &more, &err), -ENOMEM);
    assert_true(fail_malloc_end());
    signing_key_free(key);
    signing_verifier_free(v);
}

/* A key that cannot be named is none. */
static void without_its_id_there_is_no_key(void **state) {
    struct signing_key *key = NULL;
    struct err err;
    (void) state;
    pubkey_error = GNUTLS_E_MEMORY_ERROR;
    assert_int_equal(signing_key_generate(&key, &err), -ENOMEM);
    assert_non_null(strstr(err.text, "cannot name the signing key"));
    assert_int_equal(signing_key_load(private_pem, strlen(private_pem), &key, &err), -ENOMEM);
    pubkey_error = GNUTLS_E_INTERNAL_ERROR;
    assert_int_equal(signing_key_generate(&key, &err), -EIO);
    assert_int_equal(signing_key_load(private_pem, strlen(private_pem), &key, &err), -EIO);
    pubkey_error = 0;
    assert_null(key);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_is_the_known_one),
        cmocka_unit_test(what_is_signed_is_all_of_it),
        cmocka_unit_test(nothing_ambiguous_is_signed),
        cmocka_unit_test(other_keys_are_refused),
        cmocka_unit_test(long_keys_are_refused),
        cmocka_unit_test(eight_keys_are_read),
        cmocka_unit_test(without_memory_there_is_no_key),
        cmocka_unit_test(without_its_id_there_is_no_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
