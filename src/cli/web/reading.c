/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/reading.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cluster/agents.h"
#include "cli/cluster/api.h"
#include "cli/cluster/card_json.h"
#include "cli/cluster/cards.h"
#include "cli/cluster/own_pods.h"
#include "cli/cluster/waiting.h"
#include "cli/login.h"
#include "cli/web/rights.h"
#include "kube/objects/quota_object.h"
#include "model/quantity.h"
#include "wire/json_write.h"

#define KEY_MAX (2 * API_NAME_MAX + 32)
#define CLAIMS_PATH "/apis/elasticgpu.io/v1alpha1/elasticgpuclaims"
#define STOPPED (-ECANCELED)

/* A line that is being written: {"k":KEY, ... */
struct line {
    char key[KEY_MAX];
    struct buf text;
    struct json_writer w;
};

__attribute__((format(printf, 2, 3))) static void line_begin(struct line *line, const char *format,
                                                             ...) {
    va_list ap;

    va_start(ap, format);
    (void) vsnprintf(line->key, sizeof(line->key), format, ap);
    va_end(ap);
    buf_reset(&line->text);
    line->w = (struct json_writer){.out = &line->text};
    json_object_begin(&line->w, NULL);
    json_put_string(&line->w, "k", line->key);
}

static void line_end(struct line *line, const struct reading *reading) {
    json_object_end(&line->w);
    if (buf_error(&line->text) == 0)
        (void) journal_put(reading->journal, line->key, buf_str(&line->text));
}

static void line_done(struct line *line) {
    buf_done(&line->text);
}

static void put_figure(struct json_writer *w, const char *key, struct json from, const char *name) {
    uint64_t value;

    if (json_u64(json_get(from, name), &value))
        json_put_u64(w, key, value);
}

/* A part of a reading: what one kind of object says. */
struct part_state {
    const struct reading *reading;
    struct line line;
    char node[API_NAME_MAX + 1]; /* of the line that is being written; "": none is */
    unsigned run;
    char (*mute)[API_NAME_MAX + 1]; /* nodes of agents that do not answer */
    size_t nmute;
    size_t silent; /* nodes of which no agent answers */
};

/* ---- lists ---- */

/* Of the threads of all viewers one at a time holds such a list that is long, from there on: while
 * the API server queues a request, puts it off or stops in the middle of a short answer, the others
 * go on. */
#define SHORT_LIST ((size_t) 64 << 10)
static pthread_mutex_t one_list = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool has_turn;

static void take_turn(size_t len) {
    if (has_turn || len <= SHORT_LIST)
        return;
    (void) pthread_mutex_lock(&one_list);
    has_turn = true;
}

static void begin_turn(void) {
    api_on_answer(login_used() ? take_turn : NULL);
}

static void end_turn(void) {
    api_on_answer(NULL);
    if (has_turn)
        (void) pthread_mutex_unlock(&one_list);
    has_turn = false;
}

/* ---- cards ---- */

static void put_holder(struct json_writer *w, const struct holder *h) {
    json_object_begin(w, NULL);
    json_put(w, "uid", h->uid, "ns", h->namespace, "pod", h->pod, "c", h->container, "core",
             h->core, "mem", h->memory);
    if (h->claim[0])
        holder_write_claim(w, h, "c");
    json_object_end(w);
}

static void put_kept(struct json_writer *w, const struct kept *kept) {
    json_object_begin(w, NULL);
    json_put(w, "by", kept->by, "core", kept->core, "mem", kept->memory);
    json_object_end(w);
}

