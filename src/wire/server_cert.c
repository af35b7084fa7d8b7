/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/server_cert.h"

#include <errno.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "wire/certificate.h"

#define PEM_MAX ((size_t) 1 << 20)
#define CHAIN_MAX 8

/* Identifies a version of a file. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct server_cert {
    char *cert_file, *key_file; /* NULL: from memory */
    struct stamp cert_stamp, key_stamp;
    struct buf cert, key;
};

struct server_cert *server_cert_free(struct server_cert *id) {
    if (!id)
        return NULL;
    buf_done(&id->cert);
    buf_wipe(&id->key);
    free(id->cert_file);
    free(id->key_file);
    free(id);
    return NULL;
}

static void server_cert_cleanup(struct server_cert **id) {
    server_cert_free(*id);
}

static gnutls_datum_t datum(const struct buf *b) {
    return (gnutls_datum_t){(unsigned char *) b->data, (unsigned) b->len};
}

static int tls_error(struct err *err, const char *what, int r) {
    return err_set(err, r == GNUTLS_E_MEMORY_ERROR ? ENOMEM : EINVAL, "%s: %s", what,
                   gnutls_strerror(r));
}

/* ---- what GnuTLS is given ---- */

static void chain_free(gnutls_pcert_st *chain, unsigned n) {
    for (unsigned i = 0; chain && i < n; i++)
        gnutls_pcert_deinit(&chain[i]);
    gnutls_free(chain);
}

static int load_chain(const struct buf *pem, gnutls_pcert_st **ret, unsigned *ret_n,
                      struct err *err) {
    gnutls_datum_t data = datum(pem);
    unsigned n = CHAIN_MAX;
    gnutls_pcert_st *chain = gnutls_calloc(CHAIN_MAX, sizeof(*chain));
    if (!chain)
        return err_errno(err, ENOMEM, "cannot read the certificate");
    int r = gnutls_pcert_list_import_x509_raw(chain, &n, &data, GNUTLS_X509_FMT_PEM, 0);
    if (r < 0) {
        gnutls_free(chain);
        return tls_error(err, "cannot read the certificate", r);
    }
    *ret = chain;
    *ret_n = n;
    return 0;
}

