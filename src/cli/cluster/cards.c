/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/cards.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cluster/api.h"
#include "model/dialect.h"
#include "model/quantity.h"

#define PAGE_CARDS 250 /* some 350 KB, and five times as much when it is parsed */

/* The number of a resource; 0 where it is absent. */
static uint64_t resource(struct json list, const char *name) {
    struct json v = json_get(list, name);
    const char *text = json_string(v);
    uint64_t value = 0;
    if (text)
        (void) quantity_parse(text, strlen(text), &value);
    else
        (void) json_u64(v, &value);
    return value;
}

static int by_name(const void *a, const void *b) {
    const struct holder *x = a, *y = b;
    int r = strcmp(x->namespace, y->namespace);
    r = r ? r : strcmp(x->pod, y->pod);
    r = r ? r : strcmp(x->claim, y->claim);
    r = r ? r : strcmp(x->uid, y->uid);
    return r ? r : strcmp(x->container, y->container);
}

static int by_user(const void *a, const void *b) {
    const struct claim_user *x = a, *y = b;
    int r = strcmp(x->pod, y->pod);
    return r ? r : strcmp(x->container, y->container);
}

static int read_users(struct holder *holder, struct json users) {
    struct json_iter it = json_iter(users);
    struct json user;
    size_t n = json_size(users);
    holder->users = n > 0 ? calloc(n, sizeof(*holder->users)) : NULL;
    if (n > 0 && !holder->users)
        return -ENOMEM;
    while (holder->nusers < n && json_next(&it, NULL, &user))
        holder->users[holder->nusers++] =
            (struct claim_user){json_string_or(json_get(user, "pod"), ""),
                                json_string_or(json_get(user, "container"), "")};
    if (holder->nusers > 0)
        qsort(holder->users, holder->nusers, sizeof(*holder->users), by_user);
    return 0;
}

bool holder_has_pod(const struct holder *holder, const char *pod) {
    bool has = strcmp(holder->pod, pod) == 0;
    for (size_t i = 0; !has && i < holder->nusers; i++)
        has = strcmp(holder->users[i].pod, pod) == 0;
    return has;
}

size_t holder_pods(const struct holder *holder) {
    size_t n = holder->nusers == 0;
    for (size_t i = 0; i < holder->nusers; i++)
        n += i == 0 || strcmp(holder->users[i].pod, holder->users[i - 1].pod) != 0;
    return n;
}

static int add_holder(struct card *card, const char *uid, struct json pod, struct json container) {
    struct json held = json_get(container, "resource");
    void *more = reallocarray(card->holders, card->nholders + 1, sizeof(*card->holders));
    if (!more)
        return -ENOMEM;
    card->holders = more;
    struct holder *holder = &card->holders[card->nholders++];
    *holder = (struct holder){
        .namespace = json_string_or(json_get(pod, "namespace"), ""),
        .pod = json_string_or(json_get(pod, "pod"), ""),
        .uid = uid,
        .container = json_string_or(json_get(container, "container"), ""),
        .claim = json_string_or(json_get(pod, "claim"), ""),
        .core = resource(held, RESOURCE_CORE),
        .memory = resource(held, RESOURCE_MEMORY),
    };
    return holder->claim[0] ? read_users(holder, json_get(pod, "users")) : 0;
}

static int read_holders(struct card *card, struct json allocated) {
    struct json_iter pods = json_iter(allocated);
    struct json pod, container;
    const char *uid;
    while (json_next(&pods, &uid, &pod)) {
        struct json_iter containers = json_iter(json_get(pod, "containers"));
        while (uid && json_next(&containers, NULL, &container))
            if (add_holder(card, uid, pod, container) < 0)
                return -ENOMEM;
    }
    if (card->nholders > 0)
        qsort(card->holders, card->nholders, sizeof(*card->holders), by_name);
    return 0;
}

