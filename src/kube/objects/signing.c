/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/signing.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

#define MESSAGE_MAX ((size_t) 256 << 10)

struct signing_key {
    gnutls_privkey_t key;
    uint64_t id;
};

struct public_key {
    gnutls_pubkey_t key;
    uint64_t id;
};

struct signing_verifier {
    unsigned n;
    struct public_key keys[SIGNING_KEYS_MAX];
};

static void key_cleanup(struct signing_key **key) {
    signing_key_free(*key);
}

static void verifier_cleanup(struct signing_verifier **v) {
    signing_verifier_free(*v);
}

static void datum_cleanup(gnutls_datum_t *d) {
    gnutls_free(d->data);
}

static int tls_error(struct err *err, int code, const char *what, int r) {
    return err_set(err, r == GNUTLS_E_MEMORY_ERROR ? ENOMEM : code, "%s: %s", what,
                   gnutls_strerror(r));
}

/* GnuTLS takes lengths as unsigned int and data as not const. */
static gnutls_datum_t datum(const void *data, size_t len) {
    union {
        const void *in;
        unsigned char *out;
    } p = {.in = data};
    return (gnutls_datum_t){p.out, (unsigned) len};
}

struct signing_key *signing_key_free(struct signing_key *key) {
    if (key && key->key)
        gnutls_privkey_deinit(key->key);
    free(key);
    return NULL;
}

static int id_of(gnutls_pubkey_t public, uint64_t *ret_id) {
    unsigned char hash[32];
    size_t size = sizeof(hash);
    int r = gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, hash, &size);
    if (r < 0)
        return r;
    *ret_id = 0;
    for (unsigned i = 0; i < sizeof(*ret_id); i++)
        *ret_id = *ret_id << 8 | hash[i];
    *ret_id = *ret_id ? *ret_id : 1;
    return 0;
}

static int set_id(struct signing_key *key, struct err *err) {
    gnutls_pubkey_t public;
    int r = gnutls_pubkey_init(&public);
    if (r < 0)
        return tls_error(err, EIO, "cannot name the signing key", r);
    r = gnutls_pubkey_import_privkey(public, key->key, 0, 0);
    if (r >= 0)
        r = id_of(public, &key->id);
    gnutls_pubkey_deinit(public);
    return r < 0 ? tls_error(err, EIO, "cannot name the signing key", r) : 0;
}

uint64_t signing_key_id(const struct signing_key *key) {
    return key->id;
}

static int key_new(struct signing_key **ret, struct err *err) {
    _cleanup_(key_cleanup) struct signing_key *key = calloc(1, sizeof(*key));
    if (!key || gnutls_privkey_init(&key->key) < 0) {
        (void) err_errno(err, ENOMEM, "cannot make a signing key");
        return -ENOMEM;
    }
    *ret = take_ptr(key);
    return 0;
}

int signing_key_generate(struct signing_key **ret_key, struct err *err) {
    _cleanup_(key_cleanup) struct signing_key *key = NULL;
    int r = key_new(&key, err);
    if (r < 0)
        return r;
    r = gnutls_privkey_generate(key->key, GNUTLS_PK_EDDSA_ED25519, 0, 0);
    if (r < 0)
        return tls_error(err, EIO, "cannot make a signing key", r);
    r = set_id(key, err);
    if (r < 0)
        return r;
    *ret_key = take_ptr(key);
    return 0;
}

