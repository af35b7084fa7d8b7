/* SPDX-License-Identifier: Apache-2.0 */

/* The webhook's judgement, over the same pods that tests/e2e/test_admission.py creates on a
 * cluster, and the lists in deploy/ against the table of dialects. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "admission/admission.h"
#include "admission/carrier.h"
#include "base/err.h"
#include "base/file.h"
#include "fail-malloc.h"
#include "kube/objects/pod.h"
#include "kube/objects/pod_claims.h"
#include "model/dialect.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define FILE_MAX ((size_t) 1 << 20)
#define NAME_SPACE "gpus"
#define SCHEDULER "system:serviceaccount:" NAME_SPACE ":aliquot-scheduler"

static void read_source(const char *path, struct buf *ret) {
    char full[512];
    struct err err;
    (void) snprintf(full, sizeof(full), "%s/%s", SOURCE_ROOT, path);
    if (file_read(full, FILE_MAX, ret, &err) < 0)
        fail_msg("%s", err.text);
}

/* An AdmissionReview about `object` (JSON text). */
static void write_review(struct buf *out, const char *operation, const char *resource,
                         const char *subresource, const char *user, const char *object,
                         const char *before) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "admission.k8s.io/v1");
    json_put_string(&w, "kind", "AdmissionReview");
    json_object_begin(&w, "request");
    json_put_string(&w, "uid", "u-1");
    json_put_string(&w, "operation", operation);
    json_object_begin(&w, "resource");
    json_put_string(&w, "resource", resource);
    json_object_end(&w);
    if (*subresource)
        json_put_string(&w, "subResource", subresource);
    json_object_begin(&w, "userInfo");
    json_put_string(&w, "username", user);
    json_object_end(&w);
    json_put_raw(&w, "object", object);
    json_put_raw(&w, "oldObject", before);
    json_object_end(&w);
    json_object_end(&w);
}

/* ---- the table of pods ---- */

static bool listed(struct json slots, const char *name) {
    struct json_iter it = json_iter(slots);
    struct json item;
    while (json_next(&it, NULL, &item))
        if (strcmp(json_string(item), name) == 0)
            return true;
    return false;
}

static void write_container(struct json_writer *w, struct json container, bool with_slot) {
    struct json_iter it = json_iter(JSON_PATH(container, "resources", "limits"));
    struct json value;
    const char *key;
    json_object_begin(w, NULL);
    json_put_string(w, "name", json_string(json_get(container, "name")));
    json_object_begin(w, "resources");
    json_object_begin(w, "limits");
    while (json_next(&it, &key, &value))
        json_put_string(w, key, json_string(value));
    if (with_slot)
        json_put_string(w, RESOURCE_SLOT, "1");
    json_object_end(w);
    json_object_end(w);
    json_object_end(w);
}

/* The pod as it is once the carriers are there. */
static void write_carried(struct buf *out, struct json row) {
    static const char *const lists[] = {"initContainers", "containers"};
    struct json pod = json_get(row, "pod"), container;
    const char *node = json_string(JSON_PATH(pod, "spec", "nodeName"));
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    struct json_writer w = {.out = out};
    json_print(&annotations, JSON_PATH(pod, "metadata", "annotations"));
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "uid", "u");
    json_put_string(&w, "name", "p");
    json_put_string(&w, "namespace", "d");
    if (annotations.len > 0)
        json_put_raw(&w, "annotations", buf_str(&annotations));
    json_object_end(&w);
    json_object_begin(&w, "spec");
    if (node)
        json_put_string(&w, "nodeName", node);
    for (size_t i = 0; i < 2; i++) {
        struct json_iter it = json_iter(JSON_PATH(pod, "spec", lists[i]));
        json_array_begin(&w, lists[i]);
        while (json_next(&it, NULL, &container))
            write_container(
                &w, container,
                listed(json_get(row, "slots"), json_string(json_get(container, "name"))));
        json_array_end(&w);
    }
    json_object_end(&w);
    json_object_end(&w);
}

