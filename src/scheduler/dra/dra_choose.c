/* SPDX-License-Identifier: Apache-2.0 */

/* Where the claims of a pod go: node and cards by the placement and the state that the extender's
 * verbs use. All claims of a pod are placed together, each request as a container of its own. */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "model/quantity.h"
#include "scheduler/dra/dra_search.h"

#define TRIES_MAX 64 /* combinations of choices of firstAvailable */
#define CARDS_TOLD_MAX 16
#define READ_COST 20 /* steps that take as long as one byte of a selector that is read */

/* ---- the choice ---- */

/* What the pod wants, as the state takes it. False: out of memory. */
static bool show_wants(struct dra_search *s) {
    if (s->self != &s->stand_in)
        return state_pod_want(s->d->state, s->self, s->containers, s->n) == 0;
    s->self->containers = s->containers;
    s->self->ncontainers = s->n;
    return true;
}

/* By selectors and constraints, with the cards in d->result. Why there is no room; NULL: there is,
 * or the search is refused. */
static const char *place_selected(struct dra_search *s, struct state_node *node,
                                  const struct state_pod *self) {
    struct dra_limits limits;
    enum dra_found found = dra_select(s, node, &limits);
    s->refused = found == DRA_REFUSED;
    if (found != DRA_FOUND)
        return s->refused ? NULL : "too few cards match the selectors";
    if (s->all && !show_wants(s)) /* as many as this node has */
        return "out of memory";
    if (s->all)
        state_plan(s->d->state, self, &s->d->request, &s->d->plan);
    enum place_reason reason = dra_place(s, node, self, 0, 0, &limits, &s->d->result);
    return reason == PLACE_OK ? NULL : place_reason_text(reason);
}

static const char *try_node(struct dra_search *s, struct state_node *node,
                            const struct state_pod *self, int64_t *ret_score) {
    if (s->nconstraints == 0 && !s->selective) {
        enum place_reason reason =
            state_judge(s->d->state, &s->d->plan, node->head, self, ret_score);
        return reason == PLACE_OK ? NULL : place_reason_text(reason);
    }
    const char *text = place_selected(s, node, self);
    *ret_score = s->d->result.score;
    return text;
}

static struct state_node *best_node(struct dra_search *s, const struct state_pod *self,
                                    struct dra_tally *tally) {
    struct state_node *best = NULL;
    int64_t score, most = 0;
    state_plan(s->d->state, self, &s->d->request, &s->d->plan);
    for (uint32_t i = 0; i < s->nnodes && s->effort > 0 && !s->refused; i++) {
        struct state_node *node = s->nodes[i].node;
        const char *text = s->nodes[i].why_not;
        s->effort -= !text;
        if (!text)
            text = try_node(s, node, self, &score);
        if (text)
            dra_count_reason(tally, text);
        else if (!s->refused && (!best || score > most)) {
            best = node;
            most = score;
        }
    }
    return s->refused ? NULL : best;
}

/* The same by the choices of the search. */
static bool show_choices(struct dra_search *s) {
    s->policy = NULL; /* the first one that is named */
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->policy)
            s->policy = s->wants[i].policies[s->wants[i].choice];
        s->containers[i] = dra_read_amounts(&s->wants[i]);
        (void) snprintf(s->containers[i].container, sizeof(s->containers[i].container), "%u", i);
    }
    s->self->class_policy = s->policy;
    return show_wants(s);
}

static void take_self(struct dra_search *s) {
    s->self = dra_self(s->d, s->pod);
    if (s->self)
        return;
    s->self = &s->stand_in;
    memcpy(s->self->namespace, s->pod->object.namespace, sizeof(s->self->namespace));
    s->self->room = s->pod->object.room;
    s->self->selection = s->pod->object.terms.selection;
}

/* The cards of the best node, in d->result. */
static struct state_node *find_place(struct dra_search *s, struct dra_tally *tally) {
    if (!show_choices(s))
        return NULL;
    s->d->sought = s->self;
    struct state_node *node = best_node(s, s->self, tally);
    if (node) {
        s->effort = DRA_EFFORT; /* what was found with what is used up is found again */
        if (place_selected(s, node, s->self) || s->refused)
            node = NULL;
    }
    s->d->sought = NULL;
    return node;
}

