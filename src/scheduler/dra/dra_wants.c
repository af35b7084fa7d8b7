/* SPDX-License-Identifier: Apache-2.0 */

/* What the claims of a pod want. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/units.h"
#include "kube/objects/share_config.h"
#include "model/dra.h"
#include "place/policies/policies.h"
#include "scheduler/dra/dra_search.h"

#define CONSTRAINTS_MAX 8 /* of all claims of a pod that wait */

void dra_name_request(const struct dra_want *want, char ret[static DEVICE_REQUEST_MAX]) {
    const struct device_choice *choice = dra_choice_of(want);
    (void) snprintf(ret, DEVICE_REQUEST_MAX, "%s%s%s", want->request->name,
                    choice->name[0] ? "/" : "", choice->name);
}

static bool is_class_of_ours(const struct dra *d, const char *name) {
    const struct dra_class *class = dra_class_find(d, name);
    return class && class->object.by_aliquot;
}

bool dra_is_ours(const struct dra *d, const struct resource_claim *claim, bool *ret_mixed) {
    uint32_t ours = 0, all = 0;
    for (uint32_t i = 0; i < claim->nrequests; i++) {
        const struct device_request *request = &claim->requests[i];
        for (uint32_t j = 0; j < request->nchoices; j++)
            ours += is_class_of_ours(d, request->choices[j].class);
        all += request->nchoices > 0 ? request->nchoices : 1;
    }
    *ret_mixed = ours > 0 && ours < all;
    return ours > 0 && ours == all;
}

bool dra_waits_for_us(const struct dra *d, const struct dra_claim *claim) {
    bool mixed = false;
    return !claim->object.allocated && (dra_is_ours(d, &claim->object, &mixed) || mixed);
}

void dra_waiting_each(const struct dra *d,
                      void (*each)(const char *namespace, const char *reason, void *userdata),
                      void *userdata) {
    for (const struct dra_claim *claim = d->claims; claim; claim = claim->hh.next)
        if (claim->waits_for && dra_waits_for_us(d, claim))
            each(claim->object.namespace, claim->waits_for, userdata);
}

static enum dra_found refuse(const struct dra_search *s, const struct dra_claim *claim,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));
static enum dra_found refuse(const struct dra_search *s, const struct dra_claim *claim,
                             const char *format, ...) {
    va_list ap;
    buf_printf(s->why, "claim %s: ", claim->object.name);
    va_start(ap, format);
    buf_vprintf(s->why, format, ap);
    va_end(ap);
    return DRA_REFUSED;
}

static enum dra_found check_choice(const struct dra_search *s, const struct dra_claim *claim,
                                   const struct device_choice *choice) {
    const struct device_amounts *a = &choice->amounts;
    if (choice->admin)
        return refuse(s, claim, "adminAccess is for kube-scheduler's class " DRA_FIRST_FIT_CLASS);
    if (a->odd[0])
        return refuse(s, claim, "capacity %s is not a whole number of core or memory", a->odd);
    if (a->has_core && a->core > CORE_PER_CARD)
        return refuse(s, claim, "core is a percentage of one card, at most 100");
    if (a->has_memory && a->memory < MIB)
        return refuse(s, claim, "memory is below 1 MiB: it counts bytes");
    if (choice->count > PLACE_CARDS_MAX)
        return refuse(s, claim, "count is more than the cards of any node");
    return DRA_FOUND;
}

struct container_request dra_read_amounts(const struct dra_want *want) {
    const struct device_choice *choice = dra_choice_of(want);
    const struct device_amounts *a = &choice->amounts;
    struct container_request req = {.phase = CONTAINER_APP, .scaling = DRA_SCALING};
    if (want->named) {
        (void) request_code_read(want->named->code, &req); /* as it was read before */
        return req;
    }
    req.cards = choice->all ? 1 : choice->count;
    req.whole = (!a->has_core || a->core == CORE_PER_CARD) && !a->has_memory;
    if (req.whole)
        return req;
    req.core = a->has_core ? (uint32_t) a->core : CORE_PER_CARD;
    req.slot = req.core == 0;
    req.memory = a->has_memory ? (a->memory + MIB - 1) / MIB * MIB : 0;
    req.memory_percent = !a->has_memory && req.core == 0 ? 100 : 0;
    return req;
}

/* The policy of the choice, by the configs of its class and of the claim. */
static int read_policy(struct dra_search *s, struct dra_want *want, struct err *err) {
    const struct dra_class *class = dra_class_find(s->d, dra_choice_of(want)->class);
    char request[DEVICE_REQUEST_MAX];
    struct share_config of_class = {.weight = 0}, of_claim = {.weight = 0};
    dra_name_request(want, request);
    int r = class ? share_config_of(class->object.configs, class->object.nconfigs, request,
                                    &of_class, err)
                  : 0;
    if (r == 0)
        r = share_config_of(want->claim->object.configs, want->claim->object.nconfigs, request,
                            &of_claim, err);
    const char *name =
        of_claim.placement_policy[0] ? of_claim.placement_policy : of_class.placement_policy;
    if (r == 0 && name[0])
        want->policies[want->choice] = place_policy_find(name);
    return r;
}

