/* SPDX-License-Identifier: Apache-2.0 */

/* What a plan is made from: waiting pods, cards, nodes, and the kinds of these. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "cli/cluster/api.h"
#include "cli/cluster/card_place.h"
#include "cli/cluster/plan.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/quota_object.h"
#include "place/topology.h"

void plan_machine_done(struct plan_machine *machine) {
    free(machine->model);
    free(machine->topology);
    free(machine->reasons);
    free(machine->bars);
}

void plan_done(struct plan *plan) {
    for (uint32_t i = 0; i < plan->npods; i++)
        pod_done(&plan->pods[i].pod);
    for (uint32_t i = 0; i < plan->nmachines; i++)
        plan_machine_done(&plan->machines[i]);
    cards_done(&plan->cards);
    json_parser_free(plan->pods_parser);
    json_parser_free(plan->nodes_parser);
    free(plan->pods);
    free(plan->needing);
    free(plan->nodes);
    free(plan->now.list);
    free(plan->now.cards);
    free(plan->machines);
}

/* ---- pods that wait ---- */

/* As the scheduler said when the pod was tried last. */
static bool is_over_quota(struct json object) {
    struct json conditions = JSON_PATH(object, "status", "conditions");
    struct json condition = json_find(conditions, "type", "PodScheduled");
    const char *message = json_string_or(json_get(condition, "message"), "");

    return strstr(message, QUOTA_EXCEEDED) || strstr(message, QUOTA_NOTHING_LEFT);
}

/* Why more cards would not start it; "": they may. */
static void find_hold(struct plan_pod *p) {
    const struct pod *pod = &p->pod;
    struct json gates = JSON_PATH(p->object, "spec", "schedulingGates");

    p->state = PLAN_HELD;
    if (pod->problem != REQUEST_OK)
        (void) snprintf(p->held, sizeof(p->held), "%s",
                        request_problem_text(pod->problem, pod->mixed));
    else if (json_size(gates) > 0)
        (void) snprintf(p->held, sizeof(p->held), "scheduling gates");
    else if (is_over_quota(p->object))
        (void) snprintf(p->held, sizeof(p->held), "a quota holds it");
    else if (pod->claims.n > 0)
        (void) snprintf(p->held, sizeof(p->held), "waits for its claim");
    else if (pod->nominated[0])
        (void) snprintf(p->held, sizeof(p->held), "pods give way for it on %s", pod->nominated);
    else
        p->state = PLAN_NEEDS;
}

static void add_pod(struct plan *plan, struct json object) {
    struct plan_pod *p = &plan->pods[plan->npods];

    *p = (struct plan_pod){.object = object};
    if (pod_parse(object, &p->pod, NULL) < 0)
        return;
    bool asks = p->pod.request.n > 0 || p->pod.problem != REQUEST_OK;
    if (!asks || p->pod.node[0] || p->pod.finished || p->pod.deleting) {
        pod_done(&p->pod);
        return;
    }
    find_hold(p);
    plan->npods++;
}

/* As kube-scheduler takes them: by priority, then by age. */
static int by_turn(const void *a, const void *b) {
    const struct pod *x = &((const struct plan_pod *) a)->pod;
    const struct pod *y = &((const struct plan_pod *) b)->pod;

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (x->created != y->created)
        return x->created < y->created ? -1 : 1;
    int r = strcmp(x->namespace, y->namespace);
    return r ? r : strcmp(x->name, y->name);
}

static int read_pods(const char *namespace, struct plan *plan, struct err *err) {
    struct json list, object;
    char path[API_PATH_MAX];

    int r =
        api_read(api_list_path(API_UNBOUND_PODS, namespace, path), &plan->pods_parser, &list, err);
    if (r < 0)
        return r;
    struct json items = json_get(list, "items");
    struct json_iter it = json_iter(items);
    size_t n = json_size(items);
    plan->pods = calloc(n + 1, sizeof(*plan->pods));
    plan->needing = calloc(n + 1, sizeof(*plan->needing));
    if (!plan->pods || !plan->needing)
        return err_errno(err, ENOMEM, "cannot hold the pods");
    for (; n > 0 && json_next(&it, NULL, &object); n--)
        add_pod(plan, object);
    qsort(plan->pods, plan->npods, sizeof(*plan->pods), by_turn);
    return 0;
}