/* The next combination of choices, those of the last request first. False: there is none. */
static bool next_choices(struct dra_search *s) {
    for (uint32_t i = s->n; i-- > 0;) {
        if (++s->wants[i].choice < s->wants[i].request->nchoices)
            return true;
        s->wants[i].choice = 0;
    }
    return false;
}

/* ---- the plans ---- */

static bool add_part(struct dra_search *s, const struct state_node *node,
                     const struct place_grant *grant, struct dra_plan *plan) {
    const struct dra_want *want = &s->wants[grant->container];
    const struct state_card *card = node->cards[grant->card];
    const struct dra_device *device = dra_device_find(s->d, node->name, card->uuid);
    if (!device || plan->nparts == DEVICE_RESULTS_MAX)
        return false;
    struct dra_part *part = &plan->parts[plan->nparts++];
    dra_name_request(want, part->request);
    memcpy(part->class, dra_choice_of(want)->class, sizeof(part->class));
    memcpy(part->pool, device->slice->pool, sizeof(part->pool));
    memcpy(part->device, device->at->name, sizeof(part->device));
    part->shared = device->at->shared;
    part->share = state_device(card, grant);
    return true;
}

static struct dra_plan *make_plan(struct dra_search *s, const struct dra_claim *claim,
                                  const struct state_node *node) {
    struct dra_plan *plan = calloc(1, sizeof(*plan) + DEVICE_RESULTS_MAX * sizeof(plan->parts[0]));
    if (!plan)
        return NULL;
    memcpy(plan->node, node->name, sizeof(plan->node));
    memcpy(plan->pod_uid, s->pod->object.uid, sizeof(plan->pod_uid));
    memcpy(plan->pod_name, s->pod->object.name, sizeof(plan->pod_name));
    for (uint32_t i = 0; i < s->n; i++)
        if (s->wants[i].claim == claim && s->wants[i].named)
            dra_terms_of(s->pod, s->wants[i].named, &s->containers[i], plan->terms);
    for (uint32_t i = 0; i < s->d->result.ngrants; i++) {
        const struct place_grant *grant = &s->d->result.grants[i];
        if (s->wants[grant->container].claim == claim && !add_part(s, node, grant, plan)) {
            free(plan);
            return NULL;
        }
    }
    return plan;
}

/* Why the API server would refuse the allocation; NULL: it takes it. */
static const char *why_not_written(const struct dra_search *s, const struct dra_claim *claim,
                                   const struct dra_plan *plan) {
    if (!plan)
        return "it has more devices than fit into an allocation";
    return dra_configs_of(s->d, claim, plan) > 2 * DEVICE_REQUESTS_MAX
               ? "it and its classes have more configs than fit into an allocation: those of a "
                 "class count for each request"
               : NULL;
}

static void drop_plans(struct dra_search *s) {
    for (uint32_t i = 0; i < s->nclaims; i++)
        dra_plan_drop(s->d, s->claims[i]);
}

/* A claim of a pod that may use a reservation takes of what is reserved. */
static void draw(const struct dra_search *s, const struct dra_claim *claim) {
    char id[DRA_ID_MAX];
    if (!s->self->draws)
        return;
    dra_id(&claim->object, id);
    (void) state_reserved_within(s->d->state, id, s->self->draws->id);
}

