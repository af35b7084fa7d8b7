/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/preemption/evict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "kube/api/event_writer.h"
#include "kube/api/field.h"
#include "kube/api/object_write.h"
#include "wire/http_status.h"
#include "wire/json_write.h"

#define CASES_MAX 256           /* pods that wait for room at once */
#define EVICTIONS_PER_SECOND 20 /* requests to the eviction API */
#define REQUEST_TIMEOUT_MS 10000

/* Grace period for kube-scheduler's own preemption, from a refusal by filter on. */
#define KUBE_PREEMPTION_GRACE_MS 300
/* The time in which kube-scheduler deletes its victims and nominates a node after it called the
 * preempt verb, and in which the watch shows a nomination of ours. Until then the pod is left to
 * kube-scheduler. */
#define NOMINATION_SETTLE_MS 3000
/* Time between two evaluations of a pod for which room is being made. */
#define RETRY_MS 1000
/* The same for a pod that no victims help, or about which kube-scheduler is to be asked first. It
 * doubles with each evaluation up to HOPELESS_DOUBLINGS times, so that many such pods leave time
 * for the others. */
#define HOPELESS_RETRY_MS 5000
#define HOPELESS_DOUBLINGS 3
/* Time for which a pod is no victim again after the API server refused to evict it. */
#define REFUSED_EVICTION_MS 15000
/* Time between two searches for pods that another process began to make room for. */
#define ADOPT_INTERVAL_MS 1000
/* Age of the last run beyond which evictor_catch_up() runs: this replica has just become the
 * leader. */
#define CATCH_UP_MS 3000
/* Age of an offer of nodes at which no pod is evicted from them any more: a node may have been
 * cordoned since, or be full. */
#define OFFER_MAX_AGE_MS 10000
/* Time for which a pod waits for the agent of its node, which is being replaced. */
#define AGENT_REPLACED_MS 60000

/* Effort of one run, see victims_choose(); it bounds the time that the loop is blocked. */
#define RUN_TESTS 4000
/* Effort for a node where room is being made already, whatever other pods have used up. */
#define FEW_TESTS 256
#define NONE SIZE_MAX

struct evict_case {
    UT_hash_handle hh;
    char uid[KUBE_UID_MAX];
    int32_t priority;
    char *nodes; /* names that kube-scheduler offered, one behind the other */
    size_t nodes_size;
    uint64_t offered_ms;
    size_t evaluated;         /* where in `nodes` the search goes on in the next run */
    size_t best;              /* where the cheapest node so far is, or NONE */
    struct victims_cost cost; /* and what it takes */
    char node[KUBE_NAME_MAX]; /* where room is being made; "" while nowhere */
    uint64_t next_ms;         /* not evaluated before */
    uint64_t nominated_ms;    /* when the API server last took the nomination; 0: not yet */
    uint64_t absent_ms;       /* since when the agent of `node` is away; 0: it is there */
    unsigned pauses;          /* one after the other */
    unsigned in_flight;
    bool reserved;
    bool hopeless; /* at the last evaluation */
};

/* ---- cases ---- */

static struct evict_case *find_case(struct evictor *e, const char *uid) {
    struct evict_case *c;
    HASH_FIND_STR(e->cases, uid, c);
    return c;
}

static void let_go(struct evictor *e, struct evict_case *c) {
    if (c->reserved)
        state_unreserve(e->state, c->uid);
    c->reserved = false;
    c->node[0] = '\0';
    c->nominated_ms = 0;
}

static void drop_case(struct evictor *e, struct evict_case *c) {
    let_go(e, c);
    HASH_DEL(e->cases, c);
    free(c->nodes);
    free(c);
}

void evictor_done(struct evictor *e) {
    hash_drop_all(e, e->cases, drop_case);
}

unsigned evictor_waiting(const struct evictor *e) {
    return HASH_COUNT(e->cases);
}

/* Whether there is room for another case. A case of lower priority or without hope is dropped: it
 * is added again at the pod's next filter. */
