/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/gpu_status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "model/quantity.h"
#include "wire/http_status.h"
#include "wire/json_write.h"

#define IN_FLIGHT_MAX 16
#define TIMEOUT_MS 10000
#define RETRY_MS 2000
/* A patch of a custom object costs the API server more than a Binding and delays Bindings. At low
 * rates each change is written at once. While many pods are bound, patches are limited to a rate
 * and combine the changes of a card; the rate rises so that every waiting node is updated within
 * LAG_S. */
#define PER_SECOND 5
#define BURST 40
#define LAG_S 20
#define TEXT_MAX ((size_t) 1 << 20) /* 1 MiB */
#define USERS_MAX 128 /* of the claims of a card are named together, but one of each claim */
#define ALWAYS 2      /* of the keys: allocatable and allocated are always there */

/* ---- what it should be ---- */

static void put_amount(struct json_writer *w, const char *key, uint64_t core, uint64_t memory) {
    char text[24];
    json_object_begin(w, key);
    json_put_stringf(w, RESOURCE_CORE, "%" PRIu64, core);
    json_put_string(w, RESOURCE_MEMORY, quantity_format_bytes(memory, text));
    json_object_end(w);
}

static void put_pod(struct json_writer *w, const struct state_pod *pod,
                    const struct state_card *card) {
    json_object_begin(w, pod->uid);
    json_array_begin(w, "containers");
    for (uint32_t i = 0; i < pod->nallocations; i++) {
        const struct state_allocation *allocation = &pod->allocations[i];
        if (strcmp(allocation->device.uuid, card->uuid) != 0)
            continue;
        json_object_begin(w, NULL);
        json_put_string(w, "container", allocation->container);
        put_amount(w, "resource", allocation->device.core, allocation->device.memory);
        json_object_end(w);
    }
    json_array_end(w);
    json_put_string(w, "namespace", pod->namespace);
    json_put_string(w, "pod", pod->name);
    json_object_end(w);
}

/* What a claim has of the card; its devices can be parts of one card. `users`: so many are named.
 */
