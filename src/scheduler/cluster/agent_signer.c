/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/agent_signer.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "kube/api/names.h"
#include "kube/objects/agent_certificate.h"
#include "wire/http_status.h"
#include "wire/json_write.h"

#define REQUEST_TIMEOUT_MS 10000
#define BODY_MAX ((size_t) 64 << 10)
#define REQUEST_PEM_MAX 8192
#define NODE_CLAIM "authentication.kubernetes.io/node-name"
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789.-"

/* ---- the rules ---- */

static bool is_name(const char *name) {
    return name && name[0] && name[strspn(name, NAME_CHARACTERS)] == '\0' &&
           strlen(name) < KUBE_NAME_MAX;
}

static int check_requester(const struct agent_signer *s, struct json spec, struct err *err) {
    char agent[128];
    (void) snprintf(agent, sizeof(agent), "system:serviceaccount:%.63s:aliquot-agent",
                    s->name_space);
    if (!json_is_string(json_get(spec, "signerName"), AGENT_SIGNER))
        return err_set(err, EACCES, "it is for another signer");
    if (!json_is_string(json_get(spec, "username"), agent))
        return err_set(err, EACCES, "it is not of %s", agent);
    return 0;
}

/* Exactly what a TLS server needs. */
static int check_usages(struct json usages, struct err *err) {
    struct json_iter it = json_iter(usages);
    struct json usage;
    bool serves = false, signs = false;
    while (json_next(&it, NULL, &usage)) {
        bool is_server = json_is_string(usage, "server auth");
        bool is_signature = json_is_string(usage, "digital signature");
        if (!is_server && !is_signature)
            return err_set(err, EACCES, "it asks for the usage '%.60s'",
                           json_string_or(usage, "?"));
        serves = serves || is_server;
        signs = signs || is_signature;
    }
    return serves && signs
               ? 0
               : err_set(err, EACCES, "its usages are not 'server auth' and 'digital signature'");
}

/* Of the token by which the request was made, as the API server has noted it. */
static const char *node_of(struct json spec) {
    struct json nodes = json_get(json_get(spec, "extra"), NODE_CLAIM), node;
    struct json_iter it = json_iter(nodes);
    const char *name = NULL;
    if (json_size(nodes) == 1 && json_next(&it, NULL, &node))
        name = json_string(node);
    return is_name(name) ? name : NULL;
}

static int sign(const struct agent_signer *s, const char *node, const char *request,
                struct buf *ret_cert, struct err *err) {
    char own[KUBE_NAME_MAX + sizeof(AGENT_SERVER_NAME)];
    const char *const names[] = {own, AGENT_SERVER_NAME, NULL};
    const gnutls_datum_t text = {(unsigned char *) (uintptr_t) request, (unsigned) strlen(request)};
    gnutls_datum_t pem = {0};
    if (text.size > REQUEST_PEM_MAX || gnutls_base64_decode2(&text, &pem) < 0)
        return err_set(err, EACCES, "it cannot be read");
    (void) snprintf(own, sizeof(own), "%s." AGENT_SERVER_NAME, node);
    int r = certificate_authority_sign(s->authority, (const char *) pem.data, pem.size, node, names,
                                       AGENT_CERTIFICATE_SECONDS, s->now(), ret_cert, err);
    gnutls_free(pem.data);
    return r;
}

int agent_signer_judge(const struct agent_signer *s, struct json request, struct buf *ret_cert,
                       struct err *err) {
    struct json spec = json_get(request, "spec");
    const char *node = node_of(spec);
    int r = check_requester(s, spec, err);
    if (r == 0)
        r = check_usages(json_get(spec, "usages"), err);
    if (r == 0 && !node)
        r = err_set(err, EACCES, "the token of the agent is not bound to a node");
    return r < 0 ? r : sign(s, node, json_string_or(json_get(spec, "request"), ""), ret_cert, err);
}

/* ---- the API server ---- */

