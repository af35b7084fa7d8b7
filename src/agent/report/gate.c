/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/gate.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/cluster/access.h"
#include "agent/cluster/certificate.h"
#include "agent/report/report.h"
#include "base/buf.h"
#include "wire/http.h"

#define SCHEME "Bearer "
#define TEXT_MAX ((size_t) 4096)

struct gated {
    struct report *report;
    struct http_exchange *exchange;
    void (*next)(struct report *report, struct http_exchange *exchange);
};

/* The API server takes Authorization out of what it passes on to a pod. */
static const char *token_of(const struct http_exchange *exchange) {
    const char *own = http_header(exchange, "X-Aliquot-Token");
    const char *standard = http_header(exchange, "Authorization");

    if (own && own[0])
        return own;
    if (!standard || strncasecmp(standard, SCHEME, strlen(SCHEME)) != 0)
        return NULL;
    standard += strlen(SCHEME);
    standard += strspn(standard, " ");
    return standard[0] ? standard : NULL;
}

/* The status and the text for each verdict that lets no client in. One line: `aliquot` shows it. */
static const struct refusal {
    unsigned status;
    const char *text;
} refusals[] = {
    [ACCESS_UNKNOWN] = {401, "the API server does not take this token: it has expired, or is not "
                             "for the audience " AGENT_AUDIENCE " or the API server's own"},
    [ACCESS_FORBIDDEN] = {403, "the account of this token may not read what containers use: bind "
                               "ClusterRole aliquot-figures (get on gpus/usage) to it"},
    [ACCESS_BUSY] = {429, "too many tokens wait to be checked: try again in a second"},
    [ACCESS_NO_ANSWER] = {503, "the token cannot be checked, try again: the API server: "},
    [ACCESS_NO_RIGHT] = {503, "the agent may not ask the API server about tokens, apply its "
                              "manifests (ClusterRole aliquot-agent): "},
};

static void refuse(struct http_exchange *exchange, unsigned status, const char *text,
                   const char *more) {
    struct buf out = BUF_INIT(TEXT_MAX);

    if (status == 401)
        http_set_header(exchange, "WWW-Authenticate", "Bearer");
    if (status == 429)
        http_set_header(exchange, "Retry-After", "1");
    buf_printf(&out, "aliquot-agent: %s%.1000s\n", text, more);
    http_reply(exchange, status, "text/plain; charset=utf-8", &out);
}

static void on_verdict(enum access_verdict verdict, const char *text, void *userdata) {
    struct gated g = *(struct gated *) userdata;

    free(userdata);
    if (verdict == ACCESS_ALLOWED)
        g.next(g.report, g.exchange);
    else
        refuse(g.exchange, refusals[verdict].status, refusals[verdict].text, text);
}

/* aliquot-scheduler, which needs no token then. */
static bool is_known(const struct report *report, const struct http_exchange *exchange) {
    struct gnutls_session_int *session = http_tls_session(exchange);

    return report->certificate && session &&
           agent_certificate_check_client(report->certificate, session, NULL) == 0;
}

void report_gate(struct report *report, struct http_exchange *exchange,
                 void (*next)(struct report *report, struct http_exchange *exchange)) {
    const char *token = token_of(exchange);
    struct gated *g;

    if (is_known(report, exchange)) {
        next(report, exchange);
        return;
    }
    if (!token) {
        refuse(exchange, 401,
               "this page asks for a token: use `aliquot` " ALIQUOT_VERSION " or newer, or send "
               "Authorization: Bearer TOKEN of an account with ClusterRole aliquot-figures",
               "");
        return;
    }
    if (!report->access) {
        refuse(exchange, 503, refusals[ACCESS_NO_ANSWER].text, "it has not been reached yet");
        return;
    }
    g = malloc(sizeof(*g));
    if (!g) {
        refuse(exchange, 503, "out of memory", "");
        return;
    }
    *g = (struct gated){report, exchange, next};
    access_ask(report->access, token, http_client(exchange).s6_addr, on_verdict, g);
}