static void put_claim(struct json_writer *w, const struct state_reserved *reserved,
                      const struct state_card *card, uint32_t users) {
    const struct state_claim *claim = reserved->claim;
    uint64_t core = 0, memory = 0;
    for (uint32_t i = 0; i < reserved->ndevices; i++) {
        const struct assigned_device *device = &reserved->devices[i];
        bool here = strcmp(device->uuid, card->uuid) == 0;
        core += here ? device->core : 0;
        memory += here ? device->memory : 0;
    }
    json_object_begin(w, claim->uid);
    json_put_string(w, "claim", claim->name);
    json_array_begin(w, "containers");
    json_object_begin(w, NULL);
    json_put_string(w, "container", claim->users[0].container);
    put_amount(w, "resource", core, memory);
    json_object_end(w);
    json_array_end(w);
    json_put_string(w, "namespace", claim->namespace);
    json_put_string(w, "pod", claim->users[0].pod);
    json_array_begin(w, "users");
    for (uint32_t i = 0; i < claim->nusers && i < users; i++) {
        json_object_begin(w, NULL);
        json_put_string(w, "container", claim->users[i].container);
        json_put_string(w, "pod", claim->users[i].pod);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

/* A pod, or a claim that pods use. */
struct holder {
    const char *uid;
    const struct state_pod *pod;           /* NULL: a claim */
    const struct state_reserved *reserved; /* of the claim */
};

struct holders {
    struct holder *list;
    size_t n, size;
};

static void holders_done(struct holders *holders) {
    free(holders->list);
}

static int by_uid(const void *a, const void *b) {
    const struct holder *x = a, *y = b;
    return strcmp(x->uid, y->uid);
}

/* Without memory it is repeated at the next change. */
static void add_holder(struct holders *to, struct holder holder) {
    if (array_reserve(&to->list, &to->size, to->n + 1, sizeof(*to->list)) == 0)
        to->list[to->n++] = holder;
}

static bool is_kept(const struct state_reserved *reserved, const struct state_card *card,
                    struct place_amount *ret);

static void collect_holders(const struct state_node *node, const struct state_card *card,
                            struct holders *ret) {
    struct place_amount ignored;
    for (const struct state_pod *pod = node->pods; pod; pod = pod->next)
        if (pod->stage == POD_BOUND && state_pod_amount(pod, card, &ignored))
            add_holder(ret, (struct holder){.uid = pod->uid, .pod = pod});
    for (const struct state_reserved *kept = node->reserved; kept; kept = kept->next)
        if (kept->claim && is_kept(kept, card, &ignored))
            add_holder(ret, (struct holder){.uid = kept->claim->uid, .reserved = kept});
    if (ret->n > 0)
        qsort(ret->list, ret->n, sizeof(*ret->list), by_uid);
}

/* How many users of each claim are named: the same number of those that have more. */
static uint32_t users_of_each(const struct holders *holders) {
    uint32_t each = STATE_CLAIM_USERS_MAX + 1;
    size_t named;
    do {
        each--;
        named = 0;
        for (size_t i = 0; i < holders->n; i++) {
            const struct state_reserved *of = holders->list[i].reserved;
            uint32_t users = of ? of->claim->nusers : 0;
            named += users < each ? users : each;
        }
    } while (named > USERS_MAX && each > 1);
    return each;
}

/* What is kept of the card for pods that are not there: claims, reservations, room that is being
 * made. */
static bool is_kept(const struct state_reserved *reserved, const struct state_card *card,
                    struct place_amount *ret) {
    *ret = (struct place_amount){0};
    for (uint32_t c = 0; c < card->node->ncards; c++)
        if (card->node->cards[c] == card)
            *ret = state_reserved_rest(reserved, c, true);
    return ret->core > 0 || ret->memory > 0;
}

/* The free amounts of the card, without assumed allocations. */
static void free_after(const struct state_card *card, const struct holders *holders,
                       struct place_amount *ret) {
    const struct place_card all = state_place_card(card);
    struct place_amount free = place_amount_of(&all), amount;
    for (size_t i = 0; i < holders->n; i++)
        if (holders->list[i].pod && state_pod_amount(holders->list[i].pod, card, &amount))
            (void) place_amount_take(&free, &amount);
    for (const struct state_reserved *kept = card->node->reserved; kept; kept = kept->next)
        if (is_kept(kept, card, &amount))
            (void) place_amount_take(&free, &amount);
    amount = (struct place_amount){.memory = state_card_unattributed(card)};
    (void) place_amount_take(&free, &amount);
    bool can_be_had =
        card->healthy && !card->apart && !card->duplicate && state_card_absent(card) == PLACE_OK;
    *ret = can_be_had ? free : (struct place_amount){0};
}

/* Members without a value are omitted. A column of kubectl shows one entry of a list, so heldBy
 * summarizes `held`. */
static void put_kept(struct json_writer *w, const struct state_card *card) {
    char first[STATE_KEEPER_MAX], keeper[STATE_KEEPER_MAX];
    struct place_amount rest = {0};
    size_t n = 0;
    for (const struct state_reserved *kept = card->node->reserved; kept; kept = kept->next) {
        if (kept->claim || !is_kept(kept, card, &rest))
            continue;
        if (n == 0)
            json_array_begin(w, "held");
        json_object_begin(w, NULL);
        state_reserved_keeper(kept, n == 0 ? first : keeper);
        json_put_string(w, "by", n == 0 ? first : keeper);
        put_amount(w, "resource", rest.core, rest.memory);
        json_object_end(w);
        n++;
    }
    if (n > 0)
        json_array_end(w);
    if (n > 1)
        json_put_stringf(w, "heldBy", "%s and %zu more", first, n - 1);
    else if (n == 1)
        json_put_string(w, "heldBy", first);
}

static void put_absence(struct json_writer *w, const struct state_card *card) {
    enum place_reason absent = state_card_absent(card);
    bool may_be_healthy = card->healthy || card->unknown;
    /* Only in this direction: the agent writes the state of a card as soon as it is back. */
    if (card->healthy && absent != PLACE_OK)
        json_put_string(w, "state", "Unknown");
    if (may_be_healthy && absent != PLACE_OK)
        json_put_string(w, "unavailable", place_reason_text(absent));
}

void gpu_status_text(struct state *s, struct state_card *card, struct buf *out) {
    _cleanup_(holders_done) struct holders holders = {0};
    struct json_writer w = {.out = out};
    struct place_amount free;
    state_refresh(s, card->node);
    collect_holders(card->node, card, &holders);
    free_after(card, &holders, &free);
    const uint32_t users = users_of_each(&holders);
    json_object_begin(&w, NULL);
    put_amount(&w, "allocatable", free.core, free.memory);
    json_object_begin(&w, "allocated");
    for (const struct holder *h = holders.list; h < holders.list + holders.n; h++)
        if (h->pod)
            put_pod(&w, h->pod, card);
        else
            put_claim(&w, h->reserved, card, users);
    json_object_end(&w);
    put_kept(&w, card);
    put_absence(&w, card);
    json_object_end(&w);
}

/* ---- what it is, and the way there ---- */

void gpu_status_observed(struct json status, struct buf *out) {
    static const char *const keys[] = {"allocatable", "allocated", "held", "heldBy", "unavailable"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        struct json value = json_get(status, keys[i]);
        if (i >= ALWAYS && !json_valid(value))
            continue;
        buf_printf(out, "%s\"%s\":", i ? "," : "{", keys[i]);
        if (json_valid(value))
            json_print(out, value);
        else
            buf_puts(out, "null");
    }
    buf_puts(out, "}");
}

/* One that goes by what it is now, or is to go. */
static void put_changed(struct json_writer *w, const char *key, struct json old, struct json new) {
    _cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);
    struct json value = json_get(new, key);
    if (json_valid(value)) {
        json_print(&text, value);
        json_put_raw(w, key, buf_str(&text));
    } else if (json_valid(json_get(old, key)))
        json_put_null(w, key);
}

/* A merge patch keeps what it does not name, so what is to go is named with null. */
static void put_allocated(struct json_writer *w, struct json observed, struct json wanted) {
    struct json_iter it = json_iter(observed);
    struct json value;
    const char *key;
    json_object_begin(w, "allocated");
    while (json_next(&it, &key, &value))
        if (key && !json_valid(json_get(wanted, key)))
            json_put_null(w, key);
    it = json_iter(wanted);
    while (json_next(&it, &key, &value)) {
        _cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);
        json_print(&text, value);
        json_put_raw(w, key, buf_str(&text));
    }
    json_object_end(w);
}

