/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/extender/bind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/server_time.h"
#include "kube/api/field.h"
#include "kube/objects/dialect_export.h"
#include "scheduler/extender/bind_plain.h"
#include "wire/http_status.h"
#include "wire/json.h"
#include "wire/json_write.h"

/* The API server's bound on the keys and values of all annotations of an object. It does not check
 * it for a Binding, and a pod beyond it can never get its status written again. */
#define ANNOTATIONS_MAX ((size_t) 262144)
#define BODY_MAX ((size_t) 512 << 10)

/* One bind under way. It outlives the pod's entry in the state, so it keeps the names, no pointer.
 */
struct attempt {
    struct binder *binder;
    void *request; /* NULL: an audit, which needs no answer */
    bool doubted;  /* an earlier Binding of the same pod may still be carried out */
    bool definite; /* the API server refused: if the pod is not bound, it never will be by this */
    uint64_t turn; /* the pod's, as this attempt or audit last left it */
    bool over;     /* whether every Binding of it was too old by then to be carried out */
    struct bind_target to;
};

int binder_init(struct binder *b) {
    b->parser = json_parser_new();
    b->waits = (struct prom_histogram){.bounds = prom_waits};
    return b->parser ? 0 : -ENOMEM;
}

void binder_done(struct binder *b) {
    b->parser = json_parser_free(b->parser);
}

/* ---- ending an attempt ---- */

static void end_attempt(struct attempt *a, const char *error) {
    if (a->request)
        a->binder->done(error, a->request);
    free(a);
}

static void end_attempt_err(struct attempt *a, const char *what, const char *why) {
    struct err err;
    err_set(&err, EIO, "%s: %s", what, why);
    end_attempt(a, err.text);
}

/* The pod as this attempt left it; NULL: the watch has shown it bound or gone meanwhile, and what
 * is known of it now, it may be anew, is not of this attempt. */
static struct state_pod *pod_of(const struct attempt *a) {
    struct state_pod *pod = state_pod_find(a->binder->state, a->to.uid);
    return pod && pod->turn == a->turn ? pod : NULL;
}

static void set_stage(struct attempt *a, enum pod_stage stage) {
    struct state_pod *pod = pod_of(a);
    if (!pod)
        return;
    state_pod_stage(pod, stage, a->binder->now(a->binder->userdata));
    a->turn = pod->turn;
}

static void release(struct attempt *a) {
    struct state_pod *pod = pod_of(a);
    if (pod)
        state_release(a->binder->state, pod);
}

/* The pod is bound by this attempt. The time of its creation is in whole seconds. */
static void count_wait(struct attempt *a) {
    const struct state_pod *pod = state_pod_find(a->binder->state, a->to.uid);
    const int64_t now_s = server_time();
    if (pod && pod->created > 0 && a->request)
        prom_observe(&a->binder->waits,
                     now_s > pod->created ? (uint64_t) (now_s - pod->created) * 1000000000 : 0);
}

/* ---- asking the API server what became of it ---- */

static void on_truth(const struct kube_response *response, void *userdata);

static int ask_truth(struct attempt *a, struct err *err) {
    struct binder *b = a->binder;
    char path[BINDING_PATH_MAX];
    struct state_pod *pod = pod_of(a);
    if (pod) {
        pod->audited_ms = b->now(b->userdata);
        a->over = pod->audited_ms - pod->since_ms >= DOUBT_MAX_MS;
    }
    binding_path(&a->to, "", path);
    return b->api.request(b->api.context, "GET", path, NULL, NULL, 0, BINDING_TIMEOUT_MS, on_truth,
                          a, err);
}

/* The pod is bound: by this Binding or an earlier one. It may have ended since, and a list may have
 * shown that before this response: so it is read until the watch shows it. */
