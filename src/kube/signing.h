/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ed25519 signatures of assignments (GnuTLS). What is signed is the text
 * "aliquot-assignment-v1\n" pod-uid "\n" node "\n" assignment. */

#include <stddef.h>

struct buf;
struct err;

#define SIGNATURE_TEXT_MAX 96 /* base64 of 64 bytes, NUL */

struct signing_key; /* the private key */

int signing_key_generate(struct signing_key **ret_key, struct err *err);
/* From and to PKCS#8 PEM. */
int signing_key_load(const char *pem, size_t len, struct signing_key **ret_key, struct err *err);
int signing_key_save(const struct signing_key *key, struct buf *ret_pem, struct err *err);
/* Appends the public half as PEM (SubjectPublicKeyInfo). */
int signing_key_public(const struct signing_key *key, struct buf *ret_pem, struct err *err);
struct signing_key *signing_key_free(struct signing_key *key); /* NULL is fine; returns NULL */

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

/* 0: the signature is by one of the keys, over exactly these. -EKEYREJECTED: it is not; other
 * negative errno: malformed. */
int assignment_verify(const struct signing_verifier *v, const char *pod_uid, const char *node,
                      const char *text, const char *signature, struct err *err);
