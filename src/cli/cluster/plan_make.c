/* SPDX-License-Identifier: Apache-2.0 */

/* The plan itself: first the cards that there are, then each machine for what is left. */

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cluster/node_admits.h"
#include "cli/cluster/plan.h"
#include "place/policies/policies.h"

/* Of one packing: which pods are asked for, and of which machine nodes are added. */
struct packing {
    const struct plan *plan;
    const uint32_t *pods; /* indexes into those of the plan */
    const struct plan_machine *machine;
    const bool *bars; /* by pod asked for */
};

/* ---- which cards a pod may take ---- */

static uint64_t all_of(uint32_t ncards) {
    return ncards < 64 ? (UINT64_C(1) << ncards) - 1 : UINT64_MAX;
}

static bool has_room(const struct place_node *node) {
    for (uint32_t i = 0; i < node->ncards; i++)
        if (node->cards[i].healthy && node->cards[i].free.memory > 0)
            return true;
    return false;
}

static uint64_t allow_now(void *self, uint32_t pod, uint32_t node) {
    const struct packing *p = self;
    const struct plan_pod *asks = &p->plan->pods[p->pods[pod]];
    const struct plan_node *at = &p->plan->nodes[node];
    const struct gpu_selection *selection = asks->pod.selection;
    uint64_t cards = all_of(p->plan->now.list[node].ncards);

    if (!has_room(&p->plan->now.list[node]) || !json_valid(at->object) ||
        !node_admits(at->object, asks->object, false))
        return 0;
    for (uint32_t i = 0; selection && i < p->plan->now.list[node].ncards; i++)
        if (!selection_model(selection, at->cards[i].model) ||
            !selection_uuid(selection, at->cards[i].uuid) ||
            !selection_index(selection, (uint32_t) at->cards[i].index))
            cards &= ~(UINT64_C(1) << i);
    return cards;
}

static uint64_t allow_new(void *self, uint32_t pod, uint32_t node) {
    const struct packing *p = self;
    const struct plan_machine *m = p->machine;
    const struct gpu_selection *selection = p->plan->pods[p->pods[pod]].pod.selection;
    uint64_t cards = p->bars[pod] ? 0 : all_of(m->ncards);

    (void) node;
    if (selection && selection->use_uuids) /* a new card has a UUID that no pod names */
        return 0;
    for (uint32_t i = 0; selection && i < m->ncards; i++)
        if (!selection_model(selection, m->like ? m->like[i].model : m->model) ||
            !selection_index(selection, m->like ? (uint32_t) m->like[i].index : i))
            cards &= ~(UINT64_C(1) << i);
    return cards;
}

/* Whether no new node with labels and taints as on those of the kind takes the pod. Those of a
 * machine that the user describes are not known. */
static bool is_barred(const struct plan *plan, const struct plan_machine *m, struct json pod) {
    if (!m->like)
        return false;
    for (uint32_t i = 0; i < plan->now.n; i++)
        if (plan->nodes[i].machine == (uint32_t) (m - plan->machines) &&
            json_valid(plan->nodes[i].object) && node_admits(plan->nodes[i].object, pod, true))
            return false;
    return true;
}

/* ---- packing ---- */

/* Those of its annotations, or the scheduler's default. */
static struct place_policy policy_of(const struct gpu_selection *selection) {
    const struct place_policy *node = selection ? place_policy_find(selection->node_policy) : NULL;
    const struct place_policy *card = selection ? place_policy_find(selection->card_policy) : NULL;
    struct place_policy policy = node ? *node : *PLACE_DEFAULT_POLICY;

    policy.card_cost = (card ? card : PLACE_DEFAULT_POLICY)->card_cost;
    return policy;
}

static struct capacity_pod *ask_for(const struct plan *plan, const uint32_t *pods, uint32_t n) {
    struct capacity_pod *asks = calloc(n + 1, sizeof(*asks));

    for (uint32_t i = 0; asks && i < n; i++) {
        const struct pod *pod = &plan->pods[pods[i]].pod;
        asks[i] = (struct capacity_pod){.request = &pod->request,
                                        .policy = policy_of(pod->selection),
                                        .topology = pod->selection ? pod->selection->topology : 0,
                                        .numa_bind = pod->selection && pod->selection->numa_bind};
    }
    return asks;
}

/* Pods for which there is room get it, and the others are those that need new cards. */
static int use_what_is_there(struct plan *plan) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->npods; i++)
        if (plan->pods[i].state == PLAN_NEEDS)
            plan->needing[n++] = i;
    _cleanup_free_ struct capacity_pod *asks = ask_for(plan, plan->needing, n);
    _cleanup_free_ enum place_reason *reasons = calloc(n + 1, sizeof(*reasons));
    struct packing packing = {.plan = plan, .pods = plan->needing};
    plan->now.allow = allow_now;
    plan->now.self = &packing;
    int r = asks && reasons ? capacity_pack(asks, n, &plan->now, NULL, reasons, NULL) : -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct plan_pod *pod = &plan->pods[plan->needing[i]];
        if (reasons[i] == PLACE_OK) {
            pod->state = PLAN_ROOM;
            continue;
        }
        pod->need = plan->nneeding;
        plan->needing[plan->nneeding++] = plan->needing[i];
    }
    return r;
}

static int plan_machine(struct plan *plan, struct plan_machine *m,
                        const struct capacity_pod *asks) {
    const struct place_node node = {
        .cards = m->cards, .ncards = m->ncards, .topology = m->topology};
    struct packing packing = {.plan = plan, .pods = plan->needing, .machine = m};
    struct capacity_nodes added = {.allow = allow_new, .self = &packing};

    m->reasons = calloc(plan->nneeding + 1, sizeof(*m->reasons));
    m->bars = calloc(plan->nneeding + 1, sizeof(*m->bars));
    if (!m->reasons || !m->bars)
        return -ENOMEM;
    for (uint32_t i = 0; i < plan->nneeding; i++)
        m->bars[i] = is_barred(plan, m, plan->pods[plan->needing[i]].object);
    packing.bars = m->bars;
    int r = capacity_pack(asks, plan->nneeding, &added, &node, m->reasons, &m->cut_short);
    m->nodes = added.n;
    m->left = capacity_left(&added);
    for (uint32_t i = 0; r == 0 && i < plan->nneeding; i++)
        m->starts += m->reasons[i] == PLACE_OK;
    free(added.list);
    free(added.cards);
    return r;
}

/* The machine that starts the most pods, of these the one with the fewest new cards. */
static int by_worth(const void *a, const void *b) {
    const struct plan_machine *x = a, *y = b;
    uint64_t x_cards = (uint64_t) x->nodes * x->ncards, y_cards = (uint64_t) y->nodes * y->ncards;

    if (x->starts != y->starts)
        return x->starts > y->starts ? -1 : 1;
    if (x_cards != y_cards)
        return x_cards < y_cards ? -1 : 1;
    int r = strcmp(x->model, y->model);
    return r ? r : (x->ncards > y->ncards) - (x->ncards < y->ncards);
}

int plan_make(struct plan *plan, struct err *err) {
    int r = use_what_is_there(plan);
    _cleanup_free_ struct capacity_pod *asks = ask_for(plan, plan->needing, plan->nneeding);

    if (!asks)
        r = -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < plan->nmachines; i++)
        r = plan_machine(plan, &plan->machines[i], asks);
    if (r < 0)
        return err_errno(err, -r, "cannot plan");
    if (plan->nmachines > 0)
        qsort(plan->machines, plan->nmachines, sizeof(*plan->machines), by_worth);
    return 0;
}