static void settle_bound(struct attempt *a, const struct pod *seen) {
    struct binder *b = a->binder;
    if (state_pod_seen(b->state, seen, b->now(b->userdata)) < 0) {
        end_attempt(a, "out of memory");
        return;
    }
    struct state_pod *pod = state_pod_find(b->state, a->to.uid);
    bool allocated = pod && pod->nallocations > 0;
    if (allocated)
        state_pod_stage(pod, POD_AWAITED, b->now(b->userdata));
    if (allocated && strcmp(seen->node, a->to.node) == 0) {
        count_wait(a);
        end_attempt(a, "");
    } else
        end_attempt_err(a, "another scheduler bound the pod, to node", seen->node);
}

/* A read from before another attempt started or was answered is no result of that attempt. */
static void settle_unbound(struct attempt *a) {
    struct state_pod *pod = pod_of(a);
    bool waiting = pod && (pod->stage == POD_IN_DOUBT || pod->stage == POD_AWAITED);
    if (waiting && (a->definite || a->over || pod->stage == POD_AWAITED))
        state_release(a->binder->state, pod);
    end_attempt(a, a->definite ? "the API server refused the Binding; trying again"
                               : "the Binding got no answer and is not done yet; trying again");
}

static void read_back(struct attempt *a, struct json object) {
    struct pod seen;
    struct err err;
    if (pod_parse(object, &seen, &err) < 0) {
        end_attempt_err(a, "cannot read the pod back", err.text);
        return;
    }
    if (strcmp(seen.uid, a->to.uid) != 0) {
        state_pod_ended(a->binder->state, a->to.uid);
        end_attempt(a, "the pod is gone, another one has its name");
    } else if (seen.node[0] != '\0')
        settle_bound(a, &seen);
    else
        settle_unbound(a);
    pod_done(&seen);
}

static void on_truth(const struct kube_response *response, void *userdata) {
    struct attempt *a = userdata;
    const struct state_pod *pod = state_pod_find(a->binder->state, a->to.uid);
    if (!pod || pod->stage == POD_BOUND) {
        /* The watch was faster; its state is at least as new as this response. */
        bool ours =
            pod && pod->node && strcmp(pod->node->name, a->to.node) == 0 && pod->nallocations > 0;
        end_attempt(a, ours ? "" : "the pod is gone, or another scheduler bound it");
    } else if (response->status == 200 && json_valid(response->body))
        read_back(a, response->body);
    else if (response->status == 404) {
        state_pod_ended(a->binder->state, a->to.uid);
        end_attempt(a, "the pod is gone");
    } else
        end_attempt_err(a, "the Binding got no answer, and the pod cannot be read", response->text);
}

/* ---- the Binding ---- */

static void on_bound(const struct kube_response *response, void *userdata) {
    struct attempt *a = userdata;
    struct binder *b = a->binder;
    struct err err;
    int status = response->status;
    if (http_is_success(status)) {
        count_wait(a);
        set_stage(a, POD_AWAITED);
        end_attempt(a, "");
        return;
    }
    if ((status == 0 && response->maybe_applied) || status >= 500 || status == 409 || a->doubted) {
        a->definite = status == 409 && !a->doubted;
        b->conflicts += status == 409;
        b->doubts += status != 409;
        set_stage(a, POD_IN_DOUBT);
        if (ask_truth(a, &err) < 0)
            end_attempt_err(a, "the Binding got no answer", err.text);
        return;
    }
    if (status == 404)
        state_pod_ended(b->state, a->to.uid);
    else
        release(a);
    end_attempt_err(a, "cannot bind", response->text);
}

/* What a Binding puts into the pod's annotations. */
struct binding_text {
    struct buf assignment;
    struct buf exported; /* further members of the JSON object, each with a comma before it */
    char signature[SIGNATURE_TEXT_MAX];
};

static void encode_assigned(const struct attempt *a, const struct binding_text *text,
                            struct buf *out) {
    _cleanup_buf_ struct buf annotations = BUF_INIT(BODY_MAX);
    struct json_writer w = {.out = &annotations};
    json_put_string(&w, ANNOTATION_ASSIGNMENT, buf_str(&text->assignment));
    json_put_string(&w, ANNOTATION_SIGNATURE, text->signature);
    buf_append(&annotations, text->exported.data, text->exported.len);
    if (buf_error(&annotations) < 0)
        out->error = annotations.error;
    binding_encode(&a->to, buf_str(&annotations), out);
}

