/* SPDX-License-Identifier: Apache-2.0 */

/* What claims count in the quotas of their namespaces, beside the pods there. */

#include "elastic-world.h"
#include "fail-malloc.h"

#include "scheduler/elastic/elastic_internal.h"
#include "scheduler/state/namespace_usage.h"

struct quota_world {
    struct elastic_world *e;
    struct quotas quotas;
};

static int begin_quotas(void **state) {
    struct quota_world *q = calloc(1, sizeof(*q));
    void *e = NULL;
    assert_int_equal(begin(&e), 0);
    q->e = e;
    q->quotas = (struct quotas){.state = q->e->w->state};
    q->e->elastic.quotas = &q->quotas;
    q->e->gates.rows[q->e->gates.n++] = (struct gate){"quota", &q->quotas, quotas_open};
    *state = q;
    return 0;
}

static int end_quotas(void **state) {
    struct quota_world *q = *state;
    void *e = q->e;
    quotas_done(&q->quotas);
    free(q);
    return end(&e);
}

static void limit(struct quota_world *q, uint64_t core, uint64_t guaranteed, const char *cohort) {
    struct quota_object quota = {.namespace = "d", .name = "q"};
    quota.counted[QUOTA_CORE] = true;
    quota.max[QUOTA_CORE] = core;
    quota.max[QUOTA_MEMORY] = quota.max[QUOTA_CARDS] = UINT64_MAX;
    quota.guaranteed[QUOTA_CORE] = guaranteed;
    snprintf(quota.cohort, sizeof(quota.cohort), "%s", cohort);
    assert_int_equal(quotas_seen(&q->quotas, QUOTA_OF_OURS, &quota), 0);
}

static void limit_requests(struct quota_world *q, const char *core) {
    char text[256];
    struct json object;
    struct quota_object quota;
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"r\",\"namespace\":\"d\"},\"spec\":{\"hard\":{"
             "\"requests.elasticgpu.io/gpu-core\":\"%s\"}}}",
             core);
    assert_int_equal(json_parse(q->e->w->parser, text, strlen(text), &object, NULL), 0);
    assert_int_equal(resource_quota_parse(object, &quota, NULL), 0);
    assert_int_equal(quotas_seen(&q->quotas, QUOTA_OF_KUBERNETES, &quota), 0);
}

static uint64_t used(struct quota_world *q, int r) {
    const struct state_space *space = state_space_find(q->e->w->state, "d");
    return space ? space->used.all.of[r] : 0;
}

static uint64_t used_by_claims(struct quota_world *q, int r) {
    const struct state_space *space = state_space_find(q->e->w->state, "d");
    return space ? space->used.claims.of[r] : 0;
}

static void answer_all(struct elastic_world *e, int status) {
    while (e->w->nasked > 0)
        respond(e->w, 0, status, false, NULL);
}

/* It counts from the request for its ElasticGPU on, through a pod's use of it, until the ElasticGPU
 * is gone; the pod adds nothing. */
static void test_a_claim_counts_once(void **state) {
    struct quota_world *q = *state;
    struct elastic_world *e = q->e;
    limit(q, 10, 10, "");
    see(e, CLAIMS_CLASSES, QGPU);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    run(e);
    assert_int_equal(used(q, QUOTA_CORE), 10);
    answer(e, "POST", "/elasticgpus", "\"gpuName\":\"n-00\"", 201);
    run(e); /* what is being made is not in its own way */
    assert_int_equal(e->w->nasked, 0);
    see(e, CLAIMS_EGPUS, EGPU("2", "n-00", ""));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    assert_int_equal(used(q, QUOTA_CORE), 10);
    assert_int_equal(used(q, QUOTA_MEMORY), 4 * GIB);
    assert_int_equal(used(q, QUOTA_CARDS), 1);

    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    bind_user(e, "p", &annotations);
    assert_int_equal(used(q, QUOTA_CORE), 10);
    assert_int_equal(used_by_claims(q, QUOTA_CORE), 10);
    assert_int_equal(used(q, QUOTA_CARDS), 1);
    state_pod_gone(e->w->state, "p");
    assert_int_equal(used(q, QUOTA_CORE), 10);
    claims_gone(e->elastic.claims, CLAIMS_EGPUS, "egpu-u-c");
    assert_int_equal(used(q, QUOTA_CORE), 0);
    assert_null(state_space_find(e->w->state, "d"));
}

