/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An API server of three kinds of objects, a few cards, and any number of claims controllers that
 * are told of changes late, in any order between kinds, and die at any write. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "claims/claims.h"
#include "wire/json.h"

#define GIB ((uint64_t) 1 << 30)
#define OBJECTS_MAX 16
#define EVENTS_MAX 512
#define CONTROLLERS_MAX 2

struct object {
    enum claims_kind kind;
    char key[256];  /* name, or namespace/name */
    char path[512]; /* as it is asked for */
    char *text;     /* JSON; NULL: the place is free */
};

/* One change that a watch is going to show. */
struct change {
    enum claims_kind kind;
    char key[256];
    char *text; /* NULL: gone */
};

struct server;

struct controller {
    struct server *server;
    struct claims *claims;
    size_t shown[CLAIMS_KINDS]; /* changes of the kind that it has seen */
};

struct server {
    struct object objects[OBJECTS_MAX];
    struct change changes[EVENTS_MAX];
    size_t nchanges;
    unsigned version, generation;
    struct controller controllers[CONTROLLERS_MAX];
    size_t ncontrollers;
    uint64_t now;
    unsigned writes;  /* of all controllers */
    unsigned cut;     /* at which a controller dies; 0: never */
    bool cut_undone;  /* the write at which it dies is lost */
    bool dying, dead; /* set when it happens */
    bool settled;     /* what settle() answers */
    bool any_write;   /* in this pass */
    unsigned notes;
    char last_note[512];
    uint32_t random;
};

/* ---- JSON ---- */

static inline void merge(struct buf *out, struct json target, struct json patch) {
    struct json_iter it = json_iter(target);
    struct json value;
    const char *key;
    bool comma = false;
    if (json_type(patch) != JSON_OBJECT) {
        json_print(out, patch);
        return;
    }
    buf_putc(out, '{');
    while (json_type(target) == JSON_OBJECT && json_next(&it, &key, &value)) {
        struct json change = json_get(patch, key);
        if (json_valid(change) && json_type(change) == JSON_NULL)
            continue;
        buf_printf(out, "%s\"%s\":", comma ? "," : "", key);
        comma = true;
        if (json_valid(change))
            merge(out, value, change);
        else
            json_print(out, value);
    }
    it = json_iter(patch);
    while (json_next(&it, &key, &value)) {
        if (json_valid(json_get(target, key)) || json_type(value) == JSON_NULL)
            continue;
        buf_printf(out, "%s\"%s\":", comma ? "," : "", key);
        comma = true;
        merge(out, (struct json){0}, value);
    }
    buf_putc(out, '}');
}

static inline char *merged(const char *target, const char *patch) {
    struct json_parser *a = NULL, *b = NULL;
    struct json t, p;
    struct buf out = BUF_INIT(0);
    assert_int_equal(json_open(target, strlen(target), &a, &t, NULL), 0);
    assert_int_equal(json_open(patch, strlen(patch), &b, &p, NULL), 0);
    merge(&out, t, p);
    json_parser_free(a);
    json_parser_free(b);
    assert_int_equal(buf_error(&out), 0);
    return out.data;
}

/* A member of metadata as a copy; "" when it is not there. */
static inline void meta_of(const char *text, const char *member, char ret[static 64]) {
    struct json_parser *p = NULL;
    struct json root, value;
    assert_int_equal(json_open(text, strlen(text), &p, &root, NULL), 0);
    value = JSON_PATH(root, "metadata", member);
    if (json_type(value) == JSON_ARRAY)
        snprintf(ret, 64, "%zu", json_size(value));
    else
        snprintf(ret, 64, "%s", json_string(value) ? json_string(value) : "");
    json_parser_free(p);
}

/* ---- the server ---- */

static inline struct object *object_at(struct server *s, const char *path) {
    for (size_t i = 0; i < OBJECTS_MAX; i++)
        if (s->objects[i].text && strcmp(s->objects[i].path, path) == 0)
            return &s->objects[i];
    return NULL;
}

static inline struct object *object_of(struct server *s, enum claims_kind kind, const char *key) {
    for (size_t i = 0; i < OBJECTS_MAX; i++)
        if (s->objects[i].text && s->objects[i].kind == kind && strcmp(s->objects[i].key, key) == 0)
            return &s->objects[i];
    return NULL;
}

