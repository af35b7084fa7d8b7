/* SPDX-License-Identifier: Apache-2.0 */

/* What the controller writes, as requests to the API server: merge patches that name the version
 * they were made for, so that the first writer wins. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "claims/model.h"
#include "kube/api/object_write.h"
#include "model/quantity.h"
#include "wire/json_write.h"

#define BODY_MAX ((size_t) 64 << 10)
#define PATH_MAX_LEN 700
#define SHOWN_MS 5000 /* by then the watch has shown what a write has changed */
#define MAKE_RETRY_MS 2000
#define TELL_MS 30000
#define MERGE_PATCH "application/merge-patch+json"
#define API_VERSION "elasticgpu.io/v1alpha1"

bool claims_may_tell(const struct claims *c, struct claims_hand *hand, const char *told) {
    if (strcmp(told, OVER_QUOTA) == 0 && c->now_ms < hand->told_ms)
        return false;
    hand->told_ms = c->now_ms + TELL_MS;
    return true;
}

/* ---- sending ---- */

static void send(struct claims *c, const char *method, const char *path, const struct buf *body,
                 const char *key) {
    bool patch = strcmp(method, "PATCH") == 0;
    const struct claims_write write = {method,     path,      patch ? MERGE_PATCH : NULL,
                                       body->data, body->len, key};
    c->wrote = true;
    if (buf_error(body) == 0)
        c->world.write(c->world.self, &write);
}

static void hold_off(const struct claims *c, const struct claim_meta *m, struct claims_hand *hand) {
    memcpy(hand->version, m->version, sizeof(hand->version));
    hand->until_ms = c->now_ms + SHOWN_MS;
}

static void path_of(const struct claim_meta *m, const char *sub, char ret[static PATH_MAX_LEN]) {
    if (m->namespace[0])
        snprintf(ret, PATH_MAX_LEN, "/apis/" API_VERSION "/namespaces/%s/elasticgpuclaims/%s%s",
                 m->namespace, m->name, sub);
    else
        snprintf(ret, PATH_MAX_LEN, EGPUS_PATH "/%s%s", m->name, sub);
}

static void key_of(const struct claim_meta *m, const char *what,
                   char ret[static CLAIMS_KEY_MAX + 8]) {
    if (m->namespace[0])
        snprintf(ret, CLAIMS_KEY_MAX + 8, "%s:%s/%s", what, m->namespace, m->name);
    else
        snprintf(ret, CLAIMS_KEY_MAX + 8, "%s:%s", what, m->name);
}

/* A patch under way: metadata is open for annotations and the like. */
struct patch {
    struct json_writer w;
    struct buf body;
};

static void patch_begin(struct patch *p, const struct claim_meta *m) {
    p->body = BUF_INIT(BODY_MAX);
    p->w = (struct json_writer){.out = &p->body};
    json_object_begin(&p->w, NULL);
    json_object_begin(&p->w, "metadata");
    json_put_string(&p->w, "resourceVersion", m->version);
}

/* Ends the metadata and begins the spec, which the caller ends. */
static void patch_spec(struct patch *p, const struct claim_meta *m) {
    patch_begin(p, m);
    json_object_end(&p->w);
    json_object_begin(&p->w, "spec");
}

static void patch_end(struct claims *c, struct patch *p, const struct claim_meta *m,
                      struct claims_hand *hand, const char *sub) {
    char path[PATH_MAX_LEN], key[CLAIMS_KEY_MAX + 8];
    json_object_end(&p->w);
    path_of(m, sub, path);
    key_of(m, m->namespace[0] ? "claim" : "gpu", key);
    hold_off(c, m, hand);
    send(c, "PATCH", path, &p->body, key);
    buf_done(&p->body);
}

static void put_amount(struct json_writer *w, const char *key, const struct claim_amount *a) {
    char text[24];
    json_object_begin(w, key);
    if (a->core > 0)
        json_put_stringf(w, RESOURCE_CORE, "%u", a->whole ? CORE_PER_CARD * a->cards : a->core);
    if (!a->whole && a->memory > 0)
        json_put_string(w, RESOURCE_MEMORY, quantity_format_bytes(a->memory, text));
    json_object_end(w);
}

/* ---- Events ---- */

void note_claim(struct claims *c, const struct egpu_claim *claim, bool warning, const char *reason,
                const char *message) {
    const struct claims_note note = {API_VERSION,
                                     "ElasticGPUClaim",
                                     claim->meta.namespace,
                                     claim->meta.name,
                                     claim->meta.uid,
                                     warning,
                                     reason,
                                     message};
    c->world.note(c->world.self, &note);
}

