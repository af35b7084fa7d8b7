/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "claims/object.h"
#include "model/mig_strategy.h"
#include "model/quantity.h"

#define LINES_MAX 8

bool claim_amount_covers(const struct claim_amount *have, const struct claim_amount *want) {
    if (want->profile[0])
        return strcmp(have->profile, want->profile) == 0;
    return have->cards == want->cards && have->whole == want->whole && have->core >= want->core &&
           (want->whole || have->memory >= want->memory);
}

int claim_amount_compare(const struct claim_amount *a, const struct claim_amount *b) {
    if (a->cards != b->cards)
        return a->cards < b->cards ? -1 : 1;
    if (a->core != b->core)
        return a->core < b->core ? -1 : 1;
    return a->memory < b->memory ? -1 : a->memory > b->memory;
}

void claim_amount_request(const struct claim_amount *a, struct container_request *req) {
    req->cards = a->cards;
    req->whole = a->whole;
    req->core = a->whole ? 0 : a->core;
    req->memory = a->whole ? 0 : a->memory;
    req->memory_percent = 0;
    req->replicas = 0;
    req->as_replica = req->as_cards = false;
    req->tflops = 0;
    req->memory_floor = 0;
    req->slot = !a->whole && a->core == 0;
}

/* ---- reading ---- */

struct line {
    char name[128];
    char quantity[40];
};

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool has_suffix(const char *quantity) {
    size_t n = strlen(quantity);
    return n > 0 && (quantity[n - 1] < '0' || quantity[n - 1] > '9');
}

static int copy_line(const char *key, struct json value, struct line *ret) {
    uint64_t number;
    const char *text = json_string(value);
    if (snprintf(ret->name, sizeof(ret->name), "%s", key) >= (int) sizeof(ret->name))
        return -EINVAL;
    if (json_u64(value, &number)) {
        snprintf(ret->quantity, sizeof(ret->quantity), "%" PRIu64, number);
        return 0;
    }
    if (!text ||
        snprintf(ret->quantity, sizeof(ret->quantity), "%s", text) >= (int) sizeof(ret->quantity))
        return -EINVAL;
    return 0;
}

static size_t copy_lines(struct json list, struct line lines[static LINES_MAX], bool *ret_bytes) {
    struct json_iter it = json_iter(list);
    struct json value;
    const char *key;
    size_t n = 0;
    *ret_bytes = false;
    while (n < LINES_MAX && json_next(&it, &key, &value)) {
        if (!key || copy_line(key, value, &lines[n]) < 0)
            continue;
        if (ends_with(lines[n].name, "memory") && has_suffix(lines[n].quantity))
            *ret_bytes = true;
        n++;
    }
    return n;
}

/* "4Gi" of a resource that counts GiB is meant as 4 GiB: the suffix says so. "4GB" is 4G. */
static void make_native(struct line *line) {
    size_t len = strlen(line->quantity);
    bool memory = ends_with(line->name, "memory");
    if (!memory && !ends_with(line->name, "core"))
        return;
    if (memory && len > 1 && line->quantity[len - 1] == 'B')
        line->quantity[len - 1] = '\0';
    snprintf(line->name, sizeof(line->name), "%s", memory ? RESOURCE_MEMORY : RESOURCE_CORE);
}

static int to_amount(const struct container_request *req, struct claim_amount *ret,
                     struct err *why) {
    if (req->tflops > 0 || req->memory_percent > 0 || req->replicas > 0)
        return err_set(why, EINVAL,
                       "a claim asks by gpu-core and gpu-memory, not by TFLOPS, by "
                       "percent of the memory or by replicas");
    *ret = (struct claim_amount){.cards = req->cards,
                                 .whole = req->whole,
                                 .core = req->whole ? CORE_PER_CARD : req->core,
                                 .memory = req->whole ? 0 : req->memory};
    return 0;
}

/* 1: it is a MIG instance; 0: it is not. */
static int read_instance(const struct line *lines, size_t n, struct claim_amount *ret,
                         struct err *why) {
    struct claim_amount amount = {.cards = 1};
    struct mig_name name;
    size_t at = 0;

    while (at < n && strncmp(lines[at].name, MIG_RESOURCE_PREFIX, strlen(MIG_RESOURCE_PREFIX)) != 0)
        at++;
    if (at == n)
        return 0;
    if (!mig_name_of_resource(lines[at].name, &name))
        return err_set(why, EINVAL, "%s is the name of no whole MIG instance", lines[at].name);
    if (n > 1 || strcmp(lines[at].quantity, "1") != 0)
        return err_set(why, EINVAL,
                       "a claim requests one MIG instance and nothing beside it: %s: 1",
                       lines[at].name);
    (void) mig_name_format(&name, amount.profile);
    *ret = amount;
    return 1;
}

int claim_amount_read(struct json list, struct claim_amount *ret, struct err *why) {
    struct line lines[LINES_MAX];
    struct resource_line resources[LINES_MAX + 1];
    struct container_request req = {.phase = CONTAINER_APP};
    struct dialect_pair mixed = {0};
    bool bytes, requested = false;
    size_t n = copy_lines(list, lines, &bytes);
    int r = read_instance(lines, n, ret, why);

    if (r != 0)
        return r < 0 ? r : 0;
    for (size_t i = 0; i < n; i++) {
        if (bytes)
            make_native(&lines[i]);
        resources[i] =
            (struct resource_line){lines[i].name, lines[i].quantity, strlen(lines[i].quantity)};
    }
    /* The carrier is the containers' matter; a claim has none and needs none. */
    resources[n] = (struct resource_line){RESOURCE_SLOT, "1", 1};
    enum request_problem p = dialect_read(resources, n + 1, &req, &requested, &mixed);
    if (p == REQUEST_SLOT_ALONE || (p == REQUEST_OK && !requested))
        return err_set(why, EINVAL,
                       "nothing of a GPU is asked: name gpu-core, gpu-memory or both, such as "
                       "elasticgpu.io/gpu-core: 10, or a MIG instance");
    if (p != REQUEST_OK)
        return err_set(why, EINVAL, "%s", request_problem_text(p, mixed));
    return to_amount(&req, ret, why);
}
