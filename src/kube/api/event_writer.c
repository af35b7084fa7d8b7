/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/event_writer.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/ratelimit.h"
#include "base/text.h"
#include "kube/api/names.h"
#include "wire/http_status.h"

#define PER_SECOND 10
#define OBJECTS_MAX 4096
#define SERIES_MAX 16     /* Events of one object */
#define MESSAGE_MAX 1024u /* bytes; the API server takes no more */
#define REASON_MAX 64
#define KIND_MAX 64
#define FIRST_MS 5000     /* from the first write of an Event to the second */
#define LAST_MS 300000    /* what that grows to */
#define OBJECT_MS 1000    /* between two writes of one object */
#define FORGET_MS 3600000 /* the API server, too, forgets an Event an hour after its last write */
#define FORGET_PER_RUN 16
#define SEARCH_MAX 64 /* objects that are examined to make room for another */
#define ATTEMPTS_MAX 5
#define TIMEOUT_MS 10000

/* One Event of an object. */
struct series {
    struct series *next;
    char reason[REASON_MAX];
    char container[KUBE_LABEL_MAX];
    bool normal, lapses;
    char *message;        /* to be written; NULL: what is written already */
    uint64_t key;         /* of what was noted last */
    uint64_t written_key; /* of what is written; 0: nothing that we know of */
    uint64_t count;       /* notes */
    uint64_t before;      /* how often it had been seen before this writer began */
    uint64_t noted_ms;
    uint64_t changed_ms; /* when another key was written last */
    uint64_t written_ms;
    uint64_t due_ms; /* not to be written before */
    uint64_t interval_ms;
    unsigned attempts; /* that have failed in a row */
    bool dirty;        /* there is something to write */
    bool exists;       /* the API server has it */
    bool taken_over;   /* it had it before: `before` is to be read from its answer */
};

struct object {
    UT_hash_handle hh;
    struct object *prev, *next;           /* by when they were noted last */
    struct object *wait_prev, *wait_next; /* those with something to write, in turns */
    bool waits;
    unsigned in_flight;
    uint64_t due_ms;
    uint64_t noted_ms;
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char api_version[KIND_MAX], kind[KIND_MAX];
    bool cluster_scoped;
    unsigned nseries;
    struct series *series;
};

/* A request under way. */
struct sent {
    struct sent *prev, *next;
    struct event_writer *writer;
    struct object *object; /* which is kept as long as something is in flight */
    char reason[REASON_MAX];
    char container[KUBE_LABEL_MAX];
    uint64_t key;
    bool patch;
};

struct event_writer {
    struct event_writer_options options;
    struct ratelimit rate;
    struct object *table;   /* by UID */
    struct object *objects; /* the one noted longest ago first */
    struct object *waiting;
    struct sent *sent;
    bool starved; /* the last run ended for lack of tokens: what is new has to queue */
    struct event_writer_stats stats;
};

struct event_writer *event_writer_new(const struct event_writer_options *options) {
    struct event_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->options = *options;
    if (!w->options.objects_max)
        w->options.objects_max = OBJECTS_MAX;
    w->rate.per_second = options->per_second ? options->per_second : PER_SECOND;
    return w;
}

/* ---- what is kept ---- */

static void series_free(struct series *s) {
    free(s->message);
    free(s);
}

static void wait_end(struct event_writer *w, struct object *o) {
    if (o->waits)
        DL_DELETE2(w->waiting, o, wait_prev, wait_next);
    o->waits = false;
}

static void object_free(struct event_writer *w, struct object *o) {
    struct series *s, *next;
    wait_end(w, o);
    HASH_DEL(w->table, o);
    DL_DELETE(w->objects, o);
    LL_FOREACH_SAFE(o->series, s, next)
        series_free(s);
    free(o);
    w->stats.objects--;
}

void event_writer_free(struct event_writer *w) {
    struct sent *sent, *next;
    if (!w)
        return;
    DL_FOREACH_SAFE(w->sent, sent, next)
        free(sent);
    while (w->objects)
        object_free(w, w->objects);
    free(w);
}

/* Whether there is room for another object: if not, one without a pending Event is dropped.
 */
static bool make_room(struct event_writer *w) {
    struct object *o = w->objects;
    if (w->stats.objects < w->options.objects_max)
        return true;
    for (unsigned i = 0; o && i < SEARCH_MAX; i++, o = o->next)
        if (!o->waits && o->in_flight == 0) {
            object_free(w, o);
            return true;
        }
    return false;
}

static struct object *object_of(struct event_writer *w, const struct event *e) {
    struct object *o;
    HASH_FIND_STR(w->table, e->uid, o);
    if (o) {
        DL_DELETE(w->objects, o);
        DL_APPEND(w->objects, o);
        return o;
    }
    o = make_room(w) ? calloc(1, sizeof(*o)) : NULL;
    if (!o)
        return NULL;
    text_copy(o->uid, sizeof(o->uid), e->uid);
    text_copy(o->namespace, sizeof(o->namespace), e->namespace);
    text_copy(o->name, sizeof(o->name), e->name);
    text_copy(o->api_version, sizeof(o->api_version), e->api_version);
    text_copy(o->kind, sizeof(o->kind), e->kind);
    o->cluster_scoped = e->cluster_scoped;
    HASH_ADD_STR(w->table, uid, o);
    if (!(o = hash_added_or_freed(o)))
        return NULL;
    DL_APPEND(w->objects, o);
    w->stats.objects++;
    return o;
}

