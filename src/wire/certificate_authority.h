/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A private certificate authority, and the certificate of a server: clients that have to trust the
 * server get the authority's certificate, and neither is ever renewed by hand. It also signs
 * certificates of others. Pure but for random numbers: the
 * time is an argument. Both are renewed long before they end, in steps that leave no moment in
 * which a client that is one step behind cannot connect:
 *
 *     a new authority:    added in front of the bundle; the server goes on with what it has
 *     a new certificate:  by the newest authority, once that has been in the bundle for a while
 */

#include <stdint.h>

#include "base/buf.h"

struct err;

#define CERTIFICATE_AUTHORITY_CA_DAYS 1825  /* an authority lives five years */
#define CERTIFICATE_AUTHORITY_CA_SPARE 365  /* and is replaced that many days before its end */
#define CERTIFICATE_AUTHORITY_CERT_DAYS 90  /* the server's certificate */
#define CERTIFICATE_AUTHORITY_CERT_SPARE 30 /* likewise */
#define CERTIFICATE_AUTHORITY_SETTLE_S 600  /* until all clients have a new authority */
#define CERTIFICATE_AUTHORITY_PEM_MAX ((size_t) 64 << 10)

/* All PEM. Empty buffers are an authority that does not exist yet. */
struct certificate_authority {
    struct buf bundle; /* certificates of authorities, the newest first: for clients */
    struct buf ca_key; /* of the newest */
    struct buf cert;   /* the server's */
    struct buf key;
};

void certificate_authority_init(struct certificate_authority *a);
void certificate_authority_done(struct certificate_authority *a);

/* Does what is due at `now` (seconds since 1970). `names`: DNS names that the server is called by,
 * up to a NULL. 1: something changed and is to be stored and given out; 0: nothing is due; negative
 * on an error, which leaves everything as it was. What cannot be read, or does not belong together,
 * is created again. */
int certificate_authority_renew(struct certificate_authority *a, const char *const *names,
                                int64_t now, struct err *err);

/* A certificate for TLS clients of that common name, by the newest authority, and its key. */
int certificate_authority_issue_client(const struct certificate_authority *a, const char *name,
                                       int64_t seconds, int64_t now, struct buf *ret_cert,
                                       struct buf *ret_key, struct err *err);

/* A certificate for TLS servers by the newest authority, for the key of a request (PEM). The
 * request is to be signed by that key, to be for the common name `name` and for nothing else, and
 * the key one of P-256: otherwise -EACCES with the reason. The names by which clients call the
 * server are `dns_names`, up to a NULL. */
int certificate_authority_sign(const struct certificate_authority *a, const char *request,
                               size_t request_len, const char *name, const char *const *dns_names,
                               int64_t seconds, int64_t now, struct buf *ret_cert, struct err *err);