/* Each claim holds its part from here on, so that quotas see those before it. */
static enum dra_found plan_all(struct dra_search *s, const struct state_node *node) {
    for (uint32_t i = 0; i < s->nclaims; i++) {
        struct dra_claim *claim = s->claims[i];
        _cleanup_buf_ struct buf text = BUF_INIT(GATE_WHY_MAX);
        struct dra_plan *plan = make_plan(s, claim, node);
        const struct quota_use use = plan ? dra_use_of(plan) : (struct quota_use){0};
        const char *problem = why_not_written(s, claim, plan);
        assert(!claim->plan);
        bool admitted =
            !problem && (!s->d->quotas || quotas_admit(s->d->quotas, claim->object.namespace, &use,
                                                       NULL, QUOTA_CLAIM, &text));
        if (!admitted) {
            drop_plans(s);
            buf_printf(s->why, "claim %s: %s", claim->object.name,
                       problem ? problem : buf_str(&text));
            free(plan);
            return DRA_NO_ROOM;
        }
        claim->plan = plan;
        claim->stage = DRA_PLANNED;
        dra_hold(s->d, claim);
        draw(s, claim);
    }
    dra_count_arrived(s->d, s->pod, node->name);
    return DRA_FOUND;
}

/* ---- why there is no room ---- */

/* Why no claim gets any of the card, whatever is free; NULL: one can. */
static const char *why_not_card(const struct dra *d, const struct state_node *node, uint32_t c) {
    const struct dra_device *device = dra_device_find(d, node->name, node->cards[c]->uuid);
    if (!node->place[c].healthy)
        return "not healthy";
    if (!device)
        return "in no ResourceSlice";
    if (device->at->by_scheduler)
        return "kube-scheduler allocates it";
    return device->at->ntaints > 0 ? "its device has a taint" : NULL;
}

static void tell_cards(struct dra_search *s, const struct state_node *node, unsigned *told) {
    for (uint32_t c = 0; c < node->ncards && *told < CARDS_TOLD_MAX; c++, ++*told) {
        const char *why_not = why_not_card(s->d, node, c);
        char text[24];
        buf_printf(s->why, "%s %s card %u: ", *told ? ";" : " Free:", node->name,
                   node->cards[c]->index);
        if (why_not)
            buf_puts(s->why, why_not);
        else
            buf_printf(s->why, "%u %%, %s", node->place[c].free.core,
                       quantity_format_bytes(node->place[c].free.memory / MIB * MIB, text));
    }
}

/* The most that one card has free, where that is what a pod asks for: part of one card. */
static void tell_remedy(struct dra_search *s) {
    struct place_amount most = {0};
    char text[24];
    if (s->n != 1 || s->containers[0].cards != 1 || s->nconstraints > 0)
        return;
    for (uint32_t i = 0; i < s->nnodes; i++) {
        const struct state_node *node = s->nodes[i].node;
        for (uint32_t c = 0; !s->nodes[i].why_not && c < node->ncards; c++) {
            const struct place_amount *free = &node->place[c].free;
            if (!why_not_card(s->d, node, c) && free->memory >= MIB && free->core > most.core)
                most = *free;
        }
    }
    if (most.core > 0)
        buf_printf(s->why, " At most %u %% and %s of one card would fit now.", most.core,
                   quantity_format_bytes(most.memory / MIB * MIB, text));
}

static void tell(struct dra_search *s, const struct dra_tally *tally) {
    unsigned told = 0;
    buf_printf(s->why, "no node has room for the claims of pod %s: ", s->pod->object.name);
    for (uint32_t i = 0; i < tally->n; i++)
        buf_printf(s->why, "%s%u node(s): %s", i ? "; " : "", tally->of[i].nodes,
                   tally->of[i].text);
    buf_puts(s->why, tally->n ? "." : "there is no node with a GPU.");
    tell_remedy(s);
    for (uint32_t i = 0; i < s->nnodes && told < CARDS_TOLD_MAX; i++)
        if (!s->nodes[i].why_not)
            tell_cards(s, s->nodes[i].node, &told);
}

static void search_done(struct dra_search *s) {
    s->d->spent += DRA_SELECTORS_BUDGET - s->selectors_budget + READ_COST * s->selectors_size;
    dra_selectors_done(s);
    free(s->nodes);
}

/* ---- before and after ---- */

