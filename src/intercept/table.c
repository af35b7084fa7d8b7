/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/table.h"

#include <string.h>
#include <sys/mman.h>

#define SIZE_MIN 128

static size_t place_of(const struct table *table, uint64_t kind, uint64_t key) {
    uint64_t h = (key ^ kind << 56) * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t) (h >> 20) & (table->size - 1);
}

static bool grow(struct table *table) {
    struct table bigger = {.size = table->size ? 2 * table->size : SIZE_MIN,
                           .promised = table->promised};

    bigger.entry = mmap(NULL, bigger.size * sizeof(struct entry), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bigger.entry == MAP_FAILED)
        return false;
    bigger.promised += table->used; /* table_put uses up a promise */
    for (size_t i = 0; i < table->size; i++)
        if (table->entry[i].kind != ENTRY_NONE)
            table_put(&bigger, &table->entry[i]);
    if (table->entry)
        (void) munmap(table->entry, table->size * sizeof(struct entry));
    *table = bigger;
    return true;
}

bool table_promise(struct table *table) {
    if ((table->used + table->promised + 1) * 4 > table->size * 3 && !grow(table))
        return false;
    table->promised++;
    return true;
}

void table_unpromise(struct table *table) {
    table->promised--;
}

void table_put(struct table *table, const struct entry *entry) {
    size_t i = place_of(table, entry->kind, entry->key);

    while (table->entry[i].kind != ENTRY_NONE)
        i = (i + 1) & (table->size - 1);
    table->entry[i] = *entry;
    table->used++;
    table->promised--;
}

struct entry *table_find(struct table *table, enum entry_kind kind, uint64_t key) {
    if (table->size == 0)
        return NULL;
    for (size_t i = place_of(table, kind, key); table->entry[i].kind != ENTRY_NONE;
         i = (i + 1) & (table->size - 1))
        if (table->entry[i].kind == kind && table->entry[i].key == key)
            return &table->entry[i];
    return NULL;
}

/* Closes the gap, so that no chain of entries is cut. */
static void remove_at(struct table *table, size_t gap) {
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
    table->promised++;
}

bool table_take(struct table *table, enum entry_kind kind, uint64_t key, struct entry *ret) {
    struct entry *found = table_find(table, kind, key);

    if (!found)
        return false;
    *ret = *found;
    remove_at(table, (size_t) (found - table->entry));
    return true;
}

static bool in_context(const struct entry *e, uint64_t context) {
    return (e->kind == ENTRY_POINTER || e->kind == ENTRY_ARRAY || e->kind == ENTRY_CONTEXT) &&
           e->link == context;
}

bool table_take_linked(struct table *table, uint64_t link, struct entry *ret) {
    for (size_t i = 0; i < table->size; i++)
        if (in_context(&table->entry[i], link)) {
            *ret = table->entry[i];
            remove_at(table, i);
            return true;
        }
    return false;
}

bool table_take_between(struct table *table, enum entry_kind kind, uint64_t from, uint64_t to,
                        struct entry *ret) {
    for (size_t i = 0; i < table->size; i++) {
        const struct entry *e = &table->entry[i];

        if (e->kind == kind && e->key >= from && e->key < to) {
            *ret = *e;
            remove_at(table, i);
            return true;
        }
    }
    return false;
}

void table_relink(struct table *table, uint64_t from, uint64_t to) {
    for (size_t i = 0; i < table->size; i++)
        if (in_context(&table->entry[i], from))
            table->entry[i].link = to;
}
