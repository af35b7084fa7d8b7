/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct group {
    struct group *prev, *next;
    struct groups *groups;
    char *namespace;
    bool is_shared;
    unsigned rights;
    struct journal *journal;
    struct worker *worker;
    struct member *members, *acting; /* NULL: none acts */
    unsigned readers;
    atomic_bool has_news;
};

struct groups {
    struct groups_options options;
    struct group *list;
    size_t n;
};

struct groups *groups_new(const struct groups_options *options) {
    struct groups *all = calloc(1, sizeof(*all));

    if (all)
        all->options = *options;
    return all;
}

/* ---- a group ---- */

static void on_worker(void *userdata) {
    struct group *g = userdata;

    g->has_news = true;
    g->groups->options.wake(g->groups->options.userdata);
}

static void group_free(struct group *g) {
    journal_free(g->journal);
    free(g->namespace);
    free(g);
}

static int group_start(struct group *g, const struct group_key *key, struct err *err) {
    struct worker_source source = g->groups->options.source;

    g->is_shared = key->is_shared;
    g->rights = key->rights;
    g->namespace = key->namespace ? strdup(key->namespace) : NULL;
    g->journal = journal_new(g->groups->options.journal_max);
    if (!g->journal || (key->namespace && !g->namespace))
        return err_errno(err, ENOMEM, "cannot start");
    source.namespace = g->namespace;
    source.rights = g->is_shared ? &g->rights : NULL;
    return worker_start(&source, g->journal, on_worker, g, &g->worker, err);
}

static struct group *group_new(struct groups *all, const struct group_key *key, struct err *err) {
    struct group *g = all->n < all->options.max ? calloc(1, sizeof(*g)) : NULL;

    if (!g) {
        (void) err_set(err, EUSERS, "too many viewers are signed in: try again later");
        return NULL;
    }
    g->groups = all;
    if (group_start(g, key, err) < 0) {
        group_free(g);
        return NULL;
    }
    DL_APPEND(all->list, g);
    all->n++;
    return g;
}

/* ---- who acts ---- */

static bool can_act(const struct member *m) {
    return m->viewers > 0 && !m->is_doubted;
}

static bool can_act_wholly(const struct member *m) {
    return can_act(m) && !m->is_lenient;
}

/* The first one behind `before` (NULL: of all) that can, at last that one itself. */
static struct member *find_behind(const struct group *g, const struct member *before,
                                  bool (*can)(const struct member *m)) {
    struct member *m = before ? before->next : g->members;

    for (; m != before; m = m ? m->next : g->members) {
        if (m && can(m))
            return m;
    }
    return m && can(m) ? m : NULL;
}

/* One that was refused what its rights allow only where there is no other: what is refused to it is
 * missing for all. */
static struct member *next_to_act(const struct group *g, const struct member *before) {
    struct member *m = find_behind(g, before, can_act_wholly);

    return m ? m : find_behind(g, before, can_act);
}

static void act(struct group *g, struct member *m) {
    g->acting = m;
    if (g->groups->options.source.cluster)
        worker_read_as(g->worker, m ? m->token : NULL, m && !m->is_lenient);
}

/* The token of one that watches: nothing is read in the name of a user who does not. */
static void choose(struct group *g) {
    const struct member *m;
    unsigned viewers = 0;

    if (!g->acting || !can_act(g->acting) ||
        (g->acting->is_lenient && find_behind(g, NULL, can_act_wholly))) {
        struct member *next = next_to_act(g, NULL);
        if (next != g->acting)
            act(g, next);
    }
    DL_FOREACH(g->members, m) {
        viewers += m->viewers;
    }
    worker_viewers(g->worker, viewers);
}

void group_watch(struct member *member, unsigned viewers) {
    member->viewers = viewers;
    if (member->group)
        choose(member->group);
}

void group_trust(struct member *member) {
    if (!member->is_doubted)
        return;
    member->is_doubted = false;
    member->is_lenient = true;
    choose(member->group);
}

/* ---- members ---- */

bool groups_is_same_namespace(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool group_is_shared(const struct group *g) {
    return g->is_shared;
}

bool groups_is_of(const struct group *g, const struct group_key *key) {
    return g->is_shared == key->is_shared &&
           groups_is_same_namespace(g->namespace, key->namespace) &&
           (!g->is_shared || g->rights == key->rights);
}

static struct group *find(const struct groups *all, const struct group_key *key) {
    struct group *g;

    DL_FOREACH(all->list, g) {
        if (key->is_shared && g->members && groups_is_of(g, key))
            return g;
    }
    return NULL;
}

int groups_join(struct groups *all, struct member *member, const struct group_key *key,
                struct err *err) {
    struct group *g = find(all, key);

    if (!g)
        g = group_new(all, key, err);
    if (!g)
        return -err->code;
    member->group = g;
    member->is_doubted = member->is_lenient = false;
    DL_APPEND(g->members, member);
    choose(g);
    return 0;
}

void groups_leave(struct member *member) {
    struct group *g = member->group;

    if (!g)
        return;
    DL_DELETE(g->members, member);
    member->group = NULL;
    if (g->acting == member)
        act(g, NULL);
    choose(g);
    if (!g->members)
        worker_end(g->worker);
}

struct journal_reader *group_reader_new(struct group *g) {
    struct journal_reader *reader = journal_reader_new(g->journal);

    g->readers += reader != NULL;
    return reader;
}

void group_reader_free(struct group *g, struct journal_reader *reader) {
    if (!reader)
        return;
    journal_reader_free(reader);
    g->readers--;
}

/* ---- what the threads say ---- */

static void tell_news(struct group *g) {
    const struct groups_options *o = &g->groups->options;
    struct member *m, *next;

    DL_FOREACH_SAFE(g->members, m, next) {
        o->news(o->userdata, m);
    }
}

/* A token that is given again would cost the worker its connections and the token for agents. */
static void pass_on(struct group *g) {
    struct member *next = next_to_act(g, g->acting);

    if (next == g->acting)
        worker_go_on(g->worker);
    else
        act(g, next);
}

static void take_outcome(struct group *g) {
    const struct groups_options *o = &g->groups->options;
    enum worker_outcome outcome = worker_outcome(g->worker);
    struct member *m = g->acting;

    if (!m)
        return;
    if (outcome == WORKER_REFUSED)
        o->refused(o->userdata, m);
    if (outcome == WORKER_DENIED) {
        m->is_doubted = true;
        choose(g);
        o->doubt(o->userdata, m);
    }
    if (outcome == WORKER_SLOW)
        pass_on(g);
}

void groups_look(struct groups *all) {
    struct group *g, *next;

    DL_FOREACH(all->list, g) {
        if (atomic_exchange(&g->has_news, false))
            tell_news(g);
        take_outcome(g);
    }
    DL_FOREACH_SAFE(all->list, g, next) {
        if (g->members || g->readers > 0 || !worker_has_ended(g->worker))
            continue;
        DL_DELETE(all->list, g);
        all->n--;
        worker_stop(g->worker);
        group_free(g);
    }
}

void groups_stop(struct groups *all) {
    struct group *g;

    DL_FOREACH(all->list, g) {
        worker_stop(g->worker);
    }
}
