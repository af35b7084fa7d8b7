/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/memory/allocations.h"

#include <string.h>
#include <sys/mman.h>

#define SIZE_MIN 128

static size_t place_of(const struct allocations *table, uint64_t kind, uint64_t key) {
    uint64_t h = (key ^ kind << 56) * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t) (h >> 20) & (table->size - 1);
}

static bool grow(struct allocations *table) {
    struct allocations bigger = {.size = table->size ? 2 * table->size : SIZE_MIN,
                                 .reserved = table->reserved};

    bigger.entry = mmap(NULL, bigger.size * sizeof(struct entry), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bigger.entry == MAP_FAILED)
        return false;
    bigger.reserved += table->used; /* allocations_put uses up a reservation */
    for (size_t i = 0; i < table->size; i++)
        if (table->entry[i].kind != ENTRY_NONE)
            allocations_put(&bigger, &table->entry[i]);
    if (table->entry)
        (void) munmap(table->entry, table->size * sizeof(struct entry));
    *table = bigger;
    return true;
}

bool allocations_reserve(struct allocations *table) {
    if ((table->used + table->reserved + 1) * 4 > table->size * 3 && !grow(table))
        return false;
    table->reserved++;
    return true;
}

void allocations_unreserve(struct allocations *table) {
    table->reserved--;
}

void allocations_put(struct allocations *table, const struct entry *entry) {
    size_t i = place_of(table, entry->kind, entry->key);

    while (table->entry[i].kind != ENTRY_NONE)
        i = (i + 1) & (table->size - 1);
    table->entry[i] = *entry;
    table->used++;
    table->reserved--;
}

/* Of two entries of an address only one can be of what is there now: whether that is `a`. It is not
 * the one that is ending; of two that are, it is the one that was marked last. `b` may be NULL. */
static bool is_newer(const struct entry *a, const struct entry *b) {
    if (!b || !b->ending)
        return !b;
    return !a->ending || a->link > b->link;
}

struct entry *allocations_find(struct allocations *table, enum entry_kind kind, uint64_t key) {
    struct entry *newest = NULL;

    if (table->size == 0)
        return NULL;
    for (size_t i = place_of(table, kind, key); table->entry[i].kind != ENTRY_NONE;
         i = (i + 1) & (table->size - 1)) {
        struct entry *e = &table->entry[i];

        if (e->kind != kind || e->key != key)
            continue;
        if (!e->ending)
            return e;
        if (is_newer(e, newest))
            newest = e;
    }
    return newest;
}

/* Closes the gap, so that no chain of entries is cut. */
static void remove_at(struct allocations *table, size_t gap) {
    size_t mask = table->size - 1;

    for (size_t i = (gap + 1) & mask; table->entry[i].kind != ENTRY_NONE; i = (i + 1) & mask) {
        size_t home = place_of(table, table->entry[i].kind, table->entry[i].key);

        if (((i - home) & mask) >= ((i - gap) & mask)) {
            table->entry[gap] = table->entry[i];
            gap = i;
        }
    }
    memset(&table->entry[gap], 0, sizeof(table->entry[gap]));
    table->used--;
    table->reserved++;
}

static bool take(struct allocations *table, const struct entry *found, struct entry *ret) {
    if (!found)
        return false;
    *ret = *found;
    remove_at(table, (size_t) (found - table->entry));
    return true;
}

bool allocations_take(struct allocations *table, enum entry_kind kind, uint64_t key,
                      struct entry *ret) {
    return take(table, allocations_find(table, kind, key), ret);
}

bool allocations_take_newest(struct allocations *table, const enum entry_kind *kinds, size_t nkinds,
                             uint64_t key, struct entry *ret) {
    const struct entry *newest = NULL;

    for (size_t i = 0; i < nkinds; i++) {
        const struct entry *e = allocations_find(table, kinds[i], key);

        if (e && is_newer(e, newest))
            newest = e;
    }
    return take(table, newest, ret);
}

static bool in_context(const struct entry *e, uint64_t context) {
    switch (e->kind) {
    case ENTRY_POINTER:
    case ENTRY_SPILLED:
    case ENTRY_SHARED:
    case ENTRY_ARRAY:
    case ENTRY_HEAP:
    case ENTRY_CONTEXT:
    case ENTRY_IMPORT:
        return e->link == context;
    default:
        return false;
    }
}

struct entry *allocations_find_if(struct allocations *table, allocations_match_fn *match,
                                  const void *arg) {
    for (size_t i = 0; i < table->size; i++)
        if (table->entry[i].kind != ENTRY_NONE && match(&table->entry[i], arg))
            return &table->entry[i];
    return NULL;
}

bool allocations_take_if(struct allocations *table, allocations_match_fn *match, const void *arg,
                         struct entry *ret) {
    return take(table, allocations_find_if(table, match, arg), ret);
}

void allocations_mark(struct allocations *table, allocations_match_fn *match, const void *arg,
                      uint32_t refs) {
    for (size_t i = 0; i < table->size; i++)
        if (table->entry[i].kind != ENTRY_NONE && match(&table->entry[i], arg))
            table->entry[i].refs = refs;
}

static bool take_linked_from(struct allocations *table, uint64_t link, size_t *at,
                             struct entry *ret) {
    for (; *at < table->size; ++*at)
        if (in_context(&table->entry[*at], link)) {
            *ret = table->entry[*at];
            remove_at(table, *at);
            return true;
        }
    return false;
}

bool allocations_take_linked(struct allocations *table, uint64_t link, size_t *at,
                             struct entry *ret) {
    if (take_linked_from(table, link, at, ret))
        return true;
    /* Removals by other threads may have moved entries to places before *at. */
    *at = 0;
    return take_linked_from(table, link, at, ret);
}

struct range {
    enum entry_kind kind;
    uint64_t from, to;
};

static bool in_range(const struct entry *e, const void *arg) {
    const struct range *range = arg;

    return e->kind == range->kind && e->key >= range->from && e->key < range->to;
}

bool allocations_take_between(struct allocations *table, enum entry_kind kind, uint64_t from,
                              uint64_t to, struct entry *ret) {
    struct range range = {kind, from, to};

    return allocations_take_if(table, in_range, &range, ret);
}

static void relink(struct allocations *table, uint64_t from, uint64_t to, bool ending) {
    for (size_t i = 0; i < table->size; i++)
        if (in_context(&table->entry[i], from)) {
            table->entry[i].link = to;
            table->entry[i].ending = ending;
        }
}

void allocations_end_context(struct allocations *table, uint64_t context, uint64_t mark) {
    relink(table, context, mark, true);
}

void allocations_keep_context(struct allocations *table, uint64_t context, uint64_t mark) {
    relink(table, mark, context, false);
}
