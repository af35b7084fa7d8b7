/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/explain_claims.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "cli/clean.h"
#include "cli/cluster/api.h"
#include "cli/cluster/card_share.h"
#include "cli/cluster/cards.h"
#include "cli/table.h"
#include "kube/objects/pod_devices.h"
#include "kube/objects/resource_claim.h"
#include "model/dra.h"

struct explained_claims {
    struct pod_devices pod;
    uint32_t n;
    struct resource_claim claims[POD_DEVICE_CLAIMS_MAX]; /* that can be read */
};

static void explained_claims_done(struct explained_claims *e) {
    for (uint32_t i = 0; i < e->n; i++)
        resource_claim_done(&e->claims[i]);
    pod_devices_done(&e->pod);
}

bool explain_has_claims(struct json pod) {
    return json_size(JSON_PATH(pod, "spec", "resourceClaims")) > 0;
}

static int read_claim(const char *namespace, const char *name, struct resource_claim *ret,
                      struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json object;
    char path[1024];
    (void) snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
                    namespace, name);
    int r = api_read(path, &parser, &object, err);
    return r < 0 ? r : resource_claim_parse(object, ret, err);
}

static void read_claims(struct explained_claims *e) {
    for (uint32_t i = 0; i < e->pod.nclaims; i++) {
        const struct pod_device_claim *of = &e->pod.claims[i];
        struct err why;
        if (!of->claim[0])
            clean_print(stdout, "Its ResourceClaim %s is not made of its template yet.\n",
                        of->name);
        else if (read_claim(e->pod.namespace, of->claim, &e->claims[e->n], &why) < 0)
            clean_print(stdout, "ResourceClaim %s cannot be read: %s\n", of->claim, why.text);
        else
            e->n++;
    }
}

/* ---- what waits ---- */

static void put_wants(const struct device_request *request, bool is_first) {
    const struct device_choice *choice = &request->choices[0];
    char memory[24];
    printf("%s", is_first ? "" : ", ");
    if (choice->count > 1)
        printf("%" PRIu32 " x ", choice->count);
    if (choice->amounts.has_core)
        printf("%" PRIu64 " %%", choice->amounts.core);
    if (choice->amounts.has_memory)
        printf("%s%s", choice->amounts.has_core ? " and " : "",
               num_format_bytes(choice->amounts.memory, memory));
    if (!choice->amounts.has_core && !choice->amounts.has_memory)
        printf("all of a device");
    clean_print(stdout, " of class %s%s", choice->class,
                request->nchoices > 1 ? " or another" : "");
}

static void print_waiting(const struct resource_claim *claim) {
    bool is_first = true;
    clean_print(stdout, "ResourceClaim %s is not allocated; it requests ", claim->name);
    for (uint32_t i = 0; i < claim->nrequests; i++)
        if (claim->requests[i].nchoices > 0) {
            put_wants(&claim->requests[i], is_first);
            is_first = false;
        }
    puts(".");
}

/* ---- what is allocated ---- */

enum column { C_CLAIM, C_CONTAINER, C_DEVICE, C_CORE, C_MEMORY, C_COLUMNS };

static bool is_ours(const struct device_result *result) {
    return strcmp(result->driver, DRA_DRIVER) == 0;
}

/* The containers of the pod that use it. */
static void put_containers(const struct explained_claims *e, const char *claim, struct buf *out) {
    for (size_t i = 0; i < e->pod.nuses; i++)
        if (strcmp(e->pod.uses[i].claim, claim) == 0)
            buf_printf(out, "%s%s", out->len ? "," : "", e->pod.uses[i].container);
}

static void put_result(struct table *t, const struct explained_claims *e,
                       const struct resource_claim *claim, const struct device_result *result) {
    _cleanup_buf_ struct buf containers = BUF_INIT((size_t) 64 << 10);
    char memory[24];
    put_containers(e, claim->name, &containers);
    table_row(t);
    table_set(t, C_CLAIM, "%s", claim->name);
    table_set(t, C_CONTAINER, "%s", buf_str(&containers));
    table_set(t, C_DEVICE, "%s", result->device);
    if (result->consumed.has_core)
        table_set(t, C_CORE, "%" PRIu64 " %%", result->consumed.core);
    if (result->consumed.has_memory)
        table_set(t, C_MEMORY, "%s", num_format_bytes(result->consumed.memory, memory));
}

static int print_allocated(const struct explained_claims *e, struct err *err) {
    static const char *const titles[C_COLUMNS] = {"RESOURCECLAIM", "CONTAINER", "DEVICE", "CORE",
                                                  "MEMORY"};
    _cleanup_(table_done) struct table t = {.columns = C_COLUMNS};
    uint32_t rows = 0;
    table_titles(&t, titles);
    for (uint32_t i = 0; i < e->n; i++)
        for (uint32_t j = 0; j < e->claims[i].nresults; j++)
            if (is_ours(&e->claims[i].results[j])) {
                put_result(&t, e, &e->claims[i], &e->claims[i].results[j]);
                rows++;
            }
    return rows > 0 ? table_show(&t, err) : 0;
}

/* GPU objects do not tell what else a card has that is divided for claims. */
static void print_card(const struct card *card, const struct resource_claim *claim,
                       const char *device) {
    char uuid[GPU_UUID_MAX];

    dra_device_uuid(device, uuid);
    if (strcmp(card->uuid, uuid) != 0)
        return;
    if (strlen(device) == strlen(uuid))
        card_print_sharing(card, claim->uid);
    else
        clean_print(stdout, "GPU %s (%s, %s): divided for ResourceClaims\n", card->name,
                    card->model, card->state);
}

static void print_sharing(const struct cards *cards, const struct resource_claim *claim) {
    for (uint32_t i = 0; i < claim->nresults; i++)
        for (size_t c = 0; is_ours(&claim->results[i]) && c < cards->n; c++)
            print_card(&cards->list[c], claim, claim->results[i].device);
}

static bool has_ours(const struct explained_claims *e) {
    for (uint32_t i = 0; i < e->n; i++)
        if (resource_claim_is_ours(&e->claims[i]))
            return true;
    return false;
}

static void print_cards(const struct explained_claims *e) {
    _cleanup_(cards_done) struct cards cards = {0};
    struct err why;
    if (!has_ours(e))
        return;
    if (cards_fetch(&cards, &why) < 0) {
        clean_print(stdout, "The pods that share its cards cannot be read: %s\n", why.text);
        return;
    }
    for (uint32_t i = 0; i < e->n; i++)
        print_sharing(&cards, &e->claims[i]);
}

int explain_claims(struct json pod, struct err *err) {
    _cleanup_(explained_claims_done) struct explained_claims e = {.n = 0};
    int r = pod_devices_parse(pod, &e.pod, err);
    if (r <= 0)
        return r;
    read_claims(&e);
    for (uint32_t i = 0; i < e.n; i++)
        if (!e.claims[i].allocated)
            print_waiting(&e.claims[i]);
    r = print_allocated(&e, err);
    if (r == 0)
        print_cards(&e);
    return r;
}
