/* SPDX-License-Identifier: Apache-2.0 */

/* The HTTP server behind TLS, as kube-scheduler may talk to the extender, and TLS of a client of
 * the API server. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <arpa/inet.h>
#include <cmocka.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "wire/http.h"
#include "wire/security.h"
#include "wire/tls.h"

struct fixture {
    char dir[32], cert[64], key[64];
    uv_loop_t loop;
    uv_async_t stop, ping;
    sem_t pong;
    struct http_server *server;
    pthread_t thread;
};

static void write_pem(const char *path, gnutls_datum_t *pem) {
    struct err err;
    if (file_replace(path, pem->data, pem->size, 0600, &err) < 0)
        fail_msg("%s", err.text);
    gnutls_free(pem->data);
}

/* A certificate for 127.0.0.1, signed by its own key. */
static void make_certificate(const struct fixture *f) {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;
    gnutls_datum_t pem;
    const unsigned char address[] = {127, 0, 0, 1};

    gnutls_x509_privkey_init(&key);
    gnutls_x509_crt_init(&crt);
    assert_int_equal(gnutls_x509_privkey_generate(
                         key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
                     0);
    gnutls_x509_crt_set_version(crt, 3);
    gnutls_x509_crt_set_serial(crt, "\1", 1);
    gnutls_x509_crt_set_activation_time(crt, time(NULL) - 60);
    gnutls_x509_crt_set_expiration_time(crt, time(NULL) + 3600);
    gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, "extender", 8);
    gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, address, sizeof(address), 0);
    gnutls_x509_crt_set_key(crt, key);
    assert_int_equal(gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0), 0);

    assert_int_equal(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &pem), 0);
    write_pem(f->cert, &pem);
    assert_int_equal(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &pem), 0);
    write_pem(f->key, &pem);
    gnutls_x509_crt_deinit(crt);
    gnutls_x509_privkey_deinit(key);
}

static void on_hello(struct http_exchange *x, void *userdata) {
    (void) userdata;
    http_reply_text(x, 200, "hello");
}

static const struct http_route routes[] = {{"GET", "/hello", on_hello}, HTTP_ROUTE_END};

static void on_stop(uv_async_t *async) {
    struct fixture *f = async->data;
    http_server_close(f->server);
    uv_close((uv_handle_t *) &f->stop, NULL);
    uv_close((uv_handle_t *) &f->ping, NULL);
}

static void on_ping(uv_async_t *async) {
    struct fixture *f = async->data;
    (void) sem_post(&f->pong);
}

static void *serve(void *userdata) {
    (void) uv_run(&((struct fixture *) userdata)->loop, UV_RUN_DEFAULT);
    return NULL;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-tls-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void) snprintf(f->cert, sizeof(f->cert), "%s/cert.pem", f->dir);
    (void) snprintf(f->key, sizeof(f->key), "%s/key.pem", f->dir);
    make_certificate(f);

    struct http_options options = {
        .listen = "127.0.0.1:0", .tls_cert = f->cert, .tls_key = f->key, .routes = routes};
    struct err err;
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_async_init(&f->loop, &f->stop, on_stop), 0);
    assert_int_equal(uv_async_init(&f->loop, &f->ping, on_ping), 0);
    assert_int_equal(sem_init(&f->pong, 0, 0), 0);
    f->stop.data = f->ping.data = f;
    if (http_server_start(&f->loop, &options, &f->server, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    uv_async_send(&f->stop);
    pthread_join(f->thread, NULL);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    (void) dir_remove(f->dir, NULL);
    free(f);
    return 0;
}

static int connect_to(unsigned port) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t) port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *) &to, sizeof(to)), 0);
    return fd;
}

/* Sends one request and returns all that comes back. */
static size_t ask(gnutls_session_t session, const char *request, char *answer, size_t room) {
    size_t len = 0;
    assert_int_equal(gnutls_record_send(session, request, strlen(request)), strlen(request));
    for (ssize_t n; len < room; len += (size_t) n) {
        n = gnutls_record_recv(session, answer + len, room - len);
        if (n <= 0)
            break;
    }
    return len;
}

/* A client that trusts exactly this certificate. */
struct client {
    gnutls_certificate_credentials_t trust;
    gnutls_session_t session;
    int fd;
};

/* The result of the handshake. */
static int client_begin_as(struct client *c, const struct fixture *f, const char *trusted,
                           const char *priority) {
    c->fd = connect_to(http_server_port(f->server));
    gnutls_certificate_allocate_credentials(&c->trust);
    assert_int_equal(gnutls_certificate_set_x509_trust_file(c->trust, trusted, GNUTLS_X509_FMT_PEM),
                     1);
    gnutls_init(&c->session, GNUTLS_CLIENT);
    assert_int_equal(gnutls_priority_set_direct(c->session, priority, NULL), 0);
    gnutls_credentials_set(c->session, GNUTLS_CRD_CERTIFICATE, c->trust);
    gnutls_session_set_verify_cert(c->session, "127.0.0.1", 0);
    gnutls_transport_set_int(c->session, c->fd);
    return gnutls_handshake(c->session);
}

