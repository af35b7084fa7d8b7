/* SPDX-License-Identifier: Apache-2.0 */

/* Each write of the claims controller by itself: its condition, its body and its repetition. The
 * test answers the writes, and its watches show nothing that it does not say. */

#include "claims-writes-world.h"
#include "fail-malloc.h"

/* ---- tests ---- */

/* Whatever allocation fails, the event is an error, so that the objects are listed again, and
 * nothing of the object is lost (address sanitizer). */
static void an_object_without_memory_is_refused(void **state) {
#define META                                                                                       \
    "\"metadata\":{\"name\":\"k\",\"namespace\":\"ns\",\"uid\":\"3\",\"resourceVersion\":\"1\","   \
    "\"labels\":{\"a\":\"b\"},\"finalizers\":[\"x\",\"y\"]}"
    static const struct {
        enum claims_kind kind;
        const char *text;
    } rows[] = {
        {CLAIMS_CLASSES, "{" META ",\"provisioner\":\"p\",\"parameters\":{\"a\":\"b\"}}"},
        {CLAIMS_EGPUS, "{" META ",\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":10},"
                       "\"qGPU\":{\"gpuName\":\"gpu-a\"}}}"},
        {CLAIMS_CLAIMS, "{" META ",\"spec\":{\"resources\":{\"requests\":{"
                        "\"elasticgpu.io/gpu-core\":10}},\"selector\":{\"matchLabels\":{"
                        "\"a\":\"b\"}}}}"},
    };
#undef META
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_json_ struct json_parser *p = NULL;
        struct world *w = *state;
        struct json root;
        struct err err;
        size_t refused = 0;
        int r = -ENOMEM;
        assert_int_equal(json_open(rows[i].text, strlen(rows[i].text), &p, &root, &err), 0);
        while (r < 0) {
            fail_malloc_at(refused + 1);
            r = claims_seen(w->claims, rows[i].kind, root, &err);
            assert_int_equal(r, fail_malloc_end() ? -ENOMEM : 0);
            refused += r < 0;
        }
        assert_in_range(refused, 2, 100);
    }
}

/* An ElasticGPU is offered to a claim again only when the watch has not shown the first offer in
 * time. */
static void an_offer_is_repeated_when_it_is_not_shown(void **state) {
    struct world *w = *state;
    show(w, CLAIMS_EGPUS, EGPU("g", "", 10, "", AVAILABLE));
    show(w, CLAIMS_CLAIMS, CLAIM("", 10, OF_CLASS(""), ""));
    assert_int_equal(plan(w, T0), 1);
    assert_non_null(strstr(body_of(w, "gpu:g"), "\"claimRef\":{"));
    assert_int_equal(plan(w, T0 + SHOWN_MS - 1), 0);
    assert_int_equal(plan(w, T0 + SHOWN_MS), 1);
    assert_non_null(strstr(body_of(w, "gpu:g"), "\"claimRef\":{"));
}

static void show_one_that_grows(struct world *w) {
    show(w, CLAIMS_CLASSES,
         "{\"metadata\":{\"name\":\"k\",\"uid\":\"3\",\"resourceVersion\":\"1\"},"
         "\"provisioner\":\"elasticgpu.io/qgpu\",\"allowExpansion\":true}");
    show(w, CLAIMS_EGPUS, EGPU("g", "", 10, OF_CLASS("k") REF("c", "1"), "\"phase\":\"Bound\""));
    show(w, CLAIMS_CLAIMS,
         CLAIM("\"elasticgpu.io/bind-completed\":\"yes\"", 20, OF_CLASS("k") NAMED("g"),
               "\"phase\":\"Bound\",\"capacity\":{\"elasticgpu.io/gpu-core\":\"10\"}"));
}

static void a_larger_capacity_is_written_again_when_it_is_not_shown(void **state) {
    struct world *w = *state;
    show_one_that_grows(w);
    assert_int_equal(plan(w, T0), 1);
    assert_non_null(strstr(body_of(w, "gpu:g"), "\"elasticgpu.io/gpu-core\":\"20\""));
    assert_int_equal(plan(w, T0 + SHOWN_MS - 1), 0);
    assert_int_equal(plan(w, T0 + SHOWN_MS), 1);
}

