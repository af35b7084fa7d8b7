/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/own_pods.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cluster/api.h"
#include "kube/objects/assignment.h"
#include "kube/objects/pod.h"
#include "kube/objects/pod_claim_uses.h"
#include "kube/objects/resource_claim.h"
#include "model/dra.h"
#include "model/quantity.h"
#include "wire/json_write.h"

/* ---- shares ---- */

struct own_share {
    char node[KUBE_NAME_MAX], uuid[GPU_UUID_MAX], namespace[KUBE_LABEL_MAX];
    char pod[KUBE_NAME_MAX], uid[KUBE_UID_MAX], container[KUBE_LABEL_MAX];
    char address[INET6_ADDRSTRLEN]; /* of the node; "": it is not known, and neither is `index` */
    char claim[KUBE_NAME_MAX];      /* ResourceClaim whose share it is; "": it is the container's */
    uint32_t index, core;
    uint64_t memory;
};

/* A container that uses a ResourceClaim. */
struct own_claim_use {
    char namespace[KUBE_LABEL_MAX], pod[KUBE_NAME_MAX];
    struct pod_claim_use use;
};

struct own_shares {
    struct own_share *list;
    size_t n, room;
    struct own_claim_use *uses; /* by pods that have not ended */
    size_t nuses, uses_room;
    const char *address; /* of the node of the pod that is read */
    bool is_short;       /* no memory */
};

static void own_shares_done(struct own_shares *shares) {
    free(shares->list);
    free(shares->uses);
}

static struct own_share *new_share(struct own_shares *to) {
    if (array_reserve(&to->list, &to->room, to->n + 1, sizeof(*to->list)) == 0)
        return &to->list[to->n++];
    to->is_short = true;
    return NULL;
}

static void add_share(struct own_shares *to, const struct pod *pod, const char *container,
                      const struct assigned_device *device) {
    struct own_share *share = new_share(to);
    if (!share)
        return;
    *share =
        (struct own_share){.index = device->index, .core = device->core, .memory = device->memory};
    text_copy(share->node, sizeof(share->node), pod->node);
    text_copy(share->uuid, sizeof(share->uuid), device->uuid);
    text_copy(share->namespace, sizeof(share->namespace), pod->namespace);
    text_copy(share->pod, sizeof(share->pod), pod->name);
    text_copy(share->uid, sizeof(share->uid), pod->uid);
    text_copy(share->container, sizeof(share->container), container);
    text_copy(share->address, sizeof(share->address), to->address);
}

static void take_assignment(const struct pod *pod, struct own_shares *to) {
    struct assignment a;

    if (assignment_parse(pod->assignment, &a, NULL) < 0)
        return;
    for (uint32_t i = 0; i < a.ncontainers; i++)
        for (uint32_t j = 0; j < a.containers[i].ndevices; j++)
            add_share(to, pod, a.containers[i].name, &a.containers[i].devices[j]);
    assignment_done(&a);
}

static void take_uses(const struct pod *pod, struct json object, struct own_shares *to) {
    struct pod_claim_use *uses = NULL;
    size_t n = 0;
    int r = pod_claim_uses_read(object, &uses, &n);

    if (r == 0)
        r = array_reserve(&to->uses, &to->uses_room, to->nuses + n, sizeof(*to->uses));
    to->is_short |= r < 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct own_claim_use *use = &to->uses[to->nuses++];
        text_copy(use->namespace, sizeof(use->namespace), pod->namespace);
        text_copy(use->pod, sizeof(use->pod), pod->name);
        use->use = uses[i];
    }
    free(uses);
}

static void take_pod(struct json object, void *userdata) {
    struct own_shares *to = userdata;
    struct pod pod = {0};

    if (pod_parse(object, &pod, NULL) < 0)
        return;
    to->address = json_string_or(JSON_PATH(object, "status", "hostIP"), "");
    if (pod.assignment && pod.node[0] && !pod.finished)
        take_assignment(&pod, to);
    if (!pod.finished)
        take_uses(&pod, object, to);
    pod_done(&pod);
}

/* ---- ResourceClaims ---- */

