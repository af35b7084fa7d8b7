/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/server_time.h"

#define BUFFER_MAX ((size_t) 4 << 20)

struct tls_client {
    struct security security; /* first: one is the other */
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    struct buf in;
    size_t in_used;
    struct buf out;
    char *host;
    bool alpn; /* the server has to agree */
};

static size_t left_to_read(const struct tls_client *tls) {
    return tls->in.len - tls->in_used;
}

static ssize_t pull(gnutls_transport_ptr_t p, void *data, size_t size) {
    struct tls_client *tls = p;
    size_t left = left_to_read(tls);
    if (left == 0) {
        gnutls_transport_set_errno(tls->session, EAGAIN);
        return -1;
    }
    size_t n = left < size ? left : size;
    memcpy(data, tls->in.data + tls->in_used, n);
    tls->in_used += n;
    if (tls->in_used == tls->in.len) {
        buf_reset(&tls->in);
        tls->in_used = 0;
    }
    return (ssize_t) n;
}

static ssize_t push(gnutls_transport_ptr_t p, const void *data, size_t size) {
    struct tls_client *tls = p;
    buf_append(&tls->out, data, size);
    if (tls->out.error) {
        gnutls_transport_set_errno(tls->session, tls->out.error);
        return -1;
    }
    return (ssize_t) size;
}

/* Called by GnuTLS only on blocking sessions; there is nothing to wait for here. */
static int pull_timeout(gnutls_transport_ptr_t p, unsigned ms) {
    (void) ms;
    return left_to_read(p) > 0;
}

static void tls_client_free(struct tls_client *tls) {
    if (!tls)
        return;
    if (tls->session)
        gnutls_deinit(tls->session);
    if (tls->credentials)
        gnutls_certificate_free_credentials(tls->credentials);
    buf_done(&tls->in);
    buf_done(&tls->out);
    free(tls->host);
    free(tls);
}

static int gnutls_fail(struct err *err, int r, const char *what) {
    return err_set(err, r == GNUTLS_E_MEMORY_ERROR ? ENOMEM : EPROTO, "%s: %s", what,
                   gnutls_strerror(r));
}

static gnutls_datum_t datum(const char *text) {
    return (gnutls_datum_t){(unsigned char *) (uintptr_t) text, (unsigned) strlen(text)};
}

static int load_ca(struct tls_client *tls, const struct tls_client_options *o, struct err *err) {
    const char *name = o->ca_file ? o->ca_file : "the CA";
    const gnutls_datum_t text = datum(o->ca_file ? "" : o->ca);
    int r = o->ca_file ? gnutls_certificate_set_x509_trust_file(tls->credentials, o->ca_file,
                                                                GNUTLS_X509_FMT_PEM)
                       : gnutls_certificate_set_x509_trust_mem(tls->credentials, &text,
                                                               GNUTLS_X509_FMT_PEM);
    if (r == GNUTLS_E_FILE_ERROR)
        return err_set(err, ENOENT, "cannot read the CA file %s", o->ca_file);
    if (r < 0)
        return gnutls_fail(err, r, name);
    if (r == 0)
        return err_set(err, EINVAL, "%s%s holds no certificate", o->ca_file ? "the CA file " : "",
                       name);
    return 0;
}

static int load_credentials(struct tls_client *tls, const struct tls_client_options *o,
                            struct err *err) {
    int r = gnutls_certificate_allocate_credentials(&tls->credentials);
    if (r < 0)
        return gnutls_fail(err, r, "cannot set up TLS");
    r = load_ca(tls, o, err);
    if (r < 0 || !o->cert)
        return r;
    const gnutls_datum_t cert = datum(o->cert), key = datum(o->key);
    r = gnutls_certificate_set_x509_key_mem(tls->credentials, &cert, &key, GNUTLS_X509_FMT_PEM);
    return r < 0 ? gnutls_fail(err, r, "the client's certificate") : 0;
}

