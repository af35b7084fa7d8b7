/* SPDX-License-Identifier: Apache-2.0 */

/* What claims count in the quotas of their namespaces. A claim counts from the moment at which its
 * share is reserved, until the ElasticGPU is gone or an administrator takes its claimRef away. */

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "scheduler/elastic/elastic_internal.h"
#include "scheduler/state/namespace_usage.h"

struct quota_use elastic_use_of(const struct assigned_device *devices, uint32_t n) {
    struct quota_use use = {.of = {[QUOTA_CARDS] = n}};
    for (uint32_t i = 0; i < n; i++) {
        use.of[QUOTA_CORE] += devices[i].core;
        use.of[QUOTA_MEMORY] += state_charge_bound(devices[i].memory);
    }
    return use;
}

static void add(struct quota_use *sum, const struct quota_use *more) {
    for (int r = 0; r < QUOTA_RESOURCES; r++)
        sum->of[r] += more->of[r];
}

/* What the claim's first consumer has been allocated for it. */
static struct quota_use use_of_consumer(struct elastic *e, const struct egpu_claim *claim) {
    struct quota_use part = {0};
    struct state_pod *pod =
        claim->selected_node[0] ? elastic_waiting_pod(e, claim, claim->selected_node) : NULL;
    const char *container = pod ? elastic_container_of(e, pod, claim) : NULL;
    if (!container)
        return part;
    const struct quota_use others = state_pod_use(pod, container);
    for (int r = 0; r < QUOTA_RESOURCES; r++)
        part.of[r] = pod->used.of[r] - others.of[r];
    return part;
}

int elastic_may_use(struct elastic *e, const char *namespace, const char *id,
                    const struct egpu_claim *claim, const struct quota_use *use, struct err *why) {
    _cleanup_buf_ struct buf text = BUF_INIT(GATE_WHY_MAX);
    const struct state_charge *charge = state_charge_find(e->state, id);
    struct quota_use own = claim ? use_of_consumer(e, claim) : (struct quota_use){0};
    if (charge && strcmp(charge->space->name, namespace) == 0)
        add(&own, &charge->use);
    if (!e->quotas || quotas_admit(e->quotas, namespace, use, &own, QUOTA_CLAIM, &text))
        return 0;
    return err_set(why, EDQUOT, "%s", buf_str(&text));
}

int elastic_admit(void *self, const struct egpu_claim *claim, const struct claim_amount *want,
                  struct err *why) {
    struct elastic *e = self;
    struct container_request req = {.phase = CONTAINER_APP};
    struct quota_use use = {.of = {[QUOTA_CARDS] = 1}}; /* all that is known of an instance */
    char id[ELASTIC_ID_MAX];
    claim_amount_request(want, &req);
    if (e->quotas && !want->profile[0])
        use = quotas_least_use(e->quotas, &req, e->now(e->userdata));
    elastic_id_of_claim(claim, id);
    return elastic_may_use(e, claim->meta.namespace, id, claim, &use, why);
}

struct quota_use elastic_use_of_amount(const struct claim_amount *amount) {
    const uint64_t core = amount->whole ? CORE_PER_CARD : amount->core;
    return (struct quota_use){{[QUOTA_CORE] = core * amount->cards,
                               [QUOTA_MEMORY] = state_charge_bound(amount->memory) * amount->cards,
                               [QUOTA_CARDS] = amount->cards}};
}

void elastic_charge(struct elastic *e, const struct egpu *egpu, const char *namespace,
                    const struct quota_use *use) {
    char id[ELASTIC_ID_MAX];
    elastic_id(egpu->meta.name, id);
    if (!namespace[0]) {
        state_uncharge(e->state, id);
        return;
    }
    const struct state_charge *charge = state_charge_find(e->state, id);
    const struct quota_use now = use      ? *use
                                 : charge ? charge->use
                                          : elastic_use_of_amount(&egpu->capacity);
    if (state_charge(e->state, id, namespace, &now) < 0)
        log_warn("out of memory: quotas do not count ElasticGPU %s", egpu->meta.name);
}