/* Each reason for which a claim cannot have the ElasticGPU that it names is in its status. */
static void a_claim_says_why_it_cannot_have_what_it_names(void **state) {
    static const struct {
        const char *egpu, *message;
    } rows[] = {
        {NULL, "ElasticGPU g does not exist"},
        {EGPU("g", "", 10, REF("other", "2"), AVAILABLE), "ElasticGPU g belongs to claim ns/other"},
        {EGPU("g", "", 5, "", AVAILABLE), "ElasticGPU g is too small or of another class"},
        {EGPU("g", "", 10, OF_CLASS("k"), AVAILABLE),
         "ElasticGPU g is too small or of another class"},
        {EGPU("g", "", 10, "", "\"phase\":\"Released\",\"reason\":\"ClaimGone\",\"message\":\"m\""),
         "ElasticGPU g is not available: m"},
        {EGPU("g", "", 10, "", "\"phase\":\"Failed\",\"reason\":\"NoRoom\",\"message\":\"m\""),
         "ElasticGPU g is not available: m"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        if (rows[i].egpu)
            show(w, CLAIMS_EGPUS, rows[i].egpu);
        show(w, CLAIMS_CLAIMS, CLAIM("", 10, OF_CLASS("") NAMED("g"), ""));
        (void) plan(w, T0);
        const char *body = body_of(w, "claim:ns/c"), *offer = body_of(w, "gpu:g");
        if (!body || !strstr(body, "\"NoMatch\"") || !strstr(body, rows[i].message))
            fail_msg("%s: %s", rows[i].message, body ? body : "nothing is written");
        assert_true(!offer || !strstr(offer, "claimRef"));
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* A status is written when its message is new, even if the reason is the same. */
static void a_new_message_is_written_for_the_same_reason(void **state) {
    struct world *w = *state;
    show(w, CLAIMS_CLAIMS, CLAIM("", 10, OF_CLASS("") NAMED("g"), PENDING("something else")));
    assert_int_equal(plan(w, T0), 1);
    assert_non_null(strstr(body_of(w, "claim:ns/c"), "ElasticGPU g does not exist"));
}

static void the_same_message_is_not_written_again(void **state) {
    struct world *w = *state;
    show(w, CLAIMS_CLAIMS,
         CLAIM("", 10, OF_CLASS("") NAMED("g"), PENDING("ElasticGPU g does not exist")));
    assert_int_equal(plan(w, T0), 0);
}

/* A write that the API server refuses is repeated sooner than one whose effect is not shown. */
static void a_refused_write_of_a_claim_is_repeated_soon(void **state) {
    struct world *w = *state;
    show(w, CLAIMS_CLAIMS, CLAIM("", 10, OF_CLASS("") NAMED("g"), ""));
    assert_int_equal(plan(w, T0), 1);
    claims_written(w->claims, "claim:ns/c", 500, NULL, "later", T0);
    assert_int_equal(plan(w, T0 + FAILED_MS - 1), 0);
    assert_int_equal(plan(w, T0 + FAILED_MS), 1);
}

/* A pod that cannot be kept is an error, so that the pods are listed again. */
static void a_pod_without_memory_is_refused(void **state) {
    struct world *w = *state;
    _cleanup_json_ struct json_parser *p = NULL;
    static const char text[] = POD("\"egpuc.elasticgpu.io/main\":\"c\"", CONTAINER("main"));
    struct json root;
    struct pod pod;
    size_t failures = 0;
    assert_int_equal(json_open(text, strlen(text), &p, &root, NULL), 0);
    assert_int_equal(pod_parse(root, &pod, NULL), 0);
    for (int r = -ENOMEM; r < 0; failures += r < 0) {
        fail_malloc_at(failures + 1);
        r = claims_pod_seen(w->claims, &pod);
        assert_int_equal(r, fail_malloc_end() ? -ENOMEM : 0);
    }
    assert_in_range(failures, 3, 20);
    claims_sync_begin(w->claims, CLAIMS_PODS);
    pod.finished = true;
    assert_int_equal(claims_pod_seen(w->claims, &pod), 0);
    assert_null(claims_pod_find(w->claims, "uid-p"));
    pod_done(&pod);
}

/* A write that was accepted is repeated only after the watch had its time, unlike one that failed.
 */
static void an_accepted_write_waits_for_the_watch(void **state) {
    static const struct {
        int status;
        uint64_t wait_ms;
    } rows[] = {{200, SHOWN_MS},  {201, SHOWN_MS},  {204, SHOWN_MS},  {0, FAILED_MS},
                {302, FAILED_MS}, {403, FAILED_MS}, {409, FAILED_MS}, {500, FAILED_MS}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        show(w, CLAIMS_EGPUS, EGPU("g", "", 10, "", ""));
        assert_int_equal(plan(w, T0), 1);
        claims_written(w->claims, "gpu:g", rows[i].status, NULL, NULL, T0);
        assert_int_equal(plan(w, T0 + rows[i].wait_ms - 1), 0);
        assert_int_equal(plan(w, T0 + rows[i].wait_ms), 1);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* The API server may answer when the object is gone, or with a key of another version of Aliquot.
 */
static void an_answer_about_nothing_is_ignored(void **state) {
    static const char *const keys[] = {"gpu:none", "claim:ns/none", "new:ns/none",
                                       "pod:none", "ask:none/1",    "ask:none",
                                       "",         "none"};
    static const int statuses[] = {200, 404, 409, 500};
    struct world *w = *state;
    show(w, CLAIMS_EGPUS, EGPU("g", "", 10, "", AVAILABLE));
    assert_int_equal(plan(w, T0), 0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        for (size_t j = 0; j < sizeof(statuses) / sizeof(statuses[0]); j++) {
            claims_written(w->claims, keys[i], statuses[j], "1", "why", T0);
            assert_true(claims_has_news(w->claims));
            assert_int_equal(plan(w, T0), 0);
            assert_string_equal(w->events, "");
        }
}

/* What an operator sees in the Events of the objects: problems are warnings, the rest is not. */
static void each_status_has_its_event(void **state) {
    static const struct {
        const char *class, *egpu, *claim, *events;
        bool full, unsettled;
    } rows[] = {
        {NULL, EGPU("g", "", 10, "", ""), NULL, "", false, false},
        {NULL, EGPU("g", "", 10, "", ""), NULL, "Warning ElasticGPU g NoRoom;", true, false},
        {NULL, EGPU("g", "", 200, "", ""), NULL, "Warning ElasticGPU g Malformed;", false, false},
        {NULL, NULL, CLAIM("", 10, OF_CLASS(""), ""), "Warning ElasticGPUClaim c NoMatch;", false,
         false},
        {NULL, NULL, CLAIM("", 10, OF_CLASS("k"), ""), "Warning ElasticGPUClaim c NoClass;", false,
         false},
        {CLASS(",\"bindingMode\":\"WaitForFirstConsumer\""), NULL, CLAIM("", 10, OF_CLASS("k"), ""),
         "Normal ElasticGPUClaim c WaitForFirstConsumer;", false, false},
        {CLASS(""), NULL, CLAIM("", 10, OF_CLASS("k"), ""),
         "Warning ElasticGPUClaim c ProvisioningFailed;", false, false},
        {NULL, EGPU("g", "", 10, REF("c", "1"), AVAILABLE),
         CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), ""), "Normal ElasticGPUClaim c Bound;",
         false, false},
        {NULL, NULL, CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), GRANTED(10)),
         "Warning ElasticGPUClaim c ClaimLost;", false, false},
        {NULL, EGPU("g", "", 10, ",\"claimRef\":{\"namespace\":\"ns\",\"name\":\"other\"}", BOUND),
         CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), GRANTED(10)),
         "Warning ElasticGPUClaim c ClaimMisbound;", false, false},
        {CLASS(""), EGPU("g", "", 10, OF_CLASS("k") REF("c", "1"), BOUND),
         CLAIM(COMPLETED, 20, OF_CLASS("k") NAMED("g"), GRANTED(10)),
         "Warning ElasticGPUClaim c NotAllowed;", false, false},
        {CLASS(",\"allowExpansion\":true"), EGPU("g", "", 10, OF_CLASS("k") REF("c", "1"), BOUND),
         CLAIM(COMPLETED, 20, OF_CLASS("k") NAMED("g"), GRANTED(10)),
         "Warning ElasticGPUClaim c NoRoom;", true, false},
        {CLASS(",\"allowExpansion\":true"), EGPU("g", "", 20, OF_CLASS("k") REF("c", "1"), BOUND),
         CLAIM(COMPLETED, 20, OF_CLASS("k") NAMED("g"), GRANTED(10)),
         "Normal ElasticGPUClaim c InProgress;", false, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        w->full = rows[i].full;
        w->unsettled = rows[i].unsettled;
        if (rows[i].class)
            show(w, CLAIMS_CLASSES, rows[i].class);
        if (rows[i].egpu)
            show(w, CLAIMS_EGPUS, rows[i].egpu);
        if (rows[i].claim)
            show(w, CLAIMS_CLAIMS, rows[i].claim);
        (void) plan(w, T0);
        if (strcmp(w->events, rows[i].events) != 0)
            fail_msg("row %zu: %s", i, w->events);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* The API server says that the claim is gone, or that another one has its name. */
static void an_egpu_without_its_claim_is_released(void **state) {
    static const struct {
        int status;
        const char *uid, *events;
    } rows[] = {
        {404, NULL, "Normal ElasticGPU g ClaimGone;"},
        {200, "2", "Normal ElasticGPU g ClaimGone;"},
        {200, "1", ""},
        {200, NULL, ""},
        {500, NULL, ""},
        {0, NULL, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        bool gone = rows[i].events[0] != '\0';
        show(w, CLAIMS_EGPUS, EGPU("g", "", 10, REF("c", "1"), BOUND));
        assert_int_equal(plan(w, T0), 1);
        claims_written(w->claims, "ask:g/1", rows[i].status, rows[i].uid, NULL, T0);
        assert_int_equal(plan(w, T0 + FAILED_MS - 1), gone);
        assert_string_equal(w->events, rows[i].events);
        if (!gone)
            assert_int_equal(plan(w, T0 + FAILED_MS), 1); /* asks again */
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* An ElasticGPU that nothing has said anything about for ten minutes is evaluated again, in case an
 * event was missed. */
static void everything_is_evaluated_every_ten_minutes(void **state) {
    enum { ALL_MS = 600000 };
    struct world *w = *state;
    show(w, CLAIMS_EGPUS, EGPU("g", "", 10, "", AVAILABLE));
    assert_int_equal(plan(w, T0), 0);
    claims_egpu_find(w->claims, "g")->o.has_phase = false;
    assert_int_equal(plan(w, T0 + ALL_MS - 1), 0);
    assert_int_equal(plan(w, T0 + ALL_MS), 1);
    assert_non_null(strstr(body_of(w, "gpu:g"), AVAILABLE));
}

/* Only the version that the controller has seen, of that very object. */
static void an_egpu_is_deleted_on_condition(void **state) {
    struct world *w = *state;
    show(
        w, CLAIMS_EGPUS,
        EGPU("g", "", 10, REF("c", "1") ",\"reclaimPolicy\":\"Delete\"", "\"phase\":\"Released\""));
    assert_int_equal(plan(w, T0), 1);
    claims_written(w->claims, "ask:g/1", 404, NULL, NULL, T0);
    assert_int_equal(plan(w, T0), 1);
    assert_string_equal(w->writes[0].method, "DELETE");
    assert_string_equal(w->writes[0].path, EGPUS_PATH "/g");
    assert_string_equal(w->writes[0].body,
                        "{\"preconditions\":{\"uid\":\"7\",\"resourceVersion\":\"1\"}}");
    assert_int_equal(plan(w, T0 + SHOWN_MS - 1), 0);
    assert_int_equal(plan(w, T0 + SHOWN_MS), 1);
}

#define WITH_WORD(reason, message) ",\"reason\":\"" reason "\",\"message\":\"" message "\""
#define CONDITIONS(resize)                                                                         \
    ",\"conditions\":[{\"type\":\"Bound\",\"status\":\"True\",\"reason\":\"Bound\","               \
    "\"message\":\"ElasticGPU g: GPU gpu-a\"}" resize "]"
#define NOT_ALLOWED                                                                                \
    ",{\"type\":\"Resizing\",\"status\":\"False\",\"reason\":\"NotAllowed\",\"message\":\"its "    \
    "class "                                                                                       \
    "does not say allowExpansion: true; make a larger claim\"}"

/* Of thousands of objects most are at rest: a pass evaluates the others only. */
static void what_is_at_rest_is_not_evaluated(void **state) {
    static const struct {
        const char *egpu, *claim;
        bool full, egpu_calm, claim_calm;
    } rows[] = {
        {EGPU("g", "", 10, "", AVAILABLE), NULL, false, true, false},
        {EGPU("g", "", 10, ",\"claimRef\":{\"namespace\":\"ns\",\"name\":\"c\"}",
              AVAILABLE WITH_WORD("", "kept for the claim that claimRef names")),
         NULL, false, true, false},
        {EGPU("g", "", 10, "", "\"phase\":\"Pending\"" WITH_WORD("NoRoom", "no room")), NULL, true,
         false, false},
        {EGPU("g", "", 200, "", "\"phase\":\"Failed\""), NULL, false, false, false},
        {EGPU("g", "", 10, REF("c", "1"), BOUND),
         CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), GRANTED(10) CONDITIONS("")), false, true,
         true},
        {EGPU("g", DELETED(""), 10, REF("c", "1"), BOUND),
         CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), GRANTED(10) CONDITIONS("")), false, false,
         true},
        {EGPU("g", "", 10, OF_CLASS("k") REF("c", "1"), BOUND),
         CLAIM(COMPLETED, 20, OF_CLASS("k") NAMED("g"), GRANTED(10) CONDITIONS(NOT_ALLOWED)), false,
         true, false},
        {NULL, CLAIM("", 10, OF_CLASS("") NAMED("g"), PENDING("ElasticGPU g does not exist")),
         false, false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        w->full = rows[i].full;
        show(w, CLAIMS_CLASSES, CLASS(""));
        if (rows[i].egpu)
            show(w, CLAIMS_EGPUS, rows[i].egpu);
        if (rows[i].claim)
            show(w, CLAIMS_CLAIMS, rows[i].claim);
        (void) plan(w, T0);
        (void) plan(w, T0 + SHOWN_MS);
        const struct egpu_item *e = claims_egpu_find(w->claims, "g");
        const struct claim_item *claim = claims_claim_find(w->claims, "ns/c");
        if (e && e->calm != rows[i].egpu_calm)
            fail_msg("row %zu: the ElasticGPU is %sat rest", i, e->calm ? "" : "not ");
        if (claim && claim->calm != rows[i].claim_calm)
            fail_msg("row %zu: the claim is %sat rest", i, claim->calm ? "" : "not ");
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* The watch of claims may be behind: the API server is asked before an ElasticGPU is released. */
static void a_claim_that_is_not_known_is_looked_up(void **state) {
    struct world *w = *state;
    show(w, CLAIMS_EGPUS, EGPU("g", "", 10, REF("c", "1"), AVAILABLE));
    assert_int_equal(plan(w, T0), 1);
    assert_string_equal(w->writes[0].method, "GET");
    assert_string_equal(w->writes[0].key, "ask:g/1");
}

/* The claim is bound to another ElasticGPU: the controller takes back what it wrote, and leaves the
 * name that an administrator wrote. */
static void a_reference_to_a_claim_that_is_bound_elsewhere_is_taken_back(void **state) {
    static const struct {
        const char *egpu, *body;
    } rows[] = {
        {EGPU("g", "\"" NOTE_BOUND_BY_US "\":\"yes\"", 10, REF("c", "1"), AVAILABLE),
         "{\"metadata\":{\"resourceVersion\":\"1\",\"annotations\":{\"" NOTE_BOUND_BY_US
         "\":null}},\"spec\":{\"claimRef\":null}}"},
        {EGPU("g", "", 10, REF("c", "1"), AVAILABLE),
         "{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"claimRef\":{\"uid\":null}}}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        show(w, CLAIMS_EGPUS, rows[i].egpu);
        show(w, CLAIMS_CLAIMS,
             CLAIM("\"elasticgpu.io/bind-completed\":\"yes\"", 10, OF_CLASS("") NAMED("h"), ""));
        (void) plan(w, T0);
        assert_non_null(body_of(w, "gpu:g"));
        assert_string_equal(body_of(w, "gpu:g"), rows[i].body);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

static void a_node_is_selected_on_condition_of_the_version(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf path = BUF_INIT(0), body = BUF_INIT(0);
    show(w, CLAIMS_CLAIMS, CLAIM("", 10, "", ""));
    claims_select(claims_find(w->claims, "ns", "c"), "node-a", &path, &body);
    assert_string_equal(buf_str(&path),
                        "/apis/elasticgpu.io/v1alpha1/namespaces/ns/elasticgpuclaims/c");
    assert_string_equal(buf_str(&body), "{\"metadata\":{\"resourceVersion\":\"1\",\"annotations\":{"
                                        "\"" NOTE_SELECTED_NODE "\":\"node-a\"}}}");
}

/* Of several default classes the newest counts, and of equally old ones the first by name, in
 * whatever order they are shown. */
static void the_newest_default_class_counts(void **state) {
    static const struct {
        const char *name, *created;
        bool is_default;
    } classes[] = {{"old", "2026-01-01T00:00:00Z", true},
                   {"b", "2026-01-02T00:00:00Z", true},
                   {"a", "2026-01-02T00:00:00Z", true},
                   {"c", "2026-01-02T00:00:00Z", true},
                   {"none", "2026-01-03T00:00:00Z", false}};
    static const size_t n = sizeof(classes) / sizeof(classes[0]);
    for (size_t first = 0; first < n; first++)
        for (size_t step = 1; step < n; step++) {
            struct world *w = *state;
            assert_null(claims_default_class(w->claims));
            for (size_t i = 0; i < n; i++) {
                size_t at = (first + i * step) % n;
                char text[512];
                snprintf(text, sizeof(text),
                         "{\"metadata\":{\"name\":\"%s\",\"uid\":\"3\",\"resourceVersion\":\"1\","
                         "\"creationTimestamp\":\"%s\",\"annotations\":{\"" NOTE_DEFAULT_CLASS
                         "\":\"%s\"}},\"provisioner\":\"p\"}",
                         classes[at].name, classes[at].created,
                         classes[at].is_default ? "true" : "false");
                show(w, CLAIMS_CLASSES, text);
            }
            assert_string_equal(claims_default_class(w->claims)->meta.name, "a");
            assert_int_equal(teardown(state), 0);
            assert_int_equal(setup(state), 0);
        }
}

/* ---- what containers get ---- */

#define FROM_TEMPLATE POD("\"egpuct.elasticgpu.io/main\":\"{}\"", CONTAINER("main"))

/* A claim of a template that the API server refuses is tried again after 2 s, 4 s and so on up to
 * 64 s, each time with an Event where the template or a quota is the reason. */
static void a_refused_template_is_retried_less_and_less(void **state) {
    static const struct {
        int status;
        const char *event;
    } rows[] = {{403, "Warning Pod p ClaimNotMade;"},
                {422, "Warning Pod p ClaimNotMade;"},
                {500, ""},
                {503, ""}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = *state;
        uint64_t now = T0;
        show_pod(w, FROM_TEMPLATE);
        assert_int_equal(plan(w, now), 1);
        assert_string_equal(w->writes[0].method, "POST");
        for (int tries = 0; tries < 9; tries++) {
            uint64_t wait = UINT64_C(2000) << (tries < 5 ? tries : 5);
            w->events[0] = '\0';
            claims_written(w->claims, "pod:uid-p", rows[i].status, NULL, "why", now);
            assert_string_equal(w->events, rows[i].event);
            assert_int_equal(plan(w, now + wait - 1), 0);
            assert_int_equal(plan(w, now += wait), 1);
        }
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* After success, or where the claim is there already, the watch is given two seconds. */
static void an_accepted_template_waits_for_the_watch(void **state) {
    static const int statuses[] = {201, 409};
    for (size_t i = 0; i < 2; i++) {
        struct world *w = *state;
        show_pod(w, FROM_TEMPLATE);
        assert_int_equal(plan(w, T0), 1);
        claims_written(w->claims, "pod:uid-p", statuses[i], NULL, "why", T0);
        assert_string_equal(w->events, "");
        assert_int_equal(plan(w, T0 + 1999), 0);
        assert_int_equal(plan(w, T0 + 2000), 1);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* While a claim waits for its first pod, the first container stands for all that name it. */
static void a_waiting_claim_counts_once_for_a_pod(void **state) {
    struct world *w = *state;
    const char *container;
    struct claims_use use;
    struct err err;
    show(w, CLAIMS_CLASSES,
         "{\"metadata\":{\"name\":\"k\",\"uid\":\"3\",\"resourceVersion\":\"1\"},"
         "\"provisioner\":\"elasticgpu.io/qgpu\",\"bindingMode\":\"WaitForFirstConsumer\"}");
    show(w, CLAIMS_CLAIMS, CLAIM("", 10, OF_CLASS("k"), ""));
    show_pod(w, POD("\"egpuc.elasticgpu.io/main\":\"c\",\"egpuc.elasticgpu.io/side\":\"c\"",
                    CONTAINER("main") "," CONTAINER("side")));
    assert_int_equal(claims_use(w->claims, "uid-p", 0, &container, &use, &err), 0);
    assert_string_equal(container, "main");
    assert_int_equal(use.amount.core, 10);
    assert_int_equal(claims_use(w->claims, "uid-p", 1, &container, &use, &err), 0);
    assert_string_equal(container, "side");
    assert_int_equal(use.amount.cards, 0);
    assert_int_equal(use.amount.core, 0);
}

/* A whole card of one container stays whole. */
static void a_claim_of_one_container_is_not_divided(void **state) {
    struct world *w = *state;
    const char *container;
    struct claims_use use;
    struct err err;
    show(w, CLAIMS_EGPUS, EGPU("g", "", 100, REF("c", "1"), "\"phase\":\"Bound\""));
    show(w, CLAIMS_CLAIMS,
         CLAIM("\"elasticgpu.io/bind-completed\":\"yes\"", 100, OF_CLASS("") NAMED("g"),
               "\"phase\":\"Bound\",\"capacity\":{\"elasticgpu.io/gpu-core\":\"100\"}"));
    show_pod(w, POD("\"egpuc.elasticgpu.io/main\":\"c\"", CONTAINER("main")));
    assert_int_equal(claims_use(w->claims, "uid-p", 0, &container, &use, &err), 0);
    assert_true(use.amount.whole);
    assert_int_equal(use.amount.cards, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_offer_is_repeated_when_it_is_not_shown),
        TEST(a_larger_capacity_is_written_again_when_it_is_not_shown),
        TEST(a_claim_says_why_it_cannot_have_what_it_names),
        TEST(a_new_message_is_written_for_the_same_reason),
        TEST(an_object_without_memory_is_refused),
        TEST(a_pod_without_memory_is_refused),
        TEST(the_same_message_is_not_written_again),
        TEST(a_refused_write_of_a_claim_is_repeated_soon),
        TEST(an_accepted_write_waits_for_the_watch),
        TEST(an_answer_about_nothing_is_ignored),
        TEST(each_status_has_its_event),
        TEST(an_egpu_without_its_claim_is_released),
        TEST(everything_is_evaluated_every_ten_minutes),
        TEST(an_egpu_is_deleted_on_condition),
        TEST(a_refused_template_is_retried_less_and_less),
        TEST(an_accepted_template_waits_for_the_watch),
        TEST(what_is_at_rest_is_not_evaluated),
        TEST(a_claim_that_is_not_known_is_looked_up),
        TEST(a_reference_to_a_claim_that_is_bound_elsewhere_is_taken_back),
        TEST(a_node_is_selected_on_condition_of_the_version),
        TEST(the_newest_default_class_counts),
        TEST(a_waiting_claim_counts_once_for_a_pod),
        TEST(a_claim_of_one_container_is_not_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
