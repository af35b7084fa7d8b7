/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/memlimit.h"
#include "sim/list.h"

#include <errno.h>
#include <stdlib.h>

/* A group on a card. */
struct sim_group_entry {
    struct sim_group_entry *next;
    struct sim_group_entry *parent; /* "dmem" */
    uint64_t id;
    uint64_t soft, hard;
    uint64_t used;
    bool gone; /* its group was removed; charges may remain */
};

/* Bytes of one process or share that were charged to one group, or to none. */
struct sim_charge {
    struct sim_charge *next;
    struct sim_group_entry *entry;
    uint64_t bytes;
};

static struct sim_group_entry *find_entry(const struct sim_gpu *g, uint64_t id) {
    struct sim_group_entry *e = g->groups;
    while (e && (e->gone || e->id != id))
        e = e->next;
    return e;
}

/* The entry of a group that was not known: at the address of one that ended before, if there is
 * one. Groups are numbered as they are made. */
static struct sim_group_entry *inherit_entry(struct sim_gpu *g, uint64_t id) {
    if (g->accounting != SIM_MEMORY_MISC)
        return NULL;
    for (struct sim_group_entry *e = g->groups; e; e = e->next)
        if (e->gone && e->id < id) {
            e->gone = false;
            e->id = id;
            return e;
        }
    return NULL;
}

static struct sim_group_entry *find_or_inherit(struct sim_gpu *g, uint64_t id) {
    struct sim_group_entry *e = find_entry(g, id);
    return e ? e : inherit_entry(g, id);
}

static struct sim_group_entry *create_entry(struct sim_gpu *g, uint64_t id) {
    struct sim_group_entry *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->id = id;
    e->hard = MEMLIMIT_NONE;
    LIST_PUSH(g->groups, e, next);
    return e;
}

/* The entries of the group and its ancestors: "dmem" has one for each from the beginning. */
static struct sim_group_entry *make_all(struct sim_gpu *g, const struct sim_groups *groups) {
    struct sim_group_entry *parent = NULL;
    for (uint32_t i = groups->depth; i-- > 0;) {
        struct sim_group_entry *e = find_entry(g, groups->id[i]);
        if (!e)
            e = create_entry(g, groups->id[i]);
        if (!e)
            return NULL;
        e->parent = parent;
        parent = e;
    }
    return parent;
}

/* "misc": that of the group or of its nearest ancestor with one. */
static struct sim_group_entry *nearest_entry(struct sim_gpu *g, const struct sim_groups *groups) {
    for (uint32_t i = 0; i < groups->depth; i++) {
        struct sim_group_entry *e = find_or_inherit(g, groups->id[i]);
        if (e)
            return e;
    }
    return NULL;
}

/* -- limits ---------------------------------------------------------------------------------- */

static int set_own(struct sim_gpu *g, uint64_t id, uint64_t soft, uint64_t hard) {
    struct sim_group_entry *e = find_or_inherit(g, id);
    if (!e)
        e = create_entry(g, id);
    if (!e)
        return -ENOMEM;
    if (e->used > hard)
        return -ERANGE;
    e->soft = soft;
    e->hard = hard;
    return 0;
}

/* A group's soft limit is added to those of its ancestors. */
static int set_kernel(struct sim_gpu *g, const struct sim_groups *groups, uint64_t soft,
                      uint64_t hard) {
    struct sim_group_entry *e = make_all(g, groups);
    if (!e)
        return -ENOMEM;
    for (struct sim_group_entry *p = e->parent; p; p = p->parent)
        p->soft += soft - e->soft;
    e->soft = soft;
    e->hard = hard;
    return 0;
}

int memlimit_set(struct sim_gpu *g, const struct sim_groups *groups, uint64_t soft, uint64_t hard) {
    if (g->accounting == SIM_MEMORY_OFF || groups->depth == 0)
        return -EOPNOTSUPP;
    return g->accounting == SIM_MEMORY_MISC ? set_own(g, groups->id[0], soft, hard)
                                            : set_kernel(g, groups, soft, hard);
}

