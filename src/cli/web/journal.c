/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/journal.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/hash.h"
#include "wire/json_write.h"

#define EVENT_LEN ((size_t) 64 << 10) /* a browser shows an event when it has all of it */

struct entry {
    UT_hash_handle hh;
    struct entry *prev, *next; /* by `number` */
    uint64_t number;           /* of its last change */
    char *text;
    bool gone;
    bool put; /* in the reading that is under way */
    char key[];
};

struct journal_reader {
    struct journal_reader *prev, *next;
    struct journal *journal;
    struct entry *at; /* the first entry that it has not read; NULL: it has read all */
    size_t event_len; /* of the event that has no end yet */
    char *line;       /* the rest of a line that did not fit; NULL: none */
    size_t written, len;
};

struct journal {
    pthread_mutex_t lock;
    struct entry *by_key, *by_number;
    struct journal_reader *readers;
    uint64_t number;
};

struct journal *journal_new(void) {
    struct journal *j = calloc(1, sizeof(*j));

    if (j)
        (void) pthread_mutex_init(&j->lock, NULL);
    return j;
}

static void entry_free(struct journal *j, struct entry *e) {
    HASH_DEL(j->by_key, e);
    DL_DELETE(j->by_number, e);
    free(e->text);
    free(e);
}

void journal_free(struct journal *j) {
    if (!j)
        return;
    while (j->by_number)
        entry_free(j, j->by_number);
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
    return hash_added_or_freed(e);
}

static int put(struct journal *j, const char *key, const char *text) {
    struct entry *e;

    HASH_FIND_STR(j->by_key, key, e);
    if (e)
        e->put = true;
    if (e && !e->gone && strcmp(e->text, text) == 0)
        return 0;
    char *copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    bool is_new = !e;
    e = e ? e : entry_new(j, key);
    if (!e) {
        free(copy);
        return -ENOMEM;
    }
    free(e->text);
    e->text = copy;
    e->gone = false;
    e->put = true;
    move_to_end(j, e, is_new);
    return 0;
}

int journal_put(struct journal *j, const char *key, const char *text) {
    (void) pthread_mutex_lock(&j->lock);
    int r = put(j, key, text);
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
    struct buf text = BUF_INIT(0);
    struct json_writer w = {.out = &text};

    json_object_begin(&w, NULL);
    json_put_string(&w, "k", e->key);
    json_put_bool(&w, "gone", true);
    json_object_end(&w);
    if (buf_error(&text) < 0) {
        buf_done(&text);
        return;
    }
    free(e->text);
    e->text = text.data;
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
    r->at = j->by_number;
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

/* The next entry is the line in hand. */
static bool take_line(struct journal_reader *r) {
    const struct entry *e = r->at;
    int len = asprintf(&r->line, "data: %s\n", e->text);

    if (len < 0) {
        r->line = NULL;
        return false;
    }
    r->len = (size_t) len;
    r->written = 0;
    r->event_len += r->len;
    r->at = e->next;
    return true;
}

static bool is_event_over(const struct journal_reader *r) {
    return !r->line && (r->event_len >= EVENT_LEN || (r->event_len > 0 && !r->at));
}

size_t journal_read(struct journal_reader *r, char *to, size_t max) {
    size_t n = 0;

    (void) pthread_mutex_lock(&r->journal->lock);
    while (n < max) {
        if (is_event_over(r)) {
            to[n++] = '\n';
            r->event_len = 0;
        } else if (r->line || (r->at && take_line(r))) {
            n += read_line(r, to + n, max - n);
        } else {
            break;
        }
    }
    (void) pthread_mutex_unlock(&r->journal->lock);
    return n;
}