/* A write that is refused gives back what was counted. */
static void test_a_refused_claim_counts_nothing(void **state) {
    struct quota_world *q = *state;
    see(q->e, CLAIMS_CLASSES, QGPU);
    see(q->e, CLAIMS_CLAIMS, CLAIM("1", "", "", ",\"status\":{\"phase\":\"Pending\"}"));
    run(q->e);
    answer(q->e, "POST", "/elasticgpus", "", 422);
    claims_gone(q->e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    run(q->e);
    assert_int_equal(used(q, QUOTA_CORE), 0);
}

/* A claim and a pod together stay within the quota, whichever came first. */
static void test_claims_and_pods_share_the_quota(void **state) {
    struct quota_world *q = *state;
    struct elastic_world *e = q->e;
    limit(q, 100, 100, "");
    bind_other(e, "x", "91");
    see(e, CLAIMS_CLASSES, QGPU);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c/status",
           "quota exceeded: namespace d uses 91 of 100 elasticgpu.io/gpu-core, and this claim asks "
           "10",
           200);
    assert_int_equal(used(q, QUOTA_CORE), 91);
    state_pod_gone(e->w->state, "x");
    run(e);
    answer(e, "POST", "/elasticgpus", "", 201);
    see(e, CLAIMS_EGPUS, EGPU("2", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    e->w->annotations = "";
    assert_non_null(strstr(filter(e->w, "y", "\"elasticgpu.io/gpu-core\":\"91\"", "\"n\""),
                           "uses 10 of 100 elasticgpu.io/gpu-core, and this pod asks 91; its "
                           "claims have 10"));
    assert_string_equal(filter(e->w, "z", "\"elasticgpu.io/gpu-core\":\"90\"", "\"n\""), "n");
    assert_int_equal(used(q, QUOTA_CORE), 100);
    answer_all(e, 200);
}

/* A quota that Kubernetes counts by what pods request holds claims, and from the first claim on the
 * pods beside them; without claims Kubernetes alone counts. */
static void test_a_quota_of_requests(void **state) {
    struct quota_world *q = *state;
    struct elastic_world *e = q->e;
    limit_requests(q, "9");
    see(e, CLAIMS_CLASSES, QGPU);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c/status", "QuotaExceeded", 200);
    e->w->annotations = "";
    assert_string_equal(filter(e->w, "y", "\"elasticgpu.io/gpu-core\":\"10\"", "\"n\""), "n");
    state_pod_gone(e->w->state, "y");
    limit_requests(q, "10");
    run(e);
    answer(e, "POST", "/elasticgpus", "", 201);
    assert_non_null(strstr(filter(e->w, "z", "\"elasticgpu.io/gpu-core\":\"1\"", "\"n\""),
                           "uses 10 of 10 elasticgpu.io/gpu-core, and this pod asks 1"));
}

/* Without memory the claim is not made, and nothing is left of it. */
static void test_a_claim_without_memory(void **state) {
    struct quota_world *q = *state;
    struct state *s = q->e->w->state;
    const struct quota_use use = {{10, 20, 1}};
    size_t failures = 0;
    for (int r = -ENOMEM; r < 0; failures += r < 0) {
        fail_malloc_at(failures + 1);
        r = state_charge(s, "x", "d", &use);
        assert_int_equal(r, fail_malloc_end() ? -ENOMEM : 0);
        assert_int_equal(used(q, QUOTA_CORE), r < 0 ? 0 : 10);
        assert_int_equal(state_space_find(s, "d") != NULL, r == 0);
    }
    assert_in_range(failures, 3, 10);
}

/* A pod that uses a claim is let pass by a quota that the claim has used up. */
static void test_a_full_quota_lets_the_user_of_its_claim_pass(void **state) {
    struct quota_world *q = *state;
    limit(q, 10, 10, "");
    see(q->e, CLAIMS_EGPUS, EGPU("2", "n-00", PHASE("Bound")));
    see(q->e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    see_pod(q->e, "p", NULL, USES("c"));
    assert_string_equal(ask(q->e, "p"), "n");
}

/* The share of a first consumer becomes that of the claim, and is not asked for twice. */
static void test_first_consumer_within_the_quota(void **state) {
    struct quota_world *q = *state;
    struct elastic_world *e = q->e;
    limit(q, 10, 10, "");
    see(e, CLAIMS_CLASSES, LATE);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    assert_int_equal(used(q, QUOTA_CORE), 10);
    assert_int_equal(used_by_claims(q, QUOTA_CORE), 0);
    bind_by(e, "p");
    answer(e, "PATCH", "/elasticgpuclaims/c", "\"elasticgpu.io/selected-node\":\"n\"", 200);
    see(e, CLAIMS_CLAIMS,
        CLAIM("2", ",\"annotations\":{\"elasticgpu.io/selected-node\":\"n\"}", "", ""));
    elastic_run(&e->elastic);
    assert_int_equal(used(q, QUOTA_CORE), 10);
    assert_int_equal(used_by_claims(q, QUOTA_CORE), 10);
    answer(e, "POST", "/elasticgpus", "\"gpuName\":\"n-0", 201);
}

/* Who writes the node on his claim himself has no pod that was let pass. */
static void test_a_selected_node_without_a_pod(void **state) {
    struct quota_world *q = *state;
    limit(q, 9, 9, "");
    see(q->e, CLAIMS_CLASSES, LATE);
    see(q->e, CLAIMS_CLAIMS,
        CLAIM("2", ",\"annotations\":{\"elasticgpu.io/selected-node\":\"n\"}", "", ""));
    run(q->e);
    assert_int_equal(used(q, QUOTA_CORE), 0);
    answer(q->e, "PATCH", "/elasticgpuclaims/c", "\"elasticgpu.io/selected-node\":null", 200);
}

/* Beyond its guaranteed amount a claim borrows, as a pod does. */
static void test_a_claim_borrows(void **state) {
    struct quota_world *q = *state;
    struct quota_object lender = {.namespace = "l", .name = "q", .cohort = "c"};
    lender.counted[QUOTA_CORE] = true;
    lender.max[QUOTA_CORE] = UINT64_MAX;
    lender.guaranteed[QUOTA_CORE] = 9;
    limit(q, UINT64_MAX, 0, "c");
    assert_int_equal(quotas_seen(&q->quotas, QUOTA_OF_OURS, &lender), 0);
    see(q->e, CLAIMS_CLASSES, QGPU);
    see(q->e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    run(q->e);
    answer(q->e, "PATCH", "/elasticgpuclaims/c/status",
           "nothing left to borrow: cohort c uses 0 of 9 elasticgpu.io/gpu-core, and this claim "
           "asks 10",
           200);
    lender.guaranteed[QUOTA_CORE] = 10;
    assert_int_equal(quotas_seen(&q->quotas, QUOTA_OF_OURS, &lender), 0);
    run(q->e);
    answer(q->e, "POST", "/elasticgpus", "", 201);
    assert_int_equal(used(q, QUOTA_CORE), 10);
}

#define OF_ADMIN(name, rv, ref, phase)                                                             \
    "{" META(name, rv) EGPU_GUARD                                                                  \
        "},\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":60,\"elasticgpu.io/gpu-memory\":"    \
        "\"4Gi\"},\"qGPU\":{\"gpuName\":\"n-00\"}" ref "}" phase "}"
#define CLAIM_ON(name, rv, egpu)                                                                   \
    "{" META(name, rv) ",\"namespace\":\"d\"" GUARD                                                \
                       "},\"spec\":{\"elasticGPUClassName\":\"\",\"elasticGPUName\":\"" egpu       \
                       "\"," REQUESTS "}}"

/* Two claims and two ElasticGPUs of an administrator, in one pass: the first counts as soon as it
 * is given away. */
static void test_two_claims_for_two_of_an_admin(void **state) {
    struct quota_world *q = *state;
    struct elastic_world *e = q->e;
    limit(q, 100, 100, "");
    see(e, CLAIMS_EGPUS, OF_ADMIN("s", "1", "", PHASE("Available")));
    see(e, CLAIMS_EGPUS, OF_ADMIN("t", "1", "", PHASE("Available")));
    assert_int_equal(used(q, QUOTA_CORE), 0);
    see(e, CLAIMS_CLAIMS, CLAIM_ON("c", "2", "s"));
    see(e, CLAIMS_CLAIMS, CLAIM_ON("b", "3", "t"));
    run(e);
    assert_int_equal(used(q, QUOTA_CORE), 60);
    assert_int_equal(e->w->nasked, 2);
    assert_non_null(strstr(buf_str(&e->w->asked[0].body), "claimRef"));
    assert_non_null(strstr(buf_str(&e->w->asked[1].body), "QuotaExceeded"));
    answer_all(e, 200);
}

/* One that was released counts until an administrator takes its claimRef away. */
static void test_what_is_released_counts(void **state) {
    struct quota_world *q = *state;
#define REFERENCE ",\"claimRef\":{\"namespace\":\"d\",\"name\":\"c\",\"uid\":\"u-c\"}"
    see(q->e, CLAIMS_EGPUS, OF_ADMIN("s", "1", REFERENCE, PHASE("Bound")));
    assert_int_equal(used(q, QUOTA_CORE), 60);
    see(q->e, CLAIMS_EGPUS, OF_ADMIN("s", "2", REFERENCE, PHASE("Released")));
    assert_int_equal(used(q, QUOTA_CORE), 60);
    see(q->e, CLAIMS_EGPUS, OF_ADMIN("s", "3", "", PHASE("Available")));
    assert_int_equal(used(q, QUOTA_CORE), 0);
}

/* Another controller's, which names its claim from the start. */
static void test_one_that_names_its_claim_is_held(void **state) {
    struct quota_world *q = *state;
    limit(q, 59, 59, "");
    see(q->e, CLAIMS_EGPUS, OF_ADMIN("s", "1", REFERENCE, ""));
    run(q->e);
    answer(q->e, "PATCH", "/elasticgpus/s/status", "QuotaExceeded", 200);
    assert_int_equal(used(q, QUOTA_CORE), 0);
    assert_int_equal(free_core(q->e->w, "n", 0), 100);
    limit(q, 60, 60, "");
    run(q->e);
    answer(q->e, "PATCH", "/elasticgpus/s/status", "Available", 200);
    assert_int_equal(used(q, QUOTA_CORE), 60);
}

/* Growth counts from the moment at which it is written. */
static void test_growth(void **state) {
    static const char class[] =
        "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/qgpu\",\"allowExpansion\":true}";
    static const char larger[] =
        "{" META("c", "5") ",\"namespace\":\"d\"" GUARD
                           ",\"annotations\":{\"elasticgpu.io/bind-completed\":\"yes\"}},\"spec\":{"
                           "\"elasticGPUClassName\":\"k\",\"elasticGPUName\":\"egpu-u-c\","
                           "\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":30,"
                           "\"elasticgpu.io/gpu-memory\":\"8Gi\"}}},\"status\":{\"phase\":"
                           "\"Bound\",\"capacity\":{\"elasticgpu.io/gpu-core\":\"10\","
                           "\"elasticgpu.io/gpu-memory\":\"4Gi\"}}}";
    struct quota_world *q = *state;
    limit(q, 29, 29, "");
    see(q->e, CLAIMS_CLASSES, class);
    see(q->e, CLAIMS_EGPUS, EGPU("2", "n-01", PHASE("Bound")));
    see(q->e, CLAIMS_CLAIMS, larger);
    run(q->e);
    answer(q->e, "PATCH", "/elasticgpuclaims/c/status",
           "uses 0 of 29 elasticgpu.io/gpu-core, and this claim asks 30", 200);
    assert_int_equal(used(q, QUOTA_CORE), 10);
    limit(q, 30, 30, "");
    run(q->e);
    assert_int_equal(used(q, QUOTA_CORE), 30);
    answer(q->e, "PATCH", "/elasticgpus/egpu-u-c", "\"elasticgpu.io/gpu-core\":\"30\"", 200);
    see(q->e, CLAIMS_EGPUS, GROWN_EGPU("3"));
    assert_int_equal(used(q, QUOTA_CORE), 30);
    assert_int_equal(used(q, QUOTA_MEMORY), 8 * GIB);
}

/* A new process sees the objects in any order, and counts the same; also a claim whose node is
 * away, as it has its share when the node is back. */
static void test_a_start_counts_the_same(void **state) {
    struct quota_world *q = *state;
    struct elastic_world *e = q->e;
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    see(e, CLAIMS_EGPUS, EGPU("1", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    bind_user(e, "p", &annotations);
    for (unsigned order = 0; order < 6; order++) {
        static const char turns[][4] = {"pec", "pce", "epc", "ecp", "cpe", "cep"};
        state_pod_gone(e->w->state, "p");
        claims_gone(e->elastic.claims, CLAIMS_PODS, "p");
        claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
        claims_gone(e->elastic.claims, CLAIMS_EGPUS, "egpu-u-c");
        assert_null(state_space_find(e->w->state, "d"));
        for (const char *turn = turns[order]; *turn; turn++) {
            if (*turn == 'p')
                see_pod(e, "p", "n", buf_str(&annotations));
            else if (*turn == 'e')
                see(e, CLAIMS_EGPUS, EGPU("1", "n-00", PHASE("Bound")));
            else
                see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
        }
        run(e);
        answer_all(e, 200);
        assert_int_equal(used(q, QUOTA_CORE), 10);
        assert_int_equal(used(q, QUOTA_CARDS), 1);
    }
    claims_gone(e->elastic.claims, CLAIMS_EGPUS, "egpu-u-c");
    assert_int_equal(used(q, QUOTA_CORE), 10); /* the pod's own */
    assert_int_equal(used_by_claims(q, QUOTA_CORE), 0);
    state_pod_gone(e->w->state, "p");
    see(e, CLAIMS_EGPUS, EGPU("4", "m-00", PHASE("Bound")));
    assert_int_equal(used(q, QUOTA_CORE), 10);
    assert_int_equal(used(q, QUOTA_MEMORY), 4 * GIB);
}

/* The part of a card that the claim gets is known when the card is: on the smallest card of the
 * cluster it would be within the quota. */
static void test_a_larger_card_than_was_assumed(void **state) {
    struct quota_world *q = *state;
    struct gpu_object small = {.memory = 40 * GIB, .node = "m", .name = "m-00", .uuid = "GPU-m"};
    struct quota_object quota = {.namespace = "d", .name = "m"};
    quota.counted[QUOTA_MEMORY] = true;
    quota.max[QUOTA_MEMORY] = 5 * GIB;
    assert_int_equal(quotas_seen(&q->quotas, QUOTA_OF_OURS, &quota), 0);
    assert_int_equal(state_gpu_seen(q->e->w->state, &small, NULL), 0);
    see(q->e, CLAIMS_CLASSES, QGPU);
    see(q->e, CLAIMS_CLAIMS,
        "{" META("c", "1") ",\"namespace\":\"d\"" GUARD
                           "},\"spec\":{\"elasticGPUClassName\":\"k\",\"resources\":{"
                           "\"requests\":{\"elasticgpu.io/gpu-core\":10}}}}");
    run(q->e);
    answer(q->e, "PATCH", "/elasticgpuclaims/c/status",
           "uses 0 B of 5 GiB elasticgpu.io/gpu-memory, and this claim asks 8 GiB", 200);
    assert_int_equal(used(q, QUOTA_MEMORY), 0);
    assert_int_equal(free_core(q->e->w, "n", 0), 100);
}

/* The claimRef was removed by mistake while a pod uses the claim: the pod counts, and the claim
 * again when it has its ElasticGPU back. */
static void test_a_lost_half(void **state) {
    static const char unclaimed[] = "{" META("egpu-u-c", "4") EGPU_GUARD
        ",\"annotations\":{\"elasticgpu.io/provisioned-by\":\"elasticgpu.io/qgpu\"}},\"spec\":{"
        "\"capacity\":{\"elasticgpu.io/gpu-core\":\"10\",\"elasticgpu.io/gpu-memory\":\"4Gi\"},"
        "\"qGPU\":{\"gpuName\":\"n-00\"}}" PHASE("Available") "}";
    struct quota_world *q = *state;
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    see(q->e, CLAIMS_EGPUS, EGPU("2", "n-00", PHASE("Bound")));
    see(q->e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    bind_user(q->e, "p", &annotations);
    see(q->e, CLAIMS_EGPUS, unclaimed);
    assert_int_equal(used(q, QUOTA_CORE), 10);
    assert_int_equal(used_by_claims(q, QUOTA_CORE), 0);
    run(q->e);
    answer(q->e, "PATCH", "/elasticgpus/egpu-u-c", "claimRef", 200);
    assert_int_equal(used(q, QUOTA_CORE), 10);
    assert_int_equal(used_by_claims(q, QUOTA_CORE), 10);
}

static void test_charges(void **state) {
    struct quota_world *q = *state;
    struct state *s = q->e->w->state;
    const struct quota_use use = {{10, 20, 1}}, more = {{30, 20, 1}};
    assert_int_equal(state_charge(s, "x", "d", &use), 0);
    assert_int_equal(state_charge(s, "x", "d", &more), 0);
    assert_int_equal(used(q, QUOTA_CORE), 30);
    assert_int_equal(state_charge(s, "x", "other", &use), 0);
    assert_null(state_space_find(s, "d"));
    assert_int_equal(state_space_find(s, "other")->used.all.of[QUOTA_CORE], 10);
    assert_int_equal(state_charge(s, "y", "other", &use), 0);
    state_uncharge(s, "x");
    state_uncharge(s, "x");
    assert_int_equal(state_space_find(s, "other")->used.claims.of[QUOTA_MEMORY], 20);
    state_uncharge(s, "y");
    assert_null(state_space_find(s, "other"));
}

/* Objects that say more than there is anywhere do not overflow the sums. */
static void test_charges_beyond_any_cluster(void **state) {
    struct quota_world *q = *state;
    struct state *s = q->e->w->state;
    const struct quota_use use = {{UINT64_MAX, INT64_MAX, UINT64_MAX}};
    assert_int_equal(state_charge(s, "x", "d", &use), 0);
    const uint64_t one = used(q, QUOTA_MEMORY);
    assert_int_equal(state_charge(s, "y", "d", &use), 0);
    assert_int_equal(state_charge(s, "z", "d", &use), 0);
    assert_int_equal(used(q, QUOTA_MEMORY), 3 * one);
    assert_int_equal(used_by_claims(q, QUOTA_CORE), 3 * one);
    state_uncharge(s, "x");
    state_uncharge(s, "y");
    state_uncharge(s, "z");
    assert_null(state_space_find(s, "d"));
}

/* Nor does the sum over the cards of one object, with which quotas are asked: it would wrap to
 * nothing. */
static void test_amounts_beyond_any_card(void **state) {
    const struct assigned_device device = {.core = 100, .memory = UINT64_C(1) << 58};
    const struct claim_amount amount = {.cards = CLAIM_CARDS_MAX, .memory = device.memory};
    struct assigned_device devices[CLAIM_CARDS_MAX];
    (void) state;
    for (uint32_t i = 0; i < CLAIM_CARDS_MAX; i++)
        devices[i] = device;
    const struct quota_use of_devices = elastic_use_of(devices, CLAIM_CARDS_MAX);
    const struct quota_use of_amount = elastic_use_of_amount(&amount);
    assert_int_equal(of_devices.of[QUOTA_MEMORY], CLAIM_CARDS_MAX * STATE_CHARGE_MAX);
    assert_int_equal(of_amount.of[QUOTA_MEMORY], CLAIM_CARDS_MAX * STATE_CHARGE_MAX);
}

/* What a pod draws on counts for it where it is charged to another namespace, or is of no claim. */
static void test_what_is_charged_to_others(void **state) {
    struct quota_world *q = *state;
    struct state *s = q->e->w->state;
    const struct quota_use none = {{0}};
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    see(q->e, CLAIMS_EGPUS, EGPU("2", "n-00", PHASE("Bound")));
    see(q->e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    bind_user(q->e, "p", &annotations);
    bind_other(q->e, "x", "20");
    assert_int_equal(used(q, QUOTA_CORE), 30);
    assert_int_equal(state_charge(s, "id", "other", &none), 0);
    assert_int_equal(state_draw(state_pod_find(s, "p"), "main", "id"), 0);
    assert_int_equal(used(q, QUOTA_CORE), 40);
    assert_int_equal(state_charge(s, "mine", "d", &none), 0);
    assert_int_equal(state_draw(state_pod_find(s, "x"), "main", "mine"), 0);
    assert_int_equal(used(q, QUOTA_CORE), 40);
    assert_int_equal(state_draw(state_pod_find(s, "p"), "main", "mine"), 0);
    assert_int_equal(used(q, QUOTA_CORE), 30);
}

/* What was written as status is read as written, so that it is written once. */
static void test_status(void **state) {
    struct quota_world *q = *state;
    const struct quota_usage usage = {.all = {{50, 8 * GIB, 3}}, .claims = {{20, GIB, 1}}};
    _cleanup_buf_ struct buf status = BUF_INIT(0), text = BUF_INIT(0);
    struct quota_object quota;
    struct json object;
    quota_object_encode_status(&usage, &status);
    buf_printf(&text, "{\"metadata\":{\"name\":\"q\",\"namespace\":\"d\"},%s",
               buf_str(&status) + 1);
    assert_int_equal(json_parse(q->e->w->parser, text.data, text.len, &object, NULL), 0);
    assert_int_equal(quota_object_parse(object, &quota, NULL), 0);
    assert_true(quota.has_used && quota.has_claims);
    assert_memory_equal(&quota.used, &usage, sizeof(usage));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_quotas, end_quotas)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_claim_counts_once),
        TEST(test_a_refused_claim_counts_nothing),
        TEST(test_claims_and_pods_share_the_quota),
        TEST(test_a_quota_of_requests),
        TEST(test_a_claim_without_memory),
        TEST(test_a_full_quota_lets_the_user_of_its_claim_pass),
        TEST(test_first_consumer_within_the_quota),
        TEST(test_a_selected_node_without_a_pod),
        TEST(test_a_claim_borrows),
        TEST(test_two_claims_for_two_of_an_admin),
        TEST(test_what_is_released_counts),
        TEST(test_one_that_names_its_claim_is_held),
        TEST(test_growth),
        TEST(test_a_start_counts_the_same),
        TEST(test_a_larger_card_than_was_assumed),
        TEST(test_a_lost_half),
        TEST(test_charges),
        TEST(test_charges_beyond_any_cluster),
        TEST(test_amounts_beyond_any_card),
        TEST(test_what_is_charged_to_others),
        TEST(test_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