static bool make_way(struct evictor *e, int32_t priority) {
    struct evict_case *least = NULL;
    if (HASH_COUNT(e->cases) < CASES_MAX)
        return true;
    for (struct evict_case *c = e->cases; c; c = c->hh.next)
        if (c->node[0] == '\0' && c->in_flight == 0 &&
            (c->priority < priority || (c->priority == priority && c->hopeless)) &&
            (!least || c->priority < least->priority))
            least = c;
    if (least)
        drop_case(e, least);
    return least != NULL;
}

static void begin_search(struct evict_case *c) {
    c->evaluated = 0;
    c->best = NONE;
}

static struct evict_case *get_case(struct evictor *e, const struct state_pod *pod) {
    struct evict_case *c = find_case(e, pod->uid);
    if (c || !make_way(e, pod->priority) || !(c = calloc(1, sizeof(*c))))
        return c;
    memcpy(c->uid, pod->uid, sizeof(c->uid));
    c->priority = pod->priority;
    begin_search(c);
    HASH_ADD_STR(e->cases, uid, c);
    return hash_added_or_freed(c);
}

/* Whether the node has a pod of lower priority, or one that is being deleted. */
static bool could_help(const struct state_node *node, const struct state_pod *pod) {
    for (const struct state_pod *on = node ? node->pods : NULL; on; on = on->next)
        if (on != pod && (on->deleting || on->priority < pod->priority))
            return true;
    return false;
}

static int offer_nodes(struct evict_case *c, const struct state_pod *pod,
                       const struct extender_candidate *candidates, size_t n) {
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += could_help(candidates[i].node, pod) ? strlen(candidates[i].name) + 1 : 0;
    char *names = malloc(size + 1), *at = names;
    if (!names)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(candidates[i].name) + 1;
        if (!could_help(candidates[i].node, pod))
            continue;
        memcpy(at, candidates[i].name, len);
        at += len;
    }
    free(c->nodes);
    c->nodes = names;
    c->nodes_size = size;
    begin_search(c);
    return 0;
}

void evictor_refused(struct evictor *e, const struct state_pod *pod,
                     const struct extender_candidate *candidates, size_t n, uint64_t now_ms) {
    struct evict_case *c = preempt_may(pod) ? get_case(e, pod) : NULL;
    /* The nominated node is asked about alone before all of them are. */
    if (!c || (n == 1 && c->nodes_size > 0 && strcmp(c->node, candidates[0].name) == 0))
        return;
    if (offer_nodes(c, pod, candidates, n) < 0 || (c->nodes_size == 0 && c->node[0] == '\0')) {
        drop_case(e, c);
        return;
    }
    c->offered_ms = now_ms;
    if (!c->hopeless)
        c->pauses = 0;
    if (!c->hopeless || c->next_ms < now_ms + KUBE_PREEMPTION_GRACE_MS)
        c->next_ms = now_ms + KUBE_PREEMPTION_GRACE_MS;
}

/* Takes up the pods that are nominated already: by an earlier process of ours, or by
 * kube-scheduler. */
static void adopt_nominated(struct evictor *e, uint64_t now_ms) {
    if (e->adopted_ms != 0 && now_ms - e->adopted_ms < ADOPT_INTERVAL_MS)
        return;
    e->adopted_ms = now_ms;
    for (struct state_pod *pod = e->state->open; pod; pod = pod->open_next) {
        if (!pod->nominated || pod->stage != POD_PENDING || pod->deleting ||
            pod->problem != REQUEST_OK || pod->ncontainers == 0)
            continue;
        struct evict_case *c = get_case(e, pod);
        if (c && c->node[0] == '\0')
            snprintf(c->node, sizeof(c->node), "%s", pod->nominated);
    }
}

/* ---- what is sent ---- */

/* One request in flight. It has names, because the objects may be gone when the response arrives.
 */
struct sent {
    struct evictor *evictor;
    char for_uid[KUBE_UID_MAX]; /* the pod that waits */
    char uid[KUBE_UID_MAX];     /* the pod that the request is about */
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
};

