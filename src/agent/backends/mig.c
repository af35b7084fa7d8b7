/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/mig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/backends/backend.h"
#include "base/err.h"
#include "base/text.h"

#define SINGLE_NAME "nvidia.com/gpu"

/* ---- names ---- */

static bool is_elsewhere(const struct mig_rows *m, const char *name) {
    const char *at = m->elsewhere ? m->elsewhere : "";
    size_t len;

    for (; *at; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        if (strlen(name) == len && strncmp(at, name, len) == 0)
            return true;
    }
    return false;
}

static void name_profile(const char *profile, char ret[static MIG_NAME_MAX]) {
    (void) snprintf(ret, MIG_NAME_MAX, MIG_RESOURCE_PREFIX "%s", profile);
    /* A plus sign is not allowed in the name of a resource. */
    for (char *c = ret; (c = strchr(c, '+'));)
        *c = '.';
}

void mig_resource_of(const struct mig_rows *m, const struct gpu_device *d,
                     char ret[static MIG_NAME_MAX]) {
    const char *named;

    ret[0] = 0;
    if (d->kind != GPU_MIG_INSTANCE || !d->mig.profile[0] || m->strategy == MIG_STRATEGY_NONE)
        return;
    named = m->named ? m->named(d->mig.profile, m->userdata) : NULL;
    if (named)
        text_copy(ret, MIG_NAME_MAX, named);
    else if (d->mig.gi_slices == d->mig.ci_slices && m->strategy == MIG_STRATEGY_MIXED)
        name_profile(d->mig.profile, ret);
    else if (d->mig.gi_slices == d->mig.ci_slices)
        text_copy(ret, MIG_NAME_MAX, SINGLE_NAME);
    /* With `single` the name of all cards is left out of the shares, and is the agent's here. */
    if ((m->strategy != MIG_STRATEGY_SINGLE || strcmp(ret, SINGLE_NAME) != 0) &&
        is_elsewhere(m, ret))
        ret[0] = 0;
}

void mig_row_make(struct mig_row *row, const struct mig_rows *m, const char *name) {
    *row = (struct mig_row){.rows = m};
    text_copy(row->name, sizeof(row->name), name);
    resource_socket(row->name, row->socket);
    row->resource = (struct resource){
        .name = row->name, .socket = row->socket, .backend = &backend_mig, .data = row};
}

/* ---- single ---- */

static bool has_part(const struct gpu_snapshot *s, const struct gpu_device *card) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (strcmp(s->devices[i].parent, card->uuid) == 0)
            return true;
    return false;
}

static int check_card(const struct gpu_snapshot *s, const struct gpu_device *card,
                      struct err *why) {
    if (!card->divided)
        return err_set(why, EINVAL, "GPU %u (%s) is not in MIG mode, others of the node are",
                       card->index, card->uuid);
    return has_part(s, card) ? 0
                             : err_set(why, EINVAL, "GPU %u (%s) is in MIG mode without instances",
                                       card->index, card->uuid);
}

static int check_instance(const struct gpu_device *first, const struct gpu_device *d,
                          struct err *why) {
    return !first || strcmp(first->mig.profile, d->mig.profile) == 0
               ? 0
               : err_set(why, EINVAL, "the node has MIG instances of profile %s and of profile %s",
                         first->mig.profile, d->mig.profile);
}

int mig_check_single(const struct gpu_snapshot *s, struct err *why) {
    const struct gpu_device *first = NULL;
    bool divided = false;
    int r = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        divided = divided || s->devices[i].divided;
    for (uint32_t i = 0; i < s->ndevices && divided && r == 0; i++) {
        const struct gpu_device *d = &s->devices[i];

        if (d->kind == GPU_CARD)
            r = check_card(s, d, why);
        if (d->kind != GPU_MIG_INSTANCE)
            continue;
        r = check_instance(first, d, why);
        first = d;
    }
    return r;
}

/* ---- IDs ---- */

static const struct mig_row *row_of(const struct resource *r) {
    return r->data;
}

static bool is_in(const struct resource *r, const struct gpu_device *d) {
    char name[MIG_NAME_MAX];

    mig_resource_of(row_of(r)->rows, d, name);
    return strcmp(name, r->name) == 0;
}