static int client_begin(struct client *c, const struct fixture *f, const char *trusted) {
    return client_begin_as(c, f, trusted, "NORMAL");
}

static void client_end(struct client *c) {
    gnutls_deinit(c->session);
    gnutls_certificate_free_credentials(c->trust);
    close(c->fd);
}

static void client_asks(struct client *c) {
    const char request[] = "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    char answer[1024] = "";
    (void) ask(c->session, request, answer, sizeof(answer) - 1);
    assert_non_null(strstr(answer, "HTTP/1.1 200"));
    assert_non_null(strstr(answer, "hello"));
}

static void test_verified_client_gets_an_answer(void **state) {
    struct fixture *f = *state;
    struct client c;
    assert_int_equal(client_begin(&c, f, f->cert), 0);
    client_asks(&c);
    client_end(&c);
}

static void test_old_versions_are_turned_away(void **state) {
    struct fixture *f = *state;
    struct client c;
    assert_true(client_begin_as(&c, f, f->cert, "NORMAL:-VERS-ALL:+VERS-TLS1.1") < 0);
    client_end(&c);
    assert_int_equal(client_begin_as(&c, f, f->cert, "NORMAL:-VERS-ALL:+VERS-TLS1.2"), 0);
    client_asks(&c);
    client_end(&c);
}

/* The next client is shown the new certificate; who is connected notices nothing. */
static void test_certificate_is_replaced(void **state) {
    struct fixture *f = *state;
    struct client before, after, late;
    char old[64];
    (void) snprintf(old, sizeof(old), "%s/old.pem", f->dir);
    assert_int_equal(file_copy(f->cert, old, 0600, NULL), 0);
    assert_int_equal(client_begin(&before, f, f->cert), 0);
    make_certificate(f);
    assert_int_equal(client_begin(&after, f, f->cert), 0);
    assert_int_equal(client_begin(&late, f, old), GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR);
    client_asks(&before);
    client_asks(&after);
    client_end(&before);
    client_end(&after);
    client_end(&late);
}

/* Between the writing of the two files, and after garbage, the old pair goes on. */
static void test_half_a_certificate_changes_nothing(void **state) {
    struct fixture *f = *state;
    struct client c;
    char old[64], old_key[64];
    (void) snprintf(old, sizeof(old), "%s/old.pem", f->dir);
    (void) snprintf(old_key, sizeof(old_key), "%s/old-key.pem", f->dir);
    assert_int_equal(file_copy(f->cert, old, 0600, NULL), 0);
    assert_int_equal(file_copy(f->key, old_key, 0600, NULL), 0);
    make_certificate(f);
    assert_int_equal(file_copy(old_key, f->key, 0600, NULL), 0);
    assert_int_equal(client_begin(&c, f, old), 0);
    client_asks(&c);
    client_end(&c);
    assert_int_equal(file_replace(f->cert, "garbage", 7, 0600, NULL), 0);
    assert_int_equal(client_begin(&c, f, old), 0);
    client_end(&c);
    make_certificate(f);
    assert_int_equal(client_begin(&c, f, f->cert), 0);
    client_end(&c);
}

static void test_plain_text_is_turned_away(void **state) {
    struct fixture *f = *state;
    _cleanup_close_ int fd = connect_to(http_server_port(f->server));
    char answer[1024] = "";

    assert_true(send(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 32, MSG_NOSIGNAL) == 32);
    for (size_t len = 0; len < sizeof(answer) - 1;) {
        ssize_t n = recv(fd, answer + len, sizeof(answer) - 1 - len, 0);
        if (n <= 0)
            break;
        len += (size_t) n;
    }
    assert_null(strstr(answer, "hello"));
}