static bool submit(struct evictor *e, const struct evict_case *c, const struct state_pod *pod,
                   const char *method, const char *subresource, const char *content_type,
                   const struct buf *body, kube_response_cb on_response) {
    struct sent *sent = calloc(1, sizeof(*sent));
    char path[512];
    if (!sent || buf_error(body) < 0 || !field_is_name(pod->namespace) ||
        !field_is_name(pod->name)) {
        free(sent);
        return false;
    }
    sent->evictor = e;
    memcpy(sent->for_uid, c->uid, sizeof(sent->for_uid));
    memcpy(sent->uid, pod->uid, sizeof(sent->uid));
    memcpy(sent->namespace, pod->namespace, sizeof(sent->namespace));
    memcpy(sent->name, pod->name, sizeof(sent->name));
    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s/%s", pod->namespace, pod->name,
             subresource);
    if (e->api.request(e->api.context, method, path, content_type, body->data, body->len,
                       REQUEST_TIMEOUT_MS, on_response, sent, NULL) == 0)
        return true;
    e->failed++;
    free(sent);
    return false;
}

static void on_told(const struct kube_response *response, void *userdata) {
    (void) response; /* an Event or a condition that is lost does no harm */
    free(userdata);
}

static void put_event(struct evictor *e, const struct state_pod *pod, const char *reason,
                      const char *message) {
    const struct event event = event_on_pod(pod->namespace, pod->name, pod->uid, reason, message);
    event_writer_note(e->events, &event, 0, false, e->now(e->userdata));
}

/* ---- nomination ---- */

static struct evict_case *answered(const struct sent *sent) {
    struct evict_case *c = find_case(sent->evictor, sent->for_uid);
    if (c && c->in_flight > 0)
        c->in_flight--;
    return c;
}

static void on_nominated(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct sent *sent = userdata;
    struct evictor *e = sent->evictor;
    struct evict_case *c = answered(sent);
    bool ok = http_is_success(response->status);
    if (!ok) {
        e->failed++;
        log_warn("pod %s/%s: cannot write where room is made for it: %s", sent->namespace,
                 sent->name, response->text);
    }
    if (!c)
        return;
    if (response->status == 404 || response->status == 409) {
        /* It is gone, or another one has its name. Who is there nevertheless comes again. */
        drop_case(e, c);
        e->ask_again(e->userdata);
        return;
    }
    uint64_t now = e->now(e->userdata);
    c->nominated_ms = ok ? now : 0;
    c->next_ms = ok ? now : now + RETRY_MS;
    e->changed(e->userdata);
}

/* `node` NULL: nowhere. */
static void nominate(struct evictor *e, struct evict_case *c, const struct state_pod *pod,
                     const char *node) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    struct json_writer w = {.out = &body};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "uid", pod->uid);
    json_object_end(&w);
    json_object_begin(&w, "status");
    json_put_string(&w, "nominatedNodeName", node);
    json_object_end(&w);
    json_object_end(&w);
    c->in_flight += submit(e, c, pod, "PATCH", "status", KUBE_MERGE_PATCH, &body, on_nominated);
}

/* ---- eviction ---- */

/* The condition DisruptionTarget: while kube-scheduler sees a pod with it on the nominated node, it
 * waits and keeps the nomination. */
static void mark_victim(struct evictor *e, const struct evict_case *c,
                        const struct state_pod *victim, const char *message) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    struct json_writer w = {.out = &body};
    char now[OBJECT_TIME_SIZE];
    object_now(now);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "uid", victim->uid);
    json_object_end(&w);
    json_object_begin(&w, "status");
    json_array_begin(&w, "conditions");
    object_put_condition(&w, "DisruptionTarget", true, "PreemptionByScheduler", message, now, NULL);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    (void) submit(e, c, victim, "PATCH", "status", KUBE_STRATEGIC_PATCH, &body, on_told);
}