static struct series *series_find(struct object *o, const char *reason, const char *container) {
    struct series *s;
    LL_FOREACH(o->series, s)
        if (strncmp(s->reason, reason, REASON_MAX - 1) == 0 &&
            strncmp(s->container, container, KUBE_LABEL_MAX - 1) == 0)
            return s;
    return NULL;
}

/* In place of the one noted longest ago, where the object has too many. */
static struct series *series_of(struct object *o, const struct event *e) {
    const char *container = e->container ? e->container : "";
    struct series *s = series_find(o, e->reason, container), *each;
    if (s)
        return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    text_copy(s->reason, sizeof(s->reason), e->reason);
    text_copy(s->container, sizeof(s->container), container);
    s->normal = e->normal;
    s->interval_ms = FIRST_MS;
    if (o->nseries == SERIES_MAX) {
        struct series *oldest = o->series;
        LL_FOREACH(o->series, each)
            if (each->noted_ms < oldest->noted_ms)
                oldest = each;
        LL_DELETE(o->series, oldest);
        series_free(oldest);
        o->nseries--;
    }
    LL_PREPEND(o->series, s);
    o->nseries++;
    return s;
}

/* ---- writing ---- */

static struct event event_of(const struct event_writer *w, const struct object *o,
                             const struct series *s) {
    return (struct event){.component = w->options.component,
                          .namespace = o->namespace,
                          .name = o->name,
                          .uid = o->uid,
                          .api_version = o->api_version,
                          .kind = o->kind,
                          .container = s->container[0] ? s->container : NULL,
                          .cluster_scoped = o->cluster_scoped,
                          .normal = s->normal,
                          .reason = s->reason,
                          .message = s->message ? s->message : ""};
}

static void wait_begin(struct event_writer *w, struct object *o) {
    if (!o->waits)
        DL_APPEND2(w->waiting, o, wait_prev, wait_next);
    o->waits = true;
}

static void on_success(struct series *s, const struct sent *sent,
                       const struct kube_response *response) {
    s->attempts = 0;
    s->exists = true;
    s->written_key = sent->key;
    if (s->key == sent->key) {
        free(s->message);
        s->message = NULL;
    }
    if (sent->patch && s->taken_over) { /* its count was left as it was */
        s->taken_over = false;
        (void) json_u64(json_get(response->body, "count"), &s->before);
        s->dirty = true;
    }
}

static void on_failure(struct series *s, const struct sent *sent, int status) {
    s->dirty = ++s->attempts < ATTEMPTS_MAX;
    if (status == 409 && !sent->patch) { /* of a process before this one */
        s->exists = s->taken_over = true;
        s->due_ms = 0;
    } else if (status == 404 && sent->patch) {
        s->exists = false; /* an hour old and removed: made again, with the next message */
        s->written_key = 0;
        s->due_ms = 0;
        s->dirty = s->message != NULL;
    }
}

static void on_response(const struct kube_response *response, void *userdata) {
    struct sent *sent = userdata;
    struct event_writer *w = sent->writer;
    struct object *o = sent->object;
    struct series *s = series_find(o, sent->reason, sent->container);
    o->in_flight--;
    if (http_is_success(response->status))
        w->stats.written++;
    else if (response->status != 409 || sent->patch)
        w->stats.failed++;
    if (s && http_is_success(response->status))
        on_success(s, sent, response);
    else if (s)
        on_failure(s, sent, response->status);
    if (s && s->dirty)
        wait_begin(w, o);
    DL_DELETE(w->sent, sent);
    free(sent);
}

static int send_event(struct event_writer *w, const struct object *o, const struct series *s,
                      struct sent *sent) {
    const struct event e = event_of(w, o, s);
    _cleanup_buf_ struct buf body = BUF_INIT(16 << 10);
    char path[EVENT_PATH_MAX];
    if (sent->patch) {
        event_encode_again(s->taken_over ? 0 : s->before + s->count, s->message, &body);
        event_object_path(&e, path);
    } else {
        event_encode(&e, s->before + s->count, &body);
        event_path(o->namespace, path);
    }
    if (buf_error(&body) < 0)
        return buf_error(&body);
    return w->options.request(w->options.context, sent->patch ? "PATCH" : "POST", path,
                              sent->patch ? KUBE_MERGE_PATCH : NULL, body.data, body.len,
                              TIMEOUT_MS, on_response, sent, NULL);
}