/* As aliquot-scheduler describes the claim. */
static void read_namespace(struct kept *kept) {
    static const char released[] = "released ";
    const char *by = kept->by;
    if (strncmp(by, released, strlen(released)) == 0)
        by += strlen(released);
    if (sscanf(by, "claim %63[^/]/", kept->namespace) != 1)
        kept->namespace[0] = '\0';
}

static int read_kept(struct card *card, struct json held) {
    struct json_iter it = json_iter(held);
    struct json item;
    card->kept = calloc(json_size(held) + 1, sizeof(*card->kept));
    if (!card->kept)
        return -ENOMEM;
    while (json_next(&it, NULL, &item)) {
        struct json amount = json_get(item, "resource");
        struct kept *kept = &card->kept[card->nkept++];
        *kept = (struct kept){
            .by = json_string_or(json_get(item, "by"), ""),
            .core = resource(amount, RESOURCE_CORE),
            .memory = resource(amount, RESOURCE_MEMORY),
        };
        read_namespace(kept);
    }
    return 0;
}

/* ---- what is taken ---- */

static uint64_t taken_of(bool is_healthy, uint64_t capacity, uint64_t left, uint64_t held) {
    if (is_healthy)
        return capacity > left ? capacity - left : 0;
    return held < capacity ? held : capacity; /* its free part cannot be allocated */
}

static void sum_up(struct card *card) {
    bool is_healthy = strcmp(card->state, "Healthy") == 0;
    uint64_t core = 0, memory = 0;
    for (size_t i = 0; i < card->nholders; i++) {
        core += card->holders[i].core;
        memory += card->holders[i].memory;
    }
    for (size_t i = 0; i < card->nkept; i++) {
        core += card->kept[i].core;
        memory += card->kept[i].memory;
    }
    card->taken_core = taken_of(is_healthy, card->core, card->free_core, core);
    card->taken_memory = taken_of(is_healthy, card->memory, card->free_memory, memory);
}

/* ---- a card ---- */

static int read_card(struct json gpu, struct card *card) {
    struct json spec = json_get(gpu, "spec"), status = json_get(gpu, "status");
    struct json capacity = json_get(status, "capacity"), left = json_get(status, "allocatable");
    *card = (struct card){
        .name = json_string_or(JSON_PATH(gpu, "metadata", "name"), ""),
        .node = json_string_or(json_get(spec, "nodeName"), ""),
        .model = json_string_or(json_get(spec, "model"), ""),
        .uuid = json_string_or(json_get(spec, "uuid"), ""),
        .parent = json_string_or(json_get(spec, "parent"), ""),
        .profile = json_string_or(JSON_PATH(spec, "mig", "profile"), ""),
        .divided = json_is_string(JSON_PATH(spec, "mig", "mode"), "Enabled"),
        .state = json_string(json_get(status, "state")),
        .unavailable = json_string_or(json_get(status, "unavailable"), ""),
        .core = resource(capacity, RESOURCE_CORE),
        .memory = resource(capacity, RESOURCE_MEMORY),
        .free_core = resource(left, RESOURCE_CORE),
        .free_memory = resource(left, RESOURCE_MEMORY),
        .unattributed = resource(status, "unattributed"),
        .object = gpu,
    };
    card->state = card->state ? card->state : "Unknown";
    if (card->unavailable[0] && strcmp(card->state, "Healthy") == 0)
        card->state = "Unavailable";
    (void) json_u64(json_get(spec, "index"), &card->index);
    if (read_kept(card, json_get(status, "held")) < 0 ||
        read_holders(card, json_get(status, "allocated")) < 0)
        return -ENOMEM;
    sum_up(card);
    return 0;
}

static int by_place(const void *a, const void *b) {
    const struct card *x = a, *y = b;
    int r = strcmp(x->node, y->node);
    if (r == 0 && x->index != y->index)
        r = x->index < y->index ? -1 : 1;
    return r ? r : strcmp(x->name, y->name);
}