static inline void announce(struct server *s, const struct object *o) {
    assert_in_range(s->nchanges, 0, EVENTS_MAX - 1);
    struct change *change = &s->changes[s->nchanges++];
    change->kind = o->kind;
    memcpy(change->key, o->key, sizeof(o->key));
    change->text = o->text ? strdup(o->text) : NULL;
}

static inline void put_object(struct server *s, struct object *o, const char *patch) {
    char version[128], deleting[64], finalizers[64];
    char *with = merged(o->text, patch);
    snprintf(version, sizeof(version), "{\"metadata\":{\"resourceVersion\":\"%u\"}}", ++s->version);
    free(o->text);
    o->text = merged(with, version);
    free(with);
    meta_of(o->text, "deletionTimestamp", deleting);
    meta_of(o->text, "finalizers", finalizers);
    if (deleting[0] && (finalizers[0] == '\0' || strcmp(finalizers, "0") == 0)) {
        free(o->text);
        o->text = NULL;
    }
    announce(s, o);
}

static inline void add_object(struct server *s, enum claims_kind kind, const char *namespace,
                              const char *name, const char *text) {
    static const char *const paths[] = {EGPUS_PATH, NULL, EGPU_CLASSES_PATH};
    char meta[512];
    struct object *o = s->objects;
    while (o->text)
        o++;
    assert_true(o < s->objects + OBJECTS_MAX);
    o->kind = kind;
    if (kind == CLAIMS_CLAIMS) {
        snprintf(o->key, sizeof(o->key), "%s/%s", namespace, name);
        snprintf(o->path, sizeof(o->path),
                 "/apis/elasticgpu.io/v1alpha1/namespaces/%s/elasticgpuclaims/%s", namespace, name);
    } else {
        snprintf(o->key, sizeof(o->key), "%s", name);
        snprintf(o->path, sizeof(o->path), "%s/%s", paths[kind], name);
    }
    s->generation++;
    snprintf(meta, sizeof(meta),
             "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"%s\",\"uid\":\"u%u-%s\","
             "\"creationTimestamp\":\"2026-01-01T00:00:%02uZ\"}}",
             name, namespace, s->generation, name, s->generation);
    o->text = strdup(text);
    put_object(s, o, meta);
}

static inline void delete_object(struct server *s, struct object *o) {
    put_object(s, o, "{\"metadata\":{\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"}}");
}

static inline int carry_out(struct server *s, const struct claims_write *w, const char **ret_uid,
                            char uid[static 64]) {
    char have[64], want[64], path[512], name[64];
    *ret_uid = NULL;
    if (strcmp(w->method, "POST") == 0) {
        struct buf text = BUF_INIT(0);
        buf_append(&text, w->body, w->size);
        meta_of(buf_str(&text), "name", name);
        bool claim = strstr(w->path, "elasticgpuclaims") != NULL;
        snprintf(path, sizeof(path), "%s/%s", w->path, name);
        bool taken = object_at(s, path) != NULL;
        if (!taken)
            add_object(s, claim ? CLAIMS_CLAIMS : CLAIMS_EGPUS, claim ? "ns" : "", name,
                       buf_str(&text));
        buf_done(&text);
        return taken ? 409 : 201;
    }
    snprintf(path, sizeof(path), "%s", w->path);
    char *status = strstr(path, "/status");
    if (status)
        *status = '\0';
    struct object *o = object_at(s, path);
    if (!o)
        return 404;
    if (strcmp(w->method, "GET") == 0) {
        meta_of(o->text, "uid", uid);
        *ret_uid = uid;
        return 200;
    }
    struct buf body = BUF_INIT(0);
    buf_append(&body, w->body, w->size);
    meta_of(o->text, "resourceVersion", have);
    bool delete = strcmp(w->method, "DELETE") == 0;
    if (delete) {
        /* "preconditions" stands where a patch has metadata */
        char *p = strstr(body.data, "\"resourceVersion\":\"");
        assert_non_null(p);
        snprintf(want, sizeof(want), "%.*s", (int) strcspn(p + 19, "\""), p + 19);
    } else
        meta_of(body.data, "resourceVersion", want);
    assert_true(want[0] != '\0'); /* nothing is written without a condition */
    int result = strcmp(have, want) == 0 ? 200 : 409;
    if (result == 200 && delete)
        delete_object(s, o);
    else if (result == 200)
        put_object(s, o, body.data);
    buf_done(&body);
    return result;
}

