/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/web/gate.h"

#define SESSIONS_MAX 32
#define SESSIONS_MAX_EACH 8 /* of a token */
#define UNUSED_MS 60000     /* then it ends; a page that is loaded again finds what was read */
#define CHECK_MS 5000
#define JOURNAL_MAX ((size_t) 16 << 20) /* of one of many */

struct sessions {
    struct sessions_options options;
    struct session *list;
    unsigned n;
    struct gate *gate; /* NULL: one session, which is the first of the list */
    uv_async_t news;
    uv_timer_t check;
};

/* A request while the API server is asked about its token. */
struct waiting {
    struct entrant entrant;
    struct gate_check check;
    char *namespace;
};

/* ---- one session ---- */

static char *erase(char *secret) {
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
    return NULL;
}

static void session_free(struct session *s) {
    journal_free(s->journal);
    erase(s->token);
    free(s->namespace);
    free(s);
}

static void on_worker(void *userdata) {
    struct session *s = userdata;

    s->has_news = true;
    (void) uv_async_send(&s->sessions->news);
}

static int session_start(struct session *s, struct err *err) {
    const struct sessions_options *o = &s->sessions->options;
    struct worker_source source = o->source;

    s->journal = journal_new(o->cluster ? JOURNAL_MAX : 0);
    if (!s->journal)
        return err_errno(err, ENOMEM, "cannot start");
    if (o->cluster) {
        s->login = *o->cluster;
        s->login.token = s->token;
        source.login = &s->login;
        source.namespace = s->namespace;
    }
    return worker_start(&source, s->journal, on_worker, s, &s->worker, err);
}

/* Takes over the texts. */
static struct session *session_new(struct sessions *all, char *token, char *namespace,
                                   struct err *err) {
    struct session *s = calloc(1, sizeof(*s));

    if (!s) {
        erase(token);
        free(namespace);
        (void) err_errno(err, ENOMEM, "cannot start");
        return NULL;
    }
    s->sessions = all;
    s->token = token;
    s->namespace = namespace;
    s->since = clock_ms(CLOCK_MONOTONIC);
    if (session_start(s, err) < 0) {
        session_free(s);
        return NULL;
    }
    DL_APPEND(all->list, s);
    all->n++;
    return s;
}

static void end_session(struct session *s) {
    if (s->is_over)
        return;
    s->is_over = true;
    worker_end(s->worker);
    s->sessions->options.news(s->sessions->options.userdata, s);
}

void session_watch(struct session *s, int more) {
    s->viewers += (unsigned) more;
    s->since = clock_ms(CLOCK_MONOTONIC);
    worker_viewers(s->worker, s->viewers);
}

void session_ask(struct session *s, struct question *question) {
    question->session = s;
    s->busy++;
    worker_ask(s->worker, question);
}

/* ---- which session ---- */

