/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/figures/usage_page.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "kube/api/field.h"
#include "wire/json.h"

#define SHARES_MAX ((size_t) 4 * USAGE_PODS_MAX) /* containers on one card each */
#define WHOLE_CARD 100

struct uses {
    struct pod_use *v;
    size_t n, room;
};

static uint64_t number(struct json object, const char *key) {
    uint64_t value = 0;
    (void) json_u64(json_get(object, key), &value);
    return value;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* A container that has an instance whole has none of the figures. */
static bool is_share(struct json holder) {
    bool ending = false;
    return json_valid(json_get(holder, "core")) &&
           !(json_bool(json_get(holder, "ending"), &ending) && ending);
}

static int add(struct uses *uses, struct json holder) {
    bool damaged = false;
    if (!is_share(holder) || uses->n == SHARES_MAX)
        return 0;
    if (array_reserve(&uses->v, &uses->room, uses->n + 1, sizeof(*uses->v)) < 0)
        return -ENOMEM;
    struct pod_use *use = &uses->v[uses->n];
    *use = (struct pod_use){
        .core = number(holder, "core") ? number(holder, "core") : WHOLE_CARD,
        .taken = number(holder, "gpuTakenPpm"),
        .memory = larger(number(holder, "memoryDriver"), number(holder, "memoryUsed")),
        .memory_limit = number(holder, "memoryLimit"),
        .throttled_ns = number(holder, "throttledNs"),
        .time_known = json_valid(json_get(holder, "gpuTakenPpm")) &&
                      !(json_bool(json_get(holder, "accountDamaged"), &damaged) && damaged),
    };
    if (field_copy(json_get(holder, "podUID"), use->uid, sizeof(use->uid)) == 0)
        uses->n++;
    return 0;
}

static int add_all(struct uses *uses, struct json devices) {
    struct json_iter it = json_iter(devices);
    struct json device, holder;
    int r = 0;
    while (r == 0 && json_next(&it, NULL, &device)) {
        struct json_iter holders = json_iter(json_get(device, "holders"));
        while (r == 0 && json_next(&holders, NULL, &holder))
            r = add(uses, holder);
    }
    return r;
}

static int by_uid(const void *a, const void *b) {
    const struct pod_use *one = a, *two = b;
    return strcmp(one->uid, two->uid);
}

/* Sums of figures that a damaged page may have made large stay numbers. */
static uint64_t sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void merge(struct uses *uses) {
    size_t n = 0;
    for (size_t i = 0; i < uses->n; i++) {
        const struct pod_use *from = &uses->v[i];
        struct pod_use *into = n > 0 ? &uses->v[n - 1] : NULL;
        if (!into || strcmp(into->uid, from->uid) != 0) {
            uses->v[n++] = *from;
            continue;
        }
        into->core = sum(into->core, from->core);
        into->taken = sum(into->taken, from->taken);
        into->memory = sum(into->memory, from->memory);
        into->memory_limit = sum(into->memory_limit, from->memory_limit);
        into->throttled_ns = sum(into->throttled_ns, from->throttled_ns);
        into->time_known = into->time_known && from->time_known;
    }
    uses->n = n < USAGE_PODS_MAX ? n : USAGE_PODS_MAX;
}

int usage_page_read(const char *text, size_t len, struct pod_use **ret, size_t *ret_n,
                    struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct uses uses = {0};
    struct json root, card;
    int r = json_open(text, len, &parser, &root, err);
    if (r < 0)
        return r;
    if (json_type(json_get(root, "gpus")) != JSON_ARRAY)
        return err_set(err, EBADMSG, "no page of an agent");
    r = add_all(&uses, json_get(root, "gpus"));
    struct json_iter it = json_iter(json_get(root, "gpus"));
    while (r == 0 && json_next(&it, NULL, &card))
        r = add_all(&uses, json_get(card, "instances"));
    if (r < 0) {
        free(uses.v);
        return err_errno(err, -r, "cannot read a page of an agent");
    }
    if (uses.n > 0)
        qsort(uses.v, uses.n, sizeof(*uses.v), by_uid);
    merge(&uses);
    /* It is kept for long. */
    struct pod_use *small = uses.n > 0 ? reallocarray(uses.v, uses.n, sizeof(*small)) : NULL;
    *ret = small ? small : uses.v;
    *ret_n = uses.n;
    return 0;
}

const struct pod_use *usage_find(const struct pod_use *uses, size_t n, const char *uid) {
    struct pod_use key;
    size_t len = strlen(uid);
    if (n == 0 || len >= sizeof(key.uid))
        return NULL;
    memcpy(key.uid, uid, len + 1);
    return bsearch(&key, uses, n, sizeof(key), by_uid);
}
