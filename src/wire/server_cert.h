/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a TLS server shows for itself: a certificate chain and its key. It can be changed at any
 * time; each handshake takes what is there then, and established sessions continue. */

#include <gnutls/abstract.h>
#include <stddef.h>

struct err;
struct identity;

/* From two PEM files. They are checked for changes at each handshake, so that new ones count at
 * once, also when they come as Kubernetes replaces the files of a Secret, by a symbolic link. Two
 * files that do not belong together (one is written already, the other is not) leave the old ones
 * in place. The files must be good now; the error names the cause. */
int identity_from_files(const char *cert_file, const char *key_file, struct identity **ret,
                        struct err *err);

/* From memory, PEM with a NUL at the end. */
int identity_new(const char *cert, const char *key, struct identity **ret, struct err *err);

/* Replaces what identity_new() was given. On an error the old one stays. */
int identity_set(struct identity *id, const char *cert, const char *key, struct err *err);

struct identity *identity_free(struct identity *id); /* takes NULL, returns NULL */

/* For GnuTLS (gnutls_certificate_retrieve_function3): copies, which it frees by itself. 0, or -1
 * which ends the handshake. */
int identity_retrieve(struct identity *id, gnutls_pcert_st **ret_chain, unsigned *ret_len,
                      gnutls_privkey_t *ret_key, unsigned *ret_flags);