static void write_series(struct event_writer *w, struct object *o, struct series *s,
                         uint64_t now_ms) {
    const struct event e = event_of(w, o, s);
    struct sent *sent = calloc(1, sizeof(*sent));
    s->dirty = false;
    if (s->key != s->written_key)
        s->changed_ms = now_ms;
    s->written_ms = now_ms;
    s->due_ms = now_ms + s->interval_ms;
    s->interval_ms = s->interval_ms * 2 < LAST_MS ? s->interval_ms * 2 : LAST_MS;
    o->due_ms = now_ms + OBJECT_MS;
    if (w->options.on_write && s->message)
        w->options.on_write(&e, s->count, w->options.userdata);
    if (!sent) {
        w->stats.dropped++;
        return;
    }
    *sent = (struct sent){.writer = w, .object = o, .key = s->key, .patch = s->exists};
    text_copy(sent->reason, sizeof(sent->reason), s->reason);
    text_copy(sent->container, sizeof(sent->container), s->container);
    if (send_event(w, o, s, sent) < 0) {
        w->stats.failed++;
        s->dirty = ++s->attempts < ATTEMPTS_MAX;
        free(sent);
        return;
    }
    DL_APPEND(w->sent, sent);
    o->in_flight++;
}

/* Of the object's Events the one that is due for the longest time; what no longer holds is
 * forgotten. *ret_left: whether others wait. */
static struct series *next_due(struct event_writer *w, struct object *o, uint64_t now_ms,
                               bool *ret_left) {
    struct series *s, *found = NULL;
    *ret_left = false;
    LL_FOREACH(o->series, s) {
        if (s->dirty && s->lapses && w->options.holds &&
            !w->options.holds(o->uid, w->options.userdata))
            s->dirty = false;
        if (!s->dirty)
            continue;
        *ret_left = true;
        if (s->due_ms <= now_ms && (!found || s->due_ms < found->due_ms))
            found = s;
    }
    return found;
}

/* One turn of an object. False: it has something to write, and the rate does not allow it. */
static bool take_turn(struct event_writer *w, struct object *o, uint64_t now_ms) {
    bool left;
    struct series *s;
    if (o->due_ms > now_ms || o->in_flight > 0)
        return true;
    s = next_due(w, o, now_ms, &left);
    if (s && !ratelimit_take(&w->rate, now_ms))
        return false;
    if (s)
        write_series(w, o, s, now_ms);
    if (s || !left)
        wait_end(w, o);
    (void) next_due(w, o, now_ms, &left);
    if (left)
        wait_begin(w, o); /* behind those that have not had their turn */
    return true;
}

/* Drops objects without new Events for longer than the lifetime of Events. */
static void forget_events(struct event_writer *w, uint64_t now_ms) {
    for (unsigned i = 0; w->objects && i < FORGET_PER_RUN; i++) {
        struct object *o = w->objects;
        if (o->waits || o->in_flight > 0 || now_ms - o->noted_ms < FORGET_MS)
            return;
        object_free(w, o);
    }
}

void event_writer_run(struct event_writer *w, uint64_t now_ms) {
    struct object *o, *next, *last = w->waiting ? w->waiting->wait_prev : NULL;
    w->starved = false;
    for (o = w->waiting; o && !w->starved; o = o == last ? NULL : next) {
        next = o->wait_next;
        w->starved = !take_turn(w, o, now_ms);
    }
    forget_events(w, now_ms);
}

/* ---- noting ---- */

/* What is written stays as it is while the key does; else the newest message counts. */
static void keep_message(struct event_writer *w, const struct object *o, struct series *s,
                         const char *message) {
    bool same = s->key == s->written_key && o->in_flight == 0;
    char *text = same ? NULL : strndup(message, MESSAGE_MAX);
    if (!text && !same) {
        w->stats.dropped++;
        return;
    }
    free(s->message);
    s->message = text;
}

void event_writer_note(struct event_writer *w, const struct event *e, uint64_t key, bool lapses,
                       uint64_t now_ms) {
    struct object *o = w ? object_of(w, e) : NULL;
    struct series *s = o ? series_of(o, e) : NULL;
    if (!w)
        return;
    if (!s) {
        w->stats.dropped++;
        return;
    }
    s->key = key ? key : hash_bytes(HASH_START, e->message, strlen(e->message)) | 1;
    s->lapses = lapses;
    s->count++;
    s->noted_ms = o->noted_ms = now_ms;
    s->attempts = 0;
    keep_message(w, o, s, e->message);
    if (s->key != s->written_key && s->written_ms > 0 && now_ms - s->changed_ms >= LAST_MS) {
        s->due_ms = s->written_ms + FIRST_MS; /* news after a long time of none */
        s->interval_ms = FIRST_MS;
    }
    s->dirty = true;
    wait_begin(w, o);
    if (!w->starved)
        w->starved = !take_turn(w, o, now_ms);
}

bool event_writer_shows(const struct event_writer *w, const struct event *e, uint64_t key) {
    struct object *o;
    const struct series *s;
    HASH_FIND_STR(w->table, e->uid, o);
    s = o ? series_find(o, e->reason, e->container ? e->container : "") : NULL;
    return s && s->written_key == key && o->in_flight == 0;
}

void event_writer_stats(const struct event_writer *w, struct event_writer_stats *ret) {
    *ret = w->stats;
}