static void evicted(struct evictor *e, const struct evict_case *c, struct state_pod *victim) {
    const struct state_pod *pod = c ? state_pod_find(e->state, c->uid) : NULL;
    char message[1024];
    e->state->pods_generation += !victim->deleting;
    victim->deleting = true; /* which the watch may show later */
    if (!pod)
        return;
    /* Who reads it may know the pods of the victim's namespace, and no others. */
    if (strcmp(pod->namespace, victim->namespace) == 0)
        snprintf(message, sizeof(message),
                 "Preempted by pod %s/%s (%s), of priority %d: its share of a GPU is needed",
                 pod->namespace, pod->name, pod->uid, pod->priority);
    else
        snprintf(message, sizeof(message),
                 "Preempted by a pod of another namespace (%s), of priority %d: its share of a GPU "
                 "is needed",
                 pod->uid, pod->priority);
    mark_victim(e, c, victim, message);
    put_event(e, victim, "Preempted", message);
}

static void on_evicted(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct sent *sent = userdata;
    struct evictor *e = sent->evictor;
    struct evict_case *c = answered(sent);
    struct state_pod *victim = state_pod_find(e->state, sent->uid);
    uint64_t now = e->now(e->userdata);
    int status = response->status;
    if (http_is_success(status)) {
        e->evicted++;
        log_info("pod %s/%s is evicted for the pod %s", sent->namespace, sent->name, sent->for_uid);
        if (victim)
            evicted(e, c, victim);
        if (c && c->in_flight == 0) { /* others may have waited for this one */
            c->next_ms = now;
            e->changed(e->userdata);
            return;
        }
    } else if (status == 429) {
        e->spared++;
        log_info("pod %s/%s stays: %s", sent->namespace, sent->name, response->text);
        if (victim)
            victim->preemption.refused_ms = now + REFUSED_EVICTION_MS;
    } else if (status != 404) {
        e->failed++;
        log_warn("cannot evict pod %s/%s: %s", sent->namespace, sent->name, response->text);
    }
    if (c)
        c->next_ms = now + RETRY_MS;
}

static bool evict(struct evictor *e, struct evict_case *c, const struct state_pod *victim) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    struct json_writer w = {.out = &body};
    eviction_write(&w, victim->name, victim->namespace, victim->uid);
    if (!submit(e, c, victim, "POST", "eviction", NULL, &body, on_evicted))
        return false;
    c->in_flight++;
    return true;
}

/* Whether the rate limit allows that many more evictions. */
static bool may_evict(struct evictor *e, unsigned n, uint64_t now_ms) {
    if (now_ms - e->window_ms >= 1000) {
        e->window_ms = now_ms;
        e->in_window = 0;
    }
    return e->in_window == 0 || e->in_window + n <= EVICTIONS_PER_SECOND;
}

/* Which victims to evict next: those that a disruption budget counts first, one at a time, because
 * the API server may refuse one and the others would then have been evicted for nothing; the most
 * recently refused one before the others. Then all others together. Returns how many, which are
 * moved to the front. */
static uint32_t put_next_first(const struct preempt *p, struct evict_plan *plan) {
    struct state_pod **next = NULL;
    for (uint32_t i = 0; i < plan->nvictims; i++) {
        struct state_pod **victim = &plan->victims[i];
        if (preempt_is_guarded(p, *victim) &&
            (!next || (*victim)->preemption.refused_ms > (*next)->preemption.refused_ms))
            next = victim;
    }
    if (!next)
        return plan->nvictims;
    struct state_pod *guarded = *next;
    *next = plan->victims[0];
    plan->victims[0] = guarded;
    return 1;
}

/* The pods of other namespaces are counted, not named. The count comes before the names, of which
 * an Event's message has no more than there is room for. */
static void tell_evictions(struct evictor *e, const struct evict_case *c,
                           const struct state_pod *pod, struct state_pod *const *victims,
                           uint32_t n) {
    _cleanup_buf_ struct buf message = BUF_INIT(1 << 20), named = BUF_INIT(1 << 20);
    uint32_t others = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(victims[i]->namespace, pod->namespace) == 0)
            buf_printf(&named, "%s %s/%s", named.len > 0 ? "," : "", victims[i]->namespace,
                       victims[i]->name);
        else
            others++;
    }
    buf_printf(&message, "Room is made on node %s by evicting", c->node);
    if (others > 0)
        buf_printf(&message, " %u %s of other namespaces%s", others, others == 1 ? "pod" : "pods",
                   named.len > 0 ? "," : "");
    buf_append(&message, named.data, named.len);
    if (n > 0)
        put_event(e, pod, "Preempting", buf_str(&message));
}

