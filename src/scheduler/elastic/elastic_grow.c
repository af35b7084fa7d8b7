/* SPDX-License-Identifier: Apache-2.0 */

/* A claim has grown: the pods that use it get a new assignment, signed as the first one was, while
 * they run. Their agent sees it and raises their limits in place. Shares only grow, so an older
 * assignment that is written back takes nothing from other pods. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "scheduler/elastic/elastic_internal.h"
#include "wire/http_status.h"
#include "wire/json_write.h"

#define AGAIN_MS 2000
#define REFUSED_MS 60000
#define TIMEOUT_MS 10000
#define BODY_MAX ((size_t) 512 << 10)
#define PATH_MAX_LEN 512

/* A pod that is being given more. */
struct elastic_growth {
    struct elastic_growth *next;
    char uid[KUBE_UID_MAX];
    uint64_t until_ms; /* not written again before */
};

void elastic_growths_drop(struct elastic *e) {
    struct elastic_growth *growth, *next;
    LL_FOREACH_SAFE(e->growths, growth, next)
        free(growth);
    e->growths = NULL;
}

/* Whether it may be written now; then it may not for a while. */
static bool may_write(struct elastic *e, const struct state_pod *pod) {
    uint64_t now = e->now(e->userdata);
    struct elastic_growth *growth, *next;
    LL_FOREACH_SAFE(e->growths, growth, next) {
        if (strcmp(growth->uid, pod->uid) == 0 && now < growth->until_ms)
            return false;
        if (now < growth->until_ms)
            continue;
        LL_DELETE(e->growths, growth);
        free(growth);
    }
    growth = calloc(1, sizeof(*growth));
    if (!growth)
        return false;
    memcpy(growth->uid, pod->uid, sizeof(growth->uid));
    growth->until_ms = now + (pod->newer ? REFUSED_MS : AGAIN_MS);
    LL_PREPEND(e->growths, growth);
    return true;
}

/* ---- the new assignment ---- */

static void assignment_cleanup(struct assignment *a) {
    assignment_done(a);
}

static void enlarge(struct assignment *a, const char *container, const struct claim_amount *amount,
                    uint64_t memory) {
    for (uint32_t i = 0; i < a->ncontainers; i++)
        for (uint32_t d = 0;
             strcmp(a->containers[i].name, container) == 0 && d < a->containers[i].ndevices; d++) {
            struct assigned_device *device = &a->containers[i].devices[d];
            bool oversubscribed = device->physical < device->memory;
            device->core = device->core > amount->core ? device->core : amount->core;
            /* What may be on the card at once grows with it where the card is not oversubscribed.
             */
            if (device->memory >= memory)
                continue;
            device->physical = oversubscribed ? device->physical : memory;
            device->memory = memory;
        }
}

static int encode(struct elastic *e, const struct state_pod *pod, const struct assignment *a,
                  struct buf *out, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(ASSIGNMENT_TEXT_MAX);
    char signature[SIGNATURE_TEXT_MAX];
    struct json_writer w = {.out = out};
    assignment_encode(a, &text);
    if (buf_error(&text) < 0 || !e->binder->key)
        return err_set(err, EAGAIN, "the assignment cannot be made");
    int r =
        assignment_sign(e->binder->key, pod->uid, pod->node->name, buf_str(&text), signature, err);
    if (r < 0)
        return r;
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "uid", pod->uid);
    json_object_begin(&w, "annotations");
    json_put_string(&w, ANNOTATION_ASSIGNMENT, buf_str(&text));
    json_put_string(&w, ANNOTATION_SIGNATURE, signature);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    return buf_error(out);
}

static void on_written(const struct kube_response *response, void *userdata) {
    struct elastic *e = userdata;
    bool ok = http_is_success(response->status);
    e->writes += ok;
    e->failed += !ok;
    if (!ok)
        log_warn("claims: a pod cannot be given more: %s", response->text);
    e->changed(e->userdata);
}

static void write_pod(struct elastic *e, const struct state_pod *pod, const char *container,
                      const struct claim_amount *amount, uint64_t memory) {
    _cleanup_(assignment_cleanup) struct assignment a = {0};
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    char path[PATH_MAX_LEN];
    struct err err;
    if (!may_write(e, pod) || state_assignment(pod, &a) < 0)
        return;
    if (pod->newer) {
        log_warn("claims: pod %s/%s cannot be given more: its assignment is of a newer scheduler, "
                 "which may ask for what this one does not know: update aliquot-scheduler",
                 pod->namespace, pod->name);
        return;
    }
    enlarge(&a, container, amount, memory);
    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s/status", pod->namespace, pod->name);
    int r = encode(e, pod, &a, &body, &err);
    if (r == 0)
        r = e->api.request(e->api.context, "PATCH", path, KUBE_MERGE_PATCH, body.data, body.len,
                           TIMEOUT_MS, on_written, e, &err);
    if (r < 0)
        log_warn("claims: pod %s/%s cannot be given more: %s", pod->namespace, pod->name, err.text);
}

/* ---- pods with less than their claim ---- */

struct search {
    struct elastic *elastic;
    const struct egpu_claim *claim;
    bool settled;
};

/* An assumed allocation is dropped and made again; a Binding in flight is awaited. */
static void give_more(struct elastic *e, struct state_pod *pod, const char *container,
                      const struct claim_amount *amount, uint64_t memory) {
    if (pod->stage == POD_ASSUMED)
        state_release(e->state, pod);
    else if (pod->stage >= POD_AWAITED)
        write_pod(e, pod, container, amount, memory);
}

static bool check_pod(const char *uid, const char *name, void *userdata) {
    struct search *search = userdata;
    struct elastic *e = search->elastic;
    struct state_pod *pod = state_pod_find(e->state, uid);
    struct claims_use use;
    const char *container;
    struct err err;
    int r = pod && pod->node && !pod->deleting ? 0 : -ENOENT;
    (void) name;
    for (uint32_t i = 0; r != -ENOENT; i++) {
        r = claims_use(e->claims, uid, i, &container, &use, &err);
        for (uint32_t h = 0; r == 0 && use.claim == search->claim && h < pod->nallocations; h++) {
            const struct state_allocation *held = &pod->allocations[h];
            uint64_t memory = elastic_memory_of(&use.amount, pod, held);
            /* Annotations of a pod can be changed: it may hold a card of something else. */
            if (strcmp(held->container, container) != 0 || !elastic_has(use.egpu, pod, held) ||
                (held->device.core >= use.amount.core && held->device.memory >= memory))
                continue;
            search->settled = false;
            give_more(e, pod, container, &use.amount, memory);
            break;
        }
    }
    return true;
}

bool elastic_settle(void *self, const struct egpu *egpu) {
    struct elastic *e = self;
    struct search search = {e, claims_find(e->claims, egpu->claim_namespace, egpu->claim_name),
                            true};
    /* More pods than may use it, by a class that was changed: what each has is all there is. */
    if (search.claim &&
        elastic_users(e, search.claim, NULL, NULL) <= claims_pods_of(e->claims, search.claim))
        claims_users(e->claims, search.claim, check_pod, &search);
    return search.settled;
}