/* A pod that requests by resource names says which cards in annotations. A user, too, can write the
 * claim's annotation, and ResourceQuota counts the devices of the claim's spec. */
static enum dra_found check_named(struct dra_search *s, const struct dra_claim *claim,
                                  const struct pod_device_claim *named) {
    const struct device_choice *choice = &claim->object.requests[0].choices[0];
    struct container_request req = {.scaling = DRA_SCALING};
    enum request_problem problem = request_code_read(named->code, &req);
    if (problem == REQUEST_OK && s->pod->object.terms.bad_selection)
        problem = REQUEST_SELECTION;
    if (problem != REQUEST_OK)
        return refuse(s, claim, "%s", request_problem_text(problem, (struct dialect_pair){0}));
    const uint32_t devices = req.cards ? req.cards : 1;
    if (choice->all || choice->count != devices)
        return refuse(s, claim,
                      "it asks for %" PRIu32 " devices by its annotation " DRA_REQUEST_ANNOTATION
                      ", and its spec for another number: delete its template, which Aliquot makes "
                      "anew, and make the pod anew",
                      devices);
    return DRA_FOUND;
}

static enum dra_found add_claim(struct dra_search *s, struct dra_claim *claim) {
    const struct resource_claim *object = &claim->object;
    for (uint32_t i = 0; i < object->nrequests; i++) {
        if (s->n == GPU_CONTAINERS_MAX)
            return refuse(s, claim, "the claims of a pod have more than %d requests",
                          GPU_CONTAINERS_MAX);
        struct dra_want *want = &s->wants[s->n++];
        struct err err;
        *want = (struct dra_want){.claim = claim,
                                  .request = &object->requests[i],
                                  .named = dra_request_of(s->pod, claim)};
        if (want->named && check_named(s, claim, want->named) != DRA_FOUND)
            return DRA_REFUSED;
        for (uint32_t j = 0; j < want->request->nchoices; j++) {
            want->choice = j;
            enum dra_found found = check_choice(s, claim, dra_choice_of(want));
            if (found != DRA_FOUND)
                return found;
            if (dra_read_selectors(s, want, &err) < 0 || read_policy(s, want, &err) < 0)
                return refuse(s, claim, "%s", err.text);
        }
        want->choice = 0;
    }
    s->nconstraints += object->nconstraints;
    if (s->nconstraints > CONSTRAINTS_MAX)
        return refuse(s, claim, "the claims of a pod have more than %d constraints",
                      CONSTRAINTS_MAX);
    s->claims[s->nclaims++] = claim;
    return DRA_FOUND;
}

/* Two names of a pod can stand for one claim. */
static bool is_read(const struct dra_search *s, const struct dra_claim *claim) {
    for (uint32_t i = 0; i < s->nclaims; i++)
        if (s->claims[i] == claim)
            return true;
    return false;
}

static bool is_of_another_pod(const struct dra_search *s, const struct dra_claim *claim) {
    return claim->object.owner_pod[0] && strcmp(claim->object.owner_pod, s->pod->object.uid) != 0;
}

/* All that is allocated to one pod is on one node. */
static enum dra_found read_pod_claim(struct dra_search *s, const struct pod_device_claim *of) {
    struct dra_claim *claim =
        of->claim[0] ? dra_claim_find(s->d, s->pod->object.namespace, of->claim) : NULL;
    bool mixed;
    const char *late = !claim                         ? "it is not there, or cannot be read"
                       : claim->object.deleting       ? "it is being deleted"
                       : claim->stage == DRA_IN_DOUBT ? "a write of it has got no answer"
                       : is_of_another_pod(s, claim)  ? "it is the one of an earlier pod"
                                                      : NULL;
    if (late) {
        bool refused = false;
        const char *why = of->claim[0] ? NULL : dra_template_why(s->d, s->pod, of, &refused);
        buf_printf(s->why, "claim %s: %s", of->claim[0] ? of->claim : of->name, why ? why : late);
        return refused ? DRA_REFUSED : DRA_LATER;
    }
    const char *node = dra_claim_node(claim);
    if (node[0] && s->node && strcmp(node, s->node) != 0)
        return refuse(s, claim, "it is on node %s, and another claim of the pod on node %s", node,
                      s->node);
    if (node[0])
        s->node = node;
    if (claim->object.allocated || claim->plan || is_read(s, claim))
        return DRA_FOUND;
    if (dra_is_ours(s->d, &claim->object, &mixed))
        return add_claim(s, claim);
    return mixed ? refuse(s, claim,
                          "its requests are of classes of several allocators, or of a kind that is "
                          "not known; make a claim for each")
                 : DRA_FOUND;
}

enum dra_found dra_read_pod(struct dra_search *s) {
    const struct pod_devices *pod = &s->pod->object;
    if (pod->node[0])
        s->node = pod->node;
    for (uint32_t i = 0; i < pod->nclaims; i++) {
        enum dra_found found = read_pod_claim(s, &pod->claims[i]);
        if (found != DRA_FOUND)
            return found;
    }
    return s->n > 0 ? DRA_FOUND : DRA_NOT_OURS;
}
