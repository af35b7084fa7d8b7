/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/grant.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/num.h"

#define DELETE_IT                                                                                  \
    "Delete the pod and let aliquot-scheduler place it (no spec.nodeName, a scheduler that uses "  \
    "the Aliquot extender)."

static enum verdict verdict_of(enum verdict v, struct err *why) {
    (void) why;
    return v;
}
#define WAIT(...) (err_set(why, EAGAIN, __VA_ARGS__), verdict_of(VERDICT_WAIT, why))
#define DENY(...) (err_set(why, EPERM, __VA_ARGS__), verdict_of(VERDICT_DENY, why))

/* Is the assignment there, and is it the scheduler's own? */
static enum verdict judge_signature(const struct grant_world *w, const struct pod *pod,
                                    struct err *why) {
    struct err err;

    if (strcmp(pod->node, w->node) != 0)
        return DENY("pod %s/%s is bound to another node", pod->namespace, pod->name);
    if (pod->finished)
        return DENY("pod %s/%s has already finished", pod->namespace, pod->name);
    if (!pod->assignment || !pod->signature)
        return DENY(
            "pod %s/%s has no GPU assignment: it was not placed by aliquot-scheduler. " DELETE_IT,
            pod->namespace, pod->name);
    if (!w->keys)
        return WAIT(
            "the public key of aliquot-scheduler is not known yet (ConfigMap aliquot-signing): is "
            "aliquot-scheduler running?");
    if (assignment_verify(w->keys, pod->uid, w->node, pod->assignment, pod->signature, &err) < 0) {
        (void) err_set(
            why, EPERM,
            "the GPU assignment of pod %s/%s was not made by aliquot-scheduler for this pod and "
            "node (%s). " DELETE_IT,
            pod->namespace, pod->name, err.text);
        return VERDICT_FORGED;
    }
    return VERDICT_GRANT;
}

/* Does the card exist, does it work, and is there room on it? */
static enum verdict judge_device(const struct grant_world *w, const struct slot_grant *g,
                                 const struct slot_device *d, struct err *why) {
    const struct gpu_device *card = gpu_find_card(w->snapshot, d->uuid);
    const struct slot *holder;
    struct slot_total others;
    char size[24], by[SLOT_POD_TEXT];

    if (!card)
        return WAIT("GPU %s is not on this node", d->uuid);
    if (!card->healthy || card->service == GPU_SERVES_NONE)
        return WAIT("GPU %u (%s) is unhealthy: %s", card->index, d->uuid, card->reason);
    /* The whole pod: what its other containers hold is not among the others' below. */
    if (d->pod_physical > card->memory || d->pod_core > gpu_core(card))
        return DENY("the share is more than there is: GPU %u (%s) has only %s", card->index,
                    d->uuid, num_format_bytes(card->memory, size));
    holder = slot_whole_holder(w->slots, d->uuid, slot_owner_uid(g));
    if (holder) {
        slot_pod_text(&holder->grant, g->namespace, by);
        return WAIT("GPU %u (%s) is whole with %s", card->index, d->uuid, by);
    }
    slot_card_use(w->slots, d->uuid, slot_owner_uid(g), &others, &holder);
    /* Limits may exceed the card under oversubscription; physical parts may not. */
    if (!holder || (others.physical + d->pod_physical <= card->memory &&
                    others.core + d->pod_core <= gpu_core(card)))
        return VERDICT_GRANT;
    slot_pod_text(&holder->grant, g->namespace, by);
    return WAIT("GPU %u (%s) is still held by %s%s", card->index, d->uuid, by,
                holder->releasing ? ", whose processes have not ended" : "");
}

static int read_assignment(const struct pod *pod, struct assignment *ret, struct err *err) {
    int r = assignment_parse(pod->assignment, ret, err);

    return r == 0 && ret->newer
               ? err_set(err, ENOTSUP,
                         "it is of a newer scheduler, and this agent may not know all that it asks "
                         "for: update the agent")
               : r;
}

enum verdict grant_judge_devices(const struct grant_world *w, struct slot_grant *g,
                                 struct err *why) {
    enum verdict v = VERDICT_GRANT;

    for (uint32_t i = 0; i < g->ndevices && v == VERDICT_GRANT; i++)
        v = judge_device(w, g, &g->devices[i], why);
    for (uint32_t i = 0; i < g->ndevices && v == VERDICT_GRANT; i++) {
        const struct gpu_device *d = gpu_find(w->snapshot, g->devices[i].uuid);

        g->devices[i].of_core = gpu_is_part(d) ? gpu_core(d) : 0;
    }
    return v;
}

enum verdict grant_judge(const struct grant_world *w, const char *pod_uid, const char *container,
                         struct slot_grant *ret, struct err *why) {
    _cleanup_(assignment_done) struct assignment a = {0};
    const struct pod *pod = w->pod ? &w->pod->pod : NULL;
    struct slot_grant g = {0};
    enum verdict v;
    struct err err;

    if (!pod)
        return WAIT("pod %s is not known to the API server (or it does not answer)", pod_uid);
    v = judge_signature(w, pod, why);
    if (v != VERDICT_GRANT)
        return v;
    if (read_assignment(pod, &a, &err) < 0 || slot_grant_make(pod, &a, container, &g, &err) < 0)
        return DENY("the GPU assignment of pod %s/%s cannot be used: %s", pod->namespace, pod->name,
                    err.text);
    v = grant_judge_devices(w, &g, why);
    if (v == VERDICT_GRANT)
        *ret = g;
    else
        slot_grant_done(&g);
    return v;
}

static bool names_device(const struct assignment *a, const char *uuid) {
    for (uint32_t i = 0; i < a->ncontainers; i++)
        for (uint32_t k = 0; k < a->containers[i].ndevices; k++)
            if (strcmp(a->containers[i].devices[k].uuid, uuid) == 0)
                return true;
    return false;
}

bool grant_assigns(const struct signing_verifier *keys, const char *node, const struct pod *pod,
                   const char *uuid) {
    _cleanup_(assignment_done) struct assignment a = {0};

    return keys && pod->assignment && pod->signature &&
           assignment_verify(keys, pod->uid, node, pod->assignment, pod->signature, NULL) == 0 &&
           assignment_parse(pod->assignment, &a, NULL) == 0 && names_device(&a, uuid);
}