static void test_half_a_configuration_is_refused(void **state) {
    struct fixture *f = *state;
    struct http_options options = {.listen = "127.0.0.1:0", .tls_cert = f->cert, .routes = routes};
    struct http_server *server = NULL;
    struct err err = {0};
    uv_loop_t loop;

    assert_int_equal(uv_loop_init(&loop), 0);
    assert_true(http_server_start(&loop, &options, &server, &err) < 0);
    assert_true(strlen(err.text) > 0);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- a client ---- */

/* A server in memory: what it sends is in `out`, what it receives in the client's output. */
struct peer {
    gnutls_session_t session;
    struct security *client;
    struct buf out;
};

static ssize_t peer_pull(gnutls_transport_ptr_t p, void *data, size_t size) {
    struct peer *peer = p;
    struct buf *in = peer->client->output(peer->client);
    size_t n = in->len < size ? in->len : size;

    if (n == 0) {
        gnutls_transport_set_errno(peer->session, EAGAIN);
        return -1;
    }
    memcpy(data, in->data, n);
    buf_consume(in, n);
    return (ssize_t) n;
}

static ssize_t peer_push(gnutls_transport_ptr_t p, const void *data, size_t size) {
    buf_append(&((struct peer *) p)->out, data, size);
    return (ssize_t) size;
}

static void deliver(struct peer *peer) {
    assert_int_equal(peer->client->feed(peer->client, peer->out.data, peer->out.len), 0);
    buf_reset(&peer->out);
}

static void shake_hands(struct peer *peer) {
    struct err err = {0};
    int client = 0, server = GNUTLS_E_AGAIN;

    for (int i = 0; i < 10 && (client != 1 || server != 0); i++) {
        if (client == 0 && (client = peer->client->handshake(peer->client, &err)) < 0)
            fail_msg("%s", err.text);
        if (server == GNUTLS_E_AGAIN)
            server = gnutls_handshake(peer->session);
        deliver(peer);
    }
    assert_true(client == 1 && server == 0);
    assert_int_equal(gnutls_protocol_get_version(peer->session), GNUTLS_TLS1_3);
}

/* Nothing else may come from the server for a long time. */
static void test_an_answer_in_one_piece_with_tickets(void **state) {
    static const gnutls_datum_t h2 = {(unsigned char *) (uintptr_t) "h2", 2};
    struct fixture *f = *state;
    struct peer peer = {.out = BUF_INIT(1 << 16)};
    gnutls_certificate_credentials_t credentials;
    gnutls_datum_t ticket_key;
    char text[16] = "";
    struct err err = {0};

    const struct tls_client_options tls = {.ca_file = f->cert, .host = "127.0.0.1", .alpn = "h2"};
    assert_int_equal(tls_client_new(&tls, &peer.client, &err), 0);
    gnutls_certificate_allocate_credentials(&credentials);
    assert_int_equal(
        gnutls_certificate_set_x509_key_file(credentials, f->cert, f->key, GNUTLS_X509_FMT_PEM), 0);
    gnutls_init(&peer.session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_AUTO_SEND_TICKET);
    gnutls_set_default_priority(peer.session);
    gnutls_credentials_set(peer.session, GNUTLS_CRD_CERTIFICATE, credentials);
    assert_int_equal(gnutls_session_ticket_key_generate(&ticket_key), 0);
    gnutls_session_ticket_enable_server(peer.session, &ticket_key);
    gnutls_alpn_set_protocols(peer.session, &h2, 1, 0);
    gnutls_transport_set_ptr(peer.session, &peer);
    gnutls_transport_set_pull_function(peer.session, peer_pull);
    gnutls_transport_set_push_function(peer.session, peer_push);
    shake_hands(&peer);

    assert_int_equal(gnutls_session_ticket_send(peer.session, 2, 0), 0);
    assert_int_equal(gnutls_record_send(peer.session, "answer", 6), 6);
    deliver(&peer);
    assert_int_equal(peer.client->read(peer.client, text, sizeof(text), &err), 6);
    assert_string_equal(text, "answer");
    assert_int_equal(peer.client->read(peer.client, text, sizeof(text), &err), 0);

    gnutls_deinit(peer.session);
    gnutls_certificate_free_credentials(credentials);
    gnutls_free(ticket_key.data);
    peer.client->free(peer.client);
    buf_done(&peer.out);
}

enum MHD_Result __real_MHD_run(struct MHD_Daemon *daemon);
enum MHD_Result __wrap_MHD_run(struct MHD_Daemon *daemon);

static atomic_uint runs;

enum MHD_Result __wrap_MHD_run(struct MHD_Daemon *daemon) {
    (void) atomic_fetch_add(&runs, 1);
    return __real_MHD_run(daemon);
}

/* A client that says hello and then nothing: the server's loop does all else meanwhile, and does
 * not use up the CPU. */
static void test_a_client_silent_in_its_handshake(void **state) {
    struct fixture *f = *state;
    const struct tls_client_options tls = {.ca_file = f->cert, .host = "127.0.0.1"};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t) http_server_port(f->server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct security *client;
    struct timespec end;
    struct err err = {0};
    char byte;
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *) &to, sizeof(to)), 0);
    assert_int_equal(tls_client_new(&tls, &client, &err), 0);
    assert_int_equal(client->handshake(client, &err), 0);
    struct buf *hello = client->output(client);
    assert_int_equal(send(fd, hello->data, hello->len, 0), hello->len);
    assert_int_equal(recv(fd, &byte, 1, 0), 1); /* it has answered, and waits */
    (void) clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 5;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(uv_async_send(&f->ping), 0);
        assert_int_equal(sem_timedwait(&f->pong, &end), 0);
    }
    unsigned before = atomic_load(&runs);
    assert_int_equal(nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL), 0);
    unsigned now = atomic_load(&runs);
    assert_true(now > before);
    assert_true(now - before < 800);
    client->free(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_verified_client_gets_an_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_old_versions_are_turned_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_certificate_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_a_certificate_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plain_text_is_turned_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_a_configuration_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_answer_in_one_piece_with_tickets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_client_silent_in_its_handshake, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
