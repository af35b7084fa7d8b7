/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/gates/waiting.h"

bool pod_waits(const struct state_pod *pod) {
    return pod->shown && (!pod->resource_claims || pod->ncontainers > 0) &&
           (pod->stage == POD_PENDING || pod->stage == POD_ASSUMED);
}

double pod_wanted_cards(struct quotas *quotas, const struct state_pod *pod, uint64_t now_ms) {
    if (pod->problem != REQUEST_OK)
        return 0;
    const struct quota_use use = quotas_use_of(quotas, pod, now_ms);
    const uint64_t card = quotas->least.memory;
    double core = (double) use.of[QUOTA_CORE] / CORE_PER_CARD;
    double memory = card > 0 ? (double) use.of[QUOTA_MEMORY] / (double) card : 0;
    return core > memory ? core : memory;
}
