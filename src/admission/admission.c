/* SPDX-License-Identifier: Apache-2.0 */
#include "admission/admission.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admission/carrier.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/units.h"
#include "kube/objects/assignment.h"
#include "kube/objects/pod.h"
#include "kube/objects/pod_claims.h"
#include "model/quantity.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define REVIEW_VERSION "admission.k8s.io/v1"
#define POD_MAX ((size_t) 4 << 20) /* etcd takes 1.5 MB */

struct admission {
    struct json_parser *review; /* of the API server's request */
    struct json_parser *pod;    /* of the pod as the scheduler would see it */
    const char *scheduler;      /* see admission_place_by() */
    char *writer;               /* the user that may write assignments */
};

/* The request, as far as it is needed here. */
struct asked {
    struct json object, before; /* invalid: none */
    const char *uid, *operation, *resource, *subresource, *user;
};

/* Why not. */
struct refusal {
    unsigned code; /* HTTP status; 0: allowed */
    const char *reason;
    struct buf text;
};

struct admission *admission_free(struct admission *a) {
    if (!a)
        return NULL;
    json_parser_free(a->review);
    json_parser_free(a->pod);
    free(a->writer);
    free(a);
    return NULL;
}

struct admission *admission_new(const char *name_space) {
    struct admission *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    a->review = json_parser_new();
    a->pod = json_parser_new();
    if (asprintf(&a->writer, "system:serviceaccount:%s:aliquot-scheduler", name_space) < 0)
        a->writer = NULL;
    return a->review && a->pod && a->writer ? a : admission_free(a);
}

void admission_place_by(struct admission *a, const char *scheduler) {
    a->scheduler = scheduler;
}

/* ---- what is asked ---- */

static int read_review(struct admission *a, const char *body, size_t len, struct asked *ret,
                       struct err *err) {
    struct json root;
    if (json_parse(a->review, body, len, &root, err) < 0)
        return err_wrap(err, "cannot read the AdmissionReview");
    struct json request = json_get(root, "request");
    const char *version = json_string_or(json_get(root, "apiVersion"), "");
    if (strcmp(version, REVIEW_VERSION) != 0 || json_type(request) != JSON_OBJECT)
        return err_set(err, EINVAL, "this is no AdmissionReview of " REVIEW_VERSION);
    *ret = (struct asked){
        .object = json_get(request, "object"),
        .before = json_get(request, "oldObject"),
        .uid = json_string(json_get(request, "uid")),
        .operation = json_string_or(json_get(request, "operation"), ""),
        .resource = json_string_or(JSON_PATH(request, "resource", "resource"), ""),
        .subresource = json_string_or(json_get(request, "subResource"), ""),
        .user = json_string_or(JSON_PATH(request, "userInfo", "username"), ""),
    };
    if (!ret->uid)
        return err_set(err, EINVAL, "the AdmissionReview has no uid");
    return 0;
}

static bool creates_pod(const struct asked *q) {
    return strcmp(q->operation, "CREATE") == 0 && strcmp(q->resource, "pods") == 0 &&
           *q->subresource == '\0';
}

/* ---- answers ---- */

static void begin_answer(struct json_writer *w, const struct asked *q, bool allowed) {
    json_object_begin(w, NULL);
    json_put_string(w, "apiVersion", REVIEW_VERSION);
    json_put_string(w, "kind", "AdmissionReview");
    json_object_begin(w, "response");
    json_put_string(w, "uid", q->uid);
    json_put_bool(w, "allowed", allowed);
}

static int end_answer(struct json_writer *w, struct err *err) {
    json_object_end(w);
    json_object_end(w);
    return buf_error(w->out) < 0 ? err_errno(err, ENOMEM, "cannot answer") : 0;
}

static int put_refusal(struct buf *out, const struct asked *q, const struct refusal *refusal,
                       struct err *err) {
    struct json_writer w = {.out = out};
    begin_answer(&w, q, refusal->code == 0);
    if (refusal->code != 0) {
        json_object_begin(&w, "status");
        json_put_u64(&w, "code", refusal->code);
        json_put_string(&w, "reason", refusal->reason);
        json_put_string(&w, "message", buf_str(&refusal->text));
        json_object_end(&w);
    }
    return end_answer(&w, err);
}

static void forbid(struct refusal *refusal) {
    refusal->code = 403;
    refusal->reason = "Forbidden";
}

/* ---- rules: each refuses, or leaves the refusal empty ---- */

static bool is_assignment(const char *key) {
    return strncmp(key, ANNOTATION_ASSIGNMENT, strlen(ANNOTATION_ASSIGNMENT)) == 0;
}

