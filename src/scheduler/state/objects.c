/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/state/state.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/text.h"
#include "kube/objects/gang.h"
#include "model/gpu_model.h"
#include "place/workload/workload_model.h"
#include "scheduler/state/namespace_usage.h"
#include "scheduler/state/state_internal.h"

#define STRAY_MS 60000

struct state *state_new(state_verify verify, void *userdata) {
    struct state *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    *s = (struct state){.verify = verify, .userdata = userdata, .policy = &place_binpack};
    return state_add_selector(s, &state_selection) < 0 ? state_free(s) : s;
}

static void pod_free(struct state *s, struct state_pod *pod) {
    state_draws_drop(pod);
    state_pod_detach(pod);
    HASH_DEL(s->pods, pod);
    if (pod->stage != POD_BOUND)
        DL_DELETE2(s->open, pod, open_prev, open_next);
    free(pod->containers);
    selection_free(pod->selection);
    free(pod->gang);
    space_leave(s, pod);
    s->pods_generation++;
    free(pod->nominated);
    free(pod->labels);
    free(pod->foreign.scheduler);
    free(pod);
}

static void card_free(struct state *s, struct state_card *card) {
    HASH_DEL(s->cards, card);
    free(card->observed);
    free(card);
}

struct state *state_free(struct state *s) {
    if (!s)
        return NULL;
    struct state_pod *pod, *next_pod;
    struct state_card *card, *next_card;
    struct state_node *node, *next_node;
    while (s->charges)
        state_uncharge(s, s->charges->id);
    while (s->reserved)
        state_unreserve(s, s->reserved->id);
    while (s->loads)
        state_load_gone(s, s->loads->uid);
    while (s->namespaces)
        (void) state_namespace_policy(s, s->namespaces->name, NULL, NULL);
    HASH_ITER(hh, s->pods, pod, next_pod)
        pod_free(s, pod);
    HASH_ITER(hh, s->cards, card, next_card)
        card_free(s, card);
    HASH_ITER(hh, s->nodes, node, next_node)
        state_node_free(s, node);
    state_heads_free(s);
    free(s);
    return NULL;
}

/* ---- nodes ---- */

int state_node_seen(struct state *s, const char *name) {
    struct state_node *node = state_node_get(s, name);
    if (!node)
        return -ENOMEM;
    node->exists = node->listed = true;
    return 0;
}

int state_node_absence(struct state *s, const char *name, enum place_reason absence) {
    struct state_node *node = state_node_get(s, name);
    if (!node)
        return -ENOMEM;
    if (node->head->absence == absence)
        return 0;
    node->head->absence = (uint8_t) absence;
    state_node_changed(node);
    return 1;
}

int state_node_apart_absence(struct state *s, const char *name, enum place_reason absence) {
    struct state_node *node = state_node_get(s, name);
    if (!node)
        return -ENOMEM;
    if (node->apart_absence == absence)
        return 0;
    node->apart_absence = absence;
    state_unproject(node);
    return 1;
}

static void set_agent_runs(struct state_node *node, bool runs) {
    if (node->agent.runs != runs)
        state_unproject(node);
    node->agent.runs = runs;
}

int state_agent_pod_seen(struct state *s, const char *node_name, const char *uid, bool runs) {
    struct state_node *node = state_node_get(s, node_name);
    if (!node)
        return -ENOMEM;
    if (!runs && node->agent.uid[0] && strcmp(node->agent.uid, uid) != 0)
        return 0;
    text_copy(node->agent.uid, sizeof(node->agent.uid), uid);
    node->agent.listed = true;
    set_agent_runs(node, runs);
    return 0;
}

/* Pods that ended while the watch was away. */
static void drop_unlisted_agents(struct state *s) {
    for (struct state_node *node = s->nodes; node; node = node->hh.next)
        if (!node->agent.listed)
            set_agent_runs(node, false);
}

void state_node_gone(struct state *s, const char *name) {
    struct state_node *node = state_node_find(s, name);
    if (!node)
        return;
    node->exists = false;
    state_node_drop_if_unused(s, node);
}

/* ---- cards ---- */