/* ---- cards, 100 core and 40 GiB each: one of node-a, one of node-b, and two of node-d that are
 * only given whole ---- */

static const char *const every_card[] = {"gpu-a", "gpu-b", "gpu-d0", "gpu-d1"};
static const char *const every_node[] = {"node-a", "node-b", "node-d", "node-d"};

static inline bool holds_card(const struct egpu *e, const char *card) {
    for (uint32_t i = 0; i < e->ncards; i++)
        if (strcmp(e->cards[i], card) == 0)
            return true;
    return false;
}

static inline void used_of(struct server *s, const char *card, const char *without,
                           struct claim_amount *ret) {
    *ret = (struct claim_amount){0};
    for (size_t i = 0; i < OBJECTS_MAX; i++) {
        struct json_parser *p = NULL;
        struct json root;
        struct egpu e;
        if (!s->objects[i].text || s->objects[i].kind != CLAIMS_EGPUS ||
            strcmp(s->objects[i].key, without) == 0)
            continue;
        assert_int_equal(json_open(s->objects[i].text, strlen(s->objects[i].text), &p, &root, NULL),
                         0);
        assert_int_equal(egpu_parse(root, &e, NULL), 0);
        bool counts = e.provisioned_by[0] ||
                      (e.has_phase && e.phase != EGPU_PENDING && e.phase != EGPU_FAILED);
        if (counts && holds_card(&e, card)) {
            ret->core += e.capacity.core;
            ret->memory += e.capacity.whole ? 40 * GIB : e.capacity.memory;
        }
        egpu_done(&e);
        json_parser_free(p);
    }
}

static inline bool fits_card(struct server *s, const char *card, const char *without,
                             const struct claim_amount *want) {
    struct claim_amount used;
    used_of(s, card, without, &used);
    uint64_t memory = want->whole ? 40 * GIB : want->memory;
    return used.core + want->core <= 100 && used.memory + memory <= 40 * GIB;
}

static inline int fake_find(void *self, const struct egpu_claim *claim,
                            const struct claim_amount *want, const char *node,
                            struct claims_room *ret, struct err *why) {
    struct server *s = ((struct controller *) self)->server;
    (void) claim;
    *ret = (struct claims_room){.amount = *want};
    for (size_t i = want->whole ? 2 : 0; i < (want->whole ? 4 : 2); i++) {
        if ((node[0] && strcmp(node, every_node[i]) != 0) ||
            !fits_card(s, every_card[i], "", want) || ret->ncards == want->cards)
            continue;
        snprintf(ret->node, sizeof(ret->node), "%s", every_node[i]);
        snprintf(ret->cards[ret->ncards++], sizeof(ret->cards[0]), "%s", every_card[i]);
    }
    return ret->ncards == want->cards ? 0 : err_set(why, EAGAIN, "no card has room for it");
}

static inline const char *fake_node(void *self, const struct egpu *e) {
    (void) self;
    for (size_t i = 0; i < sizeof(every_card) / sizeof(every_card[0]); i++)
        if (holds_card(e, every_card[i]))
            return every_node[i];
    return "";
}

static inline int fake_check(void *self, const struct egpu *e, struct err *why) {
    struct server *s = ((struct controller *) self)->server;
    for (uint32_t i = 0; i < e->ncards; i++)
        if (strncmp(e->cards[i], "gpu-", 4) != 0 ||
            !fits_card(s, e->cards[i], e->meta.name, &e->capacity))
            return err_set(why, EAGAIN, "its card is not there, or has no room");
    return 0;
}

static inline int fake_grow(void *self, const struct egpu *e, const struct claim_amount *want,
                            struct err *why) {
    struct server *s = ((struct controller *) self)->server;
    return fits_card(s, e->cards[0], e->meta.name, want)
               ? 0
               : err_set(why, EAGAIN, "its card has no room for more");
}

static inline int fake_admit(void *self, const struct egpu_claim *claim,
                             const struct claim_amount *want, struct err *why) {
    (void) self, (void) claim, (void) want, (void) why;
    return 0;
}

static inline int fake_take(void *self, const struct egpu *e, const struct egpu_claim *claim,
                            struct err *why) {
    return fake_admit(self, claim, &e->capacity, why);
}

static inline bool fake_settle(void *self, const struct egpu *e) {
    (void) e;
    return ((struct controller *) self)->server->settled;
}

static inline bool fake_begun(void *self, const char *pod_uid) {
    (void) self, (void) pod_uid;
    return false;
}