static void note_egpu(struct claims *c, const struct egpu *e, bool warning, const char *reason,
                      const char *message) {
    const struct claims_note note = {API_VERSION, "ElasticGPU", "",     e->meta.name,
                                     e->meta.uid, warning,      reason, message};
    c->world.note(c->world.self, &note);
}

/* ---- both kinds ---- */

void write_finalizer(struct claims *c, const struct claim_meta *m, struct claims_hand *hand,
                     const char *finalizer, bool present) {
    struct patch p;
    patch_begin(&p, m);
    json_array_begin(&p.w, "finalizers");
    for (uint32_t i = 0; i < m->finalizers.n; i++)
        if (strcmp(m->finalizers.v[i], finalizer) != 0)
            json_put_string(&p.w, NULL, m->finalizers.v[i]);
    if (present)
        json_put_string(&p.w, NULL, finalizer);
    json_array_end(&p.w);
    json_object_end(&p.w);
    patch_end(c, &p, m, hand, "");
}

/* ---- claims ---- */

void write_claim_class(struct claims *c, struct claim_item *item, const char *class) {
    struct patch p;
    patch_spec(&p, &item->o.meta);
    json_put_string(&p.w, "elasticGPUClassName", class);
    json_object_end(&p.w);
    patch_end(c, &p, &item->o.meta, &item->hand, "");
}

void write_claim_egpu(struct claims *c, struct claim_item *item, const char *egpu) {
    struct patch p;
    patch_begin(&p, &item->o.meta);
    json_object_begin(&p.w, "annotations");
    json_put_string(&p.w, NOTE_BIND_COMPLETED, "yes");
    if (item->o.egpu[0] == '\0')
        json_put_string(&p.w, NOTE_BOUND_BY_US, "yes");
    json_object_end(&p.w);
    json_object_end(&p.w);
    json_object_begin(&p.w, "spec");
    json_put_string(&p.w, "elasticGPUName", egpu);
    json_object_end(&p.w);
    patch_end(c, &p, &item->o.meta, &item->hand, "");
}

/* `value` NULL takes it away. */
static void write_claim_note(struct claims *c, struct claim_item *item, const char *key,
                             const char *value) {
    struct patch p;
    patch_begin(&p, &item->o.meta);
    json_object_begin(&p.w, "annotations");
    if (value)
        json_put_string(&p.w, key, value);
    else
        json_put_null(&p.w, key);
    json_object_end(&p.w);
    json_object_end(&p.w);
    patch_end(c, &p, &item->o.meta, &item->hand, "");
}

void write_claim_provisioner(struct claims *c, struct claim_item *item, const char *provisioner) {
    write_claim_note(c, item, NOTE_PROVISIONER, provisioner);
}

void write_claim_unselect(struct claims *c, struct claim_item *item) {
    write_claim_note(c, item, NOTE_SELECTED_NODE, NULL);
}

void claims_select(const struct egpu_claim *claim, const char *node, struct buf *path,
                   struct buf *body) {
    char text[PATH_MAX_LEN];
    struct json_writer w = {.out = body};
    path_of(&claim->meta, "", text);
    buf_puts(path, text);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "resourceVersion", claim->meta.version);
    json_object_begin(&w, "annotations");
    json_put_string(&w, NOTE_SELECTED_NODE, node);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}

static void put_status(struct claims *c, struct claim_item *item, enum claim_phase phase,
                       const struct claim_amount *granted, const struct claim_word *word,
                       const struct claim_word *resize) {
    struct patch p;
    patch_begin(&p, &item->o.meta);
    json_object_end(&p.w);
    json_object_begin(&p.w, "status");
    json_put_string(&p.w, "phase", claim_phase_name(phase));
    if (granted)
        put_amount(&p.w, "capacity", granted);
    json_array_begin(&p.w, "conditions");
    object_put_condition(&p.w, "Bound", phase == CLAIM_BOUND, word->reason, word->message, c->stamp,
                         NULL);
    if (resize->reason[0])
        object_put_condition(&p.w, "Resizing", strcmp(resize->reason, "InProgress") == 0,
                             resize->reason, resize->message, c->stamp, NULL);
    json_array_end(&p.w);
    json_object_end(&p.w);
    patch_end(c, &p, &item->o.meta, &item->hand, "/status");
}

static void word_of(const char *reason, const char *message, struct claim_word *ret) {
    snprintf(ret->reason, sizeof(ret->reason), "%s", reason);
    snprintf(ret->message, sizeof(ret->message), "%s", message);
}