static bool is_address(const char *host) {
    uint8_t address[16];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

static int set_up(struct tls_client *tls, const char *alpn, struct err *err) {
    int r = gnutls_init(&tls->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
    if (r < 0)
        return gnutls_fail(err, r, "cannot set up TLS");
    r = gnutls_priority_set_direct(tls->session, TLS_PRIORITY, NULL);
    if (r >= 0)
        r = gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, tls->credentials);
    const gnutls_datum_t protocol = datum(alpn ? alpn : "");
    if (r >= 0 && alpn)
        r = gnutls_alpn_set_protocols(tls->session, &protocol, 1, 0);
    /* RFC 6066: no address in the server name extension. */
    if (r >= 0 && !is_address(tls->host))
        r = gnutls_server_name_set(tls->session, GNUTLS_NAME_DNS, tls->host, strlen(tls->host));
    if (r < 0)
        return gnutls_fail(err, r, "cannot set up TLS");

    gnutls_session_set_verify_cert(tls->session, tls->host, 0);
    gnutls_transport_set_ptr(tls->session, tls);
    gnutls_transport_set_pull_function(tls->session, pull);
    gnutls_transport_set_push_function(tls->session, push);
    gnutls_transport_set_pull_timeout_function(tls->session, pull_timeout);
    return 0;
}

static int tls_feed(struct security *security, const void *data, size_t size) {
    struct tls_client *tls = (struct tls_client *) security;
    buf_append(&tls->in, data, size);
    return buf_error(&tls->in);
}

/* A message why the certificate was refused; falls back on the plain error. */
static int verify_fail(const struct tls_client *tls, int r, struct err *err) {
    if (r != GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
        return gnutls_fail(err, r, "TLS handshake failed");
    gnutls_datum_t text = {0};
    unsigned status = gnutls_session_get_verify_cert_status(tls->session);
    if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) < 0)
        return gnutls_fail(err, r, "TLS handshake failed");
    bool timed = status & (GNUTLS_CERT_NOT_ACTIVATED | GNUTLS_CERT_EXPIRED);
    if (timed)
        server_time_forget();
    r = err_set(err, EACCES, "the certificate of %s is not accepted: %s%s", tls->host,
                (const char *) text.data, timed ? "Is the clock of this machine right?" : "");
    gnutls_free(text.data);
    return r;
}

static int tls_handshake(struct security *security, struct err *err) {
    struct tls_client *tls = (struct tls_client *) security;
    int r;
    do
        r = gnutls_handshake(tls->session);
    while (r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_WARNING_ALERT_RECEIVED);
    if (r == GNUTLS_E_AGAIN)
        return 0;
    if (r < 0)
        return verify_fail(tls, r, err);

    gnutls_datum_t protocol;
    if (tls->alpn && gnutls_alpn_get_selected_protocol(tls->session, &protocol) < 0)
        return err_set(err, EPROTONOSUPPORT, "%s does not agree to the protocol (ALPN)", tls->host);
    return 1;
}

static ssize_t tls_read(struct security *security, void *ret, size_t size, struct err *err) {
    struct tls_client *tls = (struct tls_client *) security;
    for (;;) {
        size_t left = left_to_read(tls);
        ssize_t n = gnutls_record_recv(tls->session, ret, size);
        if (n > 0)
            return n;
        switch (n) {
        case 0:
            return err_set(err, ESHUTDOWN, "connection closed by the server");
        case GNUTLS_E_AGAIN:
            /* Also behind a record that has no data, such as a session ticket. */
            if (left_to_read(tls) > 0 && left_to_read(tls) < left)
                continue;
            return 0;
        case GNUTLS_E_INTERRUPTED:
        case GNUTLS_E_WARNING_ALERT_RECEIVED:
            continue;
        case GNUTLS_E_REHANDSHAKE: /* TLS 1.2 only; HTTP/2 forbids it (RFC 9113, 9.2.1) */
        default:
            return gnutls_fail(err, (int) n, "TLS connection broken");
        }
    }
}

static int tls_write(struct security *security, const void *data, size_t size) {
    struct tls_client *tls = (struct tls_client *) security;
    const uint8_t *p = data;
    while (size > 0) {
        ssize_t n = gnutls_record_send(tls->session, p, size);
        if (n == GNUTLS_E_INTERRUPTED)
            continue;
        if (n < 0)
            return n == GNUTLS_E_MEMORY_ERROR ? -ENOMEM : -EIO;
        p += n;
        size -= (size_t) n;
    }
    return 0;
}

static struct buf *tls_output(struct security *security) {
    struct tls_client *tls = (struct tls_client *) security;
    return &tls->out;
}

static void tls_free(struct security *security) {
    tls_client_free((struct tls_client *) security);
}

int tls_client_new(const struct tls_client_options *options, struct security **ret,
                   struct err *err) {
    struct tls_client *tls = calloc(1, sizeof(*tls));
    if (!tls)
        return err_errno(err, ENOMEM, "cannot set up TLS");
    tls->security = (struct security){
        .feed = tls_feed,
        .handshake = tls_handshake,
        .read = tls_read,
        .write = tls_write,
        .output = tls_output,
        .free = tls_free,
    };
    tls->in.max = BUFFER_MAX;
    tls->out.max = BUFFER_MAX;
    tls->host = strdup(options->host);
    tls->alpn = options->alpn != NULL;
    int r = tls->host ? load_credentials(tls, options, err)
                      : err_errno(err, ENOMEM, "cannot set up TLS");
    if (r == 0)
        r = set_up(tls, options->alpn, err);
    if (r < 0) {
        tls_client_free(tls);
        return r;
    }
    *ret = &tls->security;
    return 0;
}
