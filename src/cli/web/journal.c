/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/journal.h"

#include <errno.h>
#include <libdeflate.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/hash.h"
#include "wire/json_write.h"

#define DEFLATE_LEVEL 1
#define DEFLATE_FROM 256 /* shorter texts are kept as they are */
#define ENTRY_COST                                                                                 \
    (sizeof(struct entry) + 48)       /* beside key and text: what the heap and the table add */
#define EVENT_LEN ((size_t) 64 << 10) /* a browser shows an event when it has all of it */
#define STATE "state"

struct entry {
    UT_hash_handle hh;
    struct entry *prev, *next; /* by `number` */
    uint64_t number;           /* of its last change */
    uint64_t hash;             /* of the text */
    char *data;                /* the text, deflated where it is `stored` shorter than `len` */
    uint32_t len, stored;
    bool gone;
    bool put; /* in the reading that is under way */
    char key[];
};

struct journal_reader {
    struct journal_reader *prev, *next;
    struct journal *journal;
    struct entry *known; /* by age: the next of what there was at its beginning */
    struct entry *state; /* which follows these; NULL: there was none, or it is read */
    struct entry *at;    /* by `number`: the first change since then that it has not read */
    size_t event_len;    /* of the event that has no end yet */
    char *line;          /* the rest of a line that did not fit; NULL: none */
    size_t written, len;
};

struct journal {
    pthread_mutex_t lock;
    struct entry *by_key, *by_number;
    struct journal_reader *readers;
    uint64_t number;
    size_t size, max, refused; /* bytes of entries; texts that did not fit */
    struct libdeflate_compressor *deflate;
    struct libdeflate_decompressor *inflate;
};

struct journal *journal_new(size_t max) {
    struct journal *j = calloc(1, sizeof(*j));

    if (!j)
        return NULL;
    j->max = max ? max : SIZE_MAX;
    (void) pthread_mutex_init(&j->lock, NULL);
    j->deflate = libdeflate_alloc_compressor(DEFLATE_LEVEL);
    j->inflate = libdeflate_alloc_decompressor();
    if (j->deflate && j->inflate)
        return j;
    journal_free(j);
    return NULL;
}

static size_t size_of(const struct entry *e) {
    return ENTRY_COST + strlen(e->key) + e->stored;
}

static void entry_free(struct journal *j, struct entry *e) {
    struct journal_reader *r;

    DL_FOREACH(j->readers, r) {
        r->known = r->known == e ? e->hh.next : r->known;
        r->state = r->state == e ? NULL : r->state;
    }
    j->size -= size_of(e);
    HASH_DEL(j->by_key, e); /* NOLINT: the analyzer loses its way in uthash's lists */
    DL_DELETE(j->by_number, e);
    free(e->data);
    free(e);
}

void journal_free(struct journal *j) {
    if (!j)
        return;
    while (j->by_number)
        entry_free(j, j->by_number);
    libdeflate_free_compressor(j->deflate);
    libdeflate_free_decompressor(j->inflate);
    (void) pthread_mutex_destroy(&j->lock);
    free(j);
}

/* ---- changes ---- */

/* The entry becomes the last one; readers that were at it go on with the next. */
static void move_to_end(struct journal *j, struct entry *e, bool is_new) {
    struct journal_reader *r;

    DL_FOREACH(j->readers, r) {
        if (r->at == e)
            r->at = e->next;
    }
    if (!is_new)
        DL_DELETE(j->by_number, e);
    DL_APPEND(j->by_number, e);
    e->number = ++j->number;
    DL_FOREACH(j->readers, r) {
        if (!r->at)
            r->at = e;
    }
}

static struct entry *entry_new(struct journal *j, const char *key) {
    size_t len = strlen(key);
    struct entry *e = calloc(1, sizeof(*e) + len + 1);

    if (!e)
        return NULL;
    memcpy(e->key, key, len + 1);
    HASH_ADD_STR(j->by_key, key, e);
    e = hash_added_or_freed(e);
    j->size += e ? size_of(e) : 0;
    return e;
}