static bool same_word(const struct claim_word *a, const struct claim_word *b) {
    return strcmp(a->reason, b->reason) == 0 && strcmp(a->message, b->message) == 0;
}

void write_claim_status(struct claims *c, struct claim_item *item, enum claim_phase phase,
                        const struct claim_amount *granted, const char *reason,
                        const char *message) {
    const struct egpu_claim *claim = &item->o;
    struct claim_word word, none = {"", ""};
    bool waits = strcmp(reason, "WaitForFirstConsumer") == 0;
    word_of(reason, message, &word);
    if (claim->phase == phase && same_word(&claim->word, &word) && !claim->resize.reason[0] &&
        (!granted || claim_amount_compare(granted, &claim->granted) == 0))
        return;
    put_status(c, item, phase, granted, &word, &none);
    note_claim(c, claim, phase != CLAIM_BOUND && !waits, reason, message);
}

void write_claim_resize(struct claims *c, struct claim_item *item, const char *reason,
                        const char *message) {
    struct claim_word word;
    word_of(reason, message, &word);
    if (same_word(&item->o.resize, &word))
        return;
    put_status(c, item, CLAIM_BOUND, NULL, &item->o.word, &word);
    note_claim(c, &item->o, strcmp(reason, "InProgress") != 0, reason, message);
}

/* ---- the claim of a template ---- */

static void put_owned_claim(struct json_writer *w, const struct pod_item *pod,
                            const struct pod_claim *use, struct json spec) {
    _cleanup_buf_ struct buf text = BUF_INIT(BODY_MAX);
    json_print(&text, spec);
    object_begin(w, API_VERSION, "ElasticGPUClaim", use->claim, NULL);
    object_put_owner(w, "Pod", pod->name, pod->key, true);
    json_object_end(w);
    json_put_raw(w, "spec", buf_str(&text));
    json_object_end(w);
}

void write_claim_of_pod(struct claims *c, struct pod_item *pod, const struct pod_claim *use) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w = {.out = &body};
    struct json spec = {0};
    struct err err;
    char path[PATH_MAX_LEN], key[CLAIMS_KEY_MAX + 8];
    pod->make_ms = c->now_ms + MAKE_RETRY_MS;
    if (json_open(use->template, strlen(use->template), &parser, &spec, &err) < 0 ||
        json_type(spec) != JSON_OBJECT) {
        const struct claims_note note = {
            "v1",     "Pod", pod->namespace,         pod->name,
            pod->key, true,  "ClaimTemplateInvalid", "the template of a claim is no JSON object"};
        if (!pod->reported)
            c->world.note(c->world.self, &note);
        pod->reported = true;
        return;
    }
    put_owned_claim(&w, pod, use, spec);
    snprintf(path, sizeof(path), "/apis/" API_VERSION "/namespaces/%s/elasticgpuclaims",
             pod->namespace);
    snprintf(key, sizeof(key), "pod:%s", pod->key);
    send(c, "POST", path, &body, key);
}

/* ---- ElasticGPUs ---- */

static void put_claim_ref(struct json_writer *w, const struct egpu_claim *claim) {
    json_object_begin(w, "claimRef");
    json_put_string(w, "apiVersion", API_VERSION);
    json_put_string(w, "kind", "ElasticGPUClaim");
    json_put_string(w, "namespace", claim->meta.namespace);
    json_put_string(w, "name", claim->meta.name);
    json_put_string(w, "uid", claim->meta.uid);
    json_object_end(w);
}

static void put_node(struct json_writer *w, const char *node) {
    json_object_begin(w, "nodeAffinity");
    json_object_begin(w, "required");
    object_put_node_terms(w, node);
    json_object_end(w);
    json_object_end(w);
}

/* Its name follows from the claim, so that it is made once, by whichever replica. */
void write_egpu_new(struct claims *c, struct claim_item *item, const struct egpu_class *class,
                    const struct provisioner *p) {
    const struct egpu_claim *claim = &item->o;
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w = {.out = &body};
    char key[CLAIMS_KEY_MAX + 8], name[CLAIMS_KEY_MAX];
    (void) snprintf(name, sizeof(name), "egpu-%s", claim->meta.uid);
    object_begin(&w, API_VERSION, "ElasticGPU", name, NULL);
    json_array_begin(&w, "finalizers");
    json_put_string(&w, NULL, EGPU_FINALIZER);
    json_array_end(&w);
    json_object_begin(&w, "annotations");
    json_put_string(&w, NOTE_PROVISIONED_BY, class->provisioner);
    json_put_string(&w, NOTE_BOUND_BY_US, "yes");
    json_object_end(&w);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    put_amount(&w, "capacity", &c->room.amount);
    json_put_string(&w, "elasticGPUClassName", class->meta.name);
    json_put_string(&w, "reclaimPolicy", class->retain ? "Retain" : "Delete");
    p->put_source(p, &w, &c->room);
    put_claim_ref(&w, claim);
    put_node(&w, c->room.node);
    json_object_end(&w);
    json_object_end(&w);
    key_of(&claim->meta, "new", key);
    send(c, "POST", EGPUS_PATH, &body, key);
}