static void add_claim(struct own_shares *to, const struct resource_claim *claim,
                      const struct device_result *result) {
    struct own_share *share = new_share(to);
    if (!share)
        return;
    *share = (struct own_share){.core = (uint32_t) result->consumed.core,
                                .memory = result->consumed.memory};
    text_copy(share->node, sizeof(share->node), result->pool);
    dra_device_uuid(result->device, share->uuid);
    text_copy(share->namespace, sizeof(share->namespace), claim->namespace);
    text_copy(share->claim, sizeof(share->claim), claim->name);
    text_copy(share->uid, sizeof(share->uid), claim->uid);
}

static void take_claim(struct json object, void *userdata) {
    struct own_shares *to = userdata;
    struct resource_claim claim;

    if (resource_claim_parse(object, &claim, NULL) < 0)
        return;
    for (uint32_t i = 0; i < claim.nresults && claim.nusers > 0; i++)
        if (strcmp(claim.results[i].driver, DRA_DRIVER) == 0 && !claim.results[i].admin)
            add_claim(to, &claim, &claim.results[i]);
    resource_claim_done(&claim);
}

static int by_card(const void *a, const void *b) {
    const struct own_share *x = a, *y = b;
    int r = strcmp(x->node, y->node);

    r = r ? r : strcmp(x->uuid, y->uuid);
    r = r ? r : (x->address[0] == '\0') - (y->address[0] == '\0'); /* the first names the card */
    return r ? r : strcmp(x->uid, y->uid);
}

/* ---- as GPU objects ---- */

static void put_share(struct json_writer *w, const struct own_share *share) {
    json_object_begin(w, NULL);
    json_put_string(w, "container", share->container);
    json_object_begin(w, "resource");
    json_put_stringf(w, RESOURCE_CORE, "%" PRIu32, share->core);
    json_put_stringf(w, RESOURCE_MEMORY, "%" PRIu64, share->memory);
    json_object_end(w);
    json_object_end(w);
}

/* All that use the claim; the pod is the first. */
static void put_users(struct json_writer *w, const struct own_shares *shares,
                      const struct own_share *of) {
    const char *first = "";
    json_put_string(w, "claim", of->claim);
    json_array_begin(w, "users");
    for (size_t i = 0; i < shares->nuses; i++) {
        const struct own_claim_use *use = &shares->uses[i];
        if (strcmp(use->use.claim, of->claim) != 0 || strcmp(use->namespace, of->namespace) != 0)
            continue;
        first = first[0] ? first : use->pod;
        json_object_begin(w, NULL);
        json_put_string(w, "pod", use->pod);
        json_put_string(w, "container", use->use.container);
        json_object_end(w);
    }
    json_array_end(w);
    json_put_string(w, "pod", first);
}

/* Those of a pod, or of a claim; returns the end of them. */
static const struct own_share *put_pod(struct json_writer *w, const struct own_shares *shares,
                                       const struct own_share *share, const struct own_share *end) {
    const struct own_share *first = share;

    json_object_begin(w, first->uid);
    json_put(w, "namespace", first->namespace);
    if (first->claim[0])
        put_users(w, shares, first);
    else
        json_put(w, "pod", first->pod);
    json_array_begin(w, "containers");
    for (; share < end && strcmp(share->uid, first->uid) == 0; share++)
        put_share(w, share);
    json_array_end(w);
    json_object_end(w);
    return share;
}

/* As agents name cards. Of an instance the UUID is known, and not the numbers in its name. */
static void put_name(struct json_writer *w, const struct own_share *share) {
    char name[KUBE_NAME_MAX];

    if (strncmp(share->uuid, "GPU-", 4) != 0 || !share->address[0] ||
        gpu_object_name(share->node, share->address, share->index, name) < 0)
        text_copy(name, sizeof(name), share->uuid);
    json_object_begin(w, "metadata");
    json_put_string(w, "name", name);
    json_object_end(w);
}

