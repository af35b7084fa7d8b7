/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/client_trust.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define CHAIN_MAX 8u
#define NAMES_MAX 64u
#define COMMON_NAME_MAX 256

struct client_trust {
    gnutls_x509_trust_list_t authorities; /* NULL: no client is trusted */
    char **names;
    size_t n; /* 0: every name */
};

struct client_trust *client_trust_new(void) {
    return calloc(1, sizeof(struct client_trust));
}

static void forget(struct client_trust *t) {
    if (t->authorities)
        gnutls_x509_trust_list_deinit(t->authorities, 1);
    for (size_t i = 0; i < t->n; i++)
        free(t->names[i]);
    free(t->names);
    *t = (struct client_trust){0};
}

struct client_trust *client_trust_free(struct client_trust *t) {
    if (t)
        forget(t);
    free(t);
    return NULL;
}

static int read_names(struct client_trust *t, struct json names, struct err *err) {
    struct json_iter it = json_iter(names);
    struct json item;
    size_t n = json_size(names);
    if (json_type(names) != JSON_ARRAY || n > NAMES_MAX)
        return err_set(err, EINVAL, "the names of clients are no list of at most %u", NAMES_MAX);
    if (n > 0 && !(t->names = calloc(n, sizeof(*t->names))))
        return err_errno(err, ENOMEM, "cannot read the names of clients");
    while (t->n < n && json_next(&it, NULL, &item)) {
        const char *name = json_string(item);
        if (!name)
            return err_set(err, EINVAL, "the name of a client is no string");
        if (!(t->names[t->n] = strdup(name)))
            return err_errno(err, ENOMEM, "cannot read the names of clients");
        t->n++;
    }
    return 0;
}

static int read_bundle(struct client_trust *t, const char *bundle, struct err *err) {
    const gnutls_datum_t pem = {(unsigned char *) (uintptr_t) bundle, (unsigned) strlen(bundle)};
    if (gnutls_x509_trust_list_init(&t->authorities, 0) < 0)
        return err_errno(err, ENOMEM, "cannot read the authority of clients");
    int n =
        gnutls_x509_trust_list_add_trust_mem(t->authorities, &pem, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    if (n < 0)
        return err_set(err, EINVAL, "the authority of clients: %s", gnutls_strerror(n));
    return n > 0 ? 0 : err_set(err, EINVAL, "the authority of clients has no certificate");
}

int client_trust_set(struct client_trust *t, const char *bundle, struct json names,
                     struct err *err) {
    forget(t);
    int r = read_names(t, names, err);
    if (r == 0)
        r = read_bundle(t, bundle, err);
    if (r < 0)
        forget(t);
    return r;
}

/* ---- the check ---- */

struct chain {
    gnutls_x509_crt_t v[CHAIN_MAX];
    unsigned n;
};

static void chain_done(struct chain *chain) {
    for (unsigned i = 0; i < chain->n; i++)
        gnutls_x509_crt_deinit(chain->v[i]);
}

static int read_chain(gnutls_session_t session, struct chain *ret, struct err *err) {
    unsigned n = 0;
    const gnutls_datum_t *given = session ? gnutls_certificate_get_peers(session, &n) : NULL;
    if (!given || n == 0)
        return err_set(err, EACCES, "the client has shown no certificate");
    for (unsigned i = 0; i < n && i < CHAIN_MAX; i++) {
        if (gnutls_x509_crt_init(&ret->v[i]) < 0)
            return err_errno(err, ENOMEM, "cannot read the client's certificate");
        ret->n++;
        if (gnutls_x509_crt_import(ret->v[i], &given[i], GNUTLS_X509_FMT_DER) < 0)
            return err_set(err, EACCES, "the client's certificate cannot be read");
    }
    return 0;
}

static int check_name(const struct client_trust *t, gnutls_x509_crt_t cert, struct err *err) {
    char name[COMMON_NAME_MAX] = "";
    size_t size = sizeof(name);
    if (t->n == 0)
        return 0;
    if (gnutls_x509_crt_get_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &size) < 0 ||
        strlen(name) != size)
        return err_set(err, EACCES, "the client's certificate has no common name");
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->names[i], name) == 0)
            return 0;
    return err_set(err, EACCES, "the client's certificate is for another name");
}

int client_trust_check(const struct client_trust *t, struct gnutls_session_int *session,
                       struct err *err) {
    _cleanup_(chain_done) struct chain chain = {0};
    gnutls_typed_vdata_st client = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                    .data = (unsigned char *) (uintptr_t) GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned status = 0;
    if (!t->authorities)
        return err_set(err, EACCES, "the authority of clients is not known yet");
    int r = read_chain(session, &chain, err);
    if (r < 0)
        return r;
    if (gnutls_x509_trust_list_verify_crt2(t->authorities, chain.v, chain.n, &client, 1, 0, &status,
                                           NULL) < 0 ||
        status != 0)
        return err_set(err, EACCES, "the client's certificate is not valid here");
    return check_name(t, chain.v[0], err);
}
