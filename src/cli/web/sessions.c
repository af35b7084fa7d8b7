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
#include "cli/web/rights.h"

#define SESSIONS_MAX 32
#define SESSIONS_MAX_EACH 8 /* of a token */
#define UNUSED_MS 60000     /* then it ends; a page that is loaded again finds what was read */
#define CHECK_MS 5000
#define GROUPS_MAX (SESSIONS_MAX + 8)   /* some are ending */
#define JOURNAL_MAX ((size_t) 16 << 20) /* of one of many */
#define PROVE_MS 15000                  /* then the rights of a token are proved again, */
#define PROOF_MS 40000                  /* and without it nothing of others is shown any more */

struct sessions {
    struct sessions_options options;
    struct session *list;
    unsigned n;
    struct gate *gate; /* NULL: one session, which is the first of the list */
    struct groups *groups;
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

static void session_free(struct session *s) {
    text_wipe(s->token);
    free(s->namespace);
    free(s);
}

static void on_asker(void *userdata) {
    struct session *s = userdata;

    s->has_news = true;
    (void) uv_async_send(&s->sessions->news);
}

static int session_start(struct session *s, struct err *err) {
    const struct sessions_options *o = &s->sessions->options;
    struct asker_source source = {.system = o->source.system, .namespace = s->namespace};

    if (o->cluster) {
        s->login = *o->cluster;
        s->login.token = s->token;
        source.login = &s->login;
    }
    return asker_start(&source, on_asker, s, &s->asker, err);
}

/* Takes over the texts. */
static struct session *session_new(struct sessions *all, char *token, char *namespace,
                                   struct err *err) {
    struct session *s = calloc(1, sizeof(*s));

    if (!s) {
        text_wipe(token);
        free(namespace);
        (void) err_errno(err, ENOMEM, "cannot start");
        return NULL;
    }
    s->sessions = all;
    s->token = token;
    s->namespace = namespace;
    s->member = (struct member){.token = token, .userdata = s};
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
    groups_leave(&s->member);
    asker_end(s->asker);
    s->sessions->options.news(s->sessions->options.userdata, s);
}

void session_ask(struct session *s, struct question *question) {
    question->session = s;
    s->busy++;
    asker_ask(s->asker, question);
}

/* ---- which group ---- */

static void ask_for_proof(struct session *s) {
    s->asked = clock_ms(CLOCK_MONOTONIC);
    asker_prove(s->asker);
}

/* What it was shown before is not what its pages are told from now on: they are opened again. */
static void move_to(struct session *s, const struct group_key *key) {
    struct err err;

    groups_leave(&s->member);
    if (groups_join(s->sessions->groups, &s->member, key, &err) < 0)
        end_session(s);
}

/* A reading of few rights is small. One of a namespace without the agents' figures has what the
 * metrics API tells this user instead. */
static bool is_to_share(const struct session *s, unsigned rights) {
    return rights & RIGHT_CARDS && (!s->namespace || (rights & RIGHTS_USE) == RIGHTS_USE);
}

/* An API server that cannot say what a token may do proves nothing. While it is not reached, what
 * was proved before holds for its time. */
static void take_proof(struct session *s, const struct proof *proof) {
    struct group_key key = {.namespace = s->namespace};
    bool is_known = proof->result == 0;
    bool is_no = proof->result == -EACCES || proof->result == -ENOENT;

    if (s->is_over || (!is_known && !is_no && s->member.group))
        return;
    if (is_known && is_to_share(s, proof->rights)) {
        key.is_shared = true;
        key.rights = proof->rights;
    }
    s->proved = proof->since;
    if (!s->member.group || !groups_is_of(s->member.group, &key))
        move_to(s, &key);
    else if (proof->since >= s->asked)
        group_trust(&s->member);
}

/* Whether it may be told what its group has read: to a page that was opened at `since`. */
static bool is_proved(const struct session *s, uint64_t since) {
    return !group_is_shared(s->member.group) ||
           (s->proved >= since && clock_ms(CLOCK_MONOTONIC) - s->proved < PROOF_MS);
}

/* ---- what pages are shown ---- */

struct session_reader {
    struct session *session;
    struct group *group; /* NULL: none yet */
    struct journal_reader *reader;
    uint64_t since;
};

static void watch(struct session *s, int more) {
    s->viewers += (unsigned) more;
    s->since = clock_ms(CLOCK_MONOTONIC);
    group_watch(&s->member, s->viewers);
}

struct session_reader *session_reader_new(struct session *s) {
    struct session_reader *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    *r = (struct session_reader){.session = s, .since = clock_ms(CLOCK_MONOTONIC)};
    watch(s, 1);
    if (s->sessions->gate)
        ask_for_proof(s);
    return r;
}

void session_reader_free(struct session_reader *r) {
    group_reader_free(r->group, r->reader);
    watch(r->session, -1);
    free(r);
}

size_t session_read(struct session_reader *r, char *to, size_t max) {
    struct group *group = r->session->member.group;

    if (r->session->is_over || (r->group && r->group != group))
        return SESSION_END;
    if (!group || !is_proved(r->session, r->since))
        return 0;
    if (!r->group) {
        r->reader = group_reader_new(group);
        if (!r->reader)
            return SESSION_END;
        r->group = group;
    }
    return journal_read(r->reader, to, max);
}

/* ---- which session ---- */

static struct session *find(struct sessions *all, const char *token, const char *namespace) {
    struct session *s;