static void evict_next(struct evictor *e, struct evict_case *c, const struct state_pod *pod,
                       struct evict_plan *plan, uint64_t now_ms) {
    uint32_t n = put_next_first(e->preempt, plan), sent = 0;
    if (!may_evict(e, n, now_ms))
        return;
    e->in_window += n;
    for (uint32_t i = 0; i < n; i++) {
        if (evict(e, c, plan->victims[i]))
            plan->victims[sent++] = plan->victims[i];
    }
    tell_evictions(e, c, pod, plan->victims, sent);
}

/* ---- one case ---- */

/* Evaluates the offered nodes, from the end of the last run; returns whether all are done. A node
 * that used up less than a whole run's effort is evaluated again. */
static bool search_nodes(struct evictor *e, struct evict_case *c, const struct state_pod *pod,
                         uint64_t now_ms) {
    while (c->evaluated < c->nodes_size && e->tests > 0) {
        const char *name = c->nodes + c->evaluated;
        struct state_node *node = state_node_find(e->state, name);
        uint32_t before = e->tests;
        struct evict_plan plan = {.node = NULL};
        if (node && node->exists && could_help(node, pod))
            plan = preempt_on_node(e->preempt, pod, node, now_ms, &e->tests);
        if (e->tests == 0 && before < RUN_TESTS)
            return false;
        if (plan.node && (c->best == NONE || victims_compare(&plan.cost, &c->cost) < 0)) {
            c->best = c->evaluated;
            c->cost = plan.cost;
        }
        c->evaluated += strlen(name) + 1;
    }
    return c->evaluated >= c->nodes_size && (e->tests > 0 || c->best == NONE);
}

/* What a search for room has found so far. */
struct search_result {
    bool unfinished; /* the next run goes on, and there is no plan yet */
    struct evict_plan plan;
};

/* Where it is cheapest to make room. */
static struct search_result cheapest_plan(struct evictor *e, struct evict_case *c,
                                          const struct state_pod *pod, uint64_t now_ms) {
    struct search_result found = {.unfinished = !search_nodes(e, c, pod, now_ms)};
    if (found.unfinished)
        return found;
    struct state_node *best =
        c->best == NONE ? NULL : state_node_find(e->state, c->nodes + c->best);
    uint32_t before = e->tests;
    if (best)
        found.plan = preempt_on_node(e->preempt, pod, best, now_ms, &e->tests);
    /* The node has changed since, or too little effort was left. */
    found.unfinished = c->best != NONE && !found.plan.node;
    if (found.plan.node || e->tests > 0 || before == RUN_TESTS)
        begin_search(c);
    return found;
}

/* A preemption in progress continues on its node as long as it can succeed without more victims. */
static struct search_result choose_plan(struct evictor *e, struct evict_case *c,
                                        const struct state_pod *pod, uint64_t now_ms) {
    struct state_node *node = c->node[0] ? state_node_find(e->state, c->node) : NULL;
    struct search_result found = {.unfinished = false};
    uint32_t tests = FEW_TESTS;
    if (node && node->exists)
        found.plan = preempt_on_node(e->preempt, pod, node, now_ms, &tests);
    if (found.plan.node && (found.plan.nvictims == 0 || c->nodes_size == 0))
        return found;
    return cheapest_plan(e, c, pod, now_ms);
}

/* Reserves the share that the pod will get there, from the moment when it is free. */
static bool keep_share(struct evictor *e, struct evict_case *c, const struct evict_plan *plan) {
    const struct state_node *node = plan->node;
    if (state_reserve(e->state, c->uid, node->name, plan->devices, plan->ndevices) < 0)
        return false;
    c->reserved = true;
    if (strcmp(c->node, node->name) != 0)
        c->nominated_ms = 0;
    memcpy(c->node, node->name, sizeof(c->node));
    return true;
}