static void put_card(struct json_writer *w, const struct card *card) {
    json_object_begin(w, NULL);
    json_put(w, "name", card->name, "i", card->index, "uuid", card->uuid, "model", card->model);
    if (card->parent[0])
        json_put(w, "parent", card->parent, "profile", card->profile);
    if (card->divided)
        json_put_bool(w, "divided", true);
    json_put_string(w, "state", card->state);
    if (card->unavailable[0])
        json_put_string(w, "why", card->unavailable);
    json_put(w, "core", card->core, "mem", card->memory, "tcore", card->taken_core, "tmem",
             card->taken_memory);
    if (card->unattributed > 0)
        json_put_u64(w, "other", card->unattributed);
    json_array_begin(w, "h");
    for (size_t i = 0; i < card->nholders; i++)
        put_holder(w, &card->holders[i]);
    json_array_end(w);
    if (card->nkept > 0) {
        json_array_begin(w, "kept");
        for (size_t i = 0; i < card->nkept; i++)
            put_kept(w, &card->kept[i]);
        json_array_end(w);
    }
    json_object_end(w);
}

static void end_node(struct part_state *s) {
    if (!s->node[0])
        return;
    json_array_end(&s->line.w);
    line_end(&s->line, s->reading);
    s->node[0] = '\0';
}

/* Cards of a node are neighbours in the API server's order of names, but for nodes of which one's
 * name begins like another's card: such a node has a line for each run of its cards. */
static void begin_node(struct part_state *s, const char *node) {
    char key[KEY_MAX];

    end_node(s);
    s->run = 0;
    do
        (void) snprintf(key, sizeof(key), "c/%s/%u", node, s->run++);
    while (journal_is_put(s->reading->journal, key));
    line_begin(&s->line, "%s", key);
    json_put_string(&s->line.w, "node", node);
    json_array_begin(&s->line.w, "cards");
    (void) snprintf(s->node, sizeof(s->node), "%s", node);
}

static int take_page(struct cards *page, void *userdata) {
    struct part_state *s = userdata;

    cards_keep_namespace(page, s->reading->namespace);
    for (size_t i = 0; i < page->n; i++) {
        const struct card *card = &page->list[i];
        if (!api_is_name(card->node))
            continue;
        if (strcmp(card->node, s->node) != 0)
            begin_node(s, card->node);
        put_card(&s->line.w, card);
    }
    return s->reading->pause(s->reading->userdata) ? STOPPED : 0;
}

/* Of a user who may read no cards: the shares of its namespace. -EACCES: it may not read the pods
 * of that either, or others see the reading, of whom that is not proved. */
static int read_own_cards(struct part_state *s, struct cards *ret) {
    if (!s->reading->namespace || s->reading->rights)
        return -EACCES;
    begin_turn();
    int r = own_pods_cards(s->reading->namespace, ret, NULL);
    end_turn();
    return r < 0 ? -EACCES : 0;
}

static int read_cards(struct part_state *s, struct err *err) {
    _cleanup_(cards_done) struct cards own = {0};
    int r = cards_fetch_pages(take_page, s, err);

    if (r == -EACCES && read_own_cards(s, &own) == 0)
        r = take_page(&own, s);
    end_node(s);
    return r;
}

/* ---- their use ---- */

static void put_holder_use(struct json_writer *w, struct json holder) {
    json_object_begin(w, NULL);
    json_put_string(w, "uid",
                    json_string_or(json_get(holder, "claimUID"),
                                   json_string_or(json_get(holder, "podUID"), "")));
    json_put_string(w, "c", json_string_or(json_get(holder, "container"), ""));
    put_figure(w, "used", holder, "memoryDriver");
    put_figure(w, "busy", holder, "coreUsed");
    json_object_end(w);
}

static void put_card_use(struct json_writer *w, struct json card, bool has_all) {
    struct json_iter it = json_iter(json_get(card, "holders"));
    struct json holder;
    const char *uuid = json_string(json_get(card, "uuid"));

    if (!uuid)
        return;
    json_object_begin(w, NULL);
    json_put_string(w, "uuid", uuid);
    if (has_all) {
        put_figure(w, "used", card, "memoryUsed");
        put_figure(w, "busy", card, "utilization");
    }
    json_array_begin(w, "h");
    while (json_next(&it, NULL, &holder))
        put_holder_use(w, holder);
    json_array_end(w);
    json_object_end(w);
}