static uint32_t list(const struct resource *r, const struct gpu_snapshot *s) {
    uint32_t n = 0;

    if (row_of(r)->rows->strategy == MIG_STRATEGY_SINGLE && mig_check_single(s, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < s->ndevices; i++)
        n += is_in(r, &s->devices[i]);
    return n;
}

static const struct gpu_device *nth(const struct resource *r, const struct gpu_snapshot *s,
                                    uint32_t n) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (is_in(r, &s->devices[i]) && n-- == 0)
            return &s->devices[i];
    return NULL;
}

static void id(const struct resource *r, const struct gpu_snapshot *s, uint32_t n,
               char ret[static BACKEND_ID_SIZE]) {
    text_copy(ret, BACKEND_ID_SIZE, nth(r, s, n)->uuid);
}

static uint32_t number(const struct resource *r, const struct gpu_snapshot *s, const char *text) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        if (!is_in(r, &s->devices[i]))
            continue;
        if (strcmp(s->devices[i].uuid, text) == 0)
            return n;
        n++;
    }
    return UINT32_MAX;
}

/* What takes out a card takes out its instances. */
static void health(const struct resource *r, const struct gpu_snapshot *s, uint32_t count,
                   const bool *held, bool *ret_sick) {
    (void) held;
    for (uint32_t n = 0; n < count; n++) {
        const struct gpu_device *d = nth(r, s, n), *card = gpu_find(s, d->parent);

        ret_sick[n] = !gpu_takes_pods(d) || !card || !gpu_takes_pods(card);
    }
}

/* ---- the choice of kubelet ---- */

/* An ID that kubelet may choose. */
struct candidate {
    char *id;
    const struct gpu_device *device; /* NULL: gone */
    bool taken;
};

static bool is_must(const struct backend_choice *c, const char *text) {
    for (size_t i = 0; i < c->nmust; i++)
        if (strcmp(c->must[i], text) == 0)
            return true;
    return false;
}

static size_t collect(const struct backend_choice *c, struct candidate ret[static GPU_MAX]) {
    size_t n = 0;

    for (size_t i = 0; i < c->navailable && n < GPU_MAX; i++)
        ret[n++] = (struct candidate){.id = c->available[i],
                                      .device = gpu_find(c->devices, c->available[i]),
                                      .taken = is_must(c, c->available[i])};
    return n;
}

/* How many instances on its card can still be chosen. */
static size_t free_beside(const struct candidate *all, size_t n, const struct candidate *c) {
    size_t count = 0;

    for (size_t i = 0; i < n && c->device; i++)
        count +=
            !all[i].taken && all[i].device && strcmp(all[i].device->parent, c->device->parent) == 0;
    return c->device ? count : SIZE_MAX;
}

static struct candidate *best_of(struct candidate *all, size_t n) {
    struct candidate *best = NULL;
    size_t least = 0;

    for (size_t i = 0; i < n; i++) {
        size_t count = all[i].taken ? 0 : free_beside(all, n, &all[i]);

        if (all[i].taken || (best && count >= least))
            continue;
        best = &all[i];
        least = count;
    }
    return best;
}

/* Cards with the fewest free instances first: the others stay idle, and can be divided anew. */
static size_t prefer(const struct backend_choice *c, char **ret) {
    struct candidate all[GPU_MAX], *next;
    size_t count = collect(c, all), n = 0;

    while (n < c->nmust) {
        ret[n] = c->must[n];
        n++;
    }
    while (n < c->want && (next = best_of(all, count))) {
        next->taken = true;
        ret[n++] = next->id;
    }
    return n;
}

/* ---- containers ---- */

static int allocate(const struct backend_ids *ids, char ret_name[static BACKEND_CDI_NAME_MAX]) {
    for (size_t i = 0; i < ids->n; i++)
        if (number(ids->resource, ids->devices, ids->ids[i]) == UINT32_MAX)
            return -ENODEV;
    return backend_slot_name(ret_name);
}

static enum verdict prepare(struct shares *s, const struct backend_ids *ids,
                            const struct provision *p, struct err *why) {
    return provision_whole(s, p, ids->ids, ids->n, false, why);
}

const struct backend backend_mig = {
    .list = list,
    .id = id,
    .number = number,
    .health = health,
    .prefer = prefer,
    .allocate = allocate,
    .prepare = prepare,
};