/* ---- nodes ---- */

struct named {
    const char *name;
    struct json object;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct named *) a)->name, ((const struct named *) b)->name);
}

static void add_card(struct plan *plan, uint32_t at) {
    const struct card *card = &plan->cards.list[at];
    struct capacity_nodes *now = &plan->now;
    const struct card *last = now->n > 0 ? plan->nodes[now->n - 1].cards : NULL;
    bool same = last && strcmp(last->node, card->node) == 0 &&
                now->list[now->n - 1].ncards < PLACE_CARDS_MAX;

    now->cards[at] = card_place(card);
    if (!same) {
        plan->nodes[now->n] = (struct plan_node){.cards = card, .machine = UINT32_MAX};
        now->list[now->n] = (struct place_node){.cards = &now->cards[at], .rank = now->n};
        now->n++;
    }
    now->list[now->n - 1].ncards++;
    now->ncards++;
}

static int read_nodes(struct plan *plan, struct err *err) {
    struct json list, object;

    int r = api_read("/api/v1/nodes", &plan->nodes_parser, &list, err);
    if (r < 0)
        return r;
    struct json items = json_get(list, "items");
    struct json_iter it = json_iter(items);
    size_t n = 0, most = json_size(items);
    _cleanup_free_ struct named *named = calloc(most + 1, sizeof(*named));
    if (!named)
        return err_errno(err, ENOMEM, "cannot hold the nodes");
    while (n < most && json_next(&it, NULL, &object)) {
        named[n] = (struct named){json_string(JSON_PATH(object, "metadata", "name")), object};
        n += named[n].name != NULL;
    }
    qsort(named, n, sizeof(*named), by_name);
    for (uint32_t i = 0; i < plan->now.n; i++) {
        const struct named key = {.name = plan->nodes[i].cards->node};
        const struct named *found = bsearch(&key, named, n, sizeof(*named), by_name);
        plan->nodes[i].object = found ? found->object : (struct json){0};
    }
    return 0;
}

int plan_read(const char *namespace, struct plan *plan, struct err *err) {
    if (namespace && !api_is_name(namespace))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", namespace);
    int r = cards_fetch(&plan->cards, err);
    if (r == 0)
        r = read_pods(namespace, plan, err);
    if (r < 0)
        return r;
    plan->nodes = calloc(plan->cards.n + 1, sizeof(*plan->nodes));
    plan->now.list = calloc(plan->cards.n + 1, sizeof(*plan->now.list));
    plan->now.cards = calloc(plan->cards.n + 1, sizeof(*plan->now.cards));
    if (!plan->nodes || !plan->now.list || !plan->now.cards)
        return err_errno(err, ENOMEM, "cannot hold the cards");
    for (uint32_t i = 0; i < plan->cards.n; i++)
        add_card(plan, i);
    return read_nodes(plan, err);
}

/* ---- kinds of machines ---- */

static bool is_equal(const struct plan_machine *m, const struct card *cards, uint32_t ncards) {
    if (!m->like || m->ncards != ncards)
        return false;
    for (uint32_t i = 0; i < ncards; i++) {
        struct place_card card = card_place_new(&cards[i]);
        const struct place_card *known = &m->cards[i];
        if (strcmp(m->like[i].model, cards[i].model) != 0 || known->memory != card.memory ||
            known->physical != card.physical || known->whole_only != card.whole_only ||
            card_replicas_code(&known->replicas) != card_replicas_code(&card.replicas))
            return false;
    }
    return true;
}

/* A node with MIG instances is divided as pods have asked for it; one whose agent has not reported
 * yet has no memory. */
static bool is_a_kind(const struct card *cards, uint32_t ncards) {
    for (uint32_t i = 0; i < ncards; i++)
        if (cards[i].parent[0] || cards[i].divided || cards[i].memory == 0)
            return false;
    return ncards > 0;
}

/* The links between its cards; NULL: not known. */
static struct place_topology *links_of(const struct card *cards, uint32_t n) {
    struct place_topology *t = n > 1 ? calloc(1, topology_size(n)) : NULL;
    bool known = false;

