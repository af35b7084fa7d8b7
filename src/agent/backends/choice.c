/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/choice.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backends/device_id.h"
#include "agent/backends/partition.h"
#include "base/cleanup.h"
#include "gpu/device.h"

#define NVLINK_SCORE 100u /* of each, as NVIDIA's allocator counts */
#define LEVEL_SCORE 60u   /* of cards on one board; 10 less for each level between them */

/* An ID that kubelet may choose. */
struct candidate {
    char *id;
    const struct gpu_device *device; /* NULL: gone */
    bool taken;
};

struct choice {
    struct candidate *all;
    size_t n;
    uint32_t unused[GPU_MAX]; /* of each device of the snapshot: IDs that are not chosen */
    bool chosen[GPU_MAX];     /* a candidate of the device is */
    const struct gpu_snapshot *devices;
};

static size_t place_of(const struct choice *c, const struct gpu_device *d) {
    return (size_t) (d - c->devices->devices);
}

static bool is_must(const struct backend_choice *c, const char *text) {
    for (size_t i = 0; i < c->nmust; i++)
        if (strcmp(c->must[i], text) == 0)
            return true;
    return false;
}

static void take(struct choice *c, struct candidate *one) {
    one->taken = true;
    if (!one->device)
        return;
    c->chosen[place_of(c, one->device)] = true;
    c->unused[place_of(c, one->device)]--;
}

static void collect(const struct backend_choice *from, struct choice *ret) {
    for (size_t i = 0; i < from->navailable; i++) {
        struct candidate *one = &ret->all[ret->n++];

        *one = (struct candidate){.id = from->available[i],
                                  .device = device_id_find(from->devices, from->available[i])};
        if (one->device)
            ret->unused[place_of(ret, one->device)]++;
    }
    for (size_t i = 0; i < ret->n; i++)
        if (is_must(from, ret->all[i].id))
            take(ret, &ret->all[i]);
}

/* ---- orders: the candidate with the least cost is next ---- */

/* Free instances on its card. */
static uint64_t instances_left(const struct choice *c, const struct gpu_device *d) {
    uint64_t n = 0;

    for (uint32_t i = 0; i < c->devices->ndevices; i++)
        if (strcmp(c->devices->devices[i].parent, d->parent) == 0)
            n += c->unused[i];
    return n;
}

static uint32_t link_score(const struct gpu_device *a, const struct gpu_device *b) {
    const struct gpu_connections *c = &a->links;
    uint32_t level = b->index < GPU_CARDS_MAX ? c->level[b->index] : GPU_LEVEL_UNKNOWN;

    if (c->known == 0 || b->index >= GPU_CARDS_MAX)
        return 0;
    return NVLINK_SCORE * c->nvlinks[b->index] + (level < LEVEL_SCORE ? LEVEL_SCORE - level : 0);
}

/* To the cards that are chosen; without any, to those that could be. */
static uint64_t links_of(const struct choice *c, const struct gpu_device *d, bool first) {
    uint64_t sum = 0;

    for (uint32_t i = 0; i < c->devices->ndevices; i++) {
        const struct gpu_device *other = &c->devices->devices[i];

        if (other != d && other->kind == GPU_CARD && (first ? c->unused[i] > 0 : c->chosen[i]))
            sum += link_score(d, other);
    }
    return sum;
}

static uint64_t cost_of(const struct choice *c, const struct gpu_device *d,
                        enum config_allocation policy, bool replicas, bool first) {
    uint64_t unused = c->unused[place_of(c, d)];

    if (gpu_is_part(d) && !replicas)
        return instances_left(c, d);
    if (replicas && policy == CONFIG_DISTRIBUTED)
        return UINT32_MAX - unused;
    if (replicas && policy == CONFIG_PACKED)
        return unused;
    /* One of each device before a second one. */
    return (UINT64_C(1) << 40) - links_of(c, d, first) +
           (c->chosen[place_of(c, d)] ? UINT64_C(1) << 50 : 0);
}

static struct candidate *best_of(const struct choice *c, enum config_allocation policy,
                                 bool replicas, bool first) {
    struct candidate *best = NULL;
    uint64_t least = 0;

    for (size_t i = 0; i < c->n; i++) {
        struct candidate *one = &c->all[i];
        uint64_t cost;

        if (one->taken)
            continue;
        cost = one->device ? cost_of(c, one->device, policy, replicas, first) : UINT64_MAX;
        if (best && cost >= least)
            continue;
        best = one;
        least = cost;
    }
    return best;
}

/* ---- the best set of linked cards ---- */

/* The devices of the candidates. */
struct linked {
    struct partition_case wanted;
    const struct gpu_device *devices[PARTITION_MAX];
};

static uint32_t number_in(const struct linked *l, const struct gpu_device *d) {
    uint32_t n = 0;

    while (n < l->wanted.n && l->devices[n] != d)
        n++;
    return n;
}

/* False: links do not decide on them, there are too many, or a device is to be taken twice. */
static bool find_linked(const struct choice *c, size_t want, struct linked *ret) {
    size_t taken = 0;

    *ret = (struct linked){.wanted.size = (uint32_t) want};
    for (size_t i = 0; i < c->n; i++) {
        const struct gpu_device *d = c->all[i].device;
        uint32_t n = d ? number_in(ret, d) : PARTITION_MAX;

        if (n == PARTITION_MAX || gpu_is_part(d))
            return false;
        if (n == ret->wanted.n)
            ret->devices[ret->wanted.n++] = d;
        ret->wanted.must |= (uint32_t) c->all[i].taken << n;
        taken += c->all[i].taken;
    }
    for (uint32_t a = 0; a < ret->wanted.n; a++)
        for (uint32_t b = a + 1; b < ret->wanted.n; b++)
            ret->wanted.score[a][b] = link_score(ret->devices[a], ret->devices[b]);
    return want <= ret->wanted.n && taken == (size_t) __builtin_popcount(ret->wanted.must);
}

/* One ID of each device of the best set; false: nothing is chosen. */
static bool choose_linked(struct choice *c, size_t want, char **ret, size_t *n) {
    struct linked l;
    uint32_t set = want > 0 && find_linked(c, want, &l) ? partition_choose(&l.wanted) : 0;

    if (!set)
        return false;
    set &= ~l.wanted.must;
    for (size_t i = 0; i < c->n; i++) {
        uint32_t bit = UINT32_C(1) << number_in(&l, c->all[i].device);

        if (!(set & bit))
            continue;
        set &= ~bit;
        take(c, &c->all[i]);
        ret[(*n)++] = c->all[i].id;
    }
    return true;
}

size_t choose(const struct backend_choice *from, enum config_allocation policy, bool replicas,
              char **ret) {
    _cleanup_free_ struct candidate *all = calloc(from->navailable + 1, sizeof(*all));
    struct choice c = {.all = all, .devices = from->devices};
    struct candidate *next;
    size_t n = 0;

    while (n < from->nmust) {
        ret[n] = from->must[n];
        n++;
    }
    if (!all)
        return n; /* kubelet chooses by itself */
    collect(from, &c);
    if ((!replicas || policy == CONFIG_ALIGNED) && choose_linked(&c, from->want, ret, &n))
        return n;
    while (n < from->want && (next = best_of(&c, policy, replicas, n == 0))) {
        take(&c, next);
        ret[n++] = next->id;
    }
    return n;
}