static void check_patch(struct json row, const char *what) {
    static const char *const lists[] = {"initContainers", "containers"};
    struct json pod = json_get(row, "pod"), container;
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    carrier_patch(pod, NULL, &patch);
    for (size_t i = 0; i < 2; i++) {
        struct json_iter it = json_iter(JSON_PATH(pod, "spec", lists[i]));
        for (size_t at = 0; json_next(&it, NULL, &container); at++) {
            char step[64];
            (void) snprintf(step, sizeof(step), "/spec/%s/%zu/", lists[i], at);
            bool want = listed(json_get(row, "slots"), json_string(json_get(container, "name")));
            if ((strstr(buf_str(&patch), step) != NULL) != want)
                fail_msg("%s: %s %zu: %s", what, lists[i], at, buf_str(&patch));
        }
    }
}

static void check_verdict(struct admission *a, struct json row, const char *what) {
    const char *refused = json_string(json_get(row, "refused"));
    _cleanup_buf_ struct buf pod = BUF_INIT(0), review = BUF_INIT(0), answer = BUF_INIT(0);
    struct err err;
    write_carried(&pod, row);
    write_review(&review, "CREATE", "pods", "", "tenant", buf_str(&pod), "null");
    if (admission_validate(a, buf_str(&review), review.len, &answer, &err) < 0)
        fail_msg("%s: %s", what, err.text);
    bool allowed = strstr(buf_str(&answer), "\"allowed\":true") != NULL;
    if (allowed != !refused || (refused && !strstr(buf_str(&answer), refused)))
        fail_msg("%s: %s", what, buf_str(&answer));
}

/* Marks the dialects of the requests of an admitted pod. */
static void mark_dialects(struct json row, bool found[DIALECT_COUNT]) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json object;
    struct pod pod;
    write_carried(&text, row);
    assert_int_equal(json_open(buf_str(&text), text.len, &parser, &object, NULL), 0);
    assert_int_equal(pod_parse(object, &pod, NULL), 0);
    for (uint32_t i = 0; i < pod.request.n; i++)
        found[pod.request.containers[i].dialect] = true;
    pod_done(&pod);
}

static void test_the_table(void **state) {
    (void) state;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct admission *a = admission_new(NAME_SPACE);
    struct json table, row;
    bool found[DIALECT_COUNT] = {false};
    read_source("tests/e2e/admission-pods.json", &text);
    assert_int_equal(json_open(buf_str(&text), text.len, &parser, &table, NULL), 0);
    assert_true(json_size(table) > 40);
    struct json_iter it = json_iter(table);
    while (json_next(&it, NULL, &row)) {
        const char *what = json_string(json_get(row, "what"));
        check_patch(row, what);
        check_verdict(a, row, what);
        if (!json_string(json_get(row, "refused")))
            mark_dialects(row, found);
    }
    for (size_t d = 0; d < DIALECT_COUNT; d++)
        if (!found[d])
            fail_msg("tests/e2e/admission-pods.json: no admitted pod of %s", dialects[d].name);
    admission_free(a);
}

/* ---- patches ---- */

static void test_the_patch_puts_things_beside_others(void **state) {
    (void) state;
    static const struct {
        const char *container, *patch;
    } rows[] = {
        {"{\"name\":\"c\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-memory\":\"4Gi\"},"
         "\"requests\":{\"elasticgpu.io/gpu-memory\":\"4Gi\"}}}",
         "[{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/limits/elasticgpu.io~1slot\","
         "\"value\":\"1\"},{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/requests/"
         "elasticgpu.io~1slot\",\"value\":\"1\"}]"},
        {"{\"name\":\"c\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-memory\":\"4Gi\"}}}",
         "[{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/limits/elasticgpu.io~1slot\","
         "\"value\":\"1\"},{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/requests\","
         "\"value\":{\"elasticgpu.io/slot\":\"1\"}}]"},
        {"{\"name\":\"a\"}", ""}, /* nothing to change */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_buf_ struct buf pod = BUF_INIT(0), patch = BUF_INIT(0);
        _cleanup_json_ struct json_parser *parser = NULL;
        struct json root;
        buf_printf(&pod, "{\"spec\":{\"containers\":[%s]}}", rows[i].container);
        assert_int_equal(json_open(buf_str(&pod), pod.len, &parser, &root, NULL), 0);
        carrier_patch(root, NULL, &patch);
        assert_string_equal(buf_str(&patch), rows[i].patch);
    }
}

/* A small number of bytes was mostly meant in MiB: the refusal says so of the container that it is
 * about. */
