/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/preemption/preempt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/array.h"
#include "base/err.h"
#include "scheduler/preemption/sharers.h"
#include "scheduler/state/state_internal.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define COMPARED_OF_TEST 64 /* comparisons of pods with budgets and claims: as much as one test */

struct preempt_budget {
    struct preempt_budget *prev, *next;
    bool listed;
    struct budget budget;
};

int preempt_init(struct preempt *p) {
    p->parser = json_parser_new();
    return p->parser ? 0 : -ENOMEM;
}

static void drop_budget(struct preempt *p, struct preempt_budget *b) {
    DL_DELETE(p->budgets, b);
    budget_done(&b->budget);
    free(b);
}

void preempt_done(struct preempt *p) {
    struct preempt_budget *b, *next;
    DL_FOREACH_SAFE(p->budgets, b, next)
        drop_budget(p, b);
    p->parser = json_parser_free(p->parser);
    free(p->amounts);
    p->amounts = NULL;
}

/* ---- budgets ---- */

void preempt_budgets_begin(struct preempt *p) {
    for (struct preempt_budget *b = p->budgets; b; b = b->next)
        b->listed = false;
}

void preempt_budgets_end(struct preempt *p) {
    struct preempt_budget *b, *next;
    DL_FOREACH_SAFE(p->budgets, b, next) {
        if (!b->listed)
            drop_budget(p, b);
    }
}

static struct preempt_budget *find_budget(struct preempt *p, const char *namespace,
                                          const char *name) {
    for (struct preempt_budget *b = p->budgets; b; b = b->next)
        if (strcmp(b->budget.namespace, namespace) == 0 && strcmp(b->budget.name, name) == 0)
            return b;
    return NULL;
}

int preempt_budget_seen(struct preempt *p, struct budget *budget) {
    struct preempt_budget *b = find_budget(p, budget->namespace, budget->name);
    if (!b) {
        b = calloc(1, sizeof(*b));
        if (!b) {
            budget_done(budget);
            return -ENOMEM;
        }
        DL_APPEND(p->budgets, b);
    } else
        budget_done(&b->budget);
    b->budget = *budget;
    b->listed = true;
    return 0;
}

void preempt_budget_gone(struct preempt *p, const char *namespace, const char *name) {
    struct preempt_budget *b = find_budget(p, namespace, name);
    if (b)
        drop_budget(p, b);
}

bool preempt_is_guarded(const struct preempt *p, const struct state_pod *pod) {
    for (const struct preempt_budget *b = p->budgets; b; b = b->next)
        if (budget_counts(&b->budget, pod->namespace, pod->labels))
            return true;
    return false;
}

/* ---- one node as a case for victims_choose() ---- */

/* How pods leave the node. */
enum leaving {
    BY_EVICTION, /* the Eviction API breaks no budget */
    BY_DELETION, /* by kube-scheduler, which breaks budgets where nothing else helps */
    BY_THEMSELVES,
};

struct node_case {
    struct preempt *p;
    enum leaving leaving;
    const struct state_pod *pod;
    struct state_node *node;
    uint64_t now_ms;
    struct state_view view;
    struct victims_case of;
    int32_t allowed[VICTIMS_BUDGETS_MAX];
    const struct budget *budgets[VICTIMS_BUDGETS_MAX];
    uint32_t compared; /* pods with budgets and with claims */
};

static bool is_given(const struct preempt *p, const struct state_pod *pod) {
    for (uint32_t i = 0; i < p->ngiven; i++)
        if (p->given[i] == pod)
            return true;
    return false;
}

/* The bits of the budgets that select the pod; new budgets get bits while there are any. A pod
 * selected by a budget without a bit is no victim. */
static uint64_t budgets_of(struct node_case *c, const struct state_pod *pod, bool *ret_too_many) {
    uint64_t bits = 0;
    for (const struct preempt_budget *b = c->p->budgets; b; b = b->next) {
        uint32_t at = 0;
        c->compared++;
        if (!budget_counts(&b->budget, pod->namespace, pod->labels))
            continue;
        while (at < c->of.nbudgets && c->budgets[at] != &b->budget)
            at++;
        if (at == VICTIMS_BUDGETS_MAX) {
            *ret_too_many = true;
            continue;
        }
        if (at == c->of.nbudgets) {
            c->budgets[at] = &b->budget;
            c->allowed[at] = b->budget.allowed;
            c->of.nbudgets++;
        }
        bits |= UINT64_C(1) << at;
    }
    return bits;
}

static void add(struct place_amount *sum, const struct place_amount *more) {
    sum->memory += more->memory;
    sum->core += more->core;
    sum->slots += more->slots;
}