static void begin_use(struct part_state *s, const char *node, bool answers) {
    line_begin(&s->line, "u/%s", node);
    json_put_string(&s->line.w, "node", node);
    json_put_bool(&s->line.w, "answers", answers);
    json_array_begin(&s->line.w, "cards");
}

static void end_use(struct part_state *s) {
    json_array_end(&s->line.w);
    line_end(&s->line, s->reading);
}

/* Without memory its use is not known. */
static void keep_mute(struct part_state *s, const char *node) {
    char(*more)[API_NAME_MAX + 1] = reallocarray(s->mute, s->nmute + 1, sizeof(*s->mute));

    if (!more)
        return;
    s->mute = more;
    (void) snprintf(s->mute[s->nmute++], sizeof(*s->mute), "%s", node);
}

/* While an agent is replaced, a node can have two: the one that answers counts. */
static void put_mute(struct part_state *s) {
    char key[KEY_MAX];

    for (size_t i = 0; i < s->nmute; i++) {
        (void) snprintf(key, sizeof(key), "u/%s", s->mute[i]);
        if (journal_is_put(s->reading->journal, key))
            continue;
        begin_use(s, s->mute[i], false);
        end_use(s);
        s->silent++;
    }
}

static int take_agent(const struct agent *agent, void *userdata) {
    struct part_state *s = userdata;
    struct json_iter it = json_iter(json_get(agent->usage, "gpus"));
    struct json gpu, instance;

    if (!agent->parser) {
        keep_mute(s, agent->node);
        return s->reading->pause(s->reading->userdata) ? STOPPED : 0;
    }
    begin_use(s, agent->node, true);
    while (json_next(&it, NULL, &gpu)) {
        struct json_iter parts = json_iter(json_get(gpu, "instances"));
        put_card_use(&s->line.w, gpu, !s->reading->namespace);
        while (json_next(&parts, NULL, &instance))
            put_card_use(&s->line.w, instance, !s->reading->namespace);
    }
    end_use(s);
    return s->reading->pause(s->reading->userdata) ? STOPPED : 0;
}

/* What agents do not let this user read, as far as it is told of the pods of its namespace. */
static int read_own_use(struct part_state *s, struct err *err) {
    _cleanup_(cards_done) struct cards own = {0};
    _cleanup_(agents_done) struct agents told = {0};
    struct err why;

    if (read_own_cards(s, &own) < 0)
        return -EACCES;
    if (own_pods_use(s->reading->namespace, &own, &told, &why) < 0) {
        *err = why;
        return -EACCES;
    }
    for (size_t i = 0; i < own.n;) {
        const char *node = own.list[i].node;
        if (!api_is_name(node))
            return -EACCES;
        begin_use(s, node, true);
        for (; i < own.n && strcmp(own.list[i].node, node) == 0; i++)
            put_card_use(&s->line.w, agents_find(&told, own.list[i].uuid), false);
        end_use(s);
    }
    return 0;
}

static int read_use(struct part_state *s, struct err *err) {
    int r = agents_each(s->reading->system, take_agent, s, err);

    if (r == -EACCES)
        r = read_own_use(s, err);
    if (r == 0 || r == -EACCES) /* some agents may have answered all the same */
        put_mute(s);
    free(s->mute);
    return r;
}

/* ---- pods that wait ---- */

static void take_waiting(const struct waiting_pod *pod, void *userdata) {
    struct part_state *s = userdata;
    struct json_writer *w = &s->line.w;

    line_begin(&s->line, "w/%s/%s", pod->namespace, pod->name);
    json_put_string(w, "ns", pod->namespace);
    json_put_string(w, "pod", pod->name);
    json_put_string(w, "wants", pod->wants);
    json_put_string(w, "reason", pod->reason);
    if (pod->since > 0)
        json_put_i64(w, "since", pod->since);
    line_end(&s->line, s->reading);
}

static int read_waiting(struct part_state *s, struct err *err) {
    return waiting_read(s->reading->namespace, take_waiting, s, err);
}

