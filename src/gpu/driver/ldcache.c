/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/ldcache.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"

#define MAGIC "glibc-ld.so.cache1.1"
#define MAGIC_LEN 20
#define OLD_MAGIC "ld.so-1.7.0" /* before glibc 2.32 the cache follows one in this format */
#define OLD_MAGIC_LEN 11
#define OLD_HEADER 16
#define OLD_ENTRY 12
#define LITTLE_ENDIAN_FLAG 2
#define EXTENSION_MAGIC 0xeaa42174u
#define SECTION_HWCAPS 1u                          /* of the extension: offsets of strings */
#define LIBRARY ((int32_t) (LDCACHE_MACHINE | 3u)) /* of glibc 2, for this processor */

/* Offsets of strings are from the beginning of the header, those of the extension from the
 * beginning of the file. */
struct header {
    char magic[MAGIC_LEN];
    uint32_t entries;
    uint32_t string_bytes;
    uint8_t flags;
    uint8_t padding[3];
    uint32_t extension; /* offset, or 0 */
    uint32_t unused[3];
};
_Static_assert(sizeof(struct header) == 48, "glibc's format");

struct entry {
    int32_t flags;
    uint32_t name, path; /* offsets of strings */
    uint32_t unused;
    uint64_t hwcap;
};
_Static_assert(sizeof(struct entry) == 24, "glibc's format");

struct extension {
    uint32_t magic, sections;
};

struct section {
    uint32_t tag, flags, offset, size;
};

/* What an image has. */
struct cache {
    const char *data;
    size_t len;
    size_t skipped; /* bytes of the file before it */
    struct header header;
};