static bool is_nominated(const struct evict_case *c, const struct state_pod *pod, uint64_t now_ms) {
    if (pod->nominated && strcmp(pod->nominated, c->node) == 0)
        return true;
    return c->nominated_ms != 0 && now_ms - c->nominated_ms < NOMINATION_SETTLE_MS;
}

static void pause_case(struct evict_case *c, uint64_t now_ms) {
    c->next_ms = now_ms + ((uint64_t) HOPELESS_RETRY_MS << c->pauses);
    c->pauses += c->pauses < HOPELESS_DOUBLINGS;
}

static void give_up(struct evictor *e, struct evict_case *c, const struct state_pod *pod,
                    uint64_t now_ms) {
    bool ours = c->reserved && pod->nominated && strcmp(pod->nominated, c->node) == 0;
    let_go(e, c);
    if (ours)
        nominate(e, c, pod, NULL);
    c->hopeless = true;
    pause_case(c, now_ms);
}

static bool is_offered(const struct evict_case *c, const char *name) {
    for (size_t at = 0; at < c->nodes_size; at += strlen(c->nodes + at) + 1)
        if (strcmp(c->nodes + at, name) == 0)
            return true;
    return strcmp(c->node, name) == 0;
}

/* Releases the capacity reserved for pods of lower priority, which are evaluated again after this
 * one in the same run. Returns whether there was any. */
static bool take_back(struct evictor *e, const struct evict_case *c) {
    bool any = false;
    for (struct evict_case *other = e->cases; other; other = other->hh.next) {
        if (other->priority >= c->priority || !other->reserved)
            continue;
        state_unreserve(e->state, other->uid);
        other->reserved = false;
        other->next_ms = 0;
        any = true;
    }
    return any;
}

/* Reserves again the capacity for pods of lower priority, and plans again: the cheapest of `found`
 * and of the nodes nominated for those pods. */
static struct evict_plan take_over(struct evictor *e, const struct evict_case *c,
                                   const struct state_pod *pod, uint64_t now_ms,
                                   const struct evict_plan *found) {
    struct state_node *best = found->node;
    struct victims_cost cost = found->cost;
    uint32_t tests = RUN_TESTS;
    if (!take_back(e, c))
        return *found;
    for (const struct evict_case *other = e->cases; other; other = other->hh.next) {
        struct state_node *node = NULL;
        uint32_t few = FEW_TESTS;
        if (other->priority < c->priority && other->node[0] && is_offered(c, other->node))
            node = state_node_find(e->state, other->node);
        if (!node || !node->exists)
            continue;
        const struct evict_plan plan = preempt_on_node(e->preempt, pod, node, now_ms, &few);
        if (!plan.node || (best && victims_compare(&plan.cost, &cost) >= 0))
            continue;
        best = node;
        cost = plan.cost;
    }
    if (!best)
        return (struct evict_plan){.node = NULL};
    return preempt_on_node(e->preempt, pod, best, now_ms, &tests);
}

/* Follows a nomination that kube-scheduler has written in place of ours. */
static void follow_nomination(struct evictor *e, struct evict_case *c, const struct state_pod *pod,
                              uint64_t now_ms) {
    if (c->nominated_ms == 0 || now_ms - c->nominated_ms < NOMINATION_SETTLE_MS ||
        !pod->nominated || strcmp(pod->nominated, c->node) == 0)
        return;
    let_go(e, c);
    snprintf(c->node, sizeof(c->node), "%s", pod->nominated);
}

/* The candidate nodes of kube-scheduler are too old, or were sent to another replica. No preemption
 * starts before the next filter; those in progress continue. */
static void ask_again(struct evictor *e, struct evict_case *c, const struct state_pod *pod,
                      uint64_t now_ms) {
    if (!is_nominated(c, pod, now_ms))
        let_go(e, c);
    pause_case(c, now_ms);
    if (preempt_may(pod))
        e->ask_again(e->userdata);
}

/* A pod that a gate (quota, gang, claim) is closed to would not use the room. */
static bool is_held(struct evictor *e, struct state_pod *pod, uint64_t now_ms) {
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    return gates_closed(e->preempt->gates, pod, now_ms, &why) != NULL;
}

