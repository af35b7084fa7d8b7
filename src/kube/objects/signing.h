/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ed25519 signatures of assignments (GnuTLS). What is signed is the text
 * "aliquot-assignment-v1\n" pod-uid "\n" node "\n" assignment. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct err;

#define SIGNATURE_TEXT_MAX 96 /* base64 of 64 bytes, NUL */
#define SIGNING_KEYS_MAX 8    /* more public keys than that are not read */

struct signing_key; /* the private key */

int signing_key_generate(struct signing_key **ret_key, struct err *err);
/* From and to PKCS#8 PEM. */
int signing_key_load(const char *pem, size_t len, struct signing_key **ret_key, struct err *err);
int signing_key_save(const struct signing_key *key, struct buf *ret_pem, struct err *err);
/* Appends the public half as PEM (SubjectPublicKeyInfo). */
int signing_key_public(const struct signing_key *key, struct buf *ret_pem, struct err *err);
struct signing_key *signing_key_free(struct signing_key *key); /* NULL is fine; returns NULL */

/* Names a key pair: the first 64 bits of the SHA-256 of its public half (DER). Never 0. */
uint64_t signing_key_id(const struct signing_key *key);

/* Signs the annotation text for one pod on one node. */
int assignment_sign(const struct signing_key *key, const char *pod_uid, const char *node,
                    const char *text, char ret_signature[static SIGNATURE_TEXT_MAX],
                    struct err *err);

/* Verifiers are loaded once and used often. `pem` holds one public key or several (newest first):
 * a signature by any of them counts, so that pods outlive a change of key. Only Ed25519 is taken.
 */
struct signing_verifier;
int signing_verifier_load(const char *pem, size_t len, struct signing_verifier **ret,
                          struct err *err);
struct signing_verifier *signing_verifier_free(struct signing_verifier *v);

/* The ids of its keys, in the order of `pem`. `i` is less than the count. */
unsigned signing_verifier_count(const struct signing_verifier *v);
uint64_t signing_verifier_id(const struct signing_verifier *v, unsigned i);

/* Appends `pem` without the public keys for which drop() is true. It is not asked for the first
 * key, which stays, nor for what cannot be read or is beyond SIGNING_KEYS_MAX, which stays, too. 0,
 * or the buffer's error. */
int signing_keys_without(const char *pem, size_t len, bool (*drop)(uint64_t id, void *userdata),
                         void *userdata, struct buf *out);

/* 0: the signature is by one of the keys, over exactly these. -EKEYREJECTED: it is not; other
 * negative errno: malformed. */
int assignment_verify(const struct signing_verifier *v, const char *pod_uid, const char *node,
                      const char *text, const char *signature, struct err *err);

/* The same, and sets *ret_id to the id of the key on success. */
int assignment_signer(const struct signing_verifier *v, const char *pod_uid, const char *node,
                      const char *text, const char *signature, uint64_t *ret_id, struct err *err);