/* The text in the form that is kept; NULL without memory. Lines of nodes repeat themselves. */
static char *store(struct journal *j, const char *text, size_t len, uint32_t *ret_stored) {
    char *data = malloc(len + 1);
    size_t n = 0;

    if (data && len > DEFLATE_FROM)
        n = libdeflate_deflate_compress(j->deflate, text, len, data, len - 1);
    if (data && n == 0)
        memcpy(data, text, len);
    n = n ? n : len;
    char *shorter = data ? realloc(data, n + 1) : NULL;
    *ret_stored = (uint32_t) n;
    return shorter ? shorter : data;
}

static bool has_text(const struct entry *e, size_t len, uint64_t hash) {
    return !e->gone && e->len == len && e->hash == hash;
}

/* The key has another text from now on. */
static int set_text(struct journal *j, struct entry *e, const char *text) {
    size_t len = strlen(text);
    uint32_t stored;
    char *data = len < UINT32_MAX ? store(j, text, len, &stored) : NULL;

    if (!data)
        return -ENOMEM;
    j->size = j->size - e->stored + stored;
    free(e->data);
    e->data = data;
    e->len = (uint32_t) len;
    e->stored = stored;
    e->hash = hash_bytes(HASH_START, text, len);
    return 0;
}

/* The line that says what is not there always does. */
static bool fits(const struct journal *j, const char *key, size_t len) {
    return (j->size < j->max && len <= j->max - j->size) || strcmp(key, STATE) == 0;
}

static int put(struct journal *j, const char *key, const char *text) {
    size_t len = strlen(text);
    struct entry *e;

    HASH_FIND_STR(j->by_key, key, e);
    if (e)
        e->put = true;
    if (e && has_text(e, len, hash_bytes(HASH_START, text, len)))
        return 0;
    if (e)
        e->put = fits(j, key, len); /* what it was is not true any more */
    if (!fits(j, key, len))
        return -ENOSPC;
    bool is_new = !e;
    e = e ? e : entry_new(j, key);
    if (!e)
        return -ENOMEM;
    if (set_text(j, e, text) < 0) {
        if (is_new) {
            j->size -= size_of(e);
            HASH_DEL(j->by_key, e);
            free(e);
        }
        return -ENOMEM;
    }
    e->gone = false;
    e->put = true;
    move_to_end(j, e, is_new);
    return 0;
}

int journal_put(struct journal *j, const char *key, const char *text) {
    (void) pthread_mutex_lock(&j->lock);
    int r = put(j, key, text);
    j->refused += r == -ENOSPC;
    (void) pthread_mutex_unlock(&j->lock);
    return r;
}

static bool has_prefix(const struct entry *e, const char *prefix) {
    return strncmp(e->key, prefix, strlen(prefix)) == 0;
}

void journal_begin(struct journal *j, const char *prefix) {
    struct entry *e;

    (void) pthread_mutex_lock(&j->lock);
    DL_FOREACH(j->by_number, e) {
        if (has_prefix(e, prefix))
            e->put = false;
    }
    (void) pthread_mutex_unlock(&j->lock);
}

/* Without memory for the word that it is gone, it stays until the next reading. */
static void remove_entry(struct journal *j, struct entry *e) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json_writer w = {.out = &text};

    json_object_begin(&w, NULL);
    json_put_string(&w, "k", e->key);
    json_put_bool(&w, "gone", true);
    json_object_end(&w);
    if (buf_error(&text) < 0 || set_text(j, e, buf_str(&text)) < 0)
        return;
    e->gone = true;
    move_to_end(j, e, false);
}

/* What is gone is kept until all readers know. */
static void forget_gone(struct journal *j) {
    uint64_t first = j->number + 1;
    struct journal_reader *r;
    struct entry *e, *next;

    DL_FOREACH(j->readers, r) {
        if (r->at && r->at->number < first)
            first = r->at->number;
    }
    DL_FOREACH_SAFE(j->by_number, e, next) {
        if (e->number >= first)
            break;
        if (e->gone)
            entry_free(j, e);
    }
}