void write_egpu_ref(struct claims *c, struct egpu_item *item, const struct egpu_claim *claim) {
    struct patch p;
    patch_begin(&p, &item->o.meta);
    if (!item->o.reserved) {
        json_object_begin(&p.w, "annotations");
        json_put_string(&p.w, NOTE_BOUND_BY_US, "yes");
        json_object_end(&p.w);
    }
    json_object_end(&p.w);
    json_object_begin(&p.w, "spec");
    put_claim_ref(&p.w, claim);
    json_object_end(&p.w);
    patch_end(c, &p, &item->o.meta, &item->hand, "");
}

void write_egpu_unref(struct claims *c, struct egpu_item *item, bool keep_name) {
    struct patch p;
    patch_begin(&p, &item->o.meta);
    if (!keep_name) {
        json_object_begin(&p.w, "annotations");
        json_put_null(&p.w, NOTE_BOUND_BY_US);
        json_object_end(&p.w);
    }
    json_object_end(&p.w);
    json_object_begin(&p.w, "spec");
    if (keep_name) {
        json_object_begin(&p.w, "claimRef");
        json_put_null(&p.w, "uid");
        json_object_end(&p.w);
    } else
        json_put_null(&p.w, "claimRef");
    json_object_end(&p.w);
    patch_end(c, &p, &item->o.meta, &item->hand, "");
}

void write_egpu_capacity(struct claims *c, struct egpu_item *item,
                         const struct claim_amount *amount) {
    struct patch p;
    patch_spec(&p, &item->o.meta);
    put_amount(&p.w, "capacity", amount);
    json_object_end(&p.w);
    patch_end(c, &p, &item->o.meta, &item->hand, "");
}

void write_egpu_status(struct claims *c, struct egpu_item *item, enum egpu_phase phase,
                       const char *reason, const char *message) {
    const struct egpu *e = &item->o;
    struct claim_word word;
    struct patch p;
    word_of(reason, message, &word);
    if (e->has_phase && e->phase == phase && same_word(&e->word, &word))
        return;
    patch_begin(&p, &e->meta);
    json_object_end(&p.w);
    json_object_begin(&p.w, "status");
    json_put_string(&p.w, "phase", egpu_phase_name(phase));
    json_put_string(&p.w, "reason", word.reason);
    json_put_string(&p.w, "message", word.message);
    json_object_end(&p.w);
    if (reason[0])
        note_egpu(c, e, phase == EGPU_FAILED || phase == EGPU_PENDING, reason, message);
    patch_end(c, &p, &e->meta, &item->hand, "/status");
}

void write_egpu_delete(struct claims *c, struct egpu_item *item) {
    const struct claim_meta *m = &item->o.meta;
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w = {.out = &body};
    char path[PATH_MAX_LEN], key[CLAIMS_KEY_MAX + 8];
    json_object_begin(&w, NULL);
    json_object_begin(&w, "preconditions");
    json_put_string(&w, "uid", m->uid);
    json_put_string(&w, "resourceVersion", m->version);
    json_object_end(&w);
    json_object_end(&w);
    path_of(m, "", path);
    key_of(m, "gpu", key);
    hold_off(c, m, &item->hand);
    send(c, "DELETE", path, &body, key);
}

void write_egpu_get(struct claims *c, struct egpu_item *item) {
    const struct egpu *e = &item->o;
    const struct buf none = BUF_INIT(0);
    char path[PATH_MAX_LEN], key[CLAIMS_KEY_MAX + KUBE_UID_MAX];
    snprintf(path, sizeof(path), "/apis/" API_VERSION "/namespaces/%s/elasticgpuclaims/%s",
             e->claim_namespace, e->claim_name);
    snprintf(key, sizeof(key), "ask:%s/%s", e->meta.name, e->claim_uid);
    hold_off(c, &e->meta, &item->hand);
    send(c, "GET", path, &none, key);
}
