/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whom `aliquot web` shows the cluster. On a user's machine that is one session, of the user of
 * kubectl's context. In a cluster there is one for each token and namespace that pages are opened
 * with. It asks by itself with its own token (asker.h). It is shown a reading of its own, or of the
 * group of those whose tokens have the same rights (groups.h): then for each page that is opened,
 * and at an interval, its token proves these rights, and without a fresh proof it is shown nothing.
 * All calls are made on the loop's thread. */

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "cli/login.h"
#include "cli/web/asker.h"
#include "cli/web/groups.h"
#include "cli/web/question.h"
#include "cli/web/worker.h"

struct sessions;

struct session {
    struct session *prev, *next;
    struct sessions *sessions;
    struct api_login login; /* token NULL: the user of kubectl's context */
    char *token, *namespace;
    struct asker *asker;
    struct member member; /* of the group whose reading it is shown */
    unsigned viewers;     /* pages that watch: session_reader_new() */
    unsigned busy;        /* questions and commands under way: what they use must stay */
    unsigned commands;
    /* In milliseconds: its last use; when the last proof was asked for; when what holds was true */
    uint64_t since, asked, proved;
    bool is_over;    /* its token is refused, or it is not used: nothing more begins */
    bool is_refused; /* its token is */
    atomic_bool has_news;
};

struct sessions_options {
    uv_loop_t *loop;
    struct worker_source source; /* without the cluster */
    /* Address of the API server, by which tokens are tried; token NULL. NULL: one session. */
    const struct api_login *cluster;
    /* Something of the session has changed, or it is over. */
    void (*news)(void *userdata, struct session *session);
    /* Takes the question over. */
    void (*answer)(void *userdata, struct question *question);
    void *userdata;
};

int sessions_start(const struct sessions_options *options, struct sessions **ret, struct err *err);

/* A request that is for a session. */
struct entrant {
    const char *token, *namespace; /* NULL: none */
    struct in6_addr client;        /* as of http_client() */
    bool is_tried;                 /* the API server is asked although the session is known */
    /* Called once, now or later. `result` 0, or a negative errno and why there is no session:
     * -EKEYREJECTED: the API server does not take the token; -EUSERS: there are too many. */
    void (*then)(void *userdata, struct session *session, int result, const char *text);
    void *userdata;
};

void sessions_enter(struct sessions *sessions, const struct entrant *entrant);

/* What all sessions of a token have: a viewer is bounded by it, whatever the namespaces. */
struct token_use {
    unsigned sessions, viewers, commands;
};

/* Of the session's token; only in a cluster. */
struct token_use session_token_use(const struct session *session);

/* A page that watches. NULL without memory. */
struct session_reader;
struct session_reader *session_reader_new(struct session *session);
void session_reader_free(struct session_reader *reader);

/* As journal_read(); SESSION_END: the page is to be opened again, as the session is over or it has
 * other rights now. */
#define SESSION_END ((size_t) -1)
size_t session_read(struct session_reader *reader, char *to, size_t max);

/* Answered by the `answer` of the options. */
void session_ask(struct session *session, struct question *question);

/* Waits for all threads. Only where there is one session: requests must fail by then. */
void sessions_stop(struct sessions *sessions);