static bool is_claim(const char *key) {
    const char *prefix;
    for (size_t i = 0; (prefix = pod_claims_prefix(i)); i++)
        if (strncmp(key, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* The last annotation of those that `is_meant` that is other than in `than`; NULL: none. *ret_new
 * becomes true where `than` has none of that name. */
static const char *changed_annotation(struct json annotations, struct json than,
                                      bool (*is_meant)(const char *key), bool *ret_new) {
    struct json_iter it = json_iter(annotations);
    struct json value;
    const char *key, *found = NULL;
    while (json_next(&it, &key, &value)) {
        if (!key || !is_meant(key))
            continue;
        const char *now = json_string(value), *before = json_string(json_get(than, key));
        if (now && before && strcmp(now, before) == 0)
            continue;
        *ret_new |= !before;
        found = key;
    }
    return found;
}

/* By a Binding the scheduler writes it, by pods/status it changes what a Binding has written. */
static bool may_assign(const struct admission *a, const struct asked *q, bool only_changes) {
    return strcmp(q->user, a->writer) == 0 && strcmp(q->resource, "pods") == 0 &&
           (strcmp(q->subresource, "binding") == 0 ||
            (strcmp(q->subresource, "status") == 0 && only_changes));
}

static int check_assignment(struct admission *a, const struct asked *q, struct refusal *refusal) {
    struct json now = JSON_PATH(q->object, "metadata", "annotations");
    struct json before = JSON_PATH(q->before, "metadata", "annotations");
    bool comes_or_goes = false;
    const char *key = changed_annotation(now, before, is_assignment, &comes_or_goes);
    const char *old = changed_annotation(before, now, is_assignment, &comes_or_goes);
    if (!key)
        key = old;
    if (!key || may_assign(a, q, !comes_or_goes))
        return 0;
    forbid(refusal);
    buf_printf(&refusal->text,
               "annotation %s says which GPU a pod gets: only the Aliquot scheduler writes it, "
               "when it binds the pod",
               key);
    return 0;
}

/* Like the volumes of a pod: what it was placed for is what it has. */
static int check_claims(struct admission *a, const struct asked *q, struct refusal *refusal) {
    (void) a;
    struct json now = JSON_PATH(q->object, "metadata", "annotations");
    struct json before = JSON_PATH(q->before, "metadata", "annotations");
    bool comes_or_goes = false;
    if (creates_pod(q))
        return 0;
    const char *key = changed_annotation(now, before, is_claim, &comes_or_goes);
    if (!key)
        key = changed_annotation(before, now, is_claim, &comes_or_goes);
    if (!key)
        return 0;
    forbid(refusal);
    buf_printf(&refusal->text,
               "annotation %s says which claim a container uses: it cannot be changed, make the "
               "pod anew",
               key);
    return 0;
}

static bool requests_share(struct json containers) {
    struct json_iter it = json_iter(containers);
    struct json container, value;
    const char *key;
    while (json_next(&it, NULL, &container)) {
        struct json_iter limits = json_iter(JSON_PATH(container, "resources", "limits"));
        while (json_next(&limits, &key, &value))
            if (key && carrier_is_share(key))
                return true;
    }
    return false;
}

static int check_node_name(struct admission *a, const struct asked *q, struct refusal *refusal) {
    (void) a;
    struct json spec = json_get(q->object, "spec");
    const char *node = json_string(json_get(spec, "nodeName"));
    if (!creates_pod(q) || !node || !*node ||
        (!requests_share(json_get(spec, "containers")) &&
         !requests_share(json_get(spec, "initContainers"))))
        return 0;
    forbid(refusal);
    buf_puts(&refusal->text,
             "a pod with a share of a GPU must be placed by the scheduler: leave spec.nodeName out "
             "(a nodeSelector or affinity chooses a node)");
    return 0;
}

static void put_raw(struct json_writer *w, const char *key, struct json value) {
    _cleanup_buf_ struct buf text = BUF_INIT(POD_MAX);
    if (!json_valid(value))
        return;
    json_print(&text, value);
    json_put_raw(w, key, buf_str(&text));
    if (text.error)
        w->out->error = text.error; /* an object that was not checked must not pass */
}

static void put_containers(struct json_writer *w, const char *key, struct json containers) {
    struct json_iter it = json_iter(containers);
    struct json container;
    json_array_begin(w, key);
    while (json_next(&it, NULL, &container)) {
        json_object_begin(w, NULL);
        put_raw(w, "name", json_get(container, "name"));
        put_raw(w, "restartPolicy", json_get(container, "restartPolicy"));
        put_raw(w, "resources", json_get(container, "resources"));
        json_object_end(w);
    }
    json_array_end(w);
}

/* The pod as the scheduler will see it: at this time it has no UID and perhaps no name yet. */
static int read_as_scheduler(struct admission *a, const struct asked *q, struct pod *ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(POD_MAX);
    struct json_writer w = {.out = &text};
    struct json meta = json_get(q->object, "metadata"), spec = json_get(q->object, "spec"), pod;
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "uid", "-");
    json_put_string(&w, "name", "-");
    json_put_string(&w, "namespace", "-");
    put_raw(&w, "annotations", json_get(meta, "annotations"));
    put_raw(&w, "labels", json_get(meta, "labels"));
    json_object_end(&w);
    json_object_begin(&w, "spec");
    put_containers(&w, "initContainers", json_get(spec, "initContainers"));
    put_containers(&w, "containers", json_get(spec, "containers"));
    json_object_end(&w);
    json_object_end(&w);
    int r = buf_error(&text);
    if (r == 0)
        r = json_parse(a->pod, buf_str(&text), text.len, &pod, NULL);
    return r < 0 ? r : pod_parse(pod, ret, NULL);
}

/* "did you mean 4096Mi?", of the container's memory in bytes. */
static void suggest_memory(struct json pod, const char *container, struct buf *out) {
    static const char *const lists[] = {"containers", "initContainers"};
    struct json found;
    uint64_t bytes;
    for (size_t i = 0; i < 2; i++) {
        struct json_iter it = json_iter(JSON_PATH(pod, "spec", lists[i]));
        while (json_next(&it, NULL, &found)) {
            const char *name = json_string(json_get(found, "name"));
            const char *text =
                json_string(JSON_PATH(found, "resources", "limits", RESOURCE_MEMORY));
            if (name && text && strcmp(name, container) == 0 &&
                quantity_parse(text, strlen(text), &bytes) == 0 && bytes > 0 && bytes < MIB)
                buf_printf(out, "; did you mean %" PRIu64 "Mi?", bytes);
        }
    }
}

static int check_request(struct admission *a, const struct asked *q, struct refusal *refusal) {
    struct pod pod = {0};
    if (!creates_pod(q))
        return 0;
    int r = read_as_scheduler(a, q, &pod);
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return 0; /* no pod: the API server's own validation reports it */
    if (pod.problem != REQUEST_OK) {
        refusal->code = 422;
        refusal->reason = "Invalid";
        buf_printf(&refusal->text, "container %s: %s", pod.problem_container,
                   request_problem_text(pod.problem, pod.mixed));
        if (pod.problem == REQUEST_MEMORY_SMALL)
            suggest_memory(q->object, pod.problem_container, &refusal->text);
    }
    pod_done(&pod);
    return 0;
}

static int (*const rules[])(struct admission *, const struct asked *, struct refusal *) = {
    check_assignment,
    check_claims,
    check_node_name,
    check_request,
};

int admission_validate(struct admission *a, const char *body, size_t len, struct buf *out,
                       struct err *err) {
    struct asked q;
    struct refusal refusal = {.text = BUF_INIT((size_t) 2 * ERR_TEXT_MAX)};
    int r = read_review(a, body, len, &q, err);
    for (size_t i = 0; r == 0 && refusal.code == 0 && i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i](a, &q, &refusal) < 0)
            r = err_errno(err, ENOMEM, "cannot judge a pod");
    if (r == 0)
        r = put_refusal(out, &q, &refusal, err);
    buf_done(&refusal.text);
    return r;
}

int admission_mutate(struct admission *a, const char *body, size_t len, struct buf *out,
                     struct err *err) {
    struct asked q;
    int r = read_review(a, body, len, &q, err);
    if (r < 0)
        return r;
    _cleanup_buf_ struct buf patch = BUF_INIT(POD_MAX), base64 = BUF_INIT(2 * POD_MAX);
    if (creates_pod(&q))
        carrier_patch(q.object, a->scheduler, &patch);
    if (buf_error(&patch) < 0)
        return err_errno(err, ENOMEM, "cannot write a patch");
    struct json_writer w = {.out = out};
    begin_answer(&w, &q, true);
    if (patch.len > 0) {
        carrier_base64(&patch, &base64);
        json_put_string(&w, "patchType", "JSONPatch");
        json_put_string(&w, "patch", buf_str(&base64));
    }
    if (buf_error(&base64) < 0)
        return err_errno(err, ENOMEM, "cannot write a patch");
    return end_answer(&w, err);
}
