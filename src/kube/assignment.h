/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The assignment: which part of which cards each container of a pod holds. It travels as
 * annotations of the Binding, signed (Ed25519) over the pod's UID, the node and its own text, so that
 * nobody can move it to another pod or make one up. */

#include <stddef.h>
#include <stdint.h>

#include "kube/dialect.h"
#include "kube/gpu_object.h"

struct buf;
struct err;

#define ANNOTATION_ASSIGNMENT "elasticgpu.io/assignment"
#define ANNOTATION_SIGNATURE "elasticgpu.io/assignment-signature"
#define ASSIGNMENT_VERSION 1
#define ASSIGNMENT_TEXT_MAX (128 << 10)
#define SIGNATURE_TEXT_MAX 96 /* base64 of 64 bytes, NUL */

/* A share of one card, or all of it (core 100). */
struct assigned_device {
    uint32_t index;
    char uuid[GPU_UUID_MAX];
    uint32_t core;   /* percent; 0: no guarantee; 100: the whole card */
    uint64_t memory; /* bytes, never 0 */
};

struct assigned_container {
    char name[KUBE_LABEL_MAX];
    uint32_t ndevices;
    struct assigned_device *devices;
};

struct assignment {
    char node[KUBE_NAME_MAX];
    uint32_t ncontainers;
    struct assigned_container *containers;
};

/* Reads and checks the text of the annotation. Strict: unknown versions, wrong types, numbers out of
 * range, no or duplicate containers or cards are -EINVAL. Free with assignment_done(). */
int assignment_parse(const char *text, struct assignment *ret, struct err *err);
void assignment_done(struct assignment *a);

/* The container's part, or NULL. */
const struct assigned_container *assignment_find(const struct assignment *a, const char *container);

/* Appends the compact JSON text. */
void assignment_encode(const struct assignment *a, struct buf *out);

/* ---- signing ---- */

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
 * a signature by any of them counts, so that pods outlive a change of key. Only Ed25519 is taken. */
struct signing_verifier;
int signing_verifier_load(const char *pem, size_t len, struct signing_verifier **ret,
                          struct err *err);
struct signing_verifier *signing_verifier_free(struct signing_verifier *v);

/* 0: the signature is by one of the keys, over exactly these. -EKEYREJECTED: it is not; other negative
 * errno: malformed. */
int assignment_verify(const struct signing_verifier *v, const char *pod_uid, const char *node,
                      const char *text, const char *signature, struct err *err);