    DL_FOREACH(all->list, s) {
        if (!s->is_over && text_is_same_secret(s->token, token) &&
            groups_is_same_namespace(s->namespace, namespace))
            return s;
    }
    return NULL;
}

static void waiting_free(struct waiting *w) {
    text_wipe(w->check.token);
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
        if (!text_is_same_secret(s->token, token))
            continue;
        s->is_refused = true;
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
    struct proof proof;

    while ((question = asker_answered(s->asker))) {
        s->busy--;
        s->since = clock_ms(CLOCK_MONOTONIC);
        o->answer(o->userdata, question);
    }
    if (asker_proof(s->asker, &proof))
        take_proof(s, &proof);
}

/* Whether nothing uses it, and its thread has ended. */
static bool is_gone(const struct session *s) {
    return s->is_over && s->viewers == 0 && s->busy == 0 && asker_has_ended(s->asker);
}

static void look_after_one(struct sessions *all, struct session *s) {
    uint64_t now = clock_ms(CLOCK_MONOTONIC);

    if (atomic_exchange(&s->has_news, false)) {
        take_answers(s);
        all->options.news(all->options.userdata, s);
    }
    if (asker_is_refused(s->asker))
        end_all_of(all, s->token);
    if (all->gate && s->viewers == 0 && s->busy == 0 && now - s->since >= UNUSED_MS)
        end_session(s);
    if (all->gate && s->viewers > 0 && !s->is_over && now - s->asked >= PROVE_MS)
        ask_for_proof(s);
}

static void look_after(struct sessions *all) {
    struct session *s, *next;

    groups_look(all->groups);
    DL_FOREACH(all->list, s) {
        look_after_one(all, s);
    }
    DL_FOREACH_SAFE(all->list, s, next) {
        if (!is_gone(s))
            continue;
        DL_DELETE(all->list, s);
        all->n--;
        asker_stop(s->asker);
        session_free(s);
    }
}

static void on_group_news(void *userdata, struct member *member) {
    const struct sessions *all = userdata;

    all->options.news(all->options.userdata, member->userdata);
}

static void on_refused(void *userdata, struct member *member) {
    struct session *s = member->userdata;

    if (s->token)
        end_all_of(userdata, s->token);
}

static void on_doubt(void *userdata, struct member *member) {
    (void) userdata;
    ask_for_proof(member->userdata);
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

static void on_wake(void *userdata) {
    struct sessions *all = userdata;

    (void) uv_async_send(&all->news);
}

/* ---- start and end ---- */

static struct groups *start_groups(struct sessions *all) {
    struct groups_options options = {.source = all->options.source,
                                     .max = GROUPS_MAX,
                                     .journal_max = all->options.cluster ? JOURNAL_MAX : 0,
                                     .wake = on_wake,
                                     .news = on_group_news,
                                     .refused = on_refused,
                                     .doubt = on_doubt,
                                     .userdata = all};

    options.source.cluster = all->options.cluster;
    return groups_new(&options);
}

/* Of the user's own machine. */
static int start_one(struct sessions *all, struct err *err) {
    const struct group_key key = {.namespace = all->options.source.namespace};
    struct session *s = session_new(all, NULL, NULL, err);

    return s ? groups_join(all->groups, &s->member, &key, err) : -err->code;
}

static int start(struct sessions *all, struct err *err) {
    const struct sessions_options *o = &all->options;

    if (uv_async_init(o->loop, &all->news, on_news) < 0)
        return err_set(err, EIO, "cannot start");
    all->news.data = all;
    all->groups = start_groups(all);
    if (!all->groups)
        return err_errno(err, ENOMEM, "cannot start");
    if (!o->cluster)
        return start_one(all, err);
    (void) uv_timer_init(o->loop, &all->check);
    all->check.data = all;
    (void) uv_timer_start(&all->check, on_check, CHECK_MS, CHECK_MS);
    return gate_start(o->cluster, on_wake, all, &all->gate, err);
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
    groups_stop(all->groups);
    asker_stop(all->list->asker);
}
