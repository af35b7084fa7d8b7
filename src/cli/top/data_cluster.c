/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/cluster/agents.h"
#include "cli/cluster/api.h"
#include "cli/cluster/cards.h"
#include "cli/cluster/own_pods.h"
#include "cli/cluster/waiting.h"
#include "cli/top/data.h"

#define USERS_MAX ((size_t) 64 << 10)

static uint64_t figure(struct json of, const char *name) {
    uint64_t value = TOP_UNKNOWN;

    (void) json_u64(json_get(of, name), &value);
    return value;
}

/* ---- cards and shares ---- */

static size_t count_shares(const struct cards *cards) {
    size_t n = 0;

    for (size_t i = 0; i < cards->n; i++)
        n += cards->list[i].nholders;
    return n;
}

/* The pods that use a claim. */
static const char *users_of(struct top_data *data, const struct holder *h) {
    _cleanup_buf_ struct buf text = BUF_INIT(USERS_MAX);
    for (size_t i = 0; i < h->nusers; i++)
        if (i == 0 || strcmp(h->users[i].pod, h->users[i - 1].pod) != 0)
            buf_printf(&text, "%s%s", i ? ", " : "", h->users[i].pod);
    return top_text(data, "%s", buf_str(&text));
}

static void add_share(struct top_data *data, const struct card *card, const struct holder *h,
                      struct json use) {
    struct json own = agents_holder(use, h);

    data->shares[data->nshares++] = (struct top_share){
        .namespace = top_text(data, "%s", h->namespace),
        .pod = top_text(data, "%s", h->pod),
        .container = top_text(data, "%s", h->container),
        .claim = top_text(data, "%s", h->claim),
        .users = users_of(data, h),
        .pods = holder_pods(h),
        .card = top_text(data, "%s", card->name),
        .node = top_text(data, "%s", card->node),
        .uuid = top_text(data, "%s", card->uuid),
        .core = h->core,
        .memory = h->memory,
        .used = figure(own, "memoryDriver"),
        .busy = figure(own, "coreUsed"),
    };
}

/* The holders of a pod are neighbours. */
static uint64_t count_pods(const struct card *card) {
    uint64_t n = 0;

    for (size_t i = 0; i < card->nholders; i++)
        if (i == 0 || strcmp(card->holders[i].uid, card->holders[i - 1].uid) != 0)
            n += holder_pods(&card->holders[i]);
    return n;
}

static void add_card(struct top_data *data, const struct card *card, const struct agents *agents) {
    struct json use = agents_find(agents, card->uuid);

    data->cards[data->ncards++] = (struct top_card){
        .name = top_text(data, "%s", card->name),
        .node = top_text(data, "%s", card->node),
        .model = top_text(data, "%s", card->model),
        .state = top_text(data, "%s", card->state),
        .core = card->core,
        .taken_core = card->taken_core,
        .memory = card->memory,
        .taken_memory = card->taken_memory,
        .used = figure(use, "memoryUsed"),
        .busy = figure(use, "utilization"),
        .pods = count_pods(card),
        .device = top_text(data, "%s", card->parent[0] ? card->parent : card->uuid),
        .uuid = top_text(data, "%s", card->uuid),
    };
    for (size_t i = 0; i < card->nholders; i++)
        add_share(data, card, &card->holders[i], use);
}

static int add_cards(struct top_data *data, const struct cards *cards, const struct agents *agents,
                     struct err *err) {
    data->cards = calloc(cards->n + 1, sizeof(*data->cards));
    data->shares = calloc(count_shares(cards) + 1, sizeof(*data->shares));
    if (!data->cards || !data->shares)
        return err_errno(err, ENOMEM, "cannot hold the cards");
    for (size_t i = 0; i < cards->n; i++)
        add_card(data, &cards->list[i], agents);
    for (const struct agent *agent = agents->by_node; agent; agent = agent->hh.next)
        data->silent += !agent->parser && !agents->denied[0];
    return 0;
}

static void count_silent(const char *pod, const char *text) {
    (void) pod;
    (void) text; /* the sum is shown */
}

/* ---- pods that wait ---- */

struct waiting_room {
    struct top_data *data;
    size_t room;
};

static void add_waiting(const struct waiting_pod *pod, void *userdata) {
    struct waiting_room *to = userdata;
    struct top_data *data = to->data;

    if (array_reserve(&data->waiting, &to->room, data->nwaiting + 1, sizeof(*data->waiting)) < 0)
        return;
    data->waiting[data->nwaiting++] = (struct top_pod){
        .namespace = top_text(data, "%s", pod->namespace),
        .name = top_text(data, "%s", pod->name),
        .wants = top_text(data, "%s", pod->wants),
        .reason = top_text(data, "%s", pod->reason),
        .since = pod->since,
    };
}

/* ---- all of it ---- */

static void note(struct top_data *data, const char *what, const char *why) {
    data->trouble =
        top_text(data, "%s%s%s: %s", data->trouble, data->trouble[0] ? "; " : "", what, why);
}

int top_read_cluster(const struct top_source *source, struct top_data *ret, struct err *err) {
    _cleanup_(top_data_done) struct top_data data = {.trouble = ""};
    _cleanup_(cards_done) struct cards cards = {0};
    _cleanup_(agents_done) struct agents agents = {0};
    struct err part;

    if (source->namespace && !api_is_name(source->namespace))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", source->namespace);
    int r = own_pods_or_cards(source->namespace, &cards, err);
    if (r < 0)
        return r;
    data.of_pods = cards.of_pods;
    if (own_pods_or_agents(source->system, source->namespace, &cards, count_silent, &agents,
                           &part) < 0)
        note(&data, "no figures of use", part.text);
    if (agents.denied[0])
        note(&data, "no figures of use", agents.denied);
    r = add_cards(&data, &cards, &agents, err);
    if (r < 0)
        return r;
    struct waiting_room room = {.data = &data};
    if (waiting_read(source->namespace, add_waiting, &room, &part) < 0)
        note(&data, "no waiting pods", part.text);
    *ret = take_struct(data);
    return 0;
}