static uint64_t number(const char **at) {
    uint64_t n = 0;

    for (; **at >= '0' && **at <= '9'; (*at)++)
        n = n * 10 + (uint64_t) (**at - '0');
    return n;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The order in which the linker searches: numbers in names by their value, and digits behind all
 * other characters. */
static int compare_names(const char *a, const char *b) {
    while (*a) {
        if (is_digit(*a) && is_digit(*b)) {
            uint64_t x = number(&a), y = number(&b);

            if (x != y)
                return x < y ? -1 : 1;
        } else if (is_digit(*a) != is_digit(*b)) {
            return is_digit(*a) ? 1 : -1;
        } else if (*a != *b) {
            return *a < *b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return *b ? -1 : 0;
}

/* Whether a string begins there that ends within `max` bytes and within the cache. The bound keeps
 * the work linear: all entries may have the same string. */
static bool has_string(const struct cache *c, uint32_t offset, size_t max) {
    size_t left = offset < c->len ? c->len - offset : 0;

    return left > 0 && memchr(c->data + offset, 0, left < max ? left : max);
}

static struct entry entry_at(const struct cache *c, uint32_t i) {
    struct entry e;

    memcpy(&e, c->data + sizeof(struct header) + i * sizeof(e), sizeof(e));
    return e;
}

/* Steps over the part in the oldest format, if there is one. */
static bool find_cache(const void *old, size_t len, struct cache *ret) {
    const char *data = old;
    uint32_t entries;
    size_t skip = 0;

    if (len >= OLD_HEADER && memcmp(data, OLD_MAGIC, OLD_MAGIC_LEN) == 0) {
        memcpy(&entries, data + OLD_HEADER - sizeof(entries), sizeof(entries));
        skip = (OLD_HEADER + (size_t) entries * OLD_ENTRY + 7) / 8 * 8;
        if (skip > len)
            return false;
        data += skip;
        len -= skip;
    }
    if (len < sizeof(struct header) || len > LDCACHE_MAX || memcmp(data, MAGIC, MAGIC_LEN) != 0)
        return false;
    *ret = (struct cache){.data = data, .len = len, .skipped = skip};
    memcpy(&ret->header, data, sizeof(ret->header));
    if (ret->header.extension && ret->header.extension < skip)
        return false;
    ret->header.extension -= ret->header.extension ? (uint32_t) skip : 0;
    return (len - sizeof(struct header)) / sizeof(struct entry) >= ret->header.entries;
}

static bool check_entries(const struct cache *c) {
    for (uint32_t i = 0; i < c->header.entries; i++) {
        struct entry e = entry_at(c, i);

        if (!has_string(c, e.name, NAME_MAX + 1) || !has_string(c, e.path, PATH_MAX))
            return false;
    }
    return true;
}

/* Moves a 32-bit offset in the new cache by `delta`. */
static void shift(char *at, uint32_t delta) {
    uint32_t offset;

    memcpy(&offset, at, sizeof(offset));
    offset += delta;
    memcpy(at, &offset, sizeof(offset));
}

/* The extension has offsets of its own. `data` is a copy of the old cache, from its header on. */
static bool shift_extension(char *data, const struct cache *c, uint32_t delta) {
    uint32_t at = c->header.extension, skipped = (uint32_t) c->skipped;
    size_t len = c->len;
    struct extension x;

    if (at == 0)
        return true;
    if (at > len || len - at < sizeof(x))
        return false;
    memcpy(&x, data + at, sizeof(x));
    if (x.magic != EXTENSION_MAGIC || (len - at - sizeof(x)) / sizeof(struct section) < x.sections)
        return false;
    for (uint32_t i = 0; i < x.sections; i++) {
        char *place = data + at + sizeof(x) + i * sizeof(struct section);
        struct section s;

        memcpy(&s, place, sizeof(s));
        if (s.offset < skipped || s.offset - skipped > len || s.size > len - (s.offset - skipped))
            return false;
        for (uint32_t k = 0; s.tag == SECTION_HWCAPS && k + 4 <= s.size; k += 4)
            shift(data + s.offset - skipped + k, delta);
        shift(place + offsetof(struct section, offset), delta - skipped);
    }
    return true;
}

struct added {
    const struct ldcache_library *library;
    struct entry entry;
};

/* The linker searches from the last name to the first. */
static int by_name(const void *a, const void *b) {
    return compare_names(((const struct added *) b)->library->name,
                         ((const struct added *) a)->library->name);
}

/* The new ones with their strings from `end` on, in the cache's order. Returns the end of these. */
static size_t place(struct added *list, const struct ldcache_library *add, size_t n, size_t end) {
    for (size_t i = 0; i < n; i++)
        list[i].library = &add[i];
    qsort(list, n, sizeof(*list), by_name);
    for (size_t i = 0; i < n; i++) {
        list[i].entry = (struct entry){.flags = LIBRARY, .name = (uint32_t) end};
        end += strlen(list[i].library->name) + 1;
        list[i].entry.path = (uint32_t) end;
        end += strlen(list[i].library->path) + 1;
    }
    return end;
}

static void put_strings(char *out, const struct added *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        memcpy(out + list[i].entry.name, list[i].library->name, strlen(list[i].library->name) + 1);
        memcpy(out + list[i].entry.path, list[i].library->path, strlen(list[i].library->path) + 1);
    }
}

/* Both in one order; of two with one name ours comes first, and is taken. */
static void put_entries(char *out, const struct cache *c, const struct added *list, size_t n,
                        uint32_t delta) {
    uint32_t i = 0;
    size_t k = 0;

    while (i < c->header.entries || k < n) {
        struct entry e = i < c->header.entries ? entry_at(c, i) : (struct entry){0};

        if (k < n && (i == c->header.entries ||
                      compare_names(list[k].library->name, c->data + e.name) >= 0)) {
            e = list[k++].entry;
        } else {
            e.name += delta;
            e.path += delta;
            i++;
        }
        memcpy(out, &e, sizeof(e));
        out += sizeof(e);
    }
}

/* The old cache keeps its form, moved by the room for the new entries; new strings are behind it.
 */
static void *merge(const struct cache *c, const struct ldcache_library *add, struct added *list,
                   size_t n, size_t *ret_len) {
    uint32_t delta = (uint32_t) (n * sizeof(struct entry));
    size_t first = sizeof(struct header), old_entries = c->header.entries * sizeof(struct entry);
    size_t end = place(list, add, n, c->len + delta);
    struct header h = c->header;
    char *out = end <= UINT32_MAX ? calloc(1, end) : NULL;

    if (!out) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(out + delta, c->data, c->len);
    if (!shift_extension(out + delta, c, delta)) {
        free(out);
        errno = EBADMSG;
        return NULL;
    }
    h.entries += (uint32_t) n;
    h.string_bytes = (uint32_t) (end - first - old_entries - delta);
    h.extension += h.extension ? delta : 0;
    memcpy(out, &h, sizeof(h));
    put_entries(out + first, c, list, n, delta);
    put_strings(out, list, n);
    *ret_len = end;
    return out;
}

void *ldcache_merge(const void *old, size_t len, const struct ldcache_library *add, size_t n,
                    size_t *ret_len) {
    static const struct header empty = {.magic = MAGIC, .flags = LITTLE_ENDIAN_FLAG};
    struct cache c = {.data = (const char *) &empty, .len = sizeof(empty), .header = empty};
    struct added *list;
    void *made;

    if (len > 0 && (!find_cache(old, len, &c) || !check_entries(&c))) {
        errno = EBADMSG;
        return NULL;
    }
    list = calloc(n + 1, sizeof(*list));
    if (!list)
        return NULL;
    made = merge(&c, add, list, n, ret_len);
    free(list);
    return made;
}

bool ldcache_find(const void *cache, size_t len, const char *name, char *ret, size_t size) {
    struct cache c;

    if (!find_cache(cache, len, &c) || !check_entries(&c))
        return false;
    for (uint32_t i = 0; i < c.header.entries; i++) {
        struct entry e = entry_at(&c, i);
        size_t path = strlen(c.data + e.path);

        if (e.flags != LIBRARY || strcmp(c.data + e.name, name) != 0 || path >= size)
            continue;
        memcpy(ret, c.data + e.path, path + 1);
        return true;
    }
    return false;
}