static void test_the_refusal_suggests_a_unit(void **state) {
    (void) state;
    static const struct {
        const char *containers, *suggestion;
    } rows[] = {
        {"\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-memory\":"
         "\"4096\",\"elasticgpu.io/slot\":\"1\"}}}]",
         "container c: "},
        {"\"containers\":[{\"name\":\"a\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-memory\":"
         "\"4Gi\",\"elasticgpu.io/gpu-core\":\"10\"}}},{\"name\":\"c\",\"resources\":{\"limits\":{"
         "\"elasticgpu.io/gpu-memory\":\"4096\",\"elasticgpu.io/slot\":\"1\"}}}]",
         "container c: "},
        {"\"containers\":[{\"name\":\"a\"}],\"initContainers\":[{\"name\":\"c\",\"resources\":{"
         "\"limits\":{\"elasticgpu.io/gpu-memory\":\"4096\",\"elasticgpu.io/slot\":\"1\"}}}]",
         "container c: "},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct admission *a = admission_new(NAME_SPACE);
        _cleanup_buf_ struct buf review = BUF_INIT(0), answer = BUF_INIT(0);
        char pod[512];
        (void) snprintf(pod, sizeof(pod), "{\"spec\":{%s}}", rows[i].containers);
        write_review(&review, "CREATE", "pods", "", "tenant", pod, "null");
        assert_int_equal(admission_validate(a, buf_str(&review), review.len, &answer, NULL), 0);
        assert_non_null(strstr(buf_str(&answer), "\"code\":422,\"reason\":\"Invalid\""));
        assert_non_null(strstr(buf_str(&answer), rows[i].suggestion));
        const char *meant = strstr(buf_str(&answer), "; did you mean 4096Mi?");
        assert_non_null(meant);
        assert_null(strstr(meant + 3, "; did you mean"));
        admission_free(a);
    }
}