/* What a ring has of each card of the node, in the order of these. */
static struct victims_amount *amounts_of(const struct node_case *c, const struct state_pod *pod) {
    return &c->p->amounts[pod->preemption.lead->preemption.amounts];
}

/* What the pods of all rings have, by themselves and by their claims. */
static void sum_amounts(struct node_case *c) {
    struct place_amount amount;
    for (const struct state_pod *pod = c->node->pods; pod; pod = pod->next)
        for (uint32_t card = 0; card < c->node->ncards; card++)
            if (state_pod_amount(pod, c->node->cards[card], &amount))
                add(&amounts_of(c, pod)[card].amount, &amount);
    for (const struct state_reserved *kept = c->node->reserved; kept; kept = kept->next)
        for (uint32_t card = 0; kept->sharer && card < c->node->ncards; card++) {
            amount = state_reserved_total(kept, card);
            add(&amounts_of(c, kept->sharer)[card].amount, &amount);
            c->compared++;
        }
}

/* Leaves out the cards of which the ring has nothing; returns how many are left. */
static uint32_t pack_amounts(const struct node_case *c, struct victims_amount *amounts) {
    uint32_t n = 0;
    for (uint32_t card = 0; card < c->node->ncards; card++) {
        const struct place_amount has = amounts[card].amount;
        amounts[n] = (struct victims_amount){.card = card, .amount = has};
        n += !c->node->cards[card]->duplicate && (has.memory > 0 || has.core > 0 || has.slots > 0);
    }
    return n;
}

static void describe_budgets(struct node_case *c, const struct state_pod *pod,
                             struct victims_holder *holder) {
    bool too_many = false;
    const uint64_t budgets = budgets_of(c, pod, &too_many);
    /* One budget cannot be told to lose two pods of a ring. */
    holder->stays |=
        c->now_ms < pod->preemption.refused_ms || too_many || (budgets & holder->budgets) != 0;
    /* The Eviction API refuses pods with several budgets; kube-scheduler deletes its victims. */
    holder->stays |= !c->of.may_violate && __builtin_popcountll(budgets) > 1;
    holder->budgets |= budgets;
    if (is_given(c->p, pod) && !pod->deleting)
        for (uint32_t b = 0; b < c->of.nbudgets; b++)
            c->allowed[b] -= (int32_t) (budgets >> b & 1);
}

/* One of the pods that go together. */
static void describe_pod(struct node_case *c, const struct state_pod *pod,
                         struct victims_holder *holder) {
    const int32_t priority = c->leaving == BY_THEMSELVES ? 0 : pod->priority;
    const bool goes = pod->deleting || is_given(c->p, pod);
    holder->goes &= goes;
    if (!goes)
        holder->more += victims_rank(priority);
    if (!goes && priority > holder->priority)
        holder->priority = priority;
    if (pod->created < holder->since)
        holder->since = pod->created;
    /* What a pod draws on reserved capacity does not become free when it goes. */
    holder->stays |= pod->stage != POD_BOUND || pod->draws;
    if (c->leaving != BY_THEMSELVES)
        describe_budgets(c, pod, holder);
}

static void describe(struct node_case *c, struct state_pod *lead) {
    struct victims_amount *amounts = amounts_of(c, lead);
    uint32_t n = pack_amounts(c, amounts);
    const struct state_pod *pod = lead;
    if (n == 0)
        return;
    if (c->of.nholders == VICTIMS_HOLDERS_MAX) { /* more than the maximum: no victim */
        for (uint32_t i = 0; i < n; i++)
            (void) place_amount_take(&c->view.cards[amounts[i].card].free, &amounts[i].amount);
        return;
    }
    struct victims_holder *holder = &c->p->described[c->of.nholders];
    *holder = (struct victims_holder){
        .priority = INT32_MIN, .since = INT64_MAX, .goes = true, .amounts = amounts, .namounts = n};
    c->p->holders[c->of.nholders++] = lead;
    do {
        describe_pod(c, pod, holder);
        pod = pod->preemption.next_sharer;
    } while (pod != lead);
    if (!holder->goes)
        holder->more -= victims_rank(holder->priority); /* which counts by itself */
}

static bool is_lead(const struct state_pod *pod) {
    return pod->preemption.lead == pod;
}

static int describe_all(struct node_case *c) {
    size_t size = 0;
    for (struct state_pod *pod = c->node->pods; pod; pod = pod->next)
        if (is_lead(pod)) {
            pod->preemption.amounts = size;
            size += c->node->ncards;
        }
    int r = array_reserve(&c->p->amounts, &c->p->amounts_size, size + 1, sizeof(*c->p->amounts));
    if (r < 0)
        return r;
    memset(c->p->amounts, 0, size * sizeof(*c->p->amounts));
    sum_amounts(c);
    for (struct state_pod *pod = c->node->pods; pod; pod = pod->next)
        if (pod != c->pod && is_lead(pod))
            describe(c, pod);
    return 0;
}