static const struct own_share *put_card(struct json_writer *w, const struct own_shares *shares,
                                        const struct own_share *share,
                                        const struct own_share *end) {
    const struct own_share *next = share;

    while (next < end && strcmp(next->node, share->node) == 0 &&
           strcmp(next->uuid, share->uuid) == 0)
        next++;
    json_object_begin(w, NULL);
    put_name(w, share);
    json_object_begin(w, "spec");
    json_put(w, "nodeName", share->node, "index", share->index, "uuid", share->uuid);
    json_object_end(w);
    json_object_begin(w, "status");
    json_put_string(w, "state", CARD_UNTOLD);
    json_object_begin(w, "allocated");
    while (share < next)
        share = put_pod(w, shares, share, next);
    json_object_end(w);
    json_object_end(w);
    json_object_end(w);
    return next;
}

static void put_cards(const struct own_shares *shares, struct buf *out) {
    struct json_writer w = {.out = out};
    const struct own_share *end = shares->list + shares->n;

    json_object_begin(&w, NULL);
    json_array_begin(&w, "items");
    for (const struct own_share *share = shares->list; share < end;)
        share = put_card(&w, shares, share, end);
    json_array_end(&w);
    json_object_end(&w);
}

static void sum_up(struct card *card) {
    for (size_t i = 0; i < card->nholders; i++) {
        card->taken_core += card->holders[i].core;
        card->taken_memory += card->holders[i].memory;
    }
}

int own_pods_cards(const char *namespace, struct cards *ret, struct err *err) {
    _cleanup_(own_shares_done) struct own_shares shares = {0};
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    char path[API_PATH_MAX];

    int r = api_each(api_list_path("/api/v1/pods", namespace, path), take_pod, &shares, err);
    if (r < 0)
        return r;
    /* Those of claims are left out where the claims cannot be read. */
    (void) api_each(api_list_path(RESOURCE_CLAIMS_PATH, namespace, path), take_claim, &shares,
                    NULL);
    if (shares.n > 0)
        qsort(shares.list, shares.n, sizeof(*shares.list), by_card);
    put_cards(&shares, &text);
    if (shares.is_short || buf_error(&text) != 0)
        return err_errno(err, ENOMEM, "cannot read the shares of the pods");
    r = cards_read(buf_str(&text), text.len, ret, err);
    if (r < 0)
        return r;
    ret->of_pods = true;
    for (size_t i = 0; i < ret->n; i++)
        sum_up(&ret->list[i]);
    return 0;
}

int own_pods_or_cards(const char *namespace, struct cards *ret, struct err *err) {
    int r = cards_fetch(ret, err);

    if (r == -EACCES && namespace && api_is_name(namespace))
        return own_pods_cards(namespace, ret, NULL) == 0 ? 0 : r;
    if (r == 0)
        cards_keep_namespace(ret, namespace);
    return r;
}

/* ---- what they use ---- */

#define NOT_TOLD UINT64_MAX

struct own_use {
    UT_hash_handle hh; /* by the pod's name */
    size_t shares;
    uint64_t memory, percent; /* bytes; thousandths of a percent of its part */
};

struct own_uses {
    struct own_use *list, *by_pod;
    size_t n;
};

static void own_uses_done(struct own_uses *uses) {
    HASH_CLEAR(hh, uses->by_pod);
    free(uses->list);
}

static struct own_use *find_use(const struct own_uses *uses, const char *pod) {
    struct own_use *found = NULL;

    HASH_FIND(hh, uses->by_pod, pod, strlen(pod), found);
    return found;
}

static int count_share(struct own_uses *uses, const char *pod) {
    struct own_use *use = find_use(uses, pod);

    if (!use) {
        use = &uses->list[uses->n++];
        *use = (struct own_use){.memory = NOT_TOLD, .percent = NOT_TOLD};
        HASH_ADD_KEYPTR(hh, uses->by_pod, pod, strlen(pod), use);
        if (!hash_added(use))
            return -ENOMEM;
    }
    use->shares++;
    return 0;
}

static int count_shares(struct own_uses *uses, const struct cards *cards) {
    size_t n = 0;

    for (size_t i = 0; i < cards->n; i++)
        n += cards->list[i].nholders;
    uses->list = calloc(n + 1, sizeof(*uses->list));
    if (!uses->list)
        return -ENOMEM;
    for (size_t i = 0; i < cards->n; i++)
        for (size_t j = 0; j < cards->list[i].nholders; j++)
            if (count_share(uses, cards->list[i].holders[j].pod) < 0)
                return -ENOMEM;
    return 0;
}