void gpu_status_patch(const char *observed, const char *wanted, struct json_parser *parser,
                      struct buf *out) {
    _cleanup_buf_ struct buf pair = BUF_INIT(TEXT_MAX * 2), free = BUF_INIT(TEXT_MAX);
    char now[OBJECT_TIME_SIZE];
    struct json root;
    buf_printf(&pair, "[%s,%s]", observed ? observed : "null", wanted);
    if (buf_error(&pair) < 0 || json_parse(parser, pair.data, pair.len, &root, NULL) < 0)
        return;
    struct json_iter it = json_iter(root);
    struct json old, new;
    (void) json_next(&it, NULL, &old);
    (void) json_next(&it, NULL, &new);
    json_print(&free, json_get(new, "allocatable"));
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "status");
    json_put_raw(&w, "allocatable", buf_str(&free));
    put_allocated(&w, json_get(old, "allocated"), json_get(new, "allocated"));
    put_changed(&w, "held", old, new);
    put_changed(&w, "heldBy", old, new);
    put_changed(&w, "state", old, new);
    if (json_valid(json_get(new, "state"))) {
        object_now(now);
        json_put_string(&w, "since", now);
    }
    put_changed(&w, "unavailable", old, new);
    json_object_end(&w);
    json_object_end(&w);
}

/* ---- sending ---- */

/* The interval between patches for that number of waiting nodes. */
static uint64_t price_ms(const struct gpu_status *p) {
    uint64_t more = p->state->nunprojected / LAG_S;
    return 1000 / (PER_SECOND + (more < 1000 - PER_SECOND ? more : 1000 - PER_SECOND));
}

struct sending {
    struct gpu_status *gpu_status;
    char name[KUBE_NAME_MAX]; /* the card may be gone when the answer comes */
};

