/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The allocations of this process on the devices, so that a free gives back what its allocation
 * took. A hash table in anonymous memory; the caller serialises. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum entry_kind {
    ENTRY_NONE,
    ENTRY_POINTER, /* key: device address; belongs to a context */
    ENTRY_SPILLED, /* the same; the memory is not on the card */
    ENTRY_SHARED,  /* the same; others may have it open, so it is booked as exported */
    ENTRY_ARRAY,   /* key: CUarray or CUmipmappedArray; belongs to a context */
    ENTRY_HEAP,    /* key: of a context and a limit of it; belongs to the context */
    ENTRY_CONTEXT, /* key: CUcontext; bytes: what the context itself costs */
    ENTRY_IMPORT,  /* key: device address, or an object for external memory; refs: times opened;
                      belongs to a context (0: to none) */
    ENTRY_HANDLE,  /* key: handle of cuMemCreate; refs: references to it, mappings and bindings of
                      it; link: HANDLE_… */
    ENTRY_MAPPING, /* key: device address; bytes: length; link: the handle mapped there */
    ENTRY_BINDING, /* key: of a multicast object and a place in it; bytes: the object; link: the
                      handle bound there */
    ENTRY_POOLED,  /* key: device address; link: the book of the pool that it came from and is
                      booked by */
    ENTRY_GRAPH,   /* key: CUgraphExec; bytes: what its allocations on `device` take; refs: 1 */
};

/* The origin of a handle. */
enum {
    HANDLE_OWN,
    HANDLE_EXPORTED, /* our own, and a descriptor of it exists or existed */
    HANDLE_IMPORTED, /* of another process of this container, which has booked it */
    HANDLE_FOREIGN,  /* of another container: booked here, as far as it is mapped */
};

struct entry {
    uint64_t key;
    uint64_t bytes;
    uint64_t link; /* the context with which the entry ends, or as stated above */
    uint32_t refs;
    uint8_t kind;
    bool ending;    /* its context may be about to be destroyed */
    int16_t device; /* index in the share, -1: charged nowhere */
};

struct allocations {
    struct entry *entry;
    size_t size; /* a power of two, or 0 */
    size_t used;
    size_t reserved; /* entries for which allocations_reserve has reserved room */
};

/* Reserves room for one allocations_put; false when there is no memory. Each reservation is used
 * up by one allocations_put or one allocations_unreserve. */
bool allocations_reserve(struct allocations *table);
void allocations_unreserve(struct allocations *table);

/* For kinds that are found by key, no entry with this key may exist, unless it is ending. */
void allocations_put(struct allocations *table, const struct entry *entry);

/* An entry that is ending only if there is no other, as its key may have been handed out again; of
 * several that are ending the one that was marked last. */
struct entry *allocations_find(struct allocations *table, enum entry_kind kind, uint64_t key);

/* Removes the entry and reserves its room, so that it can be put back. */
bool allocations_take(struct allocations *table, enum entry_kind kind, uint64_t key,
                      struct entry *ret);

/* The same with any of several kinds, in which an address may have been handed out again, too. */
bool allocations_take_newest(struct allocations *table, const enum entry_kind *kinds, size_t nkinds,
                             uint64_t key, struct entry *ret);

/* Removes any one entry that belongs to the context `link`; false when there is none left. *at, 0
 * at first, is where the search for the next begins, so that all of them take one walk. */
bool allocations_take_linked(struct allocations *table, uint64_t link, size_t *at,
                             struct entry *ret);

/* Any one entry for which `match` returns true. */
typedef bool allocations_match_fn(const struct entry *entry, const void *arg);
struct entry *allocations_find_if(struct allocations *table, allocations_match_fn *match,
                                  const void *arg);

/* Removes it; false when there is none left. */
bool allocations_take_if(struct allocations *table, allocations_match_fn *match, const void *arg,
                         struct entry *ret);

/* Sets `refs` of all entries for which `match` returns true, in one walk. */
void allocations_mark(struct allocations *table, allocations_match_fn *match, const void *arg,
                      uint32_t refs);

/* Removes any one entry of the kind with from <= key < to; false when there is none left. */
bool allocations_take_between(struct allocations *table, enum entry_kind kind, uint64_t from,
                              uint64_t to, struct entry *ret);

/* Before a context may be destroyed: its entries are ending, and belong to `mark` (the link of no
 * other entry, and larger than all marks before). The driver may hand out their keys again before
 * they are removed. */
void allocations_end_context(struct allocations *table, uint64_t context, uint64_t mark);

/* When the context was not destroyed. */
void allocations_keep_context(struct allocations *table, uint64_t context, uint64_t mark);
