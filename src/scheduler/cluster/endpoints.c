/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/endpoints.h"

#include <errno.h>

#include "admission/admission.h"
#include "base/err.h"
#include "base/log.h"
#include "wire/http.h"
#include "wire/server_cert.h"

#define REVIEW_MAX ((size_t) 8 << 20) /* two versions of a pod; etcd takes 1.5 MB of each */
/* An API server uses a connection for each request under way: more than METRICS_VALUES_MAX of them,
 * so that its checks of availability are answered beside them. */
#define API_CONNECTIONS 512
#define API_CONNECTIONS_OF_ONE 192
#define JSON_TYPE "application/json"

typedef int (*review_verb)(struct admission *a, const char *body, size_t len, struct buf *out,
                           struct err *err);

static void reply_review(struct http_exchange *exchange, struct endpoints *e, review_verb review) {
    struct buf out = BUF_INIT(REVIEW_MAX * 2);
    struct err err;
    size_t len;
    const char *body = http_body(exchange, &len);
    if (review(e->admission, body, len, &out, &err) == 0) {
        http_reply(exchange, 200, JSON_TYPE, &out);
        return;
    }
    buf_done(&out);
    http_reply_text(exchange, 400, err.text);
}

static void on_mutate(struct http_exchange *exchange, void *userdata) {
    reply_review(exchange, userdata, admission_mutate);
}

static void on_validate(struct http_exchange *exchange, void *userdata) {
    reply_review(exchange, userdata, admission_validate);
}

static const struct http_route routes[] = {
    {"POST", "/mutate", on_mutate},
    {"POST", "/validate", on_validate},
    HTTP_ROUTE_END,
};

static int listen_for(struct endpoints *e, const struct http_options *options, const char *what,
                      struct http_server **server, struct err *err) {
    if (!options->listen || *server)
        return 0;
    int r = http_server_start(e->loop, options, server, err);
    if (r == 0)
        log_info("%s on %s", what, options->listen);
    return r;
}

/* What the authority has now is what the next client is shown. */
static int serve(void *userdata, struct err *err) {
    struct endpoints *e = userdata;
    const char *cert = buf_str(&e->authority.own.cert), *key = buf_str(&e->authority.own.key);
    int r = e->server_cert ? server_cert_set(e->server_cert, cert, key, err)
                           : server_cert_new(cert, key, &e->server_cert, err);
    const struct http_options webhook = {.listen = e->options.webhook_listen,
                                         .server_cert = e->server_cert,
                                         .share_port = true,
                                         .routes = routes,
                                         .userdata = e,
                                         .max_body = REVIEW_MAX};
    const struct http_options apis = {.listen = e->options.api_listen,
                                      .server_cert = e->server_cert,
                                      .client_certs = true,
                                      .share_port = true,
                                      .routes = e->options.routes,
                                      .userdata = e->options.userdata,
                                      .max_connections = API_CONNECTIONS,
                                      .max_per_client = API_CONNECTIONS_OF_ONE};
    if (r == 0)
        r = listen_for(e, &webhook, "the admission webhook listens", &e->webhook, err);
    if (r == 0)
        r = listen_for(e, &apis, "the metrics APIs are served", &e->api, err);
    return r;
}

int endpoints_start(struct endpoints *e, uv_loop_t *loop, const struct api *api,
                    const struct endpoints_options *options) {
    const struct authority_options authority = {.name_space = options->name_space,
                                                .webhook = options->webhook_listen != NULL,
                                                .metrics_api = options->api_listen != NULL,
                                                .agents = options->agents,
                                                .on_certificate = serve,
                                                .userdata = e};
    *e = (struct endpoints){
        .loop = loop, .options = *options, .admission = admission_new(options->name_space)};
    if (!e->admission)
        return -ENOMEM;
    authority_start(&e->authority, loop, api, &authority);
    admission_place_by(e->admission, options->scheduler);
    return 0;
}

void endpoints_stop(struct endpoints *e) {
    http_server_close(e->webhook);
    http_server_close(e->api);
    e->webhook = e->api = NULL;
}

void endpoints_done(struct endpoints *e) {
    authority_done(&e->authority);
    e->admission = admission_free(e->admission);
    e->server_cert = server_cert_free(e->server_cert);
}