    if (!t)
        return NULL;
    t->ncards = n;
    for (uint32_t a = 0; a < n; a++) {
        struct gpu_object gpu;
        bool good = gpu_object_parse(cards[a].object, &gpu, NULL) == 0;
        t->numa[a] = (int8_t) (good ? gpu.numa : -1);
        for (uint32_t b = 0; b < n; b++)
            t->links[a * n + b] = good && a != b && cards[b].index < gpu.nlinks
                                      ? gpu.links[cards[b].index]
                                      : LINK_UNKNOWN;
        known |= good && gpu.nlinks > 0;
    }
    for (uint32_t a = 0; a < n; a++) /* where the ends differ for a moment, the worse one */
        for (uint32_t b = 0; b < n; b++)
            if (t->links[b * n + a] < t->links[a * n + b])
                t->links[a * n + b] = t->links[b * n + a];
    if (known) {
        topology_finish(t);
        return t;
    }
    free(t);
    return NULL;
}

static char *model_of(const struct card *cards, uint32_t ncards) {
    bool mixed = false;
    char *text;

    for (uint32_t i = 1; i < ncards; i++)
        mixed |= strcmp(cards[i].model, cards[0].model) != 0;
    return asprintf(&text, "%s%s", cards[0].model, mixed ? " and others" : "") < 0 ? NULL : text;
}

static int add_kind(struct plan *plan, const struct card *cards, uint32_t ncards) {
    struct plan_machine *more =
        reallocarray(plan->machines, plan->nmachines + 1, sizeof(*plan->machines));

    if (!more)
        return -ENOMEM;
    plan->machines = more;
    struct plan_machine *m = &more[plan->nmachines];
    *m = (struct plan_machine){.memory = cards[0].memory, .ncards = ncards, .like = cards};
    m->model = model_of(cards, ncards);
    if (!m->model)
        return -ENOMEM;
    for (uint32_t i = 0; i < ncards; i++)
        m->cards[i] = card_place_new(&cards[i]);
    m->topology = links_of(cards, ncards);
    plan->nmachines++;
    return 0;
}

int plan_add_kinds(struct plan *plan, struct err *err) {
    for (uint32_t i = 0; i < plan->now.n; i++) {
        const struct card *cards = plan->nodes[i].cards;
        uint32_t ncards = plan->now.list[i].ncards, kind = 0;
        if (!is_a_kind(cards, ncards))
            continue;
        while (kind < plan->nmachines && !is_equal(&plan->machines[kind], cards, ncards))
            kind++;
        if (kind == plan->nmachines && add_kind(plan, cards, ncards) < 0)
            return err_errno(err, ENOMEM, "cannot hold the machines");
        plan->nodes[i].machine = kind;
        plan->machines[kind].existing++;
    }
    return 0;
}

int plan_machine_parse(const char *text, struct plan_machine *ret, struct err *err) {
    _cleanup_free_ char *copy = strdup(text);
    char *memory = copy ? strrchr(copy, ',') : NULL;
    uint64_t ncards = 0, bytes = 0;

    if (memory)
        *memory++ = '\0';
    char *count = memory ? strrchr(copy, ',') : NULL;
    if (count)
        *count++ = '\0';
    if (!count || count == copy + 1 || num_parse_u64(count, PLACE_CARDS_MAX, &ncards) < 0 ||
        ncards == 0 || num_parse_size(memory, &bytes) < 0 || bytes == 0)
        return err_set(err, EINVAL,
                       "--machine takes MODEL,CARDS,MEMORY, such as 'NVIDIA H100,8,80Gi', with 1 "
                       "to %d cards, not '%s'",
                       PLACE_CARDS_MAX, text);
    *ret = (struct plan_machine){.memory = bytes, .ncards = (uint32_t) ncards};
    ret->model = take_ptr(copy);
    for (uint32_t i = 0; i < ret->ncards; i++)
        ret->cards[i] = (struct place_card){.memory = bytes,
                                            .physical = bytes,
                                            .free = place_amount_of_card(bytes),
                                            .healthy = true,
                                            .tflops = gpu_model_tflops(ret->model)};
    return 0;
}
