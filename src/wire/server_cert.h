/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The certificate chain and the key of a TLS server. They can be replaced at any time: a handshake
 * uses the current ones, and established sessions continue. */

#include <gnutls/abstract.h>
#include <stddef.h>

struct err;
struct server_cert;

/* From two PEM files. They are checked for changes at each handshake, so that new ones count at
 * once, also when they come as Kubernetes replaces the files of a Secret, by a symbolic link. Two
 * files that do not belong together (one is written already, the other is not) leave the old ones
 * in place. The files must be good now; the error names the cause. */
int server_cert_from_files(const char *cert_file, const char *key_file, struct server_cert **ret,
                           struct err *err);

/* From memory, PEM with a NUL at the end. */
int server_cert_new(const char *cert, const char *key, struct server_cert **ret, struct err *err);

/* Replaces what server_cert_new() was given. On an error the old one stays. */
int server_cert_set(struct server_cert *id, const char *cert, const char *key, struct err *err);

struct server_cert *server_cert_free(struct server_cert *id); /* takes NULL, returns NULL */

/* For GnuTLS (gnutls_certificate_retrieve_function3): copies, which it frees by itself. 0, or -1
 * which ends the handshake. */
int server_cert_retrieve(struct server_cert *id, gnutls_pcert_st **ret_chain, unsigned *ret_len,
                         gnutls_privkey_t *ret_key, unsigned *ret_flags);