static int check_annotations(const struct state_pod *pod, struct binding_text *text,
                             struct err *err) {
    size_t ours = strlen(ANNOTATION_ASSIGNMENT) + text->assignment.len +
                  strlen(ANNOTATION_SIGNATURE) + strlen(text->signature);
    if (text->assignment.len > ASSIGNMENT_TEXT_MAX ||
        pod->annotation_bytes + ours > ANNOTATIONS_MAX)
        return err_set(err, E2BIG,
                       "the pod's annotations have no room for the assignment: %zu + %zu bytes are "
                       "more than %zu",
                       pod->annotation_bytes, ours, ANNOTATIONS_MAX);
    /* These are for information, and give way. */
    if (buf_error(&text->exported) < 0 ||
        pod->annotation_bytes + ours + text->exported.len > ANNOTATIONS_MAX)
        buf_reset(&text->exported);
    return 0;
}

static uint64_t card_memory(const char *uuid, void *userdata) {
    const struct state_node *node = userdata;
    for (uint32_t i = 0; i < node->ncards; i++)
        if (strcmp(node->cards[i]->uuid, uuid) == 0)
            return node->cards[i]->memory;
    return 0;
}

/* What the tools of other projects read of a pod in their dialects. */
static void put_exported(const struct state_pod *pod, const struct assignment *assignment,
                         struct buf *out) {
    export_annotate(&(struct export_pod){.containers = pod->containers,
                                         .ncontainers = pod->ncontainers,
                                         .assignment = assignment,
                                         .card_memory = card_memory,
                                         .userdata = pod->node,
                                         .now_ns = clock_ns(CLOCK_REALTIME)},
                    &(struct json_writer){.out = out, .comma = true});
}

static void assignment_cleanup(struct assignment *a) {
    assignment_done(a);
}

static void binding_text_cleanup(struct binding_text *text) {
    buf_done(&text->assignment);
    buf_done(&text->exported);
}

static int build_binding(const struct attempt *a, const struct state_pod *pod, struct buf *out,
                         struct err *err) {
    _cleanup_(assignment_cleanup) struct assignment assignment = {0};
    _cleanup_(binding_text_cleanup) struct binding_text text = {.assignment = BUF_INIT(BODY_MAX),
                                                                .exported = BUF_INIT(BODY_MAX)};
    int r = state_assignment(pod, &assignment);
    if (r < 0)
        return err_errno(err, -r, "cannot build the assignment");
    assignment_encode(&assignment, &text.assignment);
    put_exported(pod, &assignment, &text.exported);
    if (buf_error(&text.assignment) < 0)
        return err_errno(err, -buf_error(&text.assignment), "cannot build the assignment");
    r = assignment_sign(a->binder->key, a->to.uid, a->to.node, buf_str(&text.assignment),
                        text.signature, err);
    if (r < 0)
        return r;
    r = check_annotations(pod, &text, err);
    if (r < 0)
        return r;
    encode_assigned(a, &text, out);
    return buf_error(out) < 0 ? err_errno(err, -buf_error(out), "cannot build the Binding") : 0;
}

static void post_binding(struct attempt *a, struct state_pod *pod) {
    struct binder *b = a->binder;
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    char path[BINDING_PATH_MAX], binding[32];
    struct err err;
    a->turn = pod->turn;
    int r = build_binding(a, pod, &body, &err);
    (void) snprintf(binding, sizeof(binding), "/binding?timeout=%us", (unsigned) LEASE_SERVER_S);
    binding_path(&a->to, binding, path);
    if (r == 0)
        r = b->api.request(b->api.context, "POST", path, NULL, body.data, body.len,
                           BINDING_TIMEOUT_MS, on_bound, a, &err);
    if (r == 0)
        pod->signer = signing_key_id(b->key);
    if (r < 0) {
        release(a);
        end_attempt_err(a, "cannot bind", err.text);
    }
}

/* ---- choosing, and the request ---- */