void journal_end(struct journal *j, const char *prefix) {
    (void) pthread_mutex_lock(&j->lock);
    uint64_t last = j->number; /* removed ones go behind it */
    struct entry *e, *next;
    DL_FOREACH_SAFE(j->by_number, e, next) {
        if (e->number > last)
            break;
        if (!e->put && !e->gone && has_prefix(e, prefix))
            remove_entry(j, e);
    }
    forget_gone(j);
    (void) pthread_mutex_unlock(&j->lock);
}

bool journal_is_put(struct journal *j, const char *key) {
    struct entry *e;

    (void) pthread_mutex_lock(&j->lock);
    HASH_FIND_STR(j->by_key, key, e);
    bool is_put = e && e->put;
    (void) pthread_mutex_unlock(&j->lock);
    return is_put;
}

size_t journal_refused(struct journal *j) {
    (void) pthread_mutex_lock(&j->lock);
    size_t n = j->refused;
    j->refused = 0;
    (void) pthread_mutex_unlock(&j->lock);
    return n;
}

size_t journal_keys(struct journal *j) {
    (void) pthread_mutex_lock(&j->lock);
    size_t n = HASH_COUNT(j->by_key);
    (void) pthread_mutex_unlock(&j->lock);
    return n;
}

/* ---- readers ---- */

struct journal_reader *journal_reader_new(struct journal *j) {
    struct journal_reader *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->journal = j;
    (void) pthread_mutex_lock(&j->lock);
    r->known = j->by_key;
    HASH_FIND_STR(j->by_key, STATE, r->state);
    DL_APPEND(j->readers, r);
    (void) pthread_mutex_unlock(&j->lock);
    return r;
}

void journal_reader_free(struct journal_reader *r) {
    if (!r)
        return;
    (void) pthread_mutex_lock(&r->journal->lock);
    DL_DELETE(r->journal->readers, r);
    (void) pthread_mutex_unlock(&r->journal->lock);
    free(r->line);
    free(r);
}

/* What is left of the line in hand. */
static size_t read_line(struct journal_reader *r, char *to, size_t max) {
    size_t n = r->len - r->written < max ? r->len - r->written : max;

    memcpy(to, r->line + r->written, n);
    r->written += n;
    if (r->written == r->len) {
        free(r->line);
        r->line = NULL;
    }
    return n;
}

/* The entry that is to be read next; NULL: none. */
static struct entry *next_entry(struct journal_reader *r) {
    while (r->known && (r->known->gone || r->known == r->state))
        r->known = r->known->hh.next;
    if (r->state && r->state->gone)
        r->state = NULL;
    return r->known ? r->known : r->state ? r->state : r->at;
}

static void go_on(struct journal_reader *r) {
    if (r->known)
        r->known = r->known->hh.next;
    else if (r->state)
        r->state = NULL;
    else
        r->at = r->at->next;
}

/* The entry, which is the next one, is the line in hand: "data: TEXT\n". */
static bool take_line(struct journal_reader *r, const struct entry *e) {
    static const char begin[] = "data: ";
    const size_t before = sizeof(begin) - 1;

    r->line = malloc(before + e->len + 1);
    if (!r->line)
        return false;
    memcpy(r->line, begin, before);
    if (e->stored < e->len)
        (void) libdeflate_deflate_decompress(r->journal->inflate, e->data, e->stored,
                                             r->line + before, e->len, NULL);
    else
        memcpy(r->line + before, e->data, e->len);
    r->len = before + e->len + 1;
    r->line[r->len - 1] = '\n';
    r->written = 0;
    r->event_len += r->len;
    go_on(r);
    return true;
}

size_t journal_read(struct journal_reader *r, char *to, size_t max) {
    size_t n = 0;

    (void) pthread_mutex_lock(&r->journal->lock);
    while (n < max) {
        struct entry *next = r->line ? NULL : next_entry(r);
        if (!r->line && (r->event_len >= EVENT_LEN || (r->event_len > 0 && !next))) {
            to[n++] = '\n';
            r->event_len = 0;
        } else if (r->line || (next && take_line(r, next))) {
            n += read_line(r, to + n, max - n);
        } else {
            break;
        }
    }
    (void) pthread_mutex_unlock(&r->journal->lock);
    return n;
}