/* The API server takes a patch only together with its type. */
static void test_the_answer_names_the_type_of_its_patch(void **state) {
    (void) state;
    static const struct {
        const char *resources;
        bool patched;
    } rows[] = {{"\"elasticgpu.io/gpu-memory\":\"4Gi\"", true}, {"\"cpu\":\"1\"", false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct admission *a = admission_new(NAME_SPACE);
        _cleanup_buf_ struct buf review = BUF_INIT(0), answer = BUF_INIT(0);
        char pod[256];
        (void) snprintf(
            pod, sizeof(pod),
            "{\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{%s}}}]}}",
            rows[i].resources);
        write_review(&review, "CREATE", "pods", "", "tenant", pod, "null");
        assert_int_equal(admission_mutate(a, buf_str(&review), review.len, &answer, NULL), 0);
        assert_non_null(strstr(buf_str(&answer), "\"allowed\":true"));
        assert_int_equal(strstr(buf_str(&answer), "\"patchType\":\"JSONPatch\"") != NULL,
                         rows[i].patched);
        assert_int_equal(strstr(buf_str(&answer), "\"patch\":\"") != NULL, rows[i].patched);
        admission_free(a);
    }
}

/* KAI's annotation is for the first app container, and for no init container. */
static void test_the_patch_gives_a_fraction_to_the_first_app_container(void **state) {
    (void) state;
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    static const char pod[] = "{\"metadata\":{\"annotations\":{\"gpu-fraction\":\"0.5\"}},"
                              "\"spec\":{\"initContainers\":[{\"name\":\"i\"}],"
                              "\"containers\":[{\"name\":\"a\"},{\"name\":\"b\"}]}}";
    struct json root;
    assert_int_equal(json_open(pod, strlen(pod), &parser, &root, NULL), 0);
    carrier_patch(root, NULL, &patch);
    assert_non_null(strstr(buf_str(&patch), "/spec/containers/0/"));
    assert_null(strstr(buf_str(&patch), "/spec/containers/1/"));
    assert_null(strstr(buf_str(&patch), "/spec/initContainers/"));
}

/* Only a pod that asks for a share and does not name another scheduler itself. */
static void test_the_patch_names_the_scheduler(void **state) {
    (void) state;
    static const char share[] = "\"resources\":{\"limits\":{\"elasticgpu.io/gpu-core\":\"10\"}}";
    static const struct {
        const char *what, *annotations, *spec;
        bool named;
    } rows[] = {
        {"none", "", "\"containers\":[{\"name\":\"c\",%s}]", true},
        {"empty", "", "\"schedulerName\":\"\",\"containers\":[{\"name\":\"c\",%s}]", true},
        {"default", "",
         "\"schedulerName\":\"default-scheduler\",\"containers\":[{\"name\":\"c\",%s}]", true},
        {"init container", "",
         "\"containers\":[{\"name\":\"c\"}],\"initContainers\":[{\"name\":\"i\",%s}]", true},
        {"annotation", "\"gpu-fraction\":\"0.5\"", "\"containers\":[{\"name\":\"c\"}]", true},
        {"claim", "\"egpuc.elasticgpu.io/c\":\"x\"", "\"containers\":[{\"name\":\"c\"}]", true},
        {"another", "", "\"schedulerName\":\"volcano\",\"containers\":[{\"name\":\"c\",%s}]",
         false},
        {"no share", "", "\"containers\":[{\"name\":\"c\"}]", false},
        {"0", "",
         "\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"0\"}}}]",
         false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_buf_ struct buf pod = BUF_INIT(0), patch = BUF_INIT(0), left = BUF_INIT(0);
        _cleanup_json_ struct json_parser *parser = NULL;
        struct json root;
        const char *hole = strstr(rows[i].spec, "%s");
        int before = hole ? (int) (hole - rows[i].spec) : (int) strlen(rows[i].spec);
        buf_printf(&pod, "{\"metadata\":{\"annotations\":{%s}},\"spec\":{%.*s%s%s}}",
                   rows[i].annotations, before, rows[i].spec, hole ? share : "",
                   hole ? hole + 2 : "");
        assert_int_equal(json_open(buf_str(&pod), pod.len, &parser, &root, NULL), 0);
        carrier_patch(root, "own", &patch);
        if ((strstr(buf_str(&patch), "{\"op\":\"add\",\"path\":\"/spec/schedulerName\","
                                     "\"value\":\"own\"}") != NULL) != rows[i].named)
            fail_msg("%s: %s", rows[i].what, buf_str(&patch));
        carrier_patch(root, NULL, &left);
        assert_null(strstr(buf_str(&left), "schedulerName"));
    }
}

/* The answer to a review has it once the webhook is told the name. */
static void test_the_answer_names_the_scheduler(void **state) {
    (void) state;
    static const char pod[] =
        "{\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"
        "\"elasticgpu.io/gpu-core\":\"10\"}}}]}}";
    struct admission *a = admission_new(NAME_SPACE);
    for (int named = 0; named < 2; named++) {
        _cleanup_buf_ struct buf review = BUF_INIT(0), answer = BUF_INIT(0);
        write_review(&review, "CREATE", "pods", "", "tenant", pod, "null");
        admission_place_by(a, named ? "own" : NULL);
        assert_int_equal(admission_mutate(a, buf_str(&review), review.len, &answer, NULL), 0);
        assert_int_equal(strstr(buf_str(&answer), "\"patch\":\"") != NULL, named);
    }
    admission_free(a);
}

/* kubectl debug --copy-to, backups: the annotations of another pod. */
static void test_the_patch_drops_an_assignment(void **state) {
    (void) state;
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    static const char pod[] = "{\"metadata\":{\"annotations\":{\"elasticgpu.io/assignment\":\"{}\","
                              "\"a/b\":\"c\",\"elasticgpu.io/assignment-signature\":\"x\"}},"
                              "\"spec\":{\"containers\":[{\"name\":\"c\"}]}}";
    struct json root;
    assert_int_equal(json_open(pod, strlen(pod), &parser, &root, NULL), 0);
    carrier_patch(root, NULL, &patch);
    assert_string_equal(
        buf_str(&patch),
        "[{\"op\":\"remove\",\"path\":\"/metadata/annotations/elasticgpu.io~1assignment\"},"
        "{\"op\":\"remove\",\"path\":\"/metadata/annotations/"
        "elasticgpu.io~1assignment-signature\"}]");
}

static void test_base64(void **state) {
    (void) state;
    static const char *const rows[][2] = {
        {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob\xff", "Zm9vYv8="}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_buf_ struct buf text = BUF_INIT(0), out = BUF_INIT(0);
        buf_puts(&text, rows[i][0]);
        carrier_base64(&text, &out);
        assert_string_equal(buf_str(&out), rows[i][1]);
    }
}

/* ---- the four doors to an assignment ---- */

static bool allowed(const char *operation, const char *resource, const char *subresource,
                    const char *user, const char *object, const char *before) {
    struct admission *a = admission_new(NAME_SPACE);
    _cleanup_buf_ struct buf review = BUF_INIT(0), answer = BUF_INIT(0);
    write_review(&review, operation, resource, subresource, user, object, before);
    assert_int_equal(admission_validate(a, buf_str(&review), review.len, &answer, NULL), 0);
    assert_non_null(strstr(buf_str(&answer), "\"uid\":\"u-1\""));
    admission_free(a);
    bool allowed = strstr(buf_str(&answer), "\"allowed\":true") != NULL;
    assert_true(allowed || strstr(buf_str(&answer), "\"code\":403,\"reason\":\"Forbidden\""));
    return allowed;
}

#define WITH(value) "{\"metadata\":{\"annotations\":{\"elasticgpu.io/assignment\":\"" value "\"}}}"
#define WITHOUT "{\"metadata\":{\"annotations\":{\"other\":\"x\"}}}"

static void test_who_may_write_assignments(void **state) {
    (void) state;
    assert_true(allowed("CREATE", "pods", "binding", SCHEDULER, WITH("a"), "null"));
    assert_false(allowed("CREATE", "pods", "binding", "tenant", WITH("a"), "null"));
    assert_false(allowed("CREATE", "pods", "binding",
                         "system:serviceaccount:aliquot-system:aliquot-scheduler", WITH("a"),
                         "null"));
    assert_false(allowed("CREATE", "bindings", "", SCHEDULER, WITH("a"), "null"));
    assert_false(allowed("CREATE", "bindings", "", "tenant", WITH("a"), "null"));
    assert_false(allowed("UPDATE", "pods", "", SCHEDULER, WITH("a"), WITHOUT));
    assert_false(allowed("UPDATE", "pods", "status", "tenant", WITH("b"), WITH("a")));
    assert_true(allowed("UPDATE", "pods", "status", SCHEDULER, WITH("b"), WITH("a")));
    assert_false(allowed("UPDATE", "pods", "status", SCHEDULER, WITH("b"), WITHOUT));
    assert_false(allowed("UPDATE", "pods", "status", SCHEDULER, WITHOUT, WITH("a")));
    assert_false(allowed("UPDATE", "pods", "", SCHEDULER, WITH("b"), WITH("a")));
    assert_false(allowed("UPDATE", "pods", "ephemeralcontainers", "tenant", WITHOUT, WITH("a")));
    assert_true(allowed("UPDATE", "pods", "status", "tenant", WITH("a"), WITH("a")));
    assert_true(allowed("UPDATE", "pods", "", "tenant", WITHOUT, "{\"metadata\":{}}"));
    /* A request is judged once, when the pod is made. */
    assert_true(allowed("UPDATE", "pods", "", "tenant",
                        "{\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":"
                        "{\"elasticgpu.io/gpu-core\":\"150\"}}}]}}",
                        "{}"));
}

#define TWO_CLAIMS(first, second)                                                                  \
    "{\"metadata\":{\"annotations\":{\"egpuc-a\":\"" first "\",\"egpuc-b\":\"" second "\"}}}"
#define CLAIM(key, value) "{\"metadata\":{\"annotations\":{\"" key "c\":\"" value "\"}}}"

/* They are said when the pod is made, and stay. */
static void test_claims_cannot_be_changed(void **state) {
    (void) state;
    static const char *const users[] = {"tenant", SCHEDULER};
    for (size_t i = 0; i < 2; i++) {
        const char *user = users[i], *one = CLAIM("egpuc-", "a");
        assert_false(allowed("UPDATE", "pods", "", user, CLAIM("egpuc-", "b"), one));
        assert_false(allowed("UPDATE", "pods", "status", user, one, WITHOUT));
        assert_false(allowed("UPDATE", "pods", "", user, WITHOUT, one));
        assert_false(allowed("CREATE", "pods", "binding", user, one, "null"));
        assert_false(allowed("CREATE", "bindings", "", user, one, "null"));
        assert_false(allowed("UPDATE", "pods", "", user, CLAIM("egpuct.elasticgpu.io/", "{}"),
                             CLAIM("egpuct.elasticgpu.io/", "{ }")));
        assert_false(
            allowed("UPDATE", "pods", "", user, TWO_CLAIMS("x", "z"), TWO_CLAIMS("x", "y")));
        assert_true(allowed("UPDATE", "pods", "status", user, one, one));
        assert_true(allowed("UPDATE", "pods", "", user, CLAIM("other/", "b"), WITHOUT));
    }
}

/* Under every spelling of the annotation that names a claim. */
static void test_no_spelling_of_a_claim_can_be_changed(void **state) {
    (void) state;
    size_t n = 0;
    for (const char *prefix; (prefix = pod_claims_prefix(n)); n++) {
        char one[256], other[256];
        (void) snprintf(one, sizeof(one), "{\"metadata\":{\"annotations\":{\"%sc\":\"a\"}}}",
                        prefix);
        (void) snprintf(other, sizeof(other), "{\"metadata\":{\"annotations\":{\"%sc\":\"b\"}}}",
                        prefix);
        assert_false(allowed("UPDATE", "pods", "", "tenant", other, one));
        assert_false(allowed("UPDATE", "pods", "", "tenant", one, WITHOUT));
        assert_false(allowed("UPDATE", "pods", "", "tenant", WITHOUT, one));
        assert_true(allowed("UPDATE", "pods", "", "tenant", one, one));
    }
    assert_true(n > 1);
}

/* ---- what is no review ---- */

static void test_no_review(void **state) {
    (void) state;
    static const char *const bodies[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"apiVersion\":\"admission.k8s.io/v1\"}",
        "{\"apiVersion\":\"admission.k8s.io/v1beta1\",\"request\":{\"uid\":\"u\"}}",
        "{\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{\"uid\":5}}"};
    struct admission *a = admission_new(NAME_SPACE);
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        _cleanup_buf_ struct buf answer = BUF_INIT(0);
        struct err err = {0};
        assert_true(admission_validate(a, bodies[i], strlen(bodies[i]), &answer, &err) < 0);
        assert_true(strlen(err.text) > 0 && answer.len == 0);
        assert_true(admission_mutate(a, bodies[i], strlen(bodies[i]), &answer, &err) < 0);
    }
    admission_free(a);
}

static const char gpu_pod[] =
    "{\"metadata\":{\"annotations\":{\"elasticgpu.io/compute-policy\":\"burst\"}},\"spec\":"
    "{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-memory\":"
    "\"100\"}}}]}}";

static void test_memory_runs_out(void **state) {
    (void) state;
    for (size_t nth = 1;; nth++) {
        _cleanup_buf_ struct buf review = BUF_INIT(0), answer = BUF_INIT(0), patched = BUF_INIT(0);
        write_review(&review, "CREATE", "pods", "", "tenant", gpu_pod, "null");
        fail_malloc_at(nth);
        struct admission *a = admission_new(NAME_SPACE);
        int r = a ? 0 : -ENOMEM;
        if (r == 0)
            r = admission_mutate(a, buf_str(&review), review.len, &patched, NULL);
        if (r == 0)
            r = admission_validate(a, buf_str(&review), review.len, &answer, NULL);
        admission_free(a);
        if (!fail_malloc_end()) {
            assert_int_equal(r, 0);
            break;
        }
        if (r < 0)
            assert_int_equal(r, -ENOMEM);
        else /* what could not be looked at is not let through */
            assert_non_null(strstr(buf_str(&answer), "\"allowed\":false"));
    }
}

/* ---- deploy/ says the same names ---- */

/* One name between quotes from *at on, before `end`; false: there is none. */
static bool next_name(const char **at, const char *end, char ret[static 128]) {
    const char *quote = strchr(*at, '\'');
    if (!quote || quote >= end)
        return false;
    const char *close = strchr(quote + 1, '\'');
    assert_true(close && (size_t) (close - quote) <= 128);
    (void) snprintf(ret, 128, "%.*s", (int) (close - quote - 1), quote + 1);
    *at = close + 1;
    return true;
}

typedef bool (*choice)(const struct dialect *d, const struct dialect_quantity *q);

/* Checks one list, from `at` up to the first `]`: the names of all dialects that `is_meant`, and
 * `others` more of which it says nothing. `only`: of that dialect alone; NULL: of all. */
static void check_list(const char *file, const char *at, choice is_meant,
                       const struct dialect *only, size_t others) {
    const char *end = strchr(at, ']'), *walk = at;
    size_t found = 0, known = 0;
    char name[128];
    assert_non_null(end);
    while (next_name(&walk, end, name))
        found++;
    for (size_t i = 0; i < dialect_quantities_count; i++) {
        char quoted[128];
        const struct dialect_quantity *q = &dialect_quantities[i];
        const struct dialect *d = &dialects[q->dialect];
        if ((only && d != only) || !is_meant(d, q))
            continue;
        known++;
        (void) snprintf(quoted, sizeof(quoted), "'%s'", q->name);
        const char *there = strstr(at, quoted);
        if (!there || there > end)
            fail_msg("%s: %.40s... does not name %s", file, at, q->name);
    }
    if (found != known + others)
        fail_msg("%s: %.40s... has %zu names, not %zu", file, at, found, known + others);
}

static bool is_any(const struct dialect *d, const struct dialect_quantity *q) {
    (void) d, (void) q;
    return true;
}

static bool is_share(const struct dialect *d, const struct dialect_quantity *q) {
    (void) d;
    return carrier_is_share(q->name);
}

static bool is_percent(const struct dialect *d, const struct dialect_quantity *q) {
    return q->kind == QUANTITY_CORE && !d->zero_is_unset;
}

static bool is_step(const struct dialect *d, const struct dialect_quantity *q) {
    return is_percent(d, q) && !d->divides;
}

static bool is_percent_of_each(const struct dialect *d, const struct dialect_quantity *q) {
    (void) d;
    return q->kind == QUANTITY_CORE_EACH || q->kind == QUANTITY_CORE_OFFLINE;
}

static bool is_strict(const struct dialect *d, const struct dialect_quantity *q) {
    return !d->zero_is_unset && q->kind != QUANTITY_MEMORY;
}

static bool is_in_bytes(const struct dialect *d, const struct dialect_quantity *q) {
    (void) d;
    return q->kind == QUANTITY_MEMORY && q->unit == 1;
}

/* Leaves one blank where there is white space. */
static void squeeze(struct buf *text) {
    size_t len = 0;
    for (size_t i = 0; i < text->len; i++) {
        bool blank = strchr(" \n\t", text->data[i]) != NULL;
        if (!blank || (len > 0 && text->data[len - 1] != ' '))
            text->data[len++] = blank ? ' ' : text->data[i];
    }
    text->data[len] = '\0';
    text->len = len;
}

static void test_the_lists_in_deploy(void **state) {
    (void) state;
    static const char first[] =
        "['" RESOURCE_CORE "', '" RESOURCE_MEMORY "', '" RESOURCE_COUNT "', '" RESOURCE_TFLOPS "',";
    static const struct {
        const char *file;
        unsigned lists;
    } files[] = {{"deploy/base/policy-pods.yaml", 3},
                 {"deploy/webhook/webhook.yaml", 2},
                 {"deploy/own-scheduler/policy-scheduler-name.yaml", 1}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        unsigned n = 0;
        read_source(files[i].file, &text);
        squeeze(&text);
        for (const char *at = buf_str(&text); (at = strstr(at, first)); at++, n++)
            check_list(files[i].file, at, is_share, NULL, 1); /* and the carrier */
        assert_int_equal(n, files[i].lists);
    }
}

static bool has_quantities(size_t dialect) {
    for (size_t i = 0; i < dialect_quantities_count; i++)
        if (dialect_quantities[i].dialect == dialect)
            return true;
    return false;
}

static void test_the_kinds_of_names_in_the_policy(void **state) {
    (void) state;
    static const char file[] = "deploy/base/policy-pods.yaml";
    static const struct {
        const char *variable;
        choice is_meant;
    } lists[] = {{"- name: percent ", is_percent},
                 {"- name: steps ", is_step},
                 {"- name: each ", is_percent_of_each},
                 {"- name: strict ", is_strict},
                 {"- name: bytes ", is_in_bytes}};
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    read_source(file, &text);
    squeeze(&text);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        const char *at = strstr(buf_str(&text), lists[i].variable);
        assert_non_null(at);
        check_list(file, strchr(at, '['), lists[i].is_meant, NULL, 0);
    }
    const char *at = strstr(buf_str(&text), "- name: dialects ");
    assert_non_null(at);
    at = strchr(at, '[') + 1; /* a list of lists: those with names, in the order of the table */
    for (size_t i = 0; i < DIALECT_COUNT; i++) {
        if (!has_quantities(i))
            continue;
        at = strchr(at, '[');
        assert_non_null(at);
        check_list(file, at, is_any, &dialects[i], 0);
        at = strchr(at, ']') + 1;
    }
    assert_true(*at == ']');
}

/* The lists of prefixes that begin like the first one, each in quotes after `before`. */
static void check_prefixes(const char *file, const char *before, unsigned lists) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    const char *prefix;
    read_source(file, &text);
    squeeze(&text);
    for (size_t p = 0; (prefix = pod_claims_prefix(p)); p++) {
        char quoted[128];
        unsigned n = 0;
        (void) snprintf(quoted, sizeof(quoted), "%s'%s'", before, prefix);
        for (const char *at = buf_str(&text); (at = strstr(at, quoted)); at++)
            n++;
        if (n != lists)
            fail_msg("%s has %s %u times, not %u", file, quoted, n, lists);
    }
}