/* All cards as if no pod held anything. */
static bool empty_view(struct node_case *c) {
    if (state_view(c->p->state, c->node, c->pod, false, &c->view) != PLACE_OK)
        return false;
    for (uint32_t i = 0; i < c->node->ncards; i++) {
        c->view.cards[i] = c->view.node.cards[i];
        c->view.cards[i].free = place_amount_of(&c->view.cards[i]);
        state_take_unattributed(c->node->cards[i], &c->view.cards[i].free);
    }
    c->compared += sharers_find(c->p->state, c->node);
    state_count_reserved(c->node, c->pod, false, false, c->view.cards);
    c->view.node.cards = c->view.cards;
    return c->node->ncards > 0;
}

/* The most important one first. */
static void put_victim_of_plan(struct evict_plan *plan, struct state_pod *pod) {
    uint32_t at = plan->nvictims++;
    for (; at > 0 && plan->victims[at - 1]->priority < pod->priority; at--)
        plan->victims[at] = plan->victims[at - 1];
    plan->victims[at] = pod;
}

static struct evict_plan plan_of(const struct node_case *c, const struct victims_choice *choice) {
    struct evict_plan plan = {.node = c->node, .cost = choice->cost};
    for (uint32_t i = 0; i < choice->n; i++) {
        struct state_pod *lead = c->p->holders[choice->victims[i]], *pod = lead;
        do {
            if (plan.nvictims == VICTIMS_HOLDERS_MAX)
                return (struct evict_plan){.node = NULL};
            if (!pod->deleting && !is_given(c->p, pod))
                put_victim_of_plan(&plan, pod);
            pod = pod->preemption.next_sharer;
        } while (pod != lead);
    }
    for (uint32_t i = 0; i < c->node->ncards; i++) {
        const struct state_card *card = c->node->cards[i];
        const struct place_card place = state_place_card(card);
        struct place_grant grant;
        if (place_total(&c->p->request, &choice->result, &place, i, &grant))
            plan.devices[plan.ndevices++] = state_device(card, &grant);
    }
    return plan;
}

static struct evict_plan choose(struct preempt *p, const struct state_pod *pod,
                                struct state_node *node, enum leaving leaving, uint64_t now_ms,
                                uint32_t *tests) {
    struct node_case c = {.p = p, .leaving = leaving, .pod = pod, .node = node, .now_ms = now_ms};
    struct victims_choice choice;
    c.of = (struct victims_case){.policy = &p->plan.policy,
                                 .node = &c.view.node,
                                 .holders = p->described,
                                 .priority = leaving == BY_THEMSELVES ? 1 : pod->priority,
                                 .budget = c.allowed,
                                 .may_violate = leaving == BY_DELETION};
    if (*tests == 0 || !empty_view(&c) || describe_all(&c) < 0)
        return (struct evict_plan){.node = NULL};
    uint32_t more = c.compared / COMPARED_OF_TEST;
    *tests -= more < *tests ? more : *tests;
    if (!victims_choose(&c.of, &p->plan, tests, &choice))
        return (struct evict_plan){.node = NULL};
    return plan_of(&c, &choice);
}

bool preempt_may(const struct state_pod *pod) {
    return pod->stage == POD_PENDING && !pod->never_preempts && !pod->deleting &&
           pod->problem == REQUEST_OK && pod->ncontainers > 0;
}

struct evict_plan preempt_on_node(struct preempt *p, const struct state_pod *pod,
                                  struct state_node *node, uint64_t now_ms, uint32_t *tests) {
    p->ngiven = 0;
    return choose(p, pod, node, BY_EVICTION, now_ms, tests);
}

struct evict_plan preempt_would_have_to_end(struct preempt *p, const struct state_pod *pod,
                                            struct state_node *node, uint32_t *tests) {
    p->ngiven = 0;
    return choose(p, pod, node, BY_THEMSELVES, 0, tests);
}

/* ---- the verb ---- */

/* The UID of a victim in either form: {"UID"} or a whole pod. */
static const char *victim_uid(struct json victim) {
    const char *uid = json_string(json_get_nocase(victim, "UID"));
    return uid ? uid : json_string(JSON_PATH(victim, "metadata", "uid"));
}