static bool is_due(const struct evict_case *c, const struct state_pod *pod, uint64_t now_ms) {
    return pod->stage == POD_PENDING && pod->shown && c->in_flight == 0 && now_ms >= c->next_ms &&
           (pod->preemption.verb_ms == 0 ||
            now_ms - pod->preemption.verb_ms >= NOMINATION_SETTLE_MS);
}

/* Whether the nominated node's agent is being replaced. The pod waits for the next agent: another
 * node would cost additional victims. */
static bool waits_for_agent(const struct evictor *e, struct evict_case *c, uint64_t now_ms) {
    const struct state_node *node = c->nominated_ms > 0 ? state_node_find(e->state, c->node) : NULL;
    if (!node || state_node_absent(node) == PLACE_OK) {
        c->absent_ms = 0;
        return false;
    }
    if (c->absent_ms == 0)
        c->absent_ms = now_ms;
    return now_ms - c->absent_ms < AGENT_REPLACED_MS;
}

static void make_room(struct evictor *e, struct evict_case *c, struct state_pod *pod,
                      struct evict_plan *plan, uint64_t now_ms) {
    bool evicts = plan->nvictims > 0;
    bool old = c->nodes_size == 0 || now_ms - c->offered_ms >= OFFER_MAX_AGE_MS;
    c->hopeless = false;
    if (!keep_share(e, c, plan)) {
        give_up(e, c, pod, now_ms);
        return;
    }
    if (evicts && old) {
        ask_again(e, c, pod, now_ms);
        return;
    }
    c->pauses = 0;
    if (!is_nominated(c, pod, now_ms))
        nominate(e, c, pod, plan->node->name);
    else if (evicts && preempt_may(pod))
        evict_next(e, c, pod, plan, now_ms);
}

/* Whether it needs no room any more. What a pod has by ResourceClaims is reserved for it already.
 */
static bool has_come(const struct state_pod *pod) {
    return pod->deleting || pod->stage == POD_BOUND || pod->stage == POD_AWAITED ||
           (pod->resource_claims && pod->stage != POD_PENDING);
}

static void run_case(struct evictor *e, struct evict_case *c, uint64_t now_ms) {
    struct preempt *p = e->preempt;
    struct state_pod *pod = state_pod_find(e->state, c->uid);
    if (!pod || has_come(pod)) {
        drop_case(e, c);
        return;
    }
    if (!is_due(c, pod, now_ms))
        return;
    if (is_held(e, pod, now_ms)) {
        give_up(e, c, pod, now_ms);
        c->hopeless = false; /* when it is let through it is asked about */
        return;
    }
    c->next_ms = now_ms + RETRY_MS;
    if (pod->stage != POD_PENDING)
        return; /* its gang has got its places meanwhile */
    follow_nomination(e, c, pod, now_ms);
    if (waits_for_agent(e, c, now_ms))
        return;
    state_plan(e->state, pod, &p->request, &p->plan);
    struct search_result found = choose_plan(e, c, pod, now_ms);
    if (found.unfinished) {
        c->next_ms = now_ms;
        e->changed(e->userdata);
        return;
    }
    if (!found.plan.node || found.plan.nvictims > 0)
        found.plan = take_over(e, c, pod, now_ms, &found.plan);
    if (found.plan.node)
        make_room(e, c, pod, &found.plan, now_ms);
    else
        give_up(e, c, pod, now_ms);
}

static int by_priority(const struct evict_case *a, const struct evict_case *b) {
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return strcmp(a->uid, b->uid);
}

void evictor_run(struct evictor *e, uint64_t now_ms) {
    struct evict_case *c, *next;
    if (!e->leads(e->userdata))
        return;
    e->tests = RUN_TESTS;
    adopt_nominated(e, now_ms);
    HASH_SORT(e->cases, by_priority);
    HASH_ITER(hh, e->cases, c, next)
        run_case(e, c, now_ms);
}

void evictor_catch_up(struct evictor *e, uint64_t now_ms) {
    if (e->adopted_ms == 0 || now_ms - e->adopted_ms >= CATCH_UP_MS)
        evictor_run(e, now_ms);
}
