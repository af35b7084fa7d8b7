/* SPDX-License-Identifier: Apache-2.0 */

/* The objects that the claims controller makes, changes and protects, and how it reads them. */

#include "claims-writes-world.h"

#define NOTE(key, value) "\"" key "\":\"" value "\""

/* ---- what is made ---- */

#define OF_WHOLE_CLASS                                                                             \
    "{\"metadata\":{\"name\":\"k\",\"uid\":\"3\",\"resourceVersion\":\"1\"},"                      \
    "\"provisioner\":\"elasticgpu.io/physical-gpu\",\"reclaimPolicy\":\"Retain\"}"

#define MADE(provisioner, core, policy, source)                                                    \
    "{\"apiVersion\":\"elasticgpu.io/v1alpha1\",\"kind\":\"ElasticGPU\",\"metadata\":{\"name\":"   \
    "\"egpu-1\",\"finalizers\":[\"" EGPU_FINALIZER "\"],\"annotations\":{"                         \
    "\"" NOTE_PROVISIONED_BY "\":\"" provisioner "\",\"" NOTE_BOUND_BY_US "\":\"yes\"}},"          \
    "\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":\"" core                                   \
    "\"},\"elasticGPUClassName\":\"k\","                                                           \
    "\"reclaimPolicy\":\"" policy "\"," source ",\"claimRef\":{\"apiVersion\":"                    \
    "\"elasticgpu.io/v1alpha1\",\"kind\":\"ElasticGPUClaim\",\"namespace\":\"ns\",\"name\":\"c\"," \
    "\"uid\":\"1\"},\"nodeAffinity\":{\"required\":{\"nodeSelectorTerms\":[{\"matchFields\":[{"    \
    "\"key\":\"metadata.name\",\"operator\":\"In\",\"values\":[\"node-a\"]}]}]}}}}"