static void take_given(struct preempt *p, struct json victims) {
    struct json_iter it = json_iter(json_get_nocase(victims, "Pods"));
    struct json victim;
    p->ngiven = 0;
    while (p->ngiven < VICTIMS_HOLDERS_MAX && json_next(&it, NULL, &victim)) {
        const char *uid = victim_uid(victim);
        struct state_pod *pod = uid ? state_pod_find(p->state, uid) : NULL;
        if (pod)
            p->given[p->ngiven++] = pod;
    }
}

static void put_victim(struct json_writer *w, const char *uid) {
    json_object_begin(w, NULL);
    json_put_string(w, "UID", uid);
    json_object_end(w);
}

/* kube-scheduler takes the first one for the most important one: ours go between its own by
 * priority, as far as those are known here. */
static void put_victims(struct json_writer *w, struct preempt *p, struct json victims,
                        const struct evict_plan *ours) {
    struct json_iter it = json_iter(json_get_nocase(victims, "Pods"));
    struct json victim;
    uint32_t at = 0;
    json_array_begin(w, "Pods");
    while (json_next(&it, NULL, &victim)) {
        const char *uid = victim_uid(victim);
        const struct state_pod *pod = uid ? state_pod_find(p->state, uid) : NULL;
        for (; pod && at < ours->nvictims && ours->victims[at]->priority > pod->priority; at++)
            put_victim(w, ours->victims[at]->uid);
        if (uid)
            put_victim(w, uid);
    }
    for (; at < ours->nvictims; at++)
        put_victim(w, ours->victims[at]->uid);
    json_array_end(w);
}

static void put_node(struct json_writer *w, struct preempt *p, const char *name,
                     struct json victims, const struct evict_plan *ours) {
    int64_t violations = 0;
    (void) json_i64(json_get_nocase(victims, "NumPDBViolations"), &violations);
    json_object_begin(w, name);
    put_victims(w, p, victims, ours);
    json_put_i64(w, "NumPDBViolations", violations + ours->cost.violations);
    json_object_end(w);
}

/* Returns how many nodes are left. */
static unsigned put_nodes(struct json_writer *w, struct preempt *p, const struct state_pod *self,
                          struct json nodes, uint64_t now_ms) {
    uint32_t tests = PREEMPT_TESTS;
    struct json_iter it = json_iter(nodes);
    struct json victims;
    const char *name;
    unsigned left = 0;
    if (self)
        state_plan(p->state, self, &p->request, &p->plan);
    json_object_begin(w, "NodeNameToMetaVictims");
    while (json_next(&it, &name, &victims)) {
        struct state_node *node = name ? state_node_find(p->state, name) : NULL;
        struct evict_plan plan = {.node = node};
        take_given(p, victims);
        if (self && node)
            plan = choose(p, self, node, BY_DELETION, now_ms, &tests);
        if (!name || (self && !plan.node))
            continue;
        put_node(w, p, name, victims, &plan);
        left++;
    }
    json_object_end(w);
    return left;
}

static int write_answer(struct preempt *p, const struct pod *pod, struct json nodes,
                        uint64_t now_ms, struct buf *out) {
    struct json_writer w = {.out = out};
    struct state_pod *self = NULL;
    const char *problem;
    bool requested = pod->problem != REQUEST_OK || pod->request.n > 0;
    if (requested && !(self = state_pod_asked(p->state, pod, &problem))) {
        buf_printf(out, "%s\n", problem);
        return -ESRCH;
    }
    /* Whom a gate holds would not come where room was made. */
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    bool helps = !self || (preempt_may(self) && !gates_closed(p->gates, self, now_ms, &why));
    json_object_begin(&w, NULL);
    unsigned left = put_nodes(&w, p, self, helps ? nodes : (struct json){0}, now_ms);
    json_object_end(&w);
    if (self && left > 0)
        self->preemption.verb_ms = now_ms;
    return 0;
}

int preempt_verb(struct preempt *p, const char *body, size_t len, uint64_t now_ms,
                 struct buf *out) {
    struct json args;
    struct pod pod;
    struct err err;
    if (!p->ready(p->userdata)) {
        buf_puts(out, "aliquot-scheduler is still reading the state of the cluster\n");
        return -EAGAIN;
    }
    int r = json_parse(p->parser, body, len, &args, &err);
    if (r == 0)
        r = pod_parse(json_get_nocase(args, "Pod"), &pod, &err);
    if (r < 0) {
        buf_printf(out, "cannot read the request: %s\n", err.text);
        return r;
    }
    struct json nodes = json_get_nocase(args, "NodeNameToMetaVictims");
    if (json_size(nodes) == 0)
        nodes = json_get_nocase(args, "NodeNameToVictims");
    r = write_answer(p, &pod, nodes, now_ms, out);
    pod_done(&pod);
    return r;
}
