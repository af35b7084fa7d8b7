/* SPDX-License-Identifier: Apache-2.0 */

/* Templates are made when a pod waits for one, and deleted when no pod names them any more. All
 * follows from pods and templates as the API server has them, so that nothing is lost by a restart,
 * and two leaders in turn write the same. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "scheduler/dra/dra_internal.h"
#include "wire/http_status.h"
#include "wire/json_write.h"

#define TIMEOUT_MS 10000
#define RETRY_MS 1000 /* after a failed write, doubled each time */
#define RETRIES_MAX 5
#define KEPT_MS 10000    /* without users: pods of one controller follow each other */
#define IN_FLIGHT_MAX 16 /* of all writes: those of claims go first */
#define BODY_MAX ((size_t) 4096)
#define PATH_SIZE (KUBE_LABEL_MAX + REQUEST_CODE_MAX + 128)

/* A write under way; the template may be forgotten when it is answered. */
struct writing {
    struct dra *dra;
    bool deletes;
    char key[DRA_KEY_MAX];
};

static void put_off(struct dra *d, struct dra_template *t) {
    t->retry_ms = d->now(d->userdata) + ((uint64_t) RETRY_MS << t->failures);
    t->failures += t->failures < RETRIES_MAX;
    d->failed++;
}

static void on_made(struct dra *d, struct dra_template *t, const struct kube_response *response) {
    struct err err;
    if (http_is_success(response->status)) {
        t->failures = 0;
        (void) dra_see_template(d, response->body, false, &err);
        return;
    }
    put_off(d, t);
    if (response->status == 409) /* the watch will show one of ours; a user's makes the claim */
        (void) snprintf(t->why, sizeof(t->why),
                        "its template is there, and no claim is made of it");
    else {
        (void) snprintf(t->why, sizeof(t->why), "its template cannot be made: %.200s",
                        response->text);
        log_warn("template %s: %s", t->key, response->text);
    }
}

static void on_deleted(struct dra *d, struct dra_template *t,
                       const struct kube_response *response) {
    if (http_is_success(response->status)) {
        t->there = false;
        return;
    }
    put_off(d, t);
    if (response->status != 404 && response->status != 409)
        log_warn("template %s: cannot delete it: %s", t->key, response->text);
}

static void on_written(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct writing *writing = userdata;
    struct dra *d = writing->dra;
    struct dra_template *t;
    d->in_flight--;
    d->news++;
    HASH_FIND_STR(d->templates, writing->key, t);
    if (t) {
        t->writing = false;
        if (writing->deletes)
            on_deleted(d, t, response);
        else
            on_made(d, t, response);
        dra_template_release(d, t);
    }
    d->changed(d->userdata);
}

static void begin(struct dra *d, struct dra_template *t, bool deletes, const struct buf *body) {
    struct writing *writing = buf_error(body) < 0 ? NULL : malloc(sizeof(*writing));
    char path[PATH_SIZE];
    struct err err;
    if (!writing)
        return;
    *writing = (struct writing){.dra = d, .deletes = deletes};
    memcpy(writing->key, t->key, sizeof(writing->key));
    (void) snprintf(path, sizeof(path),
                    "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaimtemplates%s%s",
                    t->namespace->name, deletes ? "/" : "", deletes ? t->name : "");
    if (d->api.request(d->api.context, deletes ? "DELETE" : "POST", path, "application/json",
                       body->data, body->len, TIMEOUT_MS, on_written, writing, &err) < 0) {
        free(writing);
        return;
    }
    t->writing = true;
    d->in_flight++;
}

static void make(struct dra *d, struct dra_template *t) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct container_request request = {0};
    if (request_code_read(t->name, &request) != REQUEST_OK)
        return;
    dra_encode_template(t, &request, &body);
    begin(d, t, false, &body);
}

/* The one that was seen, and none that was made since. */
static void delete (struct dra *d, struct dra_template *t) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w = {.out = &body};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "preconditions");
    json_put_string(&w, "uid", t->uid);
    json_object_end(&w);
    json_object_end(&w);
    begin(d, t, true, &body);
}

/* ---- at work ---- */

/* A user's template of the name is left alone, and so is what its claim requests. */
static void tell_foreign(struct dra *d, struct dra_pod *pod, const struct pod_device_claim *of,
                         uint64_t now_ms) {
    char text[REQUEST_CODE_MAX + 192];
    if (!of->code[0] || pod->foreign_told)
        return;
    const struct dra_claim *claim = dra_claim_find(d, pod->object.namespace, of->claim);
    if (!claim || strcmp(claim->object.code, of->code) == 0)
        return;
    pod->foreign_told = true;
    (void) snprintf(text, sizeof(text),
                    "ResourceClaimTemplate %s was not made by Aliquot: container %s gets what it "
                    "says; delete it, and make the pod anew",
                    of->code, of->name);
    const struct event event = event_on_pod(pod->object.namespace, pod->object.name,
                                            pod->object.uid, "GPUTemplateForeign", text);
    event_writer_note(d->events, &event, 0, false, now_ms);
}

static void count_users(struct dra *d, uint64_t now_ms) {
    for (struct dra_template *t = d->templates; t; t = t->hh.next) {
        t->users = 0;
        t->wanted = false;
    }
    for (struct dra_pod *pod = d->pods; pod; pod = pod->hh.next)
        for (uint32_t i = 0; i < pod->object.nclaims; i++) {
            const struct pod_device_claim *of = &pod->object.claims[i];
            struct dra_template *t = dra_template_of(d, pod, of);
            if (t) {
                t->users++;
                t->wanted |= !of->claim[0] && !pod->object.deleting;
            }
            tell_foreign(d, pod, of, now_ms);
        }
}

static bool may_write(const struct dra *d, const struct dra_template *t, uint64_t now_ms) {
    return !t->writing && now_ms >= t->retry_ms && d->in_flight < IN_FLIGHT_MAX;
}

static void retire(struct dra *d, struct dra_template *t, uint64_t now_ms) {
    if (t->users > 0)
        t->unused_ms = 0;
    else if (t->unused_ms == 0)
        t->unused_ms = now_ms;
    if (t->users == 0 && t->there && now_ms - t->unused_ms >= KEPT_MS && may_write(d, t, now_ms))
        delete (d, t);
    dra_template_release(d, t);
}

void dra_run_templates(struct dra *d, uint64_t now_ms) {
    struct dra_template *t, *next;
    count_users(d, now_ms);
    for (t = d->templates; t; t = t->hh.next)
        if (t->wanted && !t->there && may_write(d, t, now_ms))
            make(d, t);
    HASH_ITER(hh, d->templates, t, next)
        retire(d, t, now_ms);
}