static bool is_same_namespace(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static struct session *find(struct sessions *all, const char *token, const char *namespace) {
    struct session *s;

    DL_FOREACH(all->list, s) {
        if (!s->is_over && text_is_same_secret(s->token, token) &&
            is_same_namespace(s->namespace, namespace))
            return s;
    }
    return NULL;
}

static void waiting_free(struct waiting *w) {
    erase(w->check.token);
    free(w->namespace);
    free(w);
}

static void refuse(const struct entrant *entrant, int r, const char *text) {
    entrant->then(entrant->userdata, NULL, r, text);
}

void sessions_enter(struct sessions *all, const struct entrant *entrant) {
    struct session *found = all->gate ? NULL : all->list;

    if (all->gate && !entrant->is_tried)
        found = find(all, entrant->token, entrant->namespace);
    if (found) {
        found->since = clock_ms(CLOCK_MONOTONIC);
        entrant->then(entrant->userdata, found, 0, NULL);
        return;
    }
    struct waiting *w = calloc(1, sizeof(*w));
    if (!w) {
        refuse(entrant, -ENOMEM, "out of memory");
        return;
    }
    *w = (struct waiting){.entrant = *entrant, .check = {.client = entrant->client, .userdata = w}};
    w->check.token = strdup(entrant->token);
    w->namespace = entrant->namespace ? strdup(entrant->namespace) : NULL;
    bool is_whole = w->check.token && (w->namespace || !entrant->namespace);
    int r = is_whole ? gate_ask(all->gate, &w->check) : -ENOMEM;
    if (r < 0) {
        waiting_free(w);
        refuse(entrant, r, "too many sign in at the same time: try again");
    }
}

/* A revoked token ends all sessions that have it. */
static void end_all_of(struct sessions *all, const char *token) {
    struct session *s;

    DL_FOREACH(all->list, s) {
        if (text_is_same_secret(s->token, token))
            end_session(s);
    }
}

static struct token_use use_of(const struct sessions *all, const char *token) {
    struct token_use use = {0};
    const struct session *s;

    DL_FOREACH(all->list, s) {
        if (!text_is_same_secret(s->token, token))
            continue;
        use.sessions++;
        use.viewers += s->viewers;
        use.commands += s->commands;
    }
    return use;
}

struct token_use session_token_use(const struct session *s) {
    return use_of(s->sessions, s->token);
}

static void admit(struct sessions *all, struct waiting *w) {
    struct session *s = NULL;
    struct err err = w->check.err;
    int r = w->check.result;

    if (r == -EKEYREJECTED)
        end_all_of(all, w->check.token);
    if (r == 0)
        s = find(all, w->check.token, w->namespace);
    if (r == 0 && !s && all->n >= SESSIONS_MAX)
        r = err_set(&err, EUSERS, "too many viewers are signed in: try again later");
    if (r == 0 && !s && use_of(all, w->check.token).sessions >= SESSIONS_MAX_EACH)
        r = err_set(&err, EUSERS, "the token is in use for %d namespaces already: try again later",
                    SESSIONS_MAX_EACH);
    if (r == 0 && !s) {
        s = session_new(all, take_ptr(w->check.token), take_ptr(w->namespace), &err);
        r = s ? 0 : -err.code;
    }
    w->entrant.then(w->entrant.userdata, s, r, err.text);
    waiting_free(w);
}

/* ---- what the threads say ---- */

static void take_answers(struct session *s) {
    const struct sessions_options *o = &s->sessions->options;
    struct question *question;

    while ((question = worker_answered(s->worker))) {
        s->busy--;
        s->since = clock_ms(CLOCK_MONOTONIC);
        o->answer(o->userdata, question);
    }
}

/* Whether nothing uses it, and its thread has ended. */
static bool is_gone(const struct session *s) {
    return s->is_over && s->viewers == 0 && s->busy == 0 && worker_has_ended(s->worker);
}

static void look_after(struct sessions *all) {
    struct session *s, *next;

    DL_FOREACH_SAFE(all->list, s, next) {
        if (atomic_exchange(&s->has_news, false)) {
            take_answers(s);
            all->options.news(all->options.userdata, s);
        }
        if (worker_is_refused(s->worker))
            end_session(s);
        if (all->gate && s->viewers == 0 && s->busy == 0 &&
            clock_ms(CLOCK_MONOTONIC) - s->since >= UNUSED_MS)
            end_session(s);
        if (is_gone(s)) {
            DL_DELETE(all->list, s);
            all->n--;
            worker_stop(s->worker);
            session_free(s);
        }
    }
}

static void on_news(uv_async_t *async) {
    struct sessions *all = async->data;
    struct gate_check *check;

    while (all->gate && (check = gate_answered(all->gate)))
        admit(all, check->userdata);
    look_after(all);
}

static void on_check(uv_timer_t *timer) {
    look_after(timer->data);
}

static void on_gate(void *userdata) {
    struct sessions *all = userdata;

    (void) uv_async_send(&all->news);
}

/* ---- start and end ---- */

static int start(struct sessions *all, struct err *err) {
    const struct sessions_options *o = &all->options;

    if (uv_async_init(o->loop, &all->news, on_news) < 0)
        return err_set(err, EIO, "cannot start");
    all->news.data = all;
    if (!o->cluster)
        return session_new(all, NULL, NULL, err) ? 0 : -err->code;
    (void) uv_timer_init(o->loop, &all->check);
    all->check.data = all;
    (void) uv_timer_start(&all->check, on_check, CHECK_MS, CHECK_MS);
    return gate_start(o->cluster, on_gate, all, &all->gate, err);
}

int sessions_start(const struct sessions_options *options, struct sessions **ret, struct err *err) {
    struct sessions *all = calloc(1, sizeof(*all)); /* as long as the loop */

    if (!all)
        return err_errno(err, ENOMEM, "cannot start");
    all->options = *options;
    int r = start(all, err);
    if (r == 0)
        *ret = all;
    return r;
}

void sessions_stop(struct sessions *all) {
    worker_stop(all->list->worker);
}
