/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What this process holds on the devices, so that a free gives back what its allocation took. A
 * hash table in anonymous memory; the caller serialises. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum entry_kind {
    ENTRY_NONE,
    ENTRY_POINTER, /* key: device address; belongs to a context */
    ENTRY_ARRAY,   /* key: CUarray or CUmipmappedArray; belongs to a context */
    ENTRY_CONTEXT, /* key: CUcontext; bytes: what the context itself costs */
    ENTRY_HANDLE,  /* key: handle of cuMemCreate; refs: references to it and mappings of it; link: 1
                      once exported */
    ENTRY_MAPPING, /* key: device address; bytes: length; link: the handle mapped there */
    ENTRY_POOLED, /* key: device address; link: the book of the pool that it came from and is booked
                     by */
};

struct entry {
    uint64_t key;
    uint64_t bytes;
    uint64_t link; /* the context that an entry dies with, or as said above */
    uint32_t refs;
    uint16_t kind;
    int16_t device; /* index in the share, -1: charged nowhere */
};

struct table {
    struct entry *entry;
    size_t size; /* a power of two, or 0 */
    size_t used;
    size_t promised; /* room that callers of table_promise count on */
};

/* Makes sure that one table_put will find room; false when there is no memory. Each promise is used
 * up by one table_put or one table_unpromise. */
bool table_promise(struct table *table);
void table_unpromise(struct table *table);

/* An entry of the same kind and key must not exist. */
void table_put(struct table *table, const struct entry *entry);

struct entry *table_find(struct table *table, enum entry_kind kind, uint64_t key);

/* Removes the entry and promises its room, so that it can be put back. */
bool table_take(struct table *table, enum entry_kind kind, uint64_t key, struct entry *ret);

/* Removes any one entry that belongs to the context `link`; false when there is none left. */
bool table_take_linked(struct table *table, uint64_t link, struct entry *ret);

/* Removes any one entry of the kind with from <= key < to; false when there is none left. */
bool table_take_between(struct table *table, enum entry_kind kind, uint64_t from, uint64_t to,
                        struct entry *ret);

/* Makes all entries of context `from` those of `to`. */
void table_relink(struct table *table, uint64_t from, uint64_t to);