/* ---- quotas and claims ---- */

static void put_quota(struct json_writer *w, const char *key, const struct quota_object *q,
                      enum quota_resource r) {
    if (!q->counted[r])
        return;
    json_object_begin(w, key);
    json_put_u64(w, "guaranteed", q->guaranteed[r]);
    if (q->max[r] != UINT64_MAX)
        json_put_u64(w, "max", q->max[r]);
    if (q->has_used)
        json_put_u64(w, "used", q->used.all.of[r]);
    json_object_end(w);
}

static void take_quota(struct json object, void *userdata) {
    struct part_state *s = userdata;
    struct json_writer *w = &s->line.w;
    struct quota_object q;

    if (quota_object_parse(object, &q, NULL) < 0)
        return;
    line_begin(&s->line, "q/%s/%s", q.namespace, q.name);
    json_put_string(w, "ns", q.namespace);
    json_put_string(w, "name", q.name);
    if (q.cohort[0])
        json_put_string(w, "cohort", q.cohort);
    put_quota(w, "core", &q, QUOTA_CORE);
    put_quota(w, "mem", &q, QUOTA_MEMORY);
    put_quota(w, "cards", &q, QUOTA_CARDS);
    line_end(&s->line, s->reading);
}

static void put_quantity(struct json_writer *w, const char *key, struct json of,
                         enum quota_resource r) {
    const char *text = json_string(json_get(of, quota_resource_name(r)));
    uint64_t value;

    if (text && quantity_parse(text, strlen(text), &value) == 0)
        json_put_u64(w, key, value);
}

static void take_claim(struct json object, void *userdata) {
    struct part_state *s = userdata;
    struct json meta = json_get(object, "metadata"), status = json_get(object, "status");
    struct json bound = json_find(json_get(status, "conditions"), "type", "Bound");
    struct json capacity = json_get(status, "capacity"), spec = json_get(object, "spec");
    const char *namespace = json_string(json_get(meta, "namespace"));
    const char *name = json_string(json_get(meta, "name"));
    struct json_writer *w = &s->line.w;

    if (!namespace || !name)
        return;
    line_begin(&s->line, "m/%s/%s", namespace, name);
    json_put_string(w, "ns", namespace);
    json_put_string(w, "name", name);
    json_put_string(w, "phase", json_string_or(json_get(status, "phase"), ""));
    json_put_string(w, "egpu", json_string_or(json_get(spec, "elasticGPUName"), ""));
    put_quantity(w, "core", capacity, QUOTA_CORE);
    put_quantity(w, "mem", capacity, QUOTA_MEMORY);
    json_put_string(w, "reason", json_string_or(json_get(bound, "message"), ""));
    line_end(&s->line, s->reading);
}

/* The objects at a path "/apis/GROUP/VERSION/KIND", of a namespace or of all. */
static int read_objects(struct part_state *s, const char *all,
                        void (*take)(struct json object, void *userdata), struct err *err) {
    char path[API_PATH_MAX];

    return api_each(api_list_path(all, s->reading->namespace, path), take, s, err);
}

static int read_quotas(struct part_state *s, struct err *err) {
    return read_objects(s, QUOTAS_PATH, take_quota, err);
}

static int read_claims(struct part_state *s, struct err *err) {
    return read_objects(s, CLAIMS_PATH, take_claim, err);
}

/* ---- all of it ---- */

static const struct part {
    const char *name;   /* in the line "state" */
    const char *prefix; /* of its keys */
    int (*read)(struct part_state *s, struct err *err);
    bool is_one_list; /* which can be as long as its writers want */
    unsigned needs;   /* rights without which it is not read, */
    unsigned all;     /* and those with which nothing of it is refused */
    const char *what; /* needs them */
} parts[] = {
    {"cards", "c/", read_cards, false, RIGHT_CARDS, RIGHT_CARDS, "list GPU objects"},
    {"waiting", "w/", read_waiting, true, RIGHT_WAITING, RIGHT_WAITING, "list pods"},
    {"quotas", "q/", read_quotas, true, RIGHT_QUOTAS, RIGHT_QUOTAS, "list quotas"},
    {"claims", "m/", read_claims, true, RIGHT_CLAIMS, RIGHT_CLAIMS, "list claims"},
    {"use", "u/", read_use, false, RIGHT_AGENTS | RIGHT_PROXY, RIGHTS_USE,
     "ask the agents (Role aliquot-viewer)"},
};