static int card_order(const struct state_card *a, const struct state_card *b) {
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void node_remove_card(struct state_card *card) {
    struct state_node *node = card->node;
    if (!node)
        return;
    if (card->apart)
        DL_DELETE(node->apart, card);
    for (uint32_t i = 0; i < node->ncards; i++)
        if (node->cards[i] == card) {
            memmove(&node->cards[i], &node->cards[i + 1],
                    (node->ncards - i - 1) * sizeof(struct state_card *));
            node->ncards--;
            break;
        }
    node->relinked = true;
    card->node = NULL;
    state_node_changed(node);
}

/* Keeps the cards in order. A card beyond the 64th is not used. */
static void node_add_card(struct state_node *node, struct state_card *card) {
    uint32_t at = node->ncards;
    if (card->apart) {
        DL_APPEND(node->apart, card);
        card->node = node;
        state_node_changed(node);
        return;
    }
    if (at == PLACE_CARDS_MAX)
        return;
    for (; at > 0 && card_order(card, node->cards[at - 1]) < 0; at--)
        node->cards[at] = node->cards[at - 1];
    node->cards[at] = card;
    node->ncards++;
    assert(node->ncards <= PLACE_CARDS_MAX);
    node->relinked = true;
    card->node = node;
    state_node_changed(node);
}

static struct state_card *card_get(struct state *s, const char *name) {
    struct state_card *card;
    HASH_FIND_STR(s->cards, name, card);
    if (card)
        return card;
    card = calloc(1, sizeof(*card));
    if (!card)
        return NULL;
    memcpy(card->name, name, strlen(name) + 1);
    HASH_ADD_STR(s->cards, name, card);
    return hash_added_or_freed(card);
}

/* What it has of a card, if it is an instance. */
static void take_instance(struct state_card *card, struct state_node *node,
                          const struct gpu_object *gpu) {
    uint32_t core = gpu->parent[0] && !gpu->no_shares ? gpu->core : 0;
    if (card->core != core)
        state_node_changed(node);
    card->core = core;
    memcpy(card->parent, gpu->parent, sizeof(card->parent));
    memcpy(card->profile, gpu->mig.profile, sizeof(card->profile));
    card->start = gpu->mig.start;
}

int state_gpu_seen(struct state *s, const struct gpu_object *gpu, const char *observed) {
    char *copy = observed ? strdup(observed) : NULL;
    struct state_card *card = card_get(s, gpu->name);
    struct state_node *node = state_node_get(s, gpu->node);
    if (!card || !node || (observed && !copy)) {
        free(copy);
        return -ENOMEM;
    }
    free(card->observed);
    card->observed = copy;
    card->listed = true;
    state_unproject(node);
    if (card->unknown && gpu->healthy)
        node->agent.runs = true; /* which wrote it: its pod is shown later */
    if (card->node != node || card->index != gpu->index || card->apart != gpu->no_shares) {
        struct state_node *old = card->node;
        node_remove_card(card);
        card->index = gpu->index;
        card->apart = gpu->no_shares;
        node_add_card(node, card);
        if (old && old != node)
            state_node_drop_if_unused(s, old);
    }
    uint64_t capacity = gpu->capacity > 0 ? gpu->capacity : gpu->memory;
    if (strcmp(card->uuid, gpu->uuid) != 0 || card->memory != capacity ||
        card->physical != gpu->memory || card->healthy != gpu->healthy ||
        card->whole_only != gpu->whole_only || card->under_mps != gpu->under_mps ||
        card->mps_on_demand != gpu->mps_on_demand ||
        card_replicas_code(&card->replicas) != card_replicas_code(&gpu->replicas) ||
        card->unknown != gpu->unknown || card->unattributed != gpu->unattributed)
        state_node_changed(node);
    take_instance(card, node, gpu);
    memcpy(card->uuid, gpu->uuid, sizeof(card->uuid));
    if (strcmp(card->model, gpu->model) != 0)
        state_node_changed(node);
    memcpy(card->model, gpu->model, sizeof(card->model));
    card->model_id = state_model_id(s, card->model);
    card->tflops = gpu_model_tflops(card->model);
    state_links_seen(card, gpu);
    card->memory = capacity;
    card->physical = gpu->memory;
    card->unattributed = gpu->unattributed;
    card->healthy = gpu->healthy;
    card->whole_only = gpu->whole_only;
    card->under_mps = gpu->under_mps;
    card->mps_on_demand = gpu->mps_on_demand;
    card->replicas = gpu->replicas;
    card->unknown = gpu->unknown;
    return 0;
}

void state_instance_leave(struct state_card *card, bool leaving) {
    if (card->leaving != leaving)
        state_node_changed(card->node);
    card->leaving = leaving;
}

void state_card_order(struct state_card *card, bool ordered, bool wanted) {
    if (card->node && (card->order.ordered != ordered || card->order.wanted != wanted))
        state_node_changed(card->node);
    card->order.ordered = ordered;
    card->order.wanted = wanted;
}

void state_gpu_gone(struct state *s, const char *name) {
    struct state_card *card;
    HASH_FIND_STR(s->cards, name, card);
    if (!card)
        return;
    struct state_node *node = card->node;
    node_remove_card(card);
    card_free(s, card);
    if (node)
        state_node_drop_if_unused(s, node);
}

/* ---- pods ---- */

void state_pod_gone(struct state *s, const char *uid) {
    struct state_pod *pod = state_pod_find(s, uid);
    state_load_gone(s, uid);
    if (!pod)
        return;
    struct state_node *node = pod->node;
    pod_free(s, pod);
    if (node)
        state_node_drop_if_unused(s, node);
}

/* Of thousands that end in a second, kube-scheduler is still to hear of the last ones. */
static bool has_ended(const struct state *s, const char *uid) {
    uint64_t hash = state_hash(0, uid);
    for (uint32_t i = 0; i < STATE_ENDED_MAX; i++)
        if (s->ended[i] == hash)
            return true;
    return false;
}

void state_pod_ended(struct state *s, const char *uid) {
    if (state_pod_find(s, uid))
        s->ended[s->nended++ % STATE_ENDED_MAX] = state_hash(0, uid);
    state_pod_gone(s, uid);
}

static int set_containers(struct state_pod *pod, const struct gpu_request *request) {
    struct container_request *containers = NULL;
    if (request->n > 0) {
        containers = calloc(request->n, sizeof(*containers));
        if (!containers)
            return -ENOMEM;
        memcpy(containers, request->containers, request->n * sizeof(*containers));
    }
    free(pod->containers);
    pod->containers = containers;
    pod->ncontainers = request->n;
    return 0;
}

/* Shares of a pod are fixed when it is created; its CPUs and its setting for memory scaling are
 * not. */
static bool same_containers(const struct state_pod *pod, const struct gpu_request *request) {
    if (pod->ncontainers != request->n)
        return false;
    for (uint32_t i = 0; i < request->n; i++)
        if (pod->containers[i].scaling != request->containers[i].scaling ||
            pod->containers[i].cpus != request->containers[i].cpus)
            return false;
    return true;
}

static int set_text(char **text, const char *to) {
    if (*text && to && strcmp(*text, to) == 0)
        return 0;
    char *copy = to && *to ? strdup(to) : NULL;
    if (to && *to && !copy)
        return -ENOMEM;
    free(*text);
    *text = copy;
    return 0;
}

/* What the pod says of itself and may change. */
static int set_rank(struct state_pod *pod, const struct pod *seen) {
    pod->problem = seen->problem;
    pod->resource_claims = seen->resource_claims;
    pod->mixed = seen->mixed;
    pod->annotation_bytes = seen->annotation_bytes;
    pod->priority = seen->priority;
    pod->never_preempts = seen->never_preempts;
    pod->created = seen->created;
    pod->deleting |= seen->deleting; /* which nothing takes back */
    int r = set_text(&pod->nominated, seen->nominated);
    return r < 0 ? r : set_text(&pod->labels, seen->labels);
}

/* One that nothing is known of but its name. */
static struct state_pod *pod_new(struct state *s, const struct pod *seen) {
    struct state_pod *pod = calloc(1, sizeof(*pod));
    if (!pod)
        return NULL;
    memcpy(pod->uid, seen->uid, sizeof(pod->uid));
    memcpy(pod->namespace, seen->namespace, sizeof(pod->namespace));
    memcpy(pod->name, seen->name, sizeof(pod->name));
    s->pods_generation++;
    if (space_join(s, pod) == 0)
        HASH_ADD_STR(s->pods, uid, pod);
    if (hash_added(pod)) {
        DL_APPEND2(s->open, pod, open_prev, open_next);
        return pod;
    }
    space_leave(s, pod);
    free(pod);
    return NULL;
}

/* Requests of CPU and memory can be resized while the pod runs. */
static void set_room(struct state_pod *pod, struct cpu_memory room) {
    if (pod->room.cpu == room.cpu && pod->room.memory == room.memory &&
        pod->room.exclusive == room.exclusive)
        return;
    if (pod->node) {
        pod->node->used = state_room_add(state_room_sub(pod->node->used, pod->room), room);
        state_touch(pod->node);
    }
    pod->room = room;
}

/* The selection of a pod may change as long as it has no cards. */
static int set_selection(struct state_pod *pod, const struct gpu_selection *selection) {
    struct gpu_selection *copy = NULL;
    if (pod->stage != POD_PENDING || selection_hash(pod->selection) == selection_hash(selection))
        return 0;
    if (selection && !(copy = selection_copy(selection)))
        return -ENOMEM;
    selection_free(pod->selection);
    pod->selection = copy;
    return 0;
}

static int set_gang(struct state *s, struct state_pod *pod, const struct pod_gang *gang) {
    struct pod_gang *copy = NULL;
    bool same = gang && pod->gang ? memcmp(gang, pod->gang, sizeof(*gang)) == 0 : gang == pod->gang;
    if (same)
        return 0;
    if (gang && !(copy = malloc(sizeof(*copy))))
        return -ENOMEM;
    if (copy)
        *copy = *gang;
    free(pod->gang);
    pod->gang = copy;
    s->pods_generation++;
    return 0;
}

static struct state_pod *learn_pod(struct state *s, const struct pod *seen, bool arrives) {
    struct state_pod *pod = state_pod_find(s, seen->uid);
    bool known = pod != NULL;
    if (!known && !(pod = pod_new(s, seen)))
        return NULL;
    set_room(pod, seen->room);
    s->pods_generation += seen->deleting && !pod->deleting;
    bool changed = !known || (pod->stage == POD_PENDING && !seen->resource_claims &&
                              !same_containers(pod, &seen->request));
    if ((!changed || set_containers(pod, &seen->request) == 0) && set_rank(pod, seen) == 0 &&
        set_selection(pod, seen->selection) == 0 && set_gang(s, pod, seen->gang) == 0) {
        if (!known && arrives)
            state_learn_arrival(s, pod);
        return pod;
    }
    if (!known)
        pod_free(s, pod);
    return NULL;
}

struct state_pod *state_pod_learn(struct state *s, const struct pod *seen) {
    return learn_pod(s, seen, true);
}

struct state_pod *state_pod_suppose(struct state *s, const struct pod *seen) {
    return learn_pod(s, seen, false);
}

struct state_pod *state_pod_asked(struct state *s, const struct pod *seen, const char **ret_why) {
    bool ended = !state_pod_find(s, seen->uid) && has_ended(s, seen->uid);
    if (ret_why)
        *ret_why = ended ? "the pod has ended" : "out of memory";
    return ended ? NULL : state_pod_learn(s, seen);
}

static bool of_interest(const struct state *s, const struct pod *pod) {
    return pod->request.n > 0 || pod->problem != REQUEST_OK || pod->assignment ||
           (pod->resource_claims && s->keeps_resource_claims);
}

int state_pod_seen(struct state *s, const struct pod *seen, uint64_t now_ms) {
    if (seen->finished) {
        state_pod_ended(s, seen->uid);
        return 0;
    }
    if (!of_interest(s, seen)) {
        struct state_node *on = seen->node[0] ? state_node_get(s, seen->node) : NULL;
        return on ? state_load_seen(s, seen, on) : seen->node[0] ? -ENOMEM : 0;
    }
    struct state_pod *pod = state_pod_learn(s, seen);
    if (!pod)
        return -ENOMEM;
    pod->listed = pod->shown = true;
    if (seen->node[0] == '\0')
        return 0; /* an event from before our own Binding takes nothing back */
    struct state_node *node = state_node_get(s, seen->node);
    if (!node)
        return -ENOMEM;
    return state_pod_bound(s, pod, node, seen, now_ms);
}

int state_pod_want(struct state *s, struct state_pod *pod,
                   const struct container_request *containers, uint32_t n) {
    if (pod->ncontainers == n &&
        (n == 0 || memcmp(pod->containers, containers, n * sizeof(*containers)) == 0))
        return 0;
    struct container_request *copy = n > 0 ? calloc(n, sizeof(*copy)) : NULL;
    if (n > 0 && !copy)
        return -ENOMEM;
    if (n > 0)
        memcpy(copy, containers, n * sizeof(*copy));
    s->pods_generation += (n > 0) != (pod->ncontainers > 0); /* see gangs */
    free(pod->containers);
    pod->containers = copy;
    pod->ncontainers = n;
    return 0;
}

void state_pod_settle(struct state_pod *pod, struct state_node *node, uint64_t now_ms) {
    state_pod_attach(pod, node, NULL, 0);
    state_pod_stage(pod, POD_ASSUMED, now_ms);
}

/* ---- lists ---- */

void state_sync_begin(struct state *s, enum state_kind kind) {
    if (kind == STATE_PODS) {
        hash_unlist(s->pods);
        hash_unlist(s->loads);
        for (struct state_node *node = s->nodes; node; node = node->hh.next)
            node->agent.listed = false;
    }
    if (kind == STATE_NAMESPACES)
        hash_unlist(s->namespaces);
    if (kind == STATE_NODES)
        hash_unlist(s->nodes);
    if (kind == STATE_GPUS)
        hash_unlist(s->cards);
}

static void drop_unlisted_pods(struct state *s) {
    struct state_pod *pod, *next;
    HASH_ITER(hh, s->pods, pod, next) {
        bool unsettled =
            pod->stage == POD_BINDING || pod->stage == POD_IN_DOUBT || pod->stage == POD_AWAITED;
        if (!pod->listed && !unsettled)
            state_pod_gone(s, pod->uid);
        else
            pod->shown = pod->listed;
    }
}

#define DROP_UNLISTED(s, all, gone)                                                                \
    do {                                                                                           \
        __typeof__(all) item_, next_;                                                              \
        HASH_ITER(hh, all, item_, next_)                                                           \
            if (!item_->listed)                                                                    \
                gone(s, item_->name);                                                              \
    } while (0)

void state_sync_end(struct state *s, enum state_kind kind) {
    if (kind == STATE_PODS) {
        drop_unlisted_pods(s);
        state_load_unlisted(s);
        drop_unlisted_agents(s);
    }
    if (kind == STATE_NODES)
        DROP_UNLISTED(s, s->nodes, state_node_gone);
    if (kind == STATE_NAMESPACES)
        state_namespaces_unlisted(s);
    if (kind == STATE_GPUS)
        DROP_UNLISTED(s, s->cards, state_gpu_gone);
}

/* ---- learning ---- */

void state_learn_from(struct state *s, struct place_model *model, int64_t since) {
    s->model = model;
    s->model_since = s->arrived_until = since;
    for (struct state_node *node = s->nodes; node; node = node->hh.next)
        state_touch(node);
    state_refresh_all(s); /* first, since pods ask for parts of what there is */
    for (struct state_pod *pod = s->pods; pod; pod = pod->hh.next) {
        state_learn_arrival(s, pod);
        if (pod->node)
            state_learn_start(s, pod);
    }
    for (const struct state_load *load = s->loads; load; load = load->hh.next)
        state_learn_load(s, load);
    place_model_learn(model);
}

/* ---- expiry ---- */

/* A pod that is known only from a request and was never shown by the watch does not exist, or no
 * longer.
 */
static bool is_stray(struct state_pod *pod, uint64_t now_ms) {
    if (pod->shown || pod->stage != POD_PENDING)
        return false;
    if (pod->since_ms == 0)
        pod->since_ms = now_ms;
    return now_ms - pod->since_ms >= STRAY_MS;
}

static void drop_unused_nodes(struct state *s) {
    hash_drop_all(s, s->nodes, state_node_drop_if_unused);
}

unsigned state_expire(struct state *s, uint64_t now_ms, uint64_t ttl_ms) {
    unsigned n = 0;
    struct state_pod *pod, *next;
    DL_FOREACH_SAFE2(s->open, pod, next, open_next) {
        if (pod->stage == POD_ASSUMED && now_ms - pod->since_ms >= ttl_ms &&
            now_ms >= pod->keep_until_ms) {
            state_release(s, pod);
            n++;
        }
        if (is_stray(pod, now_ms))
            state_pod_gone(s, pod->uid);
    }
    if (s->left_nodes)
        drop_unused_nodes(s);
    s->left_nodes = false;
    return n;
}
