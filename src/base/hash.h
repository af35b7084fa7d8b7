/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Hash tables (uthash) with the settings of this project, and a hash function. The only file that
 * includes <uthash.h>: with its own settings uthash ends the process when there is no memory. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One-at-a-time: the default contains a switch that falls through, which our warnings refuse. */
#define HASH_FUNCTION HASH_OAT
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* After HASH_ADD*: false without memory; `entry` is then in no table and still the caller's. */
#define hash_added(entry) ((entry)->hh.tbl != NULL)

/* After HASH_ADD* of an entry from malloc(): the entry; NULL without memory, it is freed then. */
#define hash_added_or_freed(entry) (hash_added(entry) ? (entry) : (free(entry), NULL))

/* Calls `drop` with `owner` and each entry, which it may delete and free. */
#define hash_drop_all(owner, all, drop)                                                            \
    do {                                                                                           \
        __typeof__(all) entry_, next_;                                                             \
        HASH_ITER(hh, all, entry_, next_)                                                          \
            drop(owner, entry_);                                                                   \
    } while (0)

/* The same with the entry whose key is the string `name`, if there is one. */
#define hash_drop_named(owner, all, name, drop)                                                    \
    do {                                                                                           \
        __typeof__(all) entry_;                                                                    \
        HASH_FIND(hh, all, name, strlen(name), entry_);                                            \
        if (entry_)                                                                                \
            drop(owner, entry_);                                                                   \
    } while (0)

/* A full list replaces what was known: hash_unlist() before it, each object of the list sets
 * `listed` of its entry, and hash_drop_unlisted() calls `drop` as hash_drop_all() with the others.
 */
#define hash_unlist(all)                                                                           \
    do {                                                                                           \
        __typeof__(all) entry_;                                                                    \
        for (entry_ = (all); entry_; entry_ = entry_->hh.next)                                     \
            entry_->listed = false;                                                                \
    } while (0)

#define hash_drop_unlisted(owner, all, drop)                                                       \
    do {                                                                                           \
        __typeof__(all) entry_, next_;                                                             \
        HASH_ITER(hh, all, entry_, next_) {                                                        \
            if (!entry_->listed)                                                                   \
                drop(owner, entry_);                                                               \
        }                                                                                          \
    } while (0)

/* Defines PREFIX_sync_begin() and PREFIX_sync_end(), of a struct TYPE, for the lists of one table.
 */
#define HASH_SYNC(prefix, type, table, drop)                                                       \
    void prefix##_sync_begin(struct type *owner) {                                                 \
        hash_unlist(owner->table);                                                                 \
    }                                                                                              \
    void prefix##_sync_end(struct type *owner) {                                                   \
        hash_drop_unlisted(owner, owner->table, drop);                                             \
    }

#define HASH_START 14695981039346656037u

/* FNV-1a over `size` bytes, continuing from HASH_START or the hash of the bytes before them. Not
 * for data from an adversary. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t size) {
    const unsigned char *at = data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

/* The same of a text, with its end: "ab" and "c" are not "a" and "bc", and NULL is not "". */
static inline uint64_t hash_text(uint64_t hash, const char *text) {
    return text ? hash_bytes(hash, text, strlen(text) + 1) : hash_bytes(hash, "\xff", 1);
}