static void miss(struct agent_signer *s, const char *what, const char *why) {
    if (!s->failing)
        log_warn("certificates of agents: %s: %s; trying again", what, why);
    s->failing = s->missed = true;
}

/* What has come of it is in the object, which the watch shows. After a conflict as well. */
static void on_written(const struct kube_response *response, void *userdata) {
    struct agent_signer *s = userdata;
    s->in_flight--;
    if (http_is_success(response->status))
        s->failing = false;
    else if (response->status != 404 && response->status != 409)
        miss(s, "cannot answer a request", response->text);
}

/* Of the version that was judged. */
static void begin_body(struct json request, struct json_writer *out) {
    json_object_begin(out, NULL);
    json_object_begin(out, "metadata");
    json_put_string(out, "resourceVersion",
                    json_string_or(JSON_PATH(request, "metadata", "resourceVersion"), ""));
    json_object_end(out);
    json_object_begin(out, "status");
}

static void write_status(struct agent_signer *s, struct json request, const char *subresource,
                         struct json_writer *out) {
    const char *name = json_string(JSON_PATH(request, "metadata", "name"));
    char path[512];
    struct err err;
    json_object_end(out);
    json_object_end(out);
    (void) snprintf(path, sizeof(path), CERTIFICATE_REQUESTS "/%s/%s", name, subresource);
    if (s->api.request(s->api.context, "PATCH", path, KUBE_MERGE_PATCH, out->out->data,
                       out->out->len, REQUEST_TIMEOUT_MS, on_written, s, &err) < 0)
        miss(s, "cannot answer a request", err.text);
    else
        s->in_flight++;
}

static void decide(struct agent_signer *s, struct json request, bool approve, const char *why) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer out = {.out = &body};
    begin_body(request, &out);
    json_array_begin(&out, "conditions");
    json_object_begin(&out, NULL);
    json_put_string(&out, "type", approve ? "Approved" : "Denied");
    json_put_string(&out, "status", "True");
    json_put_string(&out, "reason", approve ? "AgentOfNode" : "NotAnAgentOfNode");
    json_put_string(&out, "message", why);
    json_object_end(&out);
    json_array_end(&out);
    write_status(s, request, "approval", &out);
}

static void give(struct agent_signer *s, struct json request, const struct buf *cert) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer out = {.out = &body};
    const gnutls_datum_t pem = {(unsigned char *) cert->data, (unsigned) cert->len};
    gnutls_datum_t text = {0};
    if (gnutls_base64_encode2(&pem, &text) < 0) {
        miss(s, "cannot write a certificate", "out of memory");
        return;
    }
    begin_body(request, &out);
    json_put_string(&out, "certificate", (const char *) text.data);
    write_status(s, request, "status", &out);
    gnutls_free(text.data);
}

static bool has(struct json request, const char *condition) {
    return json_valid(json_find(JSON_PATH(request, "status", "conditions"), "type", condition));
}

bool agent_signer_is_done(struct json request) {
    return has(request, "Denied") || has(request, "Failed") ||
           json_string_or(JSON_PATH(request, "status", "certificate"), "")[0];
}

void agent_signer_see(struct agent_signer *s, struct json request) {
    _cleanup_buf_ struct buf cert = BUF_INIT(BODY_MAX);
    struct err err;
    if (!is_name(json_string(JSON_PATH(request, "metadata", "name"))) ||
        agent_signer_is_done(request))
        return;
    if (s->in_flight >= AGENT_SIGNER_AT_ONCE) {
        s->missed = true;
        return;
    }
    int r = agent_signer_judge(s, request, &cert, &err);
    if (r < 0 && r != -EACCES)
        miss(s, "cannot sign", err.text);
    else if (r < 0 && !has(request, "Approved"))
        decide(s, request, false, err.text);
    else if (r == 0 && !has(request, "Approved"))
        decide(s, request, true, "the request is of the agent of the node that it names");
    else if (r == 0)
        give(s, request, &cert);
}