/* What is wanted, of claims that can be served. */
static enum dra_found read_wants(struct dra_search *s) {
    enum dra_found found = dra_read_pod(s);
    if (found != DRA_FOUND)
        return found;
    if (s->pod->object.too_many) {
        buf_printf(s->why, "the pod uses more than %d claims", POD_DEVICE_CLAIMS_MAX);
        return DRA_REFUSED;
    }
    take_self(s);
    if (s->self->problem != REQUEST_OK) {
        buf_puts(s->why, request_problem_text(s->self->problem, s->self->mixed));
        return DRA_REFUSED;
    }
    return show_choices(s) ? DRA_FOUND : DRA_LATER;
}

void dra_show_wants(struct dra *d, struct dra_pod *pod) {
    _cleanup_buf_ struct buf why = BUF_INIT(DRA_WHY_MAX);
    _cleanup_(search_done) struct dra_search s = {.d = d,
                                                  .pod = pod,
                                                  .now_ms = d->now(d->userdata),
                                                  .why = &why,
                                                  .selectors_budget = DRA_SELECTORS_BUDGET};
    (void) read_wants(&s);
}

static bool is_held(struct dra_search *s, const struct gates *gates) {
    _cleanup_buf_ struct buf text = BUF_INIT(GATE_WHY_MAX);
    if (s->self == &s->stand_in)
        return false;
    const struct gate *closed = gates_closed(gates, s->self, s->now_ms, &text);
    if (!closed)
        return false;
    s->self->requeue.reason = closed->name;
    buf_puts(s->why, buf_str(&text));
    return true;
}

/* Whether others may have to go for it. The choice of victims knows the amounts of the first choice
 * of each request, and nothing of constraints and selectors: none goes in vain. */
static bool may_make_room(const struct dra_search *s) {
    return s->d->no_room && s->self != &s->stand_in && s->nconstraints == 0 && !s->selective;
}

static void ask_for_room(struct dra_search *s) {
    struct extender_candidate *offered = calloc(s->nnodes + 1, sizeof(*offered));
    size_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        s->wants[i].choice = 0;
    for (uint32_t i = 0; offered && i < s->nnodes; i++) {
        struct state_node *node = s->nodes[i].node;
        if (!s->nodes[i].why_not)
            offered[n++] =
                (struct extender_candidate){.node = node, .head = node->head, .name = node->name};
    }
    if (n > 0 && show_choices(s))
        s->d->no_room(s->self, offered, n, s->now_ms, s->d->userdata);
    free(offered);
}

/* Whether what was read of the claims holds no more: a gate places gangs, and with them claims
 * that the pod uses, too. */
static bool is_outdated(const struct dra_search *s, uint64_t news) {
    if (s->d->news != news)
        return true; /* a plan was dropped */
    for (uint32_t i = 0; i < s->nclaims; i++)
        if (s->claims[i]->plan)
            return true;
    return false;
}

enum dra_found dra_choose(struct dra *d, struct dra_pod *pod, uint64_t now_ms,
                          const struct gates *gates, struct buf *why) {
    _cleanup_(search_done) struct dra_search s = {
        .d = d, .pod = pod, .now_ms = now_ms, .why = why, .selectors_budget = DRA_SELECTORS_BUDGET};
    struct state_node *node = NULL;
    struct dra_tally tally = {0};
    uint64_t news = d->news;
    enum dra_found found = read_wants(&s);
    if (found != DRA_FOUND)
        return found;
    if (gates && is_held(&s, gates))
        return DRA_HELD;
    if (s.self->stage == POD_ASSUMED)
        return DRA_FOUND; /* with its gang */
    if (is_outdated(&s, news))
        return dra_choose(d, pod, now_ms, NULL, why);
    if (!dra_list_nodes(&s))
        return DRA_LATER;
    for (unsigned tries = 0; !node && s.effort > 0 && tries < TRIES_MAX; tries++) {
        tally.n = 0;
        node = find_place(&s, &tally);
        if (!node && (s.refused || !next_choices(&s)))
            break;
    }
    if (s.refused)
        return DRA_REFUSED;
    if (node)
        return plan_all(&s, node);
    tell(&s, &tally);
    if (gates && may_make_room(&s))
        ask_for_room(&s);
    return DRA_NO_ROOM;
}