/* Reads a metric of all pods of the namespace, in thousandths. */
static int read_metric(const char *namespace, const char *metric, struct own_uses *uses,
                       void (*take)(struct own_use *use, uint64_t milli), struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, item;
    char path[512];

    (void) snprintf(path, sizeof(path),
                    "/apis/custom.metrics.k8s.io/v1beta2/namespaces/%s/pods/%%2A/%s", namespace,
                    metric);
    int r = api_read(path, &parser, &list, err);
    if (r < 0)
        return r;
    struct json_iter it = json_iter(json_get(list, "items"));
    while (json_next(&it, NULL, &item)) {
        const char *pod = json_string(JSON_PATH(item, "describedObject", "name"));
        const char *value = json_string(json_get(item, "value"));
        struct own_use *use = pod ? find_use(uses, pod) : NULL;
        uint64_t milli;
        if (use && value && quantity_parse_milli(value, strlen(value), &milli) == 0)
            take(use, milli);
    }
    return 0;
}

static void take_memory(struct own_use *use, uint64_t milli) {
    use->memory = milli / 1000;
}

static void take_percent(struct own_use *use, uint64_t milli) {
    use->percent = milli;
}

/* A part that has no size counts as the whole card. */
static uint64_t percent_of_card(const struct own_use *use, uint64_t core) {
    return (use->percent * (core ? core : 100) + 50000) / 100000;
}

static void put_use(struct json_writer *w, const struct holder *h, const struct own_use *use) {
    if (use->shares > 1)
        return;
    json_object_begin(w, NULL);
    json_put(w, "podUID", h->uid, "container", h->container);
    if (use->memory != NOT_TOLD)
        json_put_u64(w, "memoryDriver", use->memory);
    if (use->percent < NOT_TOLD / 100000)
        json_put_u64(w, "coreUsed", percent_of_card(use, h->core));
    json_object_end(w);
}

static void put_uses(const struct cards *cards, const struct own_uses *uses, struct buf *out) {
    struct json_writer w = {.out = out};

    json_object_begin(&w, NULL);
    json_array_begin(&w, "gpus");
    for (const struct card *card = cards->list; card < cards->list + cards->n; card++) {
        json_object_begin(&w, NULL);
        json_put_string(&w, "uuid", card->uuid);
        json_array_begin(&w, "holders");
        for (size_t i = 0; i < card->nholders; i++)
            put_use(&w, &card->holders[i], find_use(uses, card->holders[i].pod));
        json_array_end(&w);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
}

int own_pods_use(const char *namespace, const struct cards *cards, struct agents *ret,
                 struct err *err) {
    _cleanup_(own_uses_done) struct own_uses uses = {0};
    _cleanup_buf_ struct buf text = BUF_INIT(0);

    if (count_shares(&uses, cards) < 0)
        return err_errno(err, ENOMEM, "cannot read the use of the pods");
    int r = read_metric(namespace, "gpu_memory_used_bytes", &uses, take_memory, err);
    if (r == 0)
        r = read_metric(namespace, "gpu_utilization", &uses, take_percent, err);
    if (r == -ENOENT)
        return err_set(err, ENOENT,
                       "the cluster does not serve the metrics of pods "
                       "(scheduler.metricsApi.enabled of the chart)");
    if (r < 0)
        return r;
    put_uses(cards, &uses, &text);
    return agents_of_page(&text, ret, err);
}

int own_pods_or_agents(const char *system, const char *namespace, const struct cards *cards,
                       void (*trouble)(const char *pod, const char *text), struct agents *ret,
                       struct err *err) {
    struct err why;

    if (!cards->of_pods)
        return agents_read(system, trouble, ret, err);
    int r = own_pods_use(namespace, cards, ret, &why);
    if (r < 0)
        text_copy(ret->denied, sizeof(ret->denied), why.text);
    return r == -ENOMEM ? err_errno(err, ENOMEM, "cannot read the use of the pods") : 0;
}
