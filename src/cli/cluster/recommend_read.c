/* SPDX-License-Identifier: Apache-2.0 */

/* Containers of owners, and the most that they were seen to use. */

#include "cli/cluster/recommend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/server_time.h"
#include "cli/cluster/agents.h"
#include "cli/cluster/api.h"
#include "cli/cluster/cards.h"

#define HISTORY_S                                                                                  \
    3000 /* of the hour that agents keep; the newest and the oldest steps may lack                 \
          */

void recommend_done(struct recommend *r) {
    HASH_CLEAR(hh, r->by_card);
    HASH_CLEAR(by_pod, r->by_container);
    HASH_CLEAR(hh, r->by_key);
    for (uint32_t i = 0; i < r->nseen; i++)
        free(r->seen[i].key);
    for (uint32_t i = 0; i < r->nrows; i++)
        free(r->rows[i]);
    free(r->rows);
    free(r->seen);
}

/* ---- pods ---- */

struct pods {
    struct json_parser *parser;
    struct pod_of {
        UT_hash_handle hh;
        const char *uid;
        struct json object;
    } * list, *by_uid;
};

static void pods_done(struct pods *pods) {
    HASH_CLEAR(hh, pods->by_uid);
    free(pods->list);
    json_parser_free(pods->parser);
}

static int read_pods(const struct recommend_options *o, struct pods *pods, struct err *err) {
    char path[API_PATH_MAX];
    struct json list, object;
    size_t n = 0;

    int r = api_read(api_list_path("/api/v1/pods", o->namespace, path), &pods->parser, &list, err);
    if (r < 0)
        return r;
    struct json items = json_get(list, "items");
    size_t most = json_size(items);
    struct json_iter it = json_iter(items);
    pods->list = calloc(most + 1, sizeof(*pods->list));
    if (!pods->list)
        return err_errno(err, ENOMEM, "cannot hold the pods");
    for (; n < most && json_next(&it, NULL, &object); n++) {
        struct pod_of *pod = &pods->list[n];
        *pod = (struct pod_of){.uid = json_string_or(JSON_PATH(object, "metadata", "uid"), ""),
                               .object = object};
        HASH_ADD_KEYPTR(hh, pods->by_uid, pod->uid, strlen(pod->uid), pod);
    }
    return 0;
}

static struct json find_pod(const struct pods *pods, const char *uid) {
    struct pod_of *found = NULL;

    HASH_FIND(hh, pods->by_uid, uid, strlen(uid), found);
    return found ? found->object : (struct json){0};
}

/* For how long the container runs; 0: it does not. */
static uint64_t runs_for(struct json pod, const char *container) {
    static const char *const lists[] = {"containerStatuses", "initContainerStatuses"};
    struct tm tm = {0};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct json status = json_find(JSON_PATH(pod, "status", lists[i]), "name", container);
        const char *began = json_string(JSON_PATH(status, "state", "running", "startedAt"));
        const char *end = began ? strptime(began, "%Y-%m-%dT%H:%M:%SZ", &tm) : NULL;
        if (!end || *end != '\0')
            continue;
        time_t age = (time_t) server_time() - timegm(&tm);
        return age > 0 ? (uint64_t) age : 0;
    }
    return 0;
}

/* ---- owners ---- */

static struct row *row_of(struct recommend *r, const struct holder *h, struct json pod) {
    char owner[OWNER_SIZE], key[sizeof(((struct row *) 0)->key)];
    struct row *row = NULL;