static int load_key(const struct buf *pem, gnutls_privkey_t *ret, struct err *err) {
    gnutls_datum_t data = datum(pem);
    gnutls_privkey_t key;
    int r = gnutls_privkey_init(&key);
    if (r < 0)
        return tls_error(err, "cannot read the key", r);
    r = gnutls_privkey_import_x509_raw(key, &data, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (r < 0) {
        gnutls_privkey_deinit(key);
        return tls_error(err, "cannot read the key", r);
    }
    *ret = key;
    return 0;
}

static bool same_public_key(gnutls_pcert_st *cert, gnutls_privkey_t key) {
    unsigned char of_cert[64], of_key[64];
    size_t cert_len = sizeof(of_cert), key_len = sizeof(of_key);
    gnutls_pubkey_t public = NULL;
    bool same = gnutls_pubkey_init(&public) == 0 &&
                gnutls_pubkey_import_privkey(public, key, 0, 0) == 0 &&
                gnutls_pubkey_get_key_id(public, 0, of_key, &key_len) == 0 &&
                gnutls_pubkey_get_key_id(cert->pubkey, 0, of_cert, &cert_len) == 0 &&
                cert_len == key_len && memcmp(of_cert, of_key, key_len) == 0;
    if (public)
        gnutls_pubkey_deinit(public);
    return same;
}

static int load(const struct buf *cert, const struct buf *key, gnutls_pcert_st **ret_chain,
                unsigned *ret_n, gnutls_privkey_t *ret_key, struct err *err) {
    int r = load_chain(cert, ret_chain, ret_n, err);
    if (r < 0)
        return r;
    r = load_key(key, ret_key, err);
    if (r < 0) {
        chain_free(*ret_chain, *ret_n);
        return r;
    }
    if (same_public_key(*ret_chain, *ret_key))
        return 0;
    chain_free(*ret_chain, *ret_n);
    gnutls_privkey_deinit(*ret_key);
    return err_set(err, EINVAL, "the key does not belong to the certificate");
}

/* Takes both over when they are good, and leaves them empty. */
static int install(struct server_cert *id, struct buf *cert, struct buf *key, struct err *err) {
    gnutls_pcert_st *chain;
    gnutls_privkey_t loaded;
    unsigned n;
    int r = load(cert, key, &chain, &n, &loaded, err);
    if (r < 0)
        return r;
    chain_free(chain, n);
    gnutls_privkey_deinit(loaded);
    buf_done(&id->cert);
    buf_wipe(&id->key);
    id->cert = *cert;
    id->key = *key;
    *cert = *key = BUF_INIT(PEM_MAX);
    return 0;
}

/* ---- from files ---- */

static struct stamp stamp_of(const char *path) {
    struct stat st;
    if (stat(path, &st) < 0)
        return (struct stamp){0};
    return (struct stamp){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
}

static bool same_stamp(const struct stamp *a, const struct stamp *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* The stamps are those from before reading: what changes meanwhile is read again. */
static int read_files(struct server_cert *id, struct err *err) {
    _cleanup_wipe_ struct buf key = BUF_INIT(PEM_MAX);
    _cleanup_buf_ struct buf cert = BUF_INIT(PEM_MAX);
    int r = file_read(id->cert_file, PEM_MAX, &cert, err);
    if (r >= 0)
        r = file_read(id->key_file, PEM_MAX, &key, err);
    if (r < 0)
        return r;
    r = install(id, &cert, &key, err);
    if (r < 0)
        err_wrap(err, "%s and %s", id->cert_file, id->key_file);
    return r;
}

static void refresh(struct server_cert *id) {
    struct err err;
    if (!id->cert_file)
        return;
    struct stamp cert = stamp_of(id->cert_file), key = stamp_of(id->key_file);
    if (same_stamp(&cert, &id->cert_stamp) && same_stamp(&key, &id->key_stamp))
        return;
    id->cert_stamp = cert;
    id->key_stamp = key;
    if (read_files(id, &err) < 0)
        log_warn("the TLS certificate has changed, but not into a good one; the old one stays: %s",
                 err.text);
    else
        log_info("the TLS certificate in %s is a new one", id->cert_file);
}

int server_cert_from_files(const char *cert_file, const char *key_file, struct server_cert **ret,
                           struct err *err) {
    _cleanup_(server_cert_cleanup) struct server_cert *id = calloc(1, sizeof(*id));
    if (!id || !(id->cert_file = strdup(cert_file)) || !(id->key_file = strdup(key_file)))
        return err_errno(err, ENOMEM, "cannot read the certificate");
    id->cert_stamp = stamp_of(cert_file);
    id->key_stamp = stamp_of(key_file);
    int r = read_files(id, err);
    if (r < 0)
        return r;
    *ret = take_ptr(id);
    return 0;
}

/* ---- from memory ---- */

int server_cert_set(struct server_cert *id, const char *cert, const char *key, struct err *err) {
    _cleanup_wipe_ struct buf new_key = BUF_INIT(PEM_MAX);
    _cleanup_buf_ struct buf new_cert = BUF_INIT(PEM_MAX);
    buf_puts(&new_cert, cert);
    buf_puts(&new_key, key);
    if (buf_error(&new_cert) < 0 || buf_error(&new_key) < 0)
        return err_errno(err, ENOMEM, "cannot take the certificate");
    return install(id, &new_cert, &new_key, err);
}

int server_cert_new(const char *cert, const char *key, struct server_cert **ret, struct err *err) {
    _cleanup_(server_cert_cleanup) struct server_cert *id = calloc(1, sizeof(*id));
    if (!id)
        return err_errno(err, ENOMEM, "cannot take the certificate");
    int r = server_cert_set(id, cert, key, err);
    if (r < 0)
        return r;
    *ret = take_ptr(id);
    return 0;
}

int server_cert_retrieve(struct server_cert *id, gnutls_pcert_st **ret_chain, unsigned *ret_len,
                         gnutls_privkey_t *ret_key, unsigned *ret_flags) {
    refresh(id);
    if (load(&id->cert, &id->key, ret_chain, ret_len, ret_key, NULL) < 0)
        return -1;
    *ret_flags |= GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}