/* An ElasticGPU that is made for a claim names it, its source, its node and who is to delete it. */
static void an_egpu_is_made_for_a_claim(void **state) {
    static const struct {
        const char *class, *claim;
        uint32_t cards;
        const char *body;
    } rows[] = {
        {CLASS(""), CLAIM("", 10, OF_CLASS("k"), ""), 1,
         MADE("elasticgpu.io/qgpu", "10", "Delete", "\"qGPU\":{\"gpuName\":\"gpu-a\"}")},
        {OF_WHOLE_CLASS, CLAIM("", 200, OF_CLASS("k"), ""), 2,
         MADE("elasticgpu.io/physical-gpu", "200", "Retain",
              "\"physicalGPU\":{\"gpuNames\":[\"gpu-a\",\"gpu-b\"]}")},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        w->cards = rows[i].cards;
        show(w, CLAIMS_CLASSES, rows[i].class);
        show(w, CLAIMS_CLAIMS, rows[i].claim);
        assert_int_equal(plan(w, T0), 1);
        assert_string_equal(w->writes[0].method, "POST");
        assert_string_equal(w->writes[0].path, EGPUS_PATH);
        assert_string_equal(w->writes[0].key, "new:ns/c");
        assert_string_equal(w->writes[0].body, rows[i].body);
        assert_int_equal(plan(w, T0 + 1999), 0);
        assert_int_equal(plan(w, T0 + 2000), 1);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* The claim of a template has its name, its spec, and the pod as its owner, with which it goes. */
static void a_claim_is_made_of_a_template(void **state) {
    struct world *w = *state;
    show_pod(w, POD("\"egpuct.elasticgpu.io/main\":\"{\\\"elasticGPUClassName\\\":\\\"k\\\"}\"",
                    CONTAINER("main")));
    assert_int_equal(plan(w, T0), 1);
    assert_string_equal(w->writes[0].method, "POST");
    assert_string_equal(w->writes[0].path,
                        "/apis/elasticgpu.io/v1alpha1/namespaces/ns/elasticgpuclaims");
    assert_string_equal(w->writes[0].key, "pod:uid-p");
    assert_string_equal(w->writes[0].body,
                        "{\"apiVersion\":\"elasticgpu.io/v1alpha1\",\"kind\":\"ElasticGPUClaim\","
                        "\"metadata\":{\"name\":\"p-main\",\"ownerReferences\":[{\"apiVersion\":"
                        "\"v1\",\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"uid-p\",\"controller\":"
                        "true}]},\"spec\":{\"elasticGPUClassName\":\"k\"}}");
}

/* A template that is no object is reported once, and makes nothing. */
static void a_template_that_is_no_object_is_reported(void **state) {
    static const char *const pods[] = {
        POD("\"egpuct.elasticgpu.io/main\":\"[]\"", CONTAINER("main")),
        POD("\"egpuct.elasticgpu.io/main\":\"{\"", CONTAINER("main")),
    };
    for (size_t i = 0; i < 2; i++) {
        struct world *w = *state;
        show_pod(w, pods[i]);
        for (uint64_t now = T0; now < T0 + 10000; now += 2000)
            assert_int_equal(plan(w, now), 0);
        assert_string_equal(w->events, "Warning Pod p ClaimTemplateInvalid;");
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

#define FAILED(message)                                                                            \
    "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"Bound\",\"status\":\"False\",\"reason\":"   \
    "\"ProvisioningFailed\",\"message\":\"" message "\"}]"

/* For a claim without room the next search comes after 2 s, 4 s and so on up to 32 s. */
static void searches_become_rare(void **state) {
    struct world *w = *state;
    uint64_t now = T0;
    show(w, CLAIMS_CLASSES, CLASS(""));
    show(w, CLAIMS_CLAIMS, CLAIM("", 10, OF_CLASS("k"), FAILED("no room")));
    assert_int_equal(plan(w, now), 0);
    for (unsigned tries = 0; tries < 8; tries++) {
        uint64_t wait = UINT64_C(2000) << (tries < 4 ? tries : 4);
        assert_int_equal(w->searches, tries + 1);
        (void) plan(w, now + wait - 1);
        assert_int_equal(w->searches, tries + 1);
        (void) plan(w, now += wait);
    }
    /* A claim of the same name that is made anew is searched for at once. */
    show(w, CLAIMS_CLAIMS,
         "{\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\",\"uid\":\"2\",\"resourceVersion\":"
         "\"2\",\"finalizers\":[\"" CLAIM_FINALIZER "\"]},\"spec\":{\"resources\":{\"requests\":{"
         "\"elasticgpu.io/gpu-core\":10}}" OF_CLASS("k") "},\"status\":{" FAILED("no room") "}}");
    w->searches = 0;
    (void) plan(w, now + 1);
    assert_int_equal(w->searches, 1);
}

/* A node without room is given back to the scheduler, so that it selects another one. */
static void a_selected_node_without_room_is_given_back(void **state) {
    struct world *w = *state;
    show(w, CLAIMS_CLASSES, CLASS(",\"bindingMode\":\"WaitForFirstConsumer\""));
    show(w, CLAIMS_CLAIMS, CLAIM(NOTE(NOTE_SELECTED_NODE, "node-a"), 10, OF_CLASS("k"), ""));
    assert_int_equal(plan(w, T0), 1);
    assert_string_equal(body_of(w, "claim:ns/c"),
                        "{\"metadata\":{\"resourceVersion\":\"1\",\"annotations\":{"
                        "\"" NOTE_SELECTED_NODE "\":null}}}");
    assert_string_equal(w->events, "Warning ElasticGPUClaim c ProvisioningFailed;");
    assert_int_equal(w->searches, 1);
}

/* ---- what is changed ---- */

#define AMOUNT(core, memory)                                                                       \
    "{\"elasticgpu.io/gpu-core\":\"" #core "\",\"elasticgpu.io/gpu-memory\":\"" #memory "Gi\"}"

/* A claim only grows: what it asks less of it keeps. */
static void a_claim_grows_in_each_amount(void **state) {
    static const struct {
        const char *have, *want, *capacity;
    } rows[] = {
        {AMOUNT(10, 4), AMOUNT(20, 4), AMOUNT(20, 4)},
        {AMOUNT(10, 4), AMOUNT(10, 8), AMOUNT(10, 8)},
        {AMOUNT(10, 4), AMOUNT(20, 8), AMOUNT(20, 8)},
        {AMOUNT(10, 4), AMOUNT(20, 2), AMOUNT(20, 4)},
        {AMOUNT(10, 4), AMOUNT(5, 8), AMOUNT(10, 8)},
        {AMOUNT(10, 4), AMOUNT(5, 2), NULL},
        {AMOUNT(10, 4), AMOUNT(10, 4), NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        char text[1024], patch[256];
        show(w, CLAIMS_CLASSES, CLASS(",\"allowExpansion\":true"));
        snprintf(text, sizeof(text),
                 "{\"metadata\":{\"name\":\"g\",\"uid\":\"7\",\"resourceVersion\":\"1\","
                 "\"finalizers\":[\"" EGPU_FINALIZER "\"]},\"spec\":{\"capacity\":%s,\"qGPU\":{"
                 "\"gpuName\":\"gpu-a\"}" OF_CLASS("k") REF("c", "1") "},\"status\":{" BOUND "}}",
                 rows[i].have);
        show(w, CLAIMS_EGPUS, text);
        snprintf(text, sizeof(text),
                 "{\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\",\"uid\":\"1\","
                 "\"resourceVersion\":\"1\",\"finalizers\":[\"" CLAIM_FINALIZER "\"],"
                 "\"annotations\":{" COMPLETED
                 "}},\"spec\":{\"resources\":{\"requests\":%s}" OF_CLASS("k")
                     NAMED("g") "},\"status\":{" BOUND ",\"capacity\":%s}}",
                 rows[i].want, rows[i].have);
        show(w, CLAIMS_CLAIMS, text);
        (void) plan(w, T0);
        snprintf(patch, sizeof(patch),
                 "{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"capacity\":%s}}",
                 rows[i].capacity ? rows[i].capacity : "");
        const char *body = body_of(w, "gpu:g");
        assert_string_equal(body ? body : "none", rows[i].capacity ? patch : "none");
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* The status of a bound claim names the cards and the node. */
static void a_bound_claim_says_where_it_is(void **state) {
    static const struct {
        const char *core, *source, *message;
    } rows[] = {
        {"10", "\"qGPU\":{\"gpuName\":\"gpu-a\"}", "ElasticGPU g: GPU gpu-a\""},
        {"10", "\"qGPU\":{}", "ElasticGPU g: GPU ?\""},
        {"200", "\"physicalGPU\":{\"gpuNames\":[\"gpu-a\",\"gpu-b\"]}",
         "ElasticGPU g: GPU gpu-a and others\""},
        {"10",
         "\"qGPU\":{\"gpuName\":\"gpu-a\"},\"nodeAffinity\":{\"required\":{"
         "\"nodeSelectorTerms\":[{\"matchFields\":[{\"key\":\"metadata.name\",\"operator\":"
         "\"In\",\"values\":[\"node-a\"]}]}]}}",
         "ElasticGPU g: GPU gpu-a of node node-a\""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        char text[1024];
        snprintf(text, sizeof(text),
                 "{\"metadata\":{\"name\":\"g\",\"uid\":\"7\",\"resourceVersion\":\"1\","
                 "\"finalizers\":[\"" EGPU_FINALIZER "\"]},\"spec\":{\"capacity\":{"
                 "\"elasticgpu.io/gpu-core\":%s},%s" REF("c", "1") "},\"status\":{" BOUND "}}",
                 rows[i].core, rows[i].source);
        show(w, CLAIMS_EGPUS, text);
        show(w, CLAIMS_CLAIMS, CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), ""));
        (void) plan(w, T0);
        const char *body = body_of(w, "claim:ns/c");
        assert_non_null(body);
        if (!strstr(body, rows[i].message))
            fail_msg("%s: %s", rows[i].message, body);
        assert_non_null(strstr(body, "\"phase\":\"Bound\""));
        assert_non_null(strstr(body, "\"type\":\"Bound\",\"status\":\"True\""));
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* ---- what is protected ---- */

#define WITHOUT_FINALIZER "{\"metadata\":{\"resourceVersion\":\"1\",\"finalizers\":[]}}"

/* An ElasticGPU that is deleted stays as long as the claim that it is bound to. */
static void a_bound_egpu_is_not_deleted(void **state) {
    static const struct {
        const char *ref, *claim;
        bool kept;
    } rows[] = {
        {"", NULL, false},
        {REF("c", "1"), NULL, false},
        {REF("c", "1"), CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), ""), true},
        {REF("c", "2"), CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), ""), false},
        {REF("c", "1"), CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("h"), ""), false},
        {REF("d", "1"), CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), ""), false},
        {"", CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), ""), false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        char text[1024];
        snprintf(
            text, sizeof(text),
            "{\"metadata\":{\"name\":\"g\",\"uid\":\"7\",\"resourceVersion\":\"1\","
            "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",\"finalizers\":[\"" EGPU_FINALIZER
            "\"]},\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":10},\"qGPU\":{\"gpuName\":"
            "\"gpu-a\"}%s},\"status\":{" BOUND "}}",
            rows[i].ref);
        show(w, CLAIMS_EGPUS, text);
        if (rows[i].claim)
            show(w, CLAIMS_CLAIMS, rows[i].claim);
        (void) plan(w, T0);
        const char *body = body_of(w, "gpu:g");
        if ((body != NULL) == rows[i].kept)
            fail_msg("row %zu: %s", i, body ? body : "nothing is written");
        if (body)
            assert_string_equal(body, WITHOUT_FINALIZER);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

#define POD_OF(namespace, claim, node)                                                             \
    "{\"metadata\":{\"uid\":\"uid-p\",\"name\":\"p\",\"namespace\":\"" namespace "\","             \
                                                                                 "\"annotations\"" \
                                                                                 ":{\"egpuc."      \
                                                                                 "elasticgpu.io/"  \
                                                                                 "main\":\"" claim \
                                                                                 "\"}},\"spec\":"  \
                                                                                 "{" node          \
                                                                                 "\"containers\":" \
                                                                                 "[" CONTAINER(    \
                                                                                     "main") "]}}"
#define ON_NODE "\"nodeName\":\"node-a\","

/* A claim that is deleted stays as long as a pod that has it, and not for one that only waits. */
static void a_claim_in_use_is_not_deleted(void **state) {
    static const struct {
        const char *pod, *begun;
        bool kept;
    } rows[] = {
        {NULL, NULL, false},
        {POD_OF("ns", "c", ON_NODE), NULL, true},
        {POD_OF("ns", "c", ""), NULL, false},
        {POD_OF("ns", "c", ""), "uid-p", true},
        {POD_OF("ns", "c", ""), "uid-q", false},
        {POD_OF("ns", "d", ON_NODE), NULL, false},
        {POD_OF("other", "c", ON_NODE), NULL, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        w->begun = rows[i].begun;
        if (rows[i].pod)
            show_pod(w, rows[i].pod);
        show(w, CLAIMS_CLAIMS, CLAIM(DELETED(""), 10, OF_CLASS(""), ""));
        (void) plan(w, T0);
        const char *body = body_of(w, "claim:ns/c");
        if ((body != NULL) == rows[i].kept)
            fail_msg("row %zu: %s", i, body ? body : "nothing is written");
        if (body)
            assert_string_equal(body, WITHOUT_FINALIZER);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* The finalizer is there before anything else is done, and the others stay. */
static void an_object_is_protected_first(void **state) {
    struct world *w = *state;
    show(w, CLAIMS_CLAIMS,
         "{\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\",\"uid\":\"1\",\"resourceVersion\":"
         "\"1\","
         "\"finalizers\":[\"a/b\"]},\"spec\":{}}");
    show(w, CLAIMS_EGPUS,
         "{\"metadata\":{\"name\":\"g\",\"uid\":\"7\",\"resourceVersion\":\"1\"},\"spec\":{}}");
    assert_int_equal(plan(w, T0), 2);
    assert_string_equal(
        body_of(w, "claim:ns/c"),
        "{\"metadata\":{\"resourceVersion\":\"1\",\"finalizers\":[\"a/b\",\"" CLAIM_FINALIZER
        "\"]}}");
    assert_string_equal(body_of(w, "gpu:g"),
                        "{\"metadata\":{\"resourceVersion\":\"1\",\"finalizers\":[\"" EGPU_FINALIZER
                        "\"]}}");
}

/* ---- how objects are read ---- */

static void classes_are_read(void **state) {
    static const struct {
        const char *text;
        uint32_t pods;
        bool retain, wait, expansion, is_default;
    } rows[] = {
        {"", 1, false, false, false, false},
        {",\"podsPerClaim\":0", 1, false, false, false, false},
        {",\"podsPerClaim\":1", 1, false, false, false, false},
        {",\"podsPerClaim\":2", 2, false, false, false, false},
        {",\"podsPerClaim\":100", 100, false, false, false, false},
        {",\"podsPerClaim\":101", 1, false, false, false, false},
        {",\"reclaimPolicy\":\"Retain\"", 1, true, false, false, false},
        {",\"reclaimPolicy\":\"Delete\"", 1, false, false, false, false},
        {",\"reclaimPolicy\":null,\"elasticGPUReclaimPolicy\":\"Retain\"", 1, true, false, false,
         false},
        {",\"bindingMode\":\"WaitForFirstConsumer\"", 1, false, true, false, false},
        {",\"volumeBindingMode\":\"WaitForFirstConsumer\"", 1, false, true, false, false},
        {",\"bindingMode\":\"Immediate\"", 1, false, false, false, false},
        {",\"allowExpansion\":true", 1, false, false, true, false},
        {",\"allowVolumeExpansion\":true", 1, false, false, true, false},
        {",\"allowExpansion\":false", 1, false, false, false, false},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_json_ struct json_parser *p = NULL;
        struct json root;
        struct egpu_class class;
        char text[512];
        snprintf(text, sizeof(text),
                 "{\"metadata\":{\"name\":\"k\",\"uid\":\"3\",\"resourceVersion\":\"1\"},"
                 "\"parameters\":{\"a\":\"b\",\"ab\":\"c\",\"n\":5}%s}",
                 rows[i].text);
        assert_int_equal(json_open(text, strlen(text), &p, &root, NULL), 0);
        assert_int_equal(egpu_class_parse(root, &class, NULL), 0);
        assert_int_equal(class.pods, rows[i].pods);
        assert_int_equal(class.retain, rows[i].retain);
        assert_int_equal(class.wait_consumer, rows[i].wait);
        assert_int_equal(class.expansion, rows[i].expansion);
        assert_int_equal(class.is_default, rows[i].is_default);
        assert_string_equal(egpu_class_parameter(&class, "a"), "b");
        assert_string_equal(egpu_class_parameter(&class, "ab"), "c");
        assert_null(egpu_class_parameter(&class, "n"));
        assert_null(egpu_class_parameter(&class, ""));
        egpu_class_done(&class);
    }
}

static void egpus_are_read(void **state) {
    static const struct {
        const char *spec, *status;
        const char *source, *card, *node;
        uint32_t cards;
        bool native, reserved, holds;
    } rows[] = {
        {"\"capacity\":{\"elasticgpu.io/gpu-core\":10},\"qGPU\":{\"gpuName\":\"a\"}", "", "qGPU",
         "a", "", 1, true, false, false},
        {"\"gpuShare\":{\"gpuName\":\"a\"}", BOUND, "gpuShare", "a", "", 1, true, false, true},
        {"\"qGPU\":{},\"gpuShare\":{}", AVAILABLE, NULL, "", "", 0, true, false, true},
        {"\"qGPU\":null", "\"phase\":\"Released\"", NULL, "", "", 0, true, false, true},
        {"\"physicalGPU\":{\"gpuNames\":[\"a\",5,\"b\"]}", "\"phase\":\"Pending\"", "physicalGPU",
         "a", "", 2, true, false, false},
        {"\"physicalGPU\":{\"gpuNames\":[]}", "\"phase\":\"Failed\"", "physicalGPU", "", "", 0,
         true, false, false},
        {"\"capacity\":{\"tke.cloud.tencent.com/qgpu-core\":10}", "\"phase\":\"Odd\"", NULL, "", "",
         0, false, false, false},
        {"\"claimRef\":{\"name\":\"c\",\"namespace\":\"ns\"}", "", NULL, "", "", 0, true, true,
         false},
        {"\"claimRef\":{\"name\":\"c\"}", "", NULL, "", "", 0, true, false, false},
        {"\"claimRef\":{\"namespace\":\"c\"}", "", NULL, "", "", 0, true, false, false},
        {"\"nodeAffinity\":{\"required\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":"
         "\"kubernetes.io/hostname\",\"operator\":\"In\",\"values\":[\"x\",\"y\"]}]}]}}",
         "", NULL, "", "x", 0, true, false, false},
        {"\"nodeAffinity\":{\"required\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":"
         "\"kubernetes.io/hostname\",\"operator\":\"NotIn\",\"values\":[\"x\"]}]}]}}",
         "", NULL, "", "", 0, true, false, false},
        {"\"nodeAffinity\":{\"required\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":"
         "\"zone\",\"operator\":\"In\",\"values\":[\"x\"]}]}]}}",
         "", NULL, "", "", 0, true, false, false},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_json_ struct json_parser *p = NULL;
        struct json root;
        struct egpu e;
        char text[1024];
        snprintf(text, sizeof(text),
                 "{\"metadata\":{\"name\":\"g\",\"uid\":\"7\",\"resourceVersion\":\"1\"},"
                 "\"spec\":{%s},\"status\":{%s}}",
                 rows[i].spec, rows[i].status);
        assert_int_equal(json_open(text, strlen(text), &p, &root, NULL), 0);
        assert_int_equal(egpu_parse(root, &e, NULL), 0);
        assert_string_equal(e.source ? e.source : "", rows[i].source ? rows[i].source : "");
        assert_int_equal(e.ncards, rows[i].cards);
        assert_string_equal(e.ncards > 0 ? e.cards[0] : "", rows[i].card);
        assert_string_equal(e.node, rows[i].node);
        assert_int_equal(e.native, rows[i].native);
        assert_int_equal(e.reserved, rows[i].reserved);
        assert_string_equal(e.claim_name, rows[i].reserved ? "c" : "");
        assert_string_equal(e.claim_namespace, rows[i].reserved ? "ns" : "");
        assert_int_equal(egpu_holds(&e), rows[i].holds);
        egpu_done(&e);
    }
}

/* No more cards are read than a request can have. */
static void many_cards_are_cut(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *p = NULL;
    struct json root;
    struct egpu e;
    (void) state;
    buf_puts(&text, "{\"metadata\":{\"name\":\"g\",\"uid\":\"7\",\"resourceVersion\":\"1\"},"
                    "\"spec\":{\"physicalGPU\":{\"gpuNames\":[\"0\"");
    for (int i = 1; i < CLAIM_CARDS_MAX + 6; i++)
        buf_printf(&text, ",\"%d\"", i);
    buf_puts(&text, "]}}}");
    assert_int_equal(json_open(buf_str(&text), text.len, &p, &root, NULL), 0);
    assert_int_equal(egpu_parse(root, &e, NULL), 0);
    assert_int_equal(e.ncards, CLAIM_CARDS_MAX);
    assert_string_equal(e.cards[CLAIM_CARDS_MAX - 1], "63");
    egpu_done(&e);
}

static void claims_are_read(void **state) {
    static const struct {
        const char *meta, *spec, *status;
        const char *owner, *class, *problem;
        uint32_t core;
        bool has_class;
        enum claim_phase phase;
        uint32_t granted;
    } rows[] = {
        {"", "\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":10}}", "", "", "", "", 10,
         false, CLAIM_NONE, 0},
        {"", "\"resources\":{\"limits\":{\"elasticgpu.io/gpu-core\":20}}", "\"phase\":\"Pending\"",
         "", "", "", 20, false, CLAIM_PENDING, 0},
        {"",
         "\"resources\":{\"requests\":{},\"limits\":{\"elasticgpu.io/gpu-core\":20}},"
         "\"storageClassName\":\"k\"",
         GRANTED(20), "", "k", "", 20, true, CLAIM_BOUND, 20},
        {"", "\"elasticGPUClassName\":\"\"", "\"phase\":\"Lost\"", "", "", "nothing of a GPU", 0,
         true, CLAIM_LOST, 0},
        {"",
         "\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":10}},\"selector\":{"
         "\"matchExpressions\":5}",
         "\"phase\":\"\"", "", "", "", 10, false, CLAIM_NONE, 0},
        {",\"ownerReferences\":[{\"controller\":true,\"kind\":\"Pod\",\"apiVersion\":\"v1\","
         "\"uid\":\"u\"}]",
         "\"elasticGPUClassName\":null,\"egpuClassName\":\"k\"", "", "u", "k", "nothing of a GPU",
         0, true, CLAIM_NONE, 0},
        {",\"ownerReferences\":[{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"uid\":\"u\"}]", "", "",
         "", "", "nothing of a GPU", 0, false, CLAIM_NONE, 0},
        {",\"ownerReferences\":[{\"controller\":true,\"kind\":\"Job\",\"apiVersion\":\"v1\","
         "\"uid\":\"u\"}]",
         "", "", "", "", "nothing of a GPU", 0, false, CLAIM_NONE, 0},
        {",\"ownerReferences\":[{\"controller\":true,\"kind\":\"Pod\",\"apiVersion\":\"v2\","
         "\"uid\":\"u\"}]",
         "", "", "", "", "nothing of a GPU", 0, false, CLAIM_NONE, 0},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_json_ struct json_parser *p = NULL;
        struct json root;
        struct egpu_claim c;
        char text[1024];
        snprintf(text, sizeof(text),
                 "{\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\",\"uid\":\"1\","
                 "\"resourceVersion\":\"1\"%s},\"spec\":{%s},\"status\":{%s}}",
                 rows[i].meta, rows[i].spec, rows[i].status);
        assert_int_equal(json_open(text, strlen(text), &p, &root, NULL), 0);
        assert_int_equal(egpu_claim_parse(root, &c, NULL), 0);
        assert_string_equal(c.owner_pod, rows[i].owner);
        assert_string_equal(c.class, rows[i].class);
        assert_int_equal(c.has_class, rows[i].has_class);
        if (rows[i].problem[0] && !strstr(c.problem, rows[i].problem))
            fail_msg("row %zu: %s", i, c.problem);
        assert_int_equal(c.request.core, rows[i].core);
        assert_int_equal(c.phase, rows[i].phase);
        assert_int_equal(c.granted.core, rows[i].granted);
        egpu_claim_done(&c);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_egpu_is_made_for_a_claim),
        TEST(a_claim_is_made_of_a_template),
        TEST(a_template_that_is_no_object_is_reported),
        TEST(searches_become_rare),
        TEST(a_selected_node_without_room_is_given_back),
        TEST(a_claim_grows_in_each_amount),
        TEST(a_bound_claim_says_where_it_is),
        TEST(a_bound_egpu_is_not_deleted),
        TEST(a_claim_in_use_is_not_deleted),
        TEST(an_object_is_protected_first),
        cmocka_unit_test(classes_are_read),
        cmocka_unit_test(egpus_are_read),
        cmocka_unit_test(many_cards_are_cut),
        cmocka_unit_test(claims_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