    (void) owner_of(pod, owner);
    (void) snprintf(key, sizeof(key), "%s/%s/%s", h->namespace, owner, h->container);
    HASH_FIND_STR(r->by_key, key, row);
    if (row)
        return row;
    struct row **rows = reallocarray(r->rows, r->nrows + 1, sizeof(struct row *));
    row = rows ? calloc(1, sizeof(*row)) : NULL;
    r->rows = rows ? rows : r->rows;
    if (!row)
        return NULL;
    (void) snprintf(row->key, sizeof(row->key), "%s", key);
    (void) snprintf(row->namespace, sizeof(row->namespace), "%s", h->namespace);
    (void) snprintf(row->owner, sizeof(row->owner), "%s", owner);
    (void) snprintf(row->container, sizeof(row->container), "%s", h->container);
    row->figures = (struct advice_figures){.memory = ADVICE_UNKNOWN, .core = -1, .throttled = -1};
    r->rows[r->nrows++] = row;
    HASH_ADD_STR(r->by_key, key, row);
    return hash_added(row) ? row : NULL;
}

static uint32_t index_of(const struct recommend *r, const struct row *row) {
    uint32_t i = r->nrows - 1; /* most often the last one */

    while (r->rows[i] != row)
        i--;
    return i;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static int add_holder(struct recommend *r, const struct card *card, const struct holder *h,
                      struct json pod) {
    struct row *row = row_of(r, h, pod);
    struct seen *seen = &r->seen[r->nseen];

    if (!row)
        return -ENOMEM;
    *seen = (struct seen){.row = index_of(r, row),
                          .core = h->core,
                          .memory = h->memory,
                          .device_core = card->parent[0] ? card->core : 100};
    if (asprintf(&seen->key, "%s/%s/%s", h->uid, h->container, card->uuid) < 0)
        return -ENOMEM;
    r->nseen++;
    HASH_ADD_KEYPTR(hh, r->by_card, seen->key, strlen(seen->key), seen);
    if (!hash_added(seen))
        return -ENOMEM;
    struct seen *other = NULL;
    size_t len = strlen(h->uid) + 1 + strlen(h->container); /* of the key: one pod's container */
    HASH_FIND(by_pod, r->by_container, seen->key, len, other);
    if (!other) {
        HASH_ADD_KEYPTR(by_pod, r->by_container, seen->key, len, seen);
        row->pods++;
    }
    row->cards++;
    row->figures.asks_core = larger(row->figures.asks_core, h->core);
    row->figures.asks_memory = larger(row->figures.asks_memory, h->memory);
    return 0;
}

/* What a claim has is not what its containers request. */
static bool is_chosen(const struct recommend_options *o, const struct holder *h) {
    return !h->claim[0] && (!o->namespace || strcmp(o->namespace, h->namespace) == 0) &&
           (!o->pod || strcmp(o->pod, h->pod) == 0);
}

/* ---- what agents say ---- */

/* Of memory there is the most since the container was started, and what it has now. What the driver
 * took in addition counts of the limit as well. Without the most (of a library before 0.2.0, or of
 * a damaged ledger) memory was seen only as long as the history is. */
static void take_usage(struct row *row, struct seen *seen, struct json use, uint64_t runs) {
    uint64_t booked = 0, peak = 0, overhead = 0, driver = 0, charged = 0, refused = 0;

    seen->has_figures = json_u64(json_get(use, "memoryUsed"), &booked);
    row->silent += !seen->has_figures;
    if (!seen->has_figures)
        return;
    /* A container that has done nothing on the card has no peak as it has had no memory. */
    uint64_t gpu_time = 1;
    (void) json_u64(json_get(use, "gpuTimeNs"), &gpu_time);
    seen->has_peak = json_u64(json_get(use, "memoryPeak"), &peak) || (booked == 0 && gpu_time == 0);
    row->peakless += !seen->has_peak;
    (void) json_u64(json_get(use, "memoryOverhead"), &overhead);
    (void) json_u64(json_get(use, "memoryDriver"), &driver);
    (void) json_u64(json_get(use, "memoryCharged"), &charged);
    (void) json_u64(json_get(use, "refused"), &refused);
    uint64_t most = larger(larger(booked, peak) + overhead, driver + charged);
    struct advice_figures *f = &row->figures;
    f->memory = f->memory == ADVICE_UNKNOWN ? most : larger(f->memory, most);
    f->refused |= refused > 0;
    row->runs = larger(row->runs, runs);
    if (seen->has_peak)
        row->seconds = larger(row->seconds, runs);
}

/* Returns how many steps are known. */
static uint64_t take_memory(struct row *row, struct json list) {
    struct json_iter it = json_iter(list);
    struct json one;
    uint64_t bytes, known = 0;

    while (json_next(&it, NULL, &one))
        if (row->figures.memory != ADVICE_UNKNOWN && json_u64(one, &bytes)) {
            row->figures.memory = larger(row->figures.memory, bytes);
            known++;
        }
    return known;
}

/* The step that took the most, in percent of a card. Returns how many are known. */
static uint64_t take_time(struct row *row, struct json list, uint64_t step_ms, uint64_t core) {
    struct json_iter it = json_iter(list);
    struct json one;
    uint64_t ms, known = 0;

    for (; json_next(&it, NULL, &one);) {
        if (!json_u64(one, &ms))
            continue;
        double percent = (double) ms / (double) step_ms * (double) core;
        row->figures.core = percent > row->figures.core ? percent : row->figures.core;
        known++;
    }
    return known;
}

/* The part of the time in which a thread waited: of the card on which it is the largest. */
static void take_waits(struct row *row, struct json list, uint64_t step_ms) {
    struct json_iter it = json_iter(list);
    struct json one;
    uint64_t ms, all = 0, known = 0;

    while (json_next(&it, NULL, &one))
        if (json_u64(one, &ms)) {
            all += ms < step_ms ? ms : step_ms; /* several threads wait at once */
            known++;
        }
    double part = known > 0 ? (double) all / (double) (known * step_ms) : -1;
    if (part > row->figures.throttled)
        row->figures.throttled = part;
}

static void take_history(void *arg, struct json record, uint64_t step_ms) {
    struct recommend *r = arg;
    struct seen *seen = recommend_find(r, json_string_or(json_get(record, "podUID"), ""),
                                       json_string_or(json_get(record, "container"), ""),
                                       json_string_or(json_get(record, "uuid"), ""));

    if (!seen)
        return;
    struct row *row = r->rows[seen->row];
    uint64_t steps = take_memory(row, json_get(record, "memoryUsed"));
    if (!seen->has_peak)
        row->seconds = larger(row->seconds, steps * step_ms / 1000);
    steps = take_time(row, json_get(record, "gpuTimeMs"), step_ms, seen->device_core);
    take_waits(row, json_get(record, "throttledMs"), step_ms);
    row->core_seconds = larger(row->core_seconds, steps * step_ms / 1000);
}

/* ---- all of it ---- */

static int read_cards(const struct recommend_options *o, const struct cards *cards,
                      const struct agents *agents, const struct pods *pods, struct recommend *r) {
    for (size_t i = 0; i < cards->n; i++) {
        const struct card *card = &cards->list[i];
        struct json use = agents_find(agents, card->uuid);
        for (size_t h = 0; h < card->nholders; h++) {
            const struct holder *holder = &card->holders[h];
            struct json pod = find_pod(pods, holder->uid), own = agents_holder(use, holder);
            if (!is_chosen(o, holder) || !json_valid(pod))
                continue;
            if (add_holder(r, card, holder, pod) < 0)
                return -ENOMEM;
            if (o->prometheus)
                continue;
            struct seen *seen = &r->seen[r->nseen - 1];
            take_usage(r->rows[seen->row], seen, own, runs_for(pod, holder->container));
        }
    }
    return 0;
}

bool recommend_knows_memory(const struct row *row, const struct recommend_options *options) {
    return row->figures.memory != ADVICE_UNKNOWN && row->seconds >= options->for_seconds;
}

bool recommend_knows_core(const struct row *row, const struct recommend_options *options) {
    uint32_t enough = options->for_seconds;

    if (!options->prometheus) { /* agents keep less: the container's age is the rest */
        enough = enough < HISTORY_S ? enough : HISTORY_S;
        if (row->runs < options->for_seconds)
            return false;
    }
    return row->figures.core >= 0 && row->core_seconds >= enough;
}

static void advise(struct recommend *r, const struct recommend_options *o) {
    for (uint32_t i = 0; i < r->nrows; i++) {
        struct row *row = r->rows[i];
        struct advice advice = advice_make(&row->figures, o->headroom);
        row->advice = (struct advice){
            .core = recommend_knows_core(row, o) ? advice.core : ADVICE_UNKNOWN,
            .memory = recommend_knows_memory(row, o) ? advice.memory : ADVICE_UNKNOWN};
    }
    for (uint32_t i = 0; i < r->nseen; i++) {
        struct row *row = r->rows[r->seen[i].row];
        row->freed_core += advice_freed(r->seen[i].core, row->advice.core);
        row->freed_memory += advice_freed(r->seen[i].memory, row->advice.memory);
    }
}

static int by_freed(const void *a, const void *b) {
    const struct row *x = *(struct row *const *) a, *y = *(struct row *const *) b;

    if (x->freed_memory != y->freed_memory)
        return x->freed_memory > y->freed_memory ? -1 : 1;
    if (x->freed_core != y->freed_core)
        return x->freed_core > y->freed_core ? -1 : 1;
    return strcmp(x->key, y->key);
}

static int make_room(struct recommend *r, const struct cards *cards) {
    size_t n = 1;

    for (size_t i = 0; i < cards->n; i++)
        n += cards->list[i].nholders;
    r->seen = calloc(n, sizeof(*r->seen));
    return r->seen ? 0 : -ENOMEM;
}

static bool are_names(const struct recommend_options *o) {
    return (!o->namespace || api_is_name(o->namespace)) && (!o->pod || api_is_name(o->pod));
}

static void read_history(const struct recommend_options *o, const struct agents *agents,
                         struct recommend *r) {
    char query[2 * API_NAME_MAX + 32];

    (void) snprintf(query, sizeof(query), "%s%s%s%s%s", o->namespace ? "namespace=" : "",
                    o->namespace ? o->namespace : "", o->namespace && o->pod ? "&" : "",
                    o->pod ? "pod=" : "", o->pod ? o->pod : "");
    const struct history_source history = {
        .system = o->system, .query = query, .take = take_history, .arg = r, .trouble = o->trouble};
    agents_history(agents, &history);
}

int recommend_read(const struct recommend_options *o, struct recommend *ret, struct err *err) {
    _cleanup_(cards_done) struct cards cards = {0};
    _cleanup_(agents_done) struct agents agents = {0};
    _cleanup_(pods_done) struct pods pods = {0};

    if (!are_names(o))
        return err_set(err, EINVAL, "'%s' is no name of a pod, or '%s' none of a namespace",
                       o->pod ? o->pod : "", o->namespace ? o->namespace : "");
    int r = cards_fetch(&cards, err);
    if (r == 0)
        r = read_pods(o, &pods, err);
    if (r == 0 && !o->prometheus)
        r = agents_read(o->system, o->trouble, &agents, err);
    if (r == 0 && agents.denied[0])
        r = err_set(err, EACCES, "no figures of use: %s", agents.denied);
    if (r < 0)
        return r;
    if (make_room(ret, &cards) < 0 || read_cards(o, &cards, &agents, &pods, ret) < 0)
        return err_errno(err, ENOMEM, "cannot hold the containers");
    if (o->prometheus)
        r = recommend_ask_prometheus(ret, o, err);
    else
        read_history(o, &agents, ret);
    if (r < 0)
        return r;
    advise(ret, o);
    qsort(ret->rows, ret->nrows, sizeof(struct row *), by_freed);
    return 0;
}