int memlimit_get(struct sim_gpu *g, const struct sim_groups *groups,
                 struct sim_memory_limits *ret) {
    struct sim_group_entry *e = NULL;
    *ret = (struct sim_memory_limits){.hard = MEMLIMIT_NONE};
    if (g->accounting == SIM_MEMORY_OFF)
        return -EOPNOTSUPP;
    if (g->accounting == SIM_MEMORY_MISC)
        e = nearest_entry(g, groups);
    else if (groups->depth > 0)
        e = find_entry(g, groups->id[0]);
    if (!e)
        return g->accounting == SIM_MEMORY_MISC ? -EOPNOTSUPP : 0;
    *ret = (struct sim_memory_limits){e->soft, e->hard, e->used};
    return 0;
}

/* -- charges --------------------------------------------------------------------------------- */

/* "misc": the entry alone; "dmem": its ancestors as well. */
static bool fits_limit(const struct sim_group_entry *e, uint64_t bytes) {
    for (; e; e = e->parent)
        if (e->hard != MEMLIMIT_NONE && (e->used > e->hard || bytes > e->hard - e->used))
            return false;
    return true;
}

static struct sim_charge *append_charge(struct sim_charge **list, struct sim_group_entry *entry,
                                        uint64_t bytes) {
    struct sim_charge *last = NULL;
    while (*list) {
        last = *list;
        list = &last->next;
    }
    if (!last || last->entry != entry) {
        last = calloc(1, sizeof(*last));
        if (!last)
            return NULL;
        last->entry = entry;
        *list = last;
    }
    last->bytes += bytes;
    return last;
}

int memlimit_charge(struct sim_channel *c, const struct sim_groups *groups, uint64_t bytes) {
    struct sim_gpu *g = c->gpu;
    struct sim_group_entry *e = NULL;
    if (g->accounting == SIM_MEMORY_OFF)
        return 0;
    if (g->accounting == SIM_MEMORY_MISC) {
        e = nearest_entry(g, groups);
    } else if (groups->depth > 0) {
        e = make_all(g, groups);
        if (!e)
            return -ENOMEM;
    }
    if (!fits_limit(e, bytes) || !append_charge(&c->charges, e, bytes))
        return -ENOMEM;
    for (; e; e = e->parent)
        e->used += bytes;
    return 0;
}

static void uncharge_entry(struct sim_group_entry *e, uint64_t bytes) {
    for (; e; e = e->parent)
        e->used -= bytes;
}

void memlimit_release(struct sim_channel *c, uint64_t bytes, struct sim_charge **to) {
    struct sim_charge *oldest;
    while (bytes > 0 && (oldest = c->charges)) {
        uint64_t n = oldest->bytes < bytes ? oldest->bytes : bytes;
        if (!to || !append_charge(to, oldest->entry, n))
            uncharge_entry(oldest->entry, n);
        oldest->bytes -= n;
        bytes -= n;
        if (oldest->bytes > 0)
            continue;
        c->charges = oldest->next;
        free(oldest);
    }
}

void memlimit_release_all(struct sim_charge **list) {
    struct sim_charge *next;
    for (struct sim_charge *i = *list; i; i = next) {
        next = i->next;
        uncharge_entry(i->entry, i->bytes);
        free(i);
    }
    *list = NULL;
}

/* -- groups that end ------------------------------------------------------------------------- */

void memlimit_group_gone(struct sim_gpu *g, uint64_t id) {
    struct sim_group_entry *e = find_entry(g, id);
    if (e)
        e->gone = true;
}

void memlimit_each(const struct sim_gpu *g,
                   void (*fn)(uint64_t id, const struct sim_memory_limits *limits, void *userdata),
                   void *userdata) {
    for (const struct sim_group_entry *e = g->groups; e; e = e->next) {
        const struct sim_memory_limits limits = {e->soft, e->hard, e->used};
        fn(e->gone ? 0 : e->id, &limits, userdata);
    }
}

void memlimit_done(struct sim_gpu *g) {
    struct sim_group_entry *next;
    for (struct sim_group_entry *e = g->groups; e; e = next) {
        next = e->next;
        free(e);
    }
    g->groups = NULL;
}
