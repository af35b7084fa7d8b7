/* SPDX-License-Identifier: Apache-2.0 */

/* Cards that no process of the agent may have open: released ones, ones that are being reset, and
 * ones whose MIG mode changes. The monitor and the MPS daemon close them. */

#include "agent/agent.h"
#include "agent/mig/executor.h"
#include "gpu/nvml/monitor.h"

/* With containers the driver stays in use whatever the agent does, and they would end with their
 * MPS server. */
static bool pause_mps(struct agent *a, const struct health_card *card) {
    if (a->health.options.holders(card->uuid, a) > 0 || !a->shares.mps)
        return true;
    return mps_pause(a->shares.mps, card->uuid);
}

static bool is_closed(const struct agent *a, const struct health_card *card) {
    return health_card_is_closed(card) || (a->mig && mig_executor_closes(a->mig, card->uuid));
}

/* Another job than one that waits for this card. */
static bool is_divided_now(const struct agent *a, const char *uuid) {
    return a->mig && mig_executor_has_child(a->mig) && !mig_executor_closes(a->mig, uuid);
}

bool card_close(struct agent *a, const char *uuid) {
    const struct health_card *card = health_cards_find(&a->health, uuid);
    bool paused;

    if (!card)
        return true;
    (void) gpu_monitor_release(a->shares.monitor, uuid);
    paused = pause_mps(a, card);
    return gpu_monitor_has_released(a->shares.monitor, uuid) && paused && !is_divided_now(a, uuid);
}

/* A card is probed before its MPS daemon is started: the probe is no client of MPS. */
void card_open(struct agent *a, const char *uuid) {
    const struct health_card *card = health_cards_find(&a->health, uuid);

    if (!card)
        return;
    if (is_closed(a, card)) {
        (void) card_close(a, uuid);
        return;
    }
    gpu_monitor_resume(a->shares.monitor, uuid);
    if (a->shares.mps && !card->health.after_reset)
        mps_resume(a->shares.mps, uuid);
}