/* Allocates on the node before the Binding is sent: the assumed cards if they are still free,
 * else others of the same node. */
static int claim(struct binder *b, struct state_pod *pod, struct state_node *node,
                 struct err *err) {
    struct place_result result;
    uint64_t now = b->now(b->userdata);
    if (pod->node == node && (pod->stage == POD_ASSUMED || pod->stage == POD_IN_DOUBT)) {
        state_pod_stage(pod, POD_BINDING, now);
        return 0;
    }
    state_plan(b->state, pod, &b->request, &b->plan);
    enum place_reason reason = state_place(b->state, &b->plan, node, pod, false, &result);
    if (reason != PLACE_OK)
        return err_set(err, EBUSY, "node %s no longer fits: %s", node->name,
                       place_reason_text(reason));
    int r = state_allocate(b->state, pod, node, &result, POD_BINDING, now);
    return r < 0 ? err_errno(err, -r, "cannot bind") : 0;
}

/* Drops an assumed allocation whose cards are gone or have become unhealthy. */
static void check_assumed(struct binder *b, struct state_pod *pod) {
    if (pod->stage != POD_ASSUMED)
        return;
    for (uint32_t i = 0; i < pod->nallocations; i++) {
        const struct state_node *node = pod->node;
        bool good = false;
        for (uint32_t c = 0; c < node->ncards; c++)
            good |= strcmp(node->cards[c]->uuid, pod->allocations[i].device.uuid) == 0 &&
                    node->cards[c]->healthy && !node->cards[c]->duplicate &&
                    !node->cards[c]->overcommitted;
        if (!good) {
            state_release(b->state, pod);
            return;
        }
    }
}

/* Whether the bind makes sense as things are; 0 or a negative errno. */
static int check_bind(const struct binder *b, const struct attempt *a, const struct state_pod *pod,
                      const struct state_node *node, struct err *err) {
    if (!b->ready(b->userdata) || !b->key)
        return err_set(err, EAGAIN, EXTENDER_NOT_READY);
    if (!pod || strcmp(pod->namespace, a->to.namespace) != 0 || strcmp(pod->name, a->to.name) != 0)
        return err_set(err, ENOENT, "the pod is gone, another one has its UID");
    if (pod->problem != REQUEST_OK)
        return err_set(err, EINVAL, "%s", request_problem_text(pod->problem, pod->mixed));
    if (pod->stage == POD_BINDING)
        return err_set(err, EALREADY, "the pod is being bound already");
    if (!node)
        return err_set(err, ENOENT, "node %s has no GPU", a->to.node);
    if (pod->stage == POD_IN_DOUBT && pod->node != node)
        return err_set(err, EBUSY, "an earlier Binding of the pod may still be carried out");
    if (state_node_absent(node) != PLACE_OK)
        return err_set(err, EBUSY, "node %s: %s", a->to.node,
                       place_reason_text(state_node_absent(node)));
    return 0;
}

static bool is_held(const struct binder *b, struct state_pod *pod, struct err *err) {
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    if (!gates_closed(b->gates, pod, b->now(b->userdata), &why))
        return false;
    err_set(err, EBUSY, "%s", buf_str(&why));
    return true;
}

/* The pod, accounted on its node at stage POD_BINDING; NULL with a reason if that cannot be. */
static struct state_pod *start(struct binder *b, struct attempt *a, struct err *err) {
    struct state_pod *pod = state_pod_find(b->state, a->to.uid);
    struct state_node *node = state_node_find(b->state, a->to.node);
    if (check_bind(b, a, pod, node, err) < 0 || !pod || !node)
        return NULL;
    state_refresh(b->state, node);
    check_assumed(b, pod);
    a->doubted = pod->stage == POD_IN_DOUBT;
    if ((!a->doubted && is_held(b, pod, err)) || claim(b, pod, node, err) < 0)
        return NULL;
    /* The claim fixes the cards, and on these the share can count more against a quota than the
     * check above has assumed. */
    if (!a->doubted && is_held(b, pod, err)) {
        state_release(b->state, pod);
        return NULL;
    }
    return pod;
}