int signing_key_load(const char *pem, size_t len, struct signing_key **ret_key, struct err *err) {
    _cleanup_(key_cleanup) struct signing_key *key = NULL;
    if (len > MESSAGE_MAX)
        return err_set(err, EINVAL, "signing key is too long");
    int r = key_new(&key, err);
    if (r < 0)
        return r;
    gnutls_datum_t in = datum(pem, len);
    r = gnutls_privkey_import_x509_raw(key->key, &in, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (r < 0)
        return tls_error(err, EINVAL, "cannot read the signing key", r);
    if (gnutls_privkey_get_pk_algorithm(key->key, NULL) != GNUTLS_PK_EDDSA_ED25519)
        return err_set(err, EINVAL, "the signing key is not an Ed25519 key");
    r = set_id(key, err);
    if (r < 0)
        return r;
    *ret_key = take_ptr(key);
    return 0;
}

int signing_key_save(const struct signing_key *key, struct buf *ret_pem, struct err *err) {
    gnutls_x509_privkey_t x509;
    _cleanup_(datum_cleanup) gnutls_datum_t out = {0};
    int r = gnutls_privkey_export_x509(key->key, &x509);
    if (r < 0)
        return tls_error(err, EIO, "cannot write the signing key", r);
    r = gnutls_x509_privkey_export2_pkcs8(x509, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &out);
    gnutls_x509_privkey_deinit(x509);
    if (r < 0)
        return tls_error(err, EIO, "cannot write the signing key", r);
    buf_append(ret_pem, out.data, out.size);
    return buf_error(ret_pem);
}

int signing_key_public(const struct signing_key *key, struct buf *ret_pem, struct err *err) {
    gnutls_pubkey_t public;
    _cleanup_(datum_cleanup) gnutls_datum_t out = {0};
    int r = gnutls_pubkey_init(&public);
    if (r < 0)
        return tls_error(err, EIO, "cannot write the public key", r);
    r = gnutls_pubkey_import_privkey(public, key->key, 0, 0);
    if (r >= 0)
        r = gnutls_pubkey_export2(public, GNUTLS_X509_FMT_PEM, &out);
    gnutls_pubkey_deinit(public);
    if (r < 0)
        return tls_error(err, EIO, "cannot write the public key", r);
    buf_append(ret_pem, out.data, out.size);
    return buf_error(ret_pem);
}

/* The bytes that are signed. The parts before the text hold no newline, so no two different triples
 * give the same bytes. */
static int build_message(const char *pod_uid, const char *node, const char *text, struct buf *out,
                         struct err *err) {
    if (strchr(pod_uid, '\n') || strchr(node, '\n'))
        return err_set(err, EINVAL, "pod UID or node name holds a newline");
    buf_printf(out, "aliquot-assignment-v1\n%s\n%s\n", pod_uid, node);
    buf_puts(out, text);
    if (buf_error(out) < 0)
        return err_errno(err, -buf_error(out), "cannot build the text to sign");
    return 0;
}

int assignment_sign(const struct signing_key *key, const char *pod_uid, const char *node,
                    const char *text, char ret_signature[static SIGNATURE_TEXT_MAX],
                    struct err *err) {
    _cleanup_buf_ struct buf message = BUF_INIT(MESSAGE_MAX);
    _cleanup_(datum_cleanup) gnutls_datum_t signature = {0}, encoded = {0};
    int r = build_message(pod_uid, node, text, &message, err);
    if (r < 0)
        return r;
    gnutls_datum_t in = datum(message.data, message.len);
    r = gnutls_privkey_sign_data2(key->key, GNUTLS_SIGN_EDDSA_ED25519, 0, &in, &signature);
    if (r >= 0)
        r = gnutls_base64_encode2(&signature, &encoded);
    if (r < 0)
        return tls_error(err, EIO, "cannot sign", r);
    if (encoded.size >= SIGNATURE_TEXT_MAX)
        return err_set(err, EIO, "cannot sign: signature of unexpected size");
    memcpy(ret_signature, encoded.data, encoded.size);
    ret_signature[encoded.size] = '\0';
    return 0;
}

struct signing_verifier *signing_verifier_free(struct signing_verifier *v) {
    for (unsigned i = 0; v && i < v->n; i++)
        gnutls_pubkey_deinit(v->keys[i].key);
    free(v);
    return NULL;
}

static int read_public_key(const char *pem, size_t len, struct public_key *ret, struct err *err) {
    gnutls_pubkey_t key;
    gnutls_datum_t in = datum(pem, len);
    int r = gnutls_pubkey_init(&key);
    if (r < 0)
        return tls_error(err, ENOMEM, "cannot read a public key", r);
    r = gnutls_pubkey_import(key, &in, GNUTLS_X509_FMT_PEM);
    if (r >= 0 && gnutls_pubkey_get_pk_algorithm(key, NULL) != GNUTLS_PK_EDDSA_ED25519)
        r = GNUTLS_E_UNSUPPORTED_SIGNATURE_ALGORITHM;
    if (r >= 0)
        r = id_of(key, &ret->id);
    if (r < 0) {
        gnutls_pubkey_deinit(key);
        return tls_error(err, EINVAL, "cannot read a public key", r);
    }
    ret->key = key;
    return 0;
}

/* Where the next key begins at or after `at`; NULL: there is none. */
static const char *find_key(const char *at, const char *end) {
    static const char begin[] = "-----BEGIN PUBLIC KEY-----";
    return memmem(at, (size_t) (end - at), begin, sizeof(begin) - 1);
}

/* Where the text of the key at `at` ends. */
static const char *end_of_key(const char *at, const char *end) {
    const char *next = find_key(at + 1, end);
    return next ? next : end;
}

int signing_verifier_load(const char *pem, size_t len, struct signing_verifier **ret,
                          struct err *err) {
    if (len > MESSAGE_MAX)
        return err_set(err, EINVAL, "public keys are too long");
    _cleanup_(verifier_cleanup) struct signing_verifier *v = calloc(1, sizeof(*v));
    if (!v)
        return err_errno(err, ENOMEM, "cannot read public keys");
    const char *end = pem + len, *at = find_key(pem, end), *next;
    for (; at && at < end && v->n < SIGNING_KEYS_MAX; at = next) {
        next = end_of_key(at, end);
        int r = read_public_key(at, (size_t) (next - at), &v->keys[v->n], err);
        if (r < 0)
            return r;
        v->n++;
    }
    if (v->n == 0)
        return err_set(err, EINVAL, "there is no public key");
    *ret = take_ptr(v);
    return 0;
}

unsigned signing_verifier_count(const struct signing_verifier *v) {
    return v->n;
}

uint64_t signing_verifier_id(const struct signing_verifier *v, unsigned i) {
    return v->keys[i].id;
}

int signing_keys_without(const char *pem, size_t len, bool (*drop)(uint64_t id, void *userdata),
                         void *userdata, struct buf *out) {
    const char *end = pem + len, *at = find_key(pem, end), *next;
    struct public_key key;
    struct err ignored;
    buf_append(out, pem, at ? (size_t) (at - pem) : len);
    for (unsigned i = 0; at && at < end; i++, at = next) {
        bool dropped = false;
        next = end_of_key(at, end);
        if (i > 0 && i < SIGNING_KEYS_MAX &&
            read_public_key(at, (size_t) (next - at), &key, &ignored) == 0) {
            dropped = drop(key.id, userdata);
            gnutls_pubkey_deinit(key.key);
        }
        if (!dropped)
            buf_append(out, at, (size_t) (next - at));
    }
    return buf_error(out);
}

int assignment_signer(const struct signing_verifier *v, const char *pod_uid, const char *node,
                      const char *text, const char *signature, uint64_t *ret_id, struct err *err) {
    _cleanup_buf_ struct buf message = BUF_INIT(MESSAGE_MAX);
    _cleanup_(datum_cleanup) gnutls_datum_t raw = {0};
    size_t len = strnlen(signature, SIGNATURE_TEXT_MAX);
    if (len == 0 || len >= SIGNATURE_TEXT_MAX)
        return err_set(err, EINVAL, "assignment signature has a wrong length");
    int r = build_message(pod_uid, node, text, &message, err);
    if (r < 0)
        return r;
    gnutls_datum_t encoded = datum(signature, len), in = datum(message.data, message.len);
    r = gnutls_base64_decode2(&encoded, &raw);
    if (r < 0)
        return tls_error(err, EINVAL, "assignment signature is not base64", r);
    for (unsigned i = 0; i < v->n; i++)
        if (gnutls_pubkey_verify_data2(v->keys[i].key, GNUTLS_SIGN_EDDSA_ED25519, 0, &in, &raw) >=
            0) {
            *ret_id = v->keys[i].id;
            return 0;
        }
    return err_set(err, EKEYREJECTED,
                   "assignment signature is not by the scheduler for this pod on this node");
}

int assignment_verify(const struct signing_verifier *v, const char *pod_uid, const char *node,
                      const char *text, const char *signature, struct err *err) {
    uint64_t ignored;
    return assignment_signer(v, pod_uid, node, text, signature, &ignored, err);
}