static inline void fake_hold(void *self, const struct egpu *e) {
    (void) self, (void) e;
}

static inline void fake_drop(void *self, const char *name) {
    (void) self, (void) name;
}

static inline void fake_note(void *self, const struct claims_note *note) {
    struct server *s = ((struct controller *) self)->server;
    s->notes++;
    snprintf(s->last_note, sizeof(s->last_note), "%s: %s", note->reason, note->message);
}

static inline void fake_write(void *self, const struct claims_write *write) {
    struct controller *c = self;
    struct server *s = c->server;
    const char *uid;
    char text[64], key[512];
    if (s->dying)
        return;
    snprintf(key, sizeof(key), "%s", write->key);
    s->any_write = true;
    if (++s->writes == s->cut) {
        s->dying = true;
        if (!s->cut_undone)
            (void) carry_out(s, write, &uid, text);
        return;
    }
    int status = carry_out(s, write, &uid, text);
    claims_written(c->claims, key, status, uid, NULL, s->now);
}

/* ---- controllers ---- */

static inline void show(struct controller *c, const struct change *change) {
    struct json_parser *p = NULL;
    struct json root;
    if (!change->text) {
        claims_gone(c->claims, change->kind, change->key);
        return;
    }
    assert_int_equal(json_open(change->text, strlen(change->text), &p, &root, NULL), 0);
    if (change->kind == CLAIMS_PODS) {
        struct pod pod;
        assert_int_equal(pod_parse(root, &pod, NULL), 0);
        assert_int_equal(claims_pod_seen(c->claims, &pod), 0);
        pod_done(&pod);
    } else
        assert_int_equal(claims_seen(c->claims, change->kind, root, NULL), 0);
    json_parser_free(p);
}

/* Begins anew: lists everything as it is. */
static inline void start_controller(struct server *s, size_t i) {
    struct controller *c = &s->controllers[i];
    const struct claims_world world = {c,          fake_find,  fake_node,   fake_check, fake_grow,
                                       fake_admit, fake_take,  fake_settle, fake_begun, fake_hold,
                                       fake_drop,  fake_write, fake_note};
    claims_free(c->claims);
    c->server = s;
    c->claims = claims_new(&world);
    assert_non_null(c->claims);
    for (int kind = 0; kind < CLAIMS_KINDS; kind++) {
        claims_sync_begin(c->claims, (enum claims_kind) kind);
        for (size_t j = 0; j < OBJECTS_MAX; j++) {
            const struct object *o = &s->objects[j];
            struct change change = {.kind = o->kind, .text = o->text};
            if (o->text && o->kind == (enum claims_kind) kind)
                show(c, &change);
        }
        claims_sync_end(c->claims, (enum claims_kind) kind);
        c->shown[kind] = s->nchanges;
    }
}

static inline bool show_next(struct controller *c, enum claims_kind kind) {
    struct server *s = c->server;
    while (c->shown[kind] < s->nchanges) {
        const struct change *change = &s->changes[c->shown[kind]++];
        if (change->kind != kind)
            continue;
        show(c, change);
        return true;
    }
    return false;
}

static inline uint32_t draw(struct server *s, uint32_t below) {
    s->random = s->random * 1664525u + 1013904223u;
    return (s->random >> 16) % below;
}

static inline void check_cards(struct server *s) {
    for (size_t i = 0; i < sizeof(every_card) / sizeof(every_card[0]); i++) {
        struct claim_amount used;
        used_of(s, every_card[i], "", &used);
        assert_in_range(used.core, 0, 100);
        assert_in_range(used.memory, 0, 40 * GIB);
    }
}

/* One step of one controller: it sees a change, or makes a pass. */
static inline void step(struct server *s) {
    size_t i = draw(s, (uint32_t) s->ncontrollers);
    struct controller *c = &s->controllers[i];
    if (draw(s, 3) > 0 && show_next(c, (enum claims_kind) draw(s, CLAIMS_KINDS)))
        return;
    s->now += 700;
    claims_plan(c->claims, s->now, "2026-01-01T00:00:00Z");
    check_cards(s);
    if (s->dying) {
        s->dying = false;
        s->dead = true;
        start_controller(s, i);
    }
}