int cards_read(const char *text, size_t len, struct cards *ret, struct err *err) {
    _cleanup_(cards_done) struct cards cards = {0};
    struct json list, gpu;
    int r = json_open(text, len, &cards.parser, &list, err);
    if (r < 0)
        return r;
    cards.more = json_string_or(JSON_PATH(list, "metadata", "continue"), "");
    struct json items = json_get(list, "items");
    struct json_iter it = json_iter(items);
    size_t most = 0;
    while (json_next(&it, NULL, &gpu))
        most++;
    cards.list = calloc(most ? most : 1, sizeof(*cards.list));
    if (!cards.list)
        return err_errno(err, ENOMEM, "cannot read the GPU objects");
    it = json_iter(items);
    while (cards.n < most && json_next(&it, NULL, &gpu)) {
        if (json_type(json_get(gpu, "spec")) != JSON_OBJECT)
            continue;
        if (read_card(gpu, &cards.list[cards.n++]) < 0)
            return err_errno(err, ENOMEM, "cannot read the GPU objects");
    }
    qsort(cards.list, cards.n, sizeof(*cards.list), by_place);
    *ret = take_struct(cards);
    return 0;
}

static int fetch(const char *path, struct cards *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int r = api_get_own(path, "knows no GPU objects", &text, err);
    return r < 0 ? r : cards_read(buf_str(&text), text.len, ret, err);
}

int cards_fetch(struct cards *ret, struct err *err) {
    return fetch(API_GPUS, ret, err);
}

int cards_fetch_pages(int (*each)(struct cards *page, void *userdata), void *userdata,
                      struct err *err) {
    char path[sizeof(API_GPUS) + 64 + API_CONTINUE_MAX], more[API_CONTINUE_MAX] = "";
    int r = 0;
    do {
        _cleanup_(cards_done) struct cards page = {0};
        (void) snprintf(path, sizeof(path), API_GPUS "?limit=%d%s%s", PAGE_CARDS,
                        more[0] ? "&continue=" : "", more);
        r = fetch(path, &page, err);
        if (r < 0)
            break;
        r = api_continue(page.more, more, err);
        if (r == 0)
            r = each(&page, userdata);
    } while (r >= 0 && more[0]);
    return r;
}

void holder_done(struct holder *holder) {
    free(holder->users);
    holder->users = NULL;
    holder->nusers = 0;
}

void card_done(struct card *card) {
    for (size_t i = 0; i < card->nholders; i++)
        holder_done(&card->holders[i]);
    free(card->holders);
    free(card->kept);
}

void cards_done(struct cards *cards) {
    for (size_t i = 0; i < cards->n; i++)
        card_done(&cards->list[i]);
    free(cards->list);
    json_parser_free(cards->parser);
    *cards = (struct cards){0};
}

bool card_keep_namespace(struct card *card, const char *namespace) {
    size_t holders = 0, claims = 0;
    for (size_t i = 0; i < card->nholders; i++)
        if (!namespace || strcmp(card->holders[i].namespace, namespace) == 0)
            card->holders[holders++] = card->holders[i];
        else
            holder_done(&card->holders[i]);
    for (size_t i = 0; i < card->nkept; i++)
        if (namespace ? strcmp(card->kept[i].namespace, namespace) == 0
                      : card->kept[i].namespace[0] != '\0')
            card->kept[claims++] = card->kept[i];
    card->nholders = holders;
    card->nkept = claims;
    return holders > 0 || claims > 0;
}

void cards_keep_namespace(struct cards *cards, const char *namespace) {
    size_t kept = 0;
    for (size_t i = 0; namespace && i < cards->n; i++) {
        if (card_keep_namespace(&cards->list[i], namespace))
            cards->list[kept++] = cards->list[i];
        else
            card_done(&cards->list[i]);
    }
    cards->n = namespace ? kept : cards->n;
}
