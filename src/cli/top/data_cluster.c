/* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cluster/agents.h"
#include "cli/cluster/api.h"
#include "cli/cluster/cards.h"
#include "cli/cluster/wants.h"
#include "cli/top/data.h"
#include "kube/objects/pod.h"

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

static void add_share(struct top_data *data, const struct card *card, const struct holder *h,
                      struct json use) {
    struct json own = agents_holder(use, h);

    data->shares[data->nshares++] = (struct top_share){
        .namespace = top_text(data, "%s", h->namespace),
        .pod = top_text(data, "%s", h->pod),
        .container = top_text(data, "%s", h->container),
        .card = top_text(data, "%s", card->name),
        .node = top_text(data, "%s", card->node),
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
        n += i == 0 || strcmp(card->holders[i].uid, card->holders[i - 1].uid) != 0;
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
        data->silent += !agent->parser;
    return 0;
}

static void count_silent(const char *pod, const char *text) {
    (void) pod;
    (void) text; /* the sum is shown */
}

/* ---- pods that wait ---- */

static const char *wants_of(struct top_data *data, const struct gpu_request *request) {
    char wants[WANTS_SIZE];

    return top_text(data, "%s", request_wants(request, wants));
}

static const char *reason_of(struct top_data *data, const struct pod *pod, struct json object) {
    struct json conditions = JSON_PATH(object, "status", "conditions");
    struct json condition = json_find(conditions, "type", "PodScheduled");

    if (pod->problem != REQUEST_OK)
        return top_text(data, "%s", request_problem_text(pod->problem, pod->mixed));
    if (json_size(JSON_PATH(object, "spec", "schedulingGates")) > 0)
        return "scheduling gates";
    if (json_is_string(json_get(condition, "status"), "False"))
        return top_text(data, "%s", json_string_or(json_get(condition, "message"), ""));
    return "not tried yet";
}

static void add_waiting(struct top_data *data, struct json object) {
    struct pod pod = {0};

    if (pod_parse(object, &pod, NULL) < 0)
        return;
    if ((pod.request.n > 0 || pod.problem != REQUEST_OK) && !pod.node[0] && !pod.finished)
        data->waiting[data->nwaiting++] = (struct top_pod){
            .namespace = top_text(data, "%s", pod.namespace),
            .name = top_text(data, "%s", pod.name),
            .wants = pod.request.n > 0 ? wants_of(data, &pod.request) : "",
            .reason = reason_of(data, &pod, object),
            .since = (time_t) pod.created,
        };
    pod_done(&pod);
}

/* Pods that are on no node: few, where nothing is wrong. */
static int read_waiting(const struct top_source *source, struct top_data *data, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json pods, pod;
    char path[API_NAME_MAX + 96];

    if (source->namespace)
        (void) snprintf(path, sizeof(path),
                        "/api/v1/namespaces/%s/pods?fieldSelector=spec.nodeName%%3D",
                        source->namespace);
    else
        (void) snprintf(path, sizeof(path), "/api/v1/pods?fieldSelector=spec.nodeName%%3D");
    int r = api_read(path, &parser, &pods, err);
    if (r < 0)
        return r;
    struct json items = json_get(pods, "items");
    struct json_iter it = json_iter(items);
    data->waiting = calloc(json_size(items) + 1, sizeof(*data->waiting));
    for (size_t n = json_size(items); data->waiting && n > 0 && json_next(&it, NULL, &pod); n--)
        add_waiting(data, pod);
    return 0;
}

/* ---- all of it ---- */

static void note(struct top_data *data, const char *what, const struct err *err) {
    data->trouble =
        top_text(data, "%s%s%s: %s", data->trouble, data->trouble[0] ? "; " : "", what, err->text);
}

int top_read_cluster(const struct top_source *source, struct top_data *ret, struct err *err) {
    _cleanup_(top_data_done) struct top_data data = {.trouble = ""};
    _cleanup_(cards_done) struct cards cards = {0};
    _cleanup_(agents_done) struct agents agents = {0};
    struct err part;

    if (source->namespace && !api_is_name(source->namespace))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", source->namespace);
    int r = cards_fetch(&cards, err);
    if (r < 0)
        return r;
    cards_keep_namespace(&cards, source->namespace);
    if (agents_read(source->system, count_silent, &agents, &part) < 0)
        note(&data, "no figures of use", &part);
    r = add_cards(&data, &cards, &agents, err);
    if (r < 0)
        return r;
    if (read_waiting(source, &data, &part) < 0)
        note(&data, "no waiting pods", &part);
    *ret = data;
    data = (struct top_data){0};
    return 0;
}