static int read_request(struct binder *b, const char *body, size_t len, struct attempt *a,
                        struct err *err) {
    struct json args;
    if (json_parse(b->parser, body, len, &args, err) < 0)
        return err_wrap(err, "cannot read the request");
    if (field_copy(json_get_nocase(args, "PodName"), a->to.name, sizeof(a->to.name)) < 0 ||
        field_copy(json_get_nocase(args, "PodNamespace"), a->to.namespace,
                   sizeof(a->to.namespace)) < 0 ||
        field_copy(json_get_nocase(args, "PodUID"), a->to.uid, sizeof(a->to.uid)) < 0 ||
        field_copy(json_get_nocase(args, "Node"), a->to.node, sizeof(a->to.node)) < 0 ||
        !field_is_name(a->to.name) || !field_is_name(a->to.namespace))
        return err_set(err, EINVAL, "PodName, PodNamespace, PodUID or Node is missing or wrong");
    return 0;
}

/* kube-scheduler retries a bind whose response it did not receive. */
static bool is_done_already(const struct binder *b, const struct attempt *a) {
    const struct state_pod *pod = state_pod_find(b->state, a->to.uid);
    return pod && (pod->stage == POD_BOUND || pod->stage == POD_AWAITED);
}

static void answer_done(struct binder *b, struct attempt *a) {
    const struct state_pod *pod = state_pod_find(b->state, a->to.uid);
    bool ours = pod->node && strcmp(pod->node->name, a->to.node) == 0 && pod->nallocations > 0;
    end_attempt(a, ours ? "" : "the pod is bound to another node, or by another scheduler");
}

/* Whether the pod has no GPU request by resource names. The state has every pod with one since
 * /filter, or after a restart since the pods were listed, before which the scheduler is not ready.
 */
static bool requests_nothing(const struct binder *b, const struct attempt *a) {
    const struct state_pod *pod = state_pod_find(b->state, a->to.uid);
    return b->ready(b->userdata) &&
           (!pod || pod->resource_claims ||
            (pod->ncontainers == 0 && pod->problem == REQUEST_OK && pod->stage == POD_PENDING));
}

void binder_bind(struct binder *b, const char *body, size_t len, void *request) {
    struct err err = {0};
    struct attempt *a = calloc(1, sizeof(*a));
    if (!a) {
        b->done("out of memory", request);
        return;
    }
    a->binder = b;
    a->request = request;
    bool understood = read_request(b, body, len, a, &err) >= 0;
    if (understood && is_done_already(b, a)) {
        answer_done(b, a);
        return;
    }
    if (understood && requests_nothing(b, a)) {
        bind_plain(&b->api, &a->to, b->done, request);
        free(a);
        return;
    }
    struct state_pod *pod = understood ? start(b, a, &err) : NULL;
    if (pod)
        post_binding(a, pod);
    else
        end_attempt(a, err.text);
}

/* ---- audit ---- */

static void audit_pod(struct binder *b, struct state_pod *pod) {
    struct attempt *a = calloc(1, sizeof(*a));
    struct err err;
    if (!a)
        return;
    *a = (struct attempt){.binder = b, .turn = pod->turn};
    memcpy(a->to.uid, pod->uid, sizeof(a->to.uid));
    memcpy(a->to.namespace, pod->namespace, sizeof(a->to.namespace));
    memcpy(a->to.name, pod->name, sizeof(a->to.name));
    memcpy(a->to.node, pod->node->name, sizeof(a->to.node));
    if (ask_truth(a, &err) < 0)
        free(a);
}

void binder_audit(struct binder *b) {
    uint64_t now = b->now(b->userdata);
    struct state_pod *pod, *next;
    (void) state_expire(b->state, now, ASSUMED_TTL_MS);
    DL_FOREACH_SAFE2(b->state->open, pod, next, open_next)
        if (pod->node && (pod->stage == POD_IN_DOUBT || pod->stage == POD_AWAITED) &&
            now - pod->audited_ms >= AUDIT_AFTER_MS)
            audit_pod(b, pod);
}