static void put_trouble(struct json_writer *w, const struct part *part, int r,
                        const struct err *err) {
    json_object_begin(w, NULL);
    json_put_string(w, "part", part->name);
    json_put_bool(w, "refused", r == -EACCES);
    json_put_string(w, "text", err->text);
    json_object_end(w);
}

static bool has_rights(const struct reading *reading, unsigned needed) {
    return !reading->rights || (*reading->rights & needed) == needed;
}

/* What the API server says names the user. */
static int refuse_part(const struct part *part, struct err *err) {
    return err_set(err, EACCES, "this token may not %s", part->what);
}

static int call_read(const struct part *part, struct part_state *s, struct err *err) {
    if (!has_rights(s->reading, part->needs))
        return refuse_part(part, err);
    if (part->is_one_list)
        begin_turn();
    int r = part->read(s, err);
    end_turn();
    return r;
}

/* What came of the parts. */
struct tally {
    size_t silent;
    bool is_slow; /* the API server did not answer in time, or puts off what this user asks */
};

/* As reading_run(). What could not be read stays as it was. */
static int read_part(const struct reading *reading, const struct part *part, struct tally *tally,
                     struct json_writer *troubles) {
    struct part_state s = {.reading = reading};
    struct err err = {0};

    journal_begin(reading->journal, part->prefix);
    int r = call_read(part, &s, &err);
    line_done(&s.line);
    tally->silent += s.silent;
    tally->is_slow |= r == -ETIMEDOUT || r == -EBUSY;
    if (r == STOPPED || r == -EKEYREJECTED)
        return r;
    if (r == -EACCES && reading->rights) {
        if (reading->is_strict && has_rights(reading, part->all))
            return r;
        (void) refuse_part(part, &err);
    }
    if (r < 0)
        put_trouble(troubles, part, r, &err);
    if (r >= 0 || r == -EACCES) /* what may not be read is not shown as it was */
        journal_end(reading->journal, part->prefix);
    return reading->pause(reading->userdata) == 0 ? 0 : STOPPED;
}

static void put_refused(struct json_writer *w, struct journal *journal) {
    static const struct part all = {.name = "memory"};
    size_t n = journal_refused(journal);
    struct err err;

    if (n == 0)
        return;
    (void) err_set(&err, ENOSPC, "%zu lines are not shown: the server holds no more for one viewer",
                   n);
    put_trouble(w, &all, -ENOSPC, &err);
}

int reading_run(const struct reading *reading) {
    _cleanup_(line_done) struct line state = {0};
    struct tally tally = {0};
    int r = 0;

    line_begin(&state, "state");
    if (reading->namespace)
        json_put_string(&state.w, "namespace", reading->namespace);
    json_array_begin(&state.w, "trouble");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && r == 0; i++)
        r = read_part(reading, &parts[i], &tally, &state.w);
    if (r < 0)
        return r;
    put_refused(&state.w, reading->journal);
    json_array_end(&state.w);
    json_put_u64(&state.w, "silent", tally.silent);
    json_put_u64(&state.w, "time", clock_ms(CLOCK_REALTIME));
    line_end(&state, reading);
    return tally.is_slow;
}

int reading_history(const char *system, const char *node, const char *namespace, const char *pod,
                    struct buf *ret, struct err *err) {
    char page[1024];

    (void) snprintf(page, sizeof(page), "history?namespace=%s&pod=%s", namespace, pod);
    return agents_page(system, node, page, ret, err); /* the next reading waits */
}