static inline bool all_shown(const struct server *s) {
    for (size_t i = 0; i < s->ncontrollers; i++)
        for (int kind = 0; kind < CLAIMS_KINDS; kind++)
            for (size_t j = s->controllers[i].shown[kind]; j < s->nchanges; j++)
                if (s->changes[j].kind == (enum claims_kind) kind)
                    return false;
    return true;
}

/* Until there is nothing to write any more, and longer than any waiting time. */
static inline void run(struct server *s) {
    unsigned quiet = 0;
    for (unsigned i = 0; quiet < 40; i++) {
        assert_in_range(i, 0, 20000); /* it comes to rest */
        s->any_write = false;
        step(s);
        quiet = s->any_write || !all_shown(s) ? 0 : quiet + 1;
    }
}

static inline void start(struct server *s, size_t controllers, uint32_t seed, unsigned cut,
                         bool undone) {
    *s = (struct server){.ncontrollers = controllers,
                         .now = 100000,
                         .cut = cut,
                         .cut_undone = undone,
                         .settled = true,
                         .random = seed};
    for (size_t i = 0; i < controllers; i++)
        start_controller(s, i);
}

static inline void finish(struct server *s) {
    for (size_t i = 0; i < s->ncontrollers; i++)
        s->controllers[i].claims = claims_free(s->controllers[i].claims);
    for (size_t i = 0; i < OBJECTS_MAX; i++)
        free(s->objects[i].text);
    for (size_t i = 0; i < s->nchanges; i++)
        free(s->changes[i].text);
}

/* ---- what is there in the end, in one line an object ---- */

static inline void tell_egpu(struct json root, struct buf *out) {
    struct egpu e;
    assert_int_equal(egpu_parse(root, &e, NULL), 0);
    buf_printf(out, "gpu %s %s%s %s/%s uid=%s by=%d on=", e.meta.name,
               e.has_phase ? egpu_phase_name(e.phase) : "-", e.word.reason, e.claim_namespace,
               e.claim_name, e.claim_uid, e.bound_by_us);
    for (uint32_t i = 0; i < e.ncards; i++)
        buf_printf(out, "%s%s", i > 0 ? "+" : "", e.cards[i]);
    buf_printf(out, " core=%u memory=%" PRIu64 " guard=%d%s\n", e.capacity.core * e.capacity.cards,
               e.capacity.memory / GIB, strings_have(&e.meta.finalizers, EGPU_FINALIZER),
               e.meta.deleting ? " deleting" : "");
    egpu_done(&e);
}

static inline void tell_claim(struct json root, struct buf *out) {
    struct egpu_claim c;
    assert_int_equal(egpu_claim_parse(root, &c, NULL), 0);
    buf_printf(out, "claim %s %s/%s gpu=%s done=%d by=%d class=%s node=%s core=%u", c.meta.name,
               claim_phase_name(c.phase), c.word.reason, c.egpu, c.bind_completed, c.bound_by_us,
               c.has_class ? c.class : "(default)", c.selected_node,
               c.granted.core * c.granted.cards);
    buf_printf(out, "%s%s%s%s", c.resize.reason[0] ? " resize=" : "", c.resize.reason,
               c.provisioner[0] ? " asks=" : "", c.provisioner);
    buf_printf(out, " guard=%d%s\n", strings_have(&c.meta.finalizers, CLAIM_FINALIZER),
               c.meta.deleting ? " deleting" : "");
    egpu_claim_done(&c);
}

static inline int by_line(const void *a, const void *b) {
    return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Sorted, to be freed. */
static inline char *tell(struct server *s) {
    char *lines[OBJECTS_MAX];
    size_t n = 0;
    struct buf all = BUF_INIT(0);
    buf_puts(&all, "");
    for (size_t i = 0; i < OBJECTS_MAX; i++) {
        struct json_parser *p = NULL;
        struct json root;
        struct buf line = BUF_INIT(0);
        const struct object *o = &s->objects[i];
        if (!o->text || o->kind > CLAIMS_CLAIMS)
            continue;
        assert_int_equal(json_open(o->text, strlen(o->text), &p, &root, NULL), 0);
        if (o->kind == CLAIMS_EGPUS)
            tell_egpu(root, &line);
        else
            tell_claim(root, &line);
        json_parser_free(p);
        lines[n++] = line.data;
    }
    qsort(lines, n, sizeof(lines[0]), by_line);
    for (size_t i = 0; i < n; i++) {
        buf_puts(&all, lines[i]);
        free(lines[i]);
    }
    return all.data ? all.data : strdup("");
}