static void on_patched(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct sending *sending = userdata;
    struct gpu_status *p = sending->gpu_status;
    struct state_card *card;
    p->in_flight--;
    HASH_FIND_STR(p->state->cards, sending->name, card);
    if (http_is_success(response->status))
        p->patched++;
    else
        p->failed++;
    if (!card)
        return;
    card->projecting = false;
    if (card->node)
        state_unproject(card->node); /* compared again with what the watch shows then */
}

/* A status that is too long stays as it is until the card has fewer holders. */
static void tell_unwritten(struct gpu_status *p, struct state_card *card, int error) {
    if (card->unwritten)
        return;
    card->unwritten = true;
    p->failed++;
    log_warn("GPU %s: its status stays as it is: %s", card->name,
             error == -ENOMEM ? "out of memory"
                              : "it would be longer than 1 MiB with all pods and claims that have "
                                "shares of the card; delete some of them");
}

static void send_patch(struct gpu_status *p, struct state_card *card, const char *wanted,
                       struct json_parser *parser) {
    _cleanup_free_ struct sending *sending = calloc(1, sizeof(*sending));
    _cleanup_buf_ struct buf patch = BUF_INIT(TEXT_MAX);
    char path[KUBE_NAME_MAX + 64];
    if (!sending)
        return;
    gpu_status_patch(card->observed, wanted, parser, &patch);
    if (buf_error(&patch) < 0 || patch.len == 0) {
        tell_unwritten(p, card, buf_error(&patch));
        return;
    }
    card->unwritten = false;
    sending->gpu_status = p;
    memcpy(sending->name, card->name, sizeof(sending->name));
    snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s/status", card->name);
    if (p->api.request(p->api.context, "PATCH", path, KUBE_MERGE_PATCH, patch.data, patch.len,
                       TIMEOUT_MS, on_patched, sending, NULL) < 0) {
        p->failed++;
        return;
    }
    (void) take_ptr(sending);
    p->paid_ms += price_ms(p);
    card->projecting = true;
    card->projected_ms = p->now(p->userdata);
    p->in_flight++;
}

static bool may_send(struct gpu_status *p) {
    const uint64_t saved = BURST * price_ms(p);
    uint64_t now = p->now(p->userdata);
    if (p->paid_ms + saved < now)
        p->paid_ms = now - saved;
    return p->paid_ms <= now && p->in_flight < IN_FLIGHT_MAX;
}

/* Whether the card is as it should be, or being made so. */
static bool update_card(struct gpu_status *p, struct state_card *card, struct json_parser *parser) {
    _cleanup_buf_ struct buf wanted = BUF_INIT(TEXT_MAX);
    if (!card->observed)
        return true; /* the agent has not written a status yet; its coming is an event */
    gpu_status_text(p->state, card, &wanted);
    if (buf_error(&wanted) < 0) {
        tell_unwritten(p, card, buf_error(&wanted));
        return true;
    }
    if (strcmp(buf_str(&wanted), card->observed) == 0)
        return true;
    if (card->projecting)
        return false;
    uint64_t hash = state_hash(0, buf_str(&wanted));
    bool waiting =
        hash == card->projected_hash && p->now(p->userdata) - card->projected_ms < RETRY_MS;
    if (!waiting && may_send(p)) {
        card->projected_hash = hash;
        send_patch(p, card, buf_str(&wanted), parser);
    }
    return false;
}

static void update_node(struct gpu_status *p, struct state_node *node, struct json_parser *parser) {
    bool settled = true;
    state_projected(node);
    for (uint32_t i = 0; i < node->ncards; i++)
        settled &= update_card(p, node->cards[i], parser);
    for (struct state_card *card = node->apart; card; card = card->next)
        settled &= update_card(p, card, parser);
    if (!settled)
        state_unproject(node); /* behind all others */
}

void gpu_status_run(struct gpu_status *p, struct json_parser *parser) {
    state_refresh_all(p->state);
    for (size_t n = p->state->nunprojected; n > 0 && may_send(p); n--)
        update_node(p, p->state->unprojected, parser);
}