static void test_the_claims_in_deploy(void **state) {
    (void) state;
    check_prefixes("deploy/base/policy-pods.yaml", "", 4);
    check_prefixes("deploy/base/policy-assignment.yaml", "", 2);
    check_prefixes("deploy/webhook/webhook.yaml", "", 3);
    check_prefixes("deploy/own-scheduler/policy-scheduler-name.yaml", "", 1);
}

/* The last test: what is left stays left. Only the third container is ours. */
static void test_names_that_others_serve(void **state) {
    (void) state;
    static const char text[] =
        "{\"metadata\":{\"annotations\":{\"gpu-fraction\":\"0.5\"}},\"spec\":{\"containers\":["
        "{\"name\":\"a\"},{\"name\":\"b\",\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"1\","
        "\"nvidia.com/gpumem\":\"3000\"}}},{\"name\":\"c\",\"resources\":{\"limits\":{"
        "\"aliyun.com/gpu-mem\":\"3\",\"nvidia.com/gpu\":\"1\"}}}]}}";
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;
    struct err err;
    assert_true(carrier_is_share("nvidia.com/gpu"));
    assert_int_equal(dialect_leave("nvidia.com/gpu,gpu-fraction", &err), 0);
    assert_false(carrier_is_share("nvidia.com/gpu"));
    assert_true(carrier_is_share("nvidia.com/gpu.shared"));
    assert_int_equal(json_open(text, sizeof(text) - 1, &parser, &root, NULL), 0);
    carrier_patch(root, NULL, &patch);
    assert_string_equal(
        buf_str(&patch),
        "[{\"op\":\"add\",\"path\":\"/spec/containers/2/resources/limits/elasticgpu.io~1slot\","
        "\"value\":\"1\"},{\"op\":\"add\",\"path\":\"/spec/containers/2/resources/requests\","
        "\"value\":{\"elasticgpu.io/slot\":\"1\"}}]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table),
        cmocka_unit_test(test_the_patch_puts_things_beside_others),
        cmocka_unit_test(test_the_answer_names_the_type_of_its_patch),
        cmocka_unit_test(test_the_refusal_suggests_a_unit),
        cmocka_unit_test(test_the_patch_names_the_scheduler),
        cmocka_unit_test(test_the_answer_names_the_scheduler),
        cmocka_unit_test(test_the_patch_drops_an_assignment),
        cmocka_unit_test(test_the_patch_gives_a_fraction_to_the_first_app_container),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_who_may_write_assignments),
        cmocka_unit_test(test_claims_cannot_be_changed),
        cmocka_unit_test(test_no_spelling_of_a_claim_can_be_changed),
        cmocka_unit_test(test_no_review),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_the_lists_in_deploy),
        cmocka_unit_test(test_the_kinds_of_names_in_the_policy),
        cmocka_unit_test(test_the_claims_in_deploy),
        cmocka_unit_test(test_names_that_others_serve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
