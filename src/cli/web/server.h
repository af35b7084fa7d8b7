/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The HTTP server of `aliquot web`, on a loop: the page, its events, and answers to single
 * questions. Paths and answers: docs/web.md. */

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/web/guard.h"
#include "cli/web/sessions.h"

struct question;
struct web_server;

struct web_options {
    const char *listen;             /* as in wire/http.h */
    const char *tls_cert, *tls_key; /* PEM files; NULL: plain HTTP */
    const char *hosts;              /* of the guard; NULL: a user's machine, and a fresh token */
    const char *system;             /* Aliquot's namespace */
    struct sessions *sessions;
    /* What `aliquot WORDS...` prints with the login (token NULL: the user's); its exit status, or a
     * negative errno. On another thread. */
    int (*command)(const struct api_login *login, const char *const *words, struct buf *ret);
    /* The code of the guard is taken, and has a successor. */
    void (*opened)(const struct guard *guard);
};

/* Serves as soon as the loop runs. */
int web_server_start(uv_loop_t *loop, const struct web_options *options, struct web_server **ret,
                     struct err *err);

/* The code and the port. */
const struct guard *web_server_guard(const struct web_server *server);

/* The journal of the session has changed, or it is over. */
void web_server_news(struct web_server *server, struct session *session);

/* Takes the question over. */
void web_server_answer(struct web_server *server, struct question *question);

/* Ends the events of all pages, which ask another replica then. The loop is stopped when the last
 * one is told, and at once where there is none. */
void web_server_drain(struct web_server *server);

/* Ends all connections; the loop must run on until its handles are closed. Questions may be
 * answered no more. */
void web_server_close(struct web_server *server);
