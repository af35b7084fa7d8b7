/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The HTTP server of `aliquot web`, on a loop: the page, its events, and answers to single
 * questions. Paths and answers: docs/web.md. */

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/web/guard.h"
#include "cli/web/journal.h"

struct question;
struct web_server;

/* What the server asks for. Calls are made on the loop's thread. */
struct web_operations {
    void (*viewers)(void *userdata, unsigned n); /* how many watch now */
    /* Answers by web_server_answer(), now or later. */
    void (*history)(void *userdata, struct question *question);
    /* What `aliquot WORDS...` prints; its exit status, or a negative errno. On another thread. */
    int (*command)(void *userdata, const char *const *words, struct buf *ret);
    void *userdata;
};

/* Serves on 127.0.0.1, port 0 being any, as soon as the loop runs; `system` is Aliquot's namespace.
 */
int web_server_start(uv_loop_t *loop, unsigned port, const char *system, struct journal *journal,
                     const struct web_operations *operations, struct web_server **ret,
                     struct err *err);

/* The token and the port. */
const struct guard *web_server_guard(const struct web_server *server);

/* The journal has changed. */
void web_server_news(struct web_server *server);

/* Takes the question over. */
void web_server_answer(struct web_server *server, struct question *question);

/* Ends all connections; the loop must run on until its handles are closed. Questions may be
 * answered no more. web_server_free() comes after that. */
void web_server_close(struct web_server *server);
void web_server_free(struct web_server *server);
