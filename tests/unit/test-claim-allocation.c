/* SPDX-License-Identifier: Apache-2.0 */

/* ResourceClaims that the scheduler allocates. The test is the watches, the clock and the API
 * server. */

#include "claim-allocation-world.h"

static bool is_refused(struct dra_world *d, const char *pod, const char *resources) {
    return filter(d->w, pod, resources, "\"n\"")[0] == '-';
}

/* ---- the protocol ---- */

/* Each with the answer to the one before. */
static void test_three_writes_in_their_order(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", BOTH("30", "20Gi"));
    see_pod(d, "p", "c", GATED);
    run(d);
    assert_int_equal(d->w->nasked, 1);
    assert_string_equal(d->w->asked[0].path,
                        "/apis/resource.k8s.io/v1/namespaces/d/resourceclaims/c");
    assert_string_equal(body_of(d, 0),
                        "{\"metadata\":{\"uid\":\"u-c\",\"resourceVersion\":\"1\",\"finalizers\":["
                        "\"resource.kubernetes.io/delete-protection\"]}}");
    answer_claim(d, "c", "", 2, "");
    assert_int_equal(d->w->nasked, 1);
    const char *body = body_of(d, 0);
    const char *const parts[] = {
        "{\"metadata\":{\"uid\":\"u-c\",\"resourceVersion\":\"2\"},\"status\":{\"allocation\":{"
        "\"allocationTimestamp\":\"20",
        "\"devices\":{\"results\":[{\"request\":\"gpu\",\"driver\":\"gpu.elasticgpu.io\","
        "\"pool\":\"n\",\"device\":\"gpu-",
        "\"consumedCapacity\":{\"core\":\"30\",\"memory\":\"20Gi\"}}]",
        "\"config\":[{\"source\":\"FromClass\",\"requests\":[\"gpu\"],\"opaque\":{\"driver\":"
        "\"gpu.elasticgpu.io\",\"parameters\":{\"apiVersion\":\"gpu.elasticgpu.io/v1alpha1\","
        "\"kind\":\"ShareConfig\",\"weight\":9}}}]}",
        "\"nodeSelector\":{\"nodeSelectorTerms\":[{\"matchFields\":[{\"key\":\"metadata.name\","
        "\"operator\":\"In\",\"values\":[\"n\"]}]}]}}",
        "\"reservedFor\":[{\"resource\":\"pods\",\"name\":\"p\",\"uid\":\"p-p\"}]}}",
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (!strstr(body, parts[i]))
            fail_msg("%s: %s", parts[i], body);
    const char *share = strstr(body, "\"shareID\":\"");
    assert_non_null(share);
    assert_int_equal(strspn(share + 11, "0123456789abcdef-"), 36);
    answer_claim(d, "c", "/status", 3, "");
    assert_int_equal(d->w->nasked, 1);
    assert_string_equal(d->w->asked[0].path, "/api/v1/namespaces/d/pods/p");
    assert_string_equal(body_of(d, 0),
                        "{\"metadata\":{\"uid\":\"p-p\"},\"spec\":{\"schedulingGates\":[{"
                        "\"$patch\":\"delete\",\"name\":\"gpu.elasticgpu.io/placement\"}]}}");
    respond(d->w, 0, 200, false, NULL);
    run(d);
    assert_int_equal(d->w->nasked, 0);
    assert_int_equal(d->dra.allocated, 1);
}

/* Without a gate kube-scheduler tries the pod again when the claim has changed. */
static void test_a_pod_without_a_gate(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    allocate(d, "c", "");
    run(d);
    assert_int_equal(d->w->nasked, 0);
}

static void test_core_alone_comes_with_its_part_of_memory(void **state) {
    static const struct {
        const char *amounts, *consumed;
    } rows[] = {
        {CORE("30"), "{\"core\":\"30\",\"memory\":\"24Gi\"}"},
        {"", "{\"core\":\"100\",\"memory\":\"80Gi\"}"},
        {CORE("100"), "{\"core\":\"100\",\"memory\":\"80Gi\"}"},
        {CORE("0"), "{\"core\":\"0\",\"memory\":\"80Gi\"}"},
        {BOTH("0", "8Gi"), "{\"core\":\"0\",\"memory\":\"8Gi\"}"},
        {"'capacity':{'requests':{'memory':'8Gi'}}", "{\"core\":\"100\",\"memory\":\"8Gi\"}"},
    };
    struct dra_world *d = *state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[8];
        (void) snprintf(name, sizeof(name), "c%u", i);
        see_share(d, name, rows[i].amounts);
        see_pod(d, "p", name, "");
        allocate(d, name, rows[i].consumed);
        see_gone(d, DRA_CLAIMS, "{'metadata':{'name':'%s','namespace':'d','uid':'u-%s'}}", name,
                 name);
        see_gone(d, DRA_PODS,
                 "{'metadata':{'name':'p','namespace':'d','uid':'p-p'},"
                 "'spec':{'resourceClaims':[{'name':'x'}]}}");
        assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 200);
    }
}

/* By resource names the node offers twice the memory that it has. */
static void test_memory_is_not_oversubscribed(void **state) {
    static const struct {
        const char *amounts, *consumed;
    } rows[] = {
        {CORE("30"), "{\"core\":\"30\",\"memory\":\"24Gi\"}"},
        {BOTH("0", "40Gi"), "{\"core\":\"0\",\"memory\":\"40Gi\"}"},
        {CORE("0"), "{\"core\":\"0\",\"memory\":\"80Gi\"}"},
        {"", "{\"core\":\"100\",\"memory\":\"80Gi\"}"},
    };
    static const unsigned left[] = {112, 80, 0, 0};
    struct dra_world *d = *state;
    struct gpu_object gpu = {.memory = 80 * GIB, .capacity = 160 * GIB, .healthy = true};
    memcpy(gpu.node, "s", 2);
    memcpy(gpu.name, "s-00", 5);
    memcpy(gpu.uuid, "GPU-s-0", 8);
    add_node(d, "s", 1);
    assert_int_equal(state_gpu_seen(d->w->state, &gpu, NULL), 0);
    see_node(d, "n", "'unschedulable':true");
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[8];
        (void) snprintf(name, sizeof(name), "c%u", i);
        see_share(d, name, rows[i].amounts);
        see_pod(d, name, name, "");
        allocate(d, name, rows[i].consumed);
        assert_int_equal(free_of(d, "s", 0).memory, left[i] * GIB);
        see_gone(d, DRA_CLAIMS, "{'metadata':{'name':'%s','namespace':'d','uid':'u-%s'}}", name,
                 name);
        assert_int_equal(free_of(d, "s", 0).memory, 160 * GIB);
    }
    see_share(d, "large", BOTH("10", "81Gi"));
    see_pod(d, "large", "large", "");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/large"));
}

/* First fit would leave no card whole. */
static void test_shares_are_packed(void **state) {
    struct dra_world *d = *state;
    add_node(d, "m", 2);
    for (unsigned i = 0; i < 3; i++) {
        char name[8];
        (void) snprintf(name, sizeof(name), "c%u", i);
        see_share(d, name, CORE("30"));
        see_pod(d, name, name, "");
        allocate(d, name, "");
    }
    unsigned whole = 0;
    for (uint32_t c = 0; c < 2; c++)
        whole += (unsigned) (free_of(d, "n", c).core == 100) + (free_of(d, "m", c).core == 100);
    assert_int_equal(whole, 3);
}

/* ---- counted once ---- */

static void test_a_share_counts_once_at_each_step(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", BOTH("30", "20Gi"));
    see_pod(d, "p", "c", "");
    run(d);
    uint32_t card = free_of(d, "n", 0).core == 70 ? 0 : 1;
    assert_int_equal(free_of(d, "n", card).core, 70);
    assert_int_equal(free_of(d, "n", card).memory, 60 * GIB);
    answer_claim(d, "c", "", 2, "");
    assert_int_equal(free_of(d, "n", card).core, 70);
    see_share(d, "c", BOTH("30", "20Gi")); /* the watch is late */
    assert_int_equal(free_of(d, "n", card).core, 70);
    answer_claim(d, "c", "/status", 3, "");
    assert_int_equal(free_of(d, "n", card).core, 70);
    see_claim(d, "c", 3, true, SHARE,
              card == 0 ? ALLOCATED("n", RESULT("gpu-0", "30", "20Gi"), "p")
                        : ALLOCATED("n", RESULT("gpu-1", "30", "20Gi"), "p"));
    assert_int_equal(free_of(d, "n", card).core, 70);
    see_gone(d, DRA_PODS,
             "{'metadata':{'name':'p','namespace':'d','uid':'p-p'},"
             "'spec':{'resourceClaims':[{'name':'x'}]}}");
    see_claim(d, "c", 4, true, SHARE, "");
    assert_int_equal(free_of(d, "n", card).core, 100);
}

/* By any allocator; what is not of our driver does not count. */
static void test_allocations_of_others_count(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "c", 1, true, SHARE,
              ALLOCATED("n", RESULT("gpu-1", "40", "8Gi") "," RESULT("gpu-1", "10", "8Gi"), "x"));
    assert_int_equal(free_of(d, "n", 1).core, 50);
    assert_int_equal(free_of(d, "n", 1).memory, 64 * GIB);
    see_claim(d, "e", 1, true, SHARE,
              ALLOCATED("n", "{'request':'r','driver':'other','pool':'n','device':'gpu-0'}", "x"));
    assert_int_equal(free_of(d, "n", 0).core, 100);
    /* Without a name for what is consumed it is all of it. */
    see_claim(d, "f", 1, true, SHARE,
              ALLOCATED("n",
                        "{'request':'r','driver':'gpu.elasticgpu.io','pool':'n',"
                        "'device':'gpu-0'}",
                        "x"));
    assert_int_equal(free_of(d, "n", 0).core, 0);
    see_gone(d, DRA_CLAIMS, "{'metadata':{'name':'f','namespace':'d','uid':'another'}}");
    assert_int_equal(free_of(d, "n", 0).core, 0);
    see_gone(d, DRA_CLAIMS, "{'metadata':{'name':'f','namespace':'d','uid':'u-f'}}");
    assert_int_equal(free_of(d, "n", 0).core, 100);
}

#define GONE_SLICE                                                                                 \
    "{'metadata':{'name':'n-s'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'n',"              \
    "'pool':{'name':'n','generation':1,'resourceSliceCount':1}}}"

/* kubelet deletes the slices when it starts. */
static void test_slices_that_go_leave_the_shares(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "c", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-1", "40", "8Gi"), "x"));
    see_gone(d, DRA_SLICES, GONE_SLICE);
    d->w->now += 60000;
    run(d);
    assert_int_equal(free_of(d, "n", 1).core, 60);
}

/* A scheduler that starts while the slices are away does not know which card a claim is on. */
static void test_a_node_waits_for_the_card_of_a_claim(void **state) {
    struct dra_world *d = *state;
    see_gone(d, DRA_SLICES, GONE_SLICE);
    see_claim(d, "c", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-1", "40", "8Gi"), "x"));
    run(d);
    assert_true(is_refused(d, "a", "\"elasticgpu.io/gpu-core\":\"80\""));
    see_slice(d, "n", 2, "aliquot", "aliquot");
    d->w->now += 2000;
    run(d);
    assert_int_equal(free_of(d, "n", 1).core, 60);
    assert_string_equal(filter(d->w, "a", "\"elasticgpu.io/gpu-core\":\"80\"", "\"n\""), "n");
}

/* A MIG instance that is destroyed and made again has its UUID again. */
static void test_a_card_that_comes_back_has_its_shares(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "c", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-n-1", "40", "8Gi"), "x"));
    assert_int_equal(free_of(d, "n", 1).core, 60);
    state_gpu_gone(d->w->state, "n-01");
    see_slice(d, "n", 1, "aliquot", "aliquot");
    /* As a scheduler that starts then sees it. */
    see_claim(d, "late", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-n-1", "20", "8Gi"), "y"));
    d->w->now += 60000;
    run(d);
    assert_string_equal(filter(d->w, "a", "\"elasticgpu.io/gpu-core\":\"100\"", "\"n\""), "n");
    show_gpu(d->w, "n", 1, true);
    assert_int_equal(free_of(d, "n", 1).core, 40);
    see_gone(d, DRA_CLAIMS, "{'metadata':{'name':'c','namespace':'d','uid':'u-c'}}");
    assert_int_equal(free_of(d, "n", 1).core, 80);
}

/* ---- beside the extender ---- */

static void test_both_ways_share_a_card(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "a", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "70", "8Gi"), "x"));
    see_claim(d, "b", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-1", "80", "8Gi"), "x"));
    assert_true(is_refused(d, "one", "\"elasticgpu.io/gpu-core\":\"40\""));
    assert_string_equal(filter(d->w, "two", "\"elasticgpu.io/gpu-core\":\"30\"", "\"n\""), "n");
    /* What the pod is to have is not free for a claim. */
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", GATED);
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
}

static void test_each_card_has_one_allocator(void **state) {
    struct dra_world *d = *state;
    see_slice(d, "n", 2, "kube-scheduler", "aliquot");
    see_share(d, "c", "'count':2");
    see_pod(d, "p", "c", "");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
    assert_true(is_refused(d, "two", "\"elasticgpu.io/gpu-core\":\"200\""));
    assert_string_equal(filter(d->w, "one", "\"elasticgpu.io/gpu-core\":\"100\"", "\"n\""), "n");
    see_slice(d, "n", 2, "aliquot", "aliquot");
    assert_string_equal(filter(d->w, "three", "\"elasticgpu.io/gpu-core\":\"100\"", "\"n\""), "n");
}

static void show_shares(struct dra_world *d, bool no_shares) {
    struct gpu_object gpu = {.memory = 80 * GIB, .healthy = true, .no_shares = no_shares};
    memcpy(gpu.node, "n", 2);
    memcpy(gpu.name, "n-00", 5);
    memcpy(gpu.uuid, "GPU-n-0", 8);
    assert_int_equal(state_gpu_seen(d->w->state, &gpu, NULL), 0);
}

/* While it was kube-scheduler's and offered nothing, what claims have of it did not count. */
static void test_a_card_that_is_handed_over_with_its_claims(void **state) {
    struct dra_world *d = *state;
    see_slice(d, "n", 2, "kube-scheduler", "aliquot");
    show_shares(d, true);
    see_claim(d, "c", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "40", "32Gi"), "x"));
    run(d);
    show_shares(d, false);
    see_slice(d, "n", 2, "aliquot", "aliquot");
    assert_int_equal(free_of(d, "n", 0).core, 60);
}

/* Its slice is deleted when kubelet starts. Its GPU object offers no shares for as long as the
 * agent leaves it to kube-scheduler. */
static void test_a_card_of_kube_scheduler_stays_its_own(void **state) {
    struct dra_world *d = *state;
    see_slice(d, "n", 2, "kube-scheduler", "aliquot");
    show_shares(d, true);
    see_gone(d, DRA_SLICES, GONE_SLICE);
    assert_true(is_refused(d, "two", "\"elasticgpu.io/gpu-core\":\"200\""));
    assert_string_equal(filter(d->w, "one", "\"elasticgpu.io/gpu-core\":\"100\"", "\"n\""), "n");
    show_shares(d, false);
    assert_string_equal(filter(d->w, "three", "\"elasticgpu.io/gpu-core\":\"100\"", "\"n\""), "n");
}

static void test_devices_with_taints_take_nothing_new(void **state) {
    struct dra_world *d = *state;
    see(d, DRA_SLICES,
        "{'metadata':{'name':'n-s'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'n','pool':{"
        "'name':'n','generation':2,'resourceSliceCount':1},'devices':[{'name':'gpu-0',"
        "'allowMultipleAllocations':true,'attributes':{'uuid':{'string':'GPU-n-0'}},"
        "'taints':[{'key':'gpu.elasticgpu.io/unhealthy','effect':'NoSchedule'}]},"
        "{'name':'gpu-1','attributes':{'uuid':{'string':'GPU-n-1'}}}]}}");
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
    /* One that is given out whole only, without a share. */
    see_share(d, "e", "");
    see_pod(d, "q", "e", "");
    run(d);
    answer_claim(d, "e", "", 2, "");
    size_t i = find_asked(d, "/resourceclaims/e/status", "\"device\":\"gpu-1\"}]");
    assert_null(strstr(body_of(d, i), "shareID"));
}

/* ---- where ---- */

static void test_nodes_that_cannot_take_the_pod(void **state) {
    static const char *const specs[] = {
        "'nodeSelector':{'host':'m'}",
        "'affinity':{'nodeAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':{"
        "'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name','operator':'In',"
        "'values':['m']}]}]}}}",
    };
    struct dra_world *d = *state;
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        see_share(d, "c", CORE("30"));
        see_pod(d, "p", "c", specs[i]);
        run(d);
        assert_false(is_asked(d, "/resourceclaims/c"));
    }
    see_pod(d, "p", "c", "");
    see_node(d, "n", "'unschedulable':true");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
    see_node(d, "n", "'taints':[{'key':'k','value':'v','effect':'NoSchedule'}]");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
    assert_int_equal(
        state_node_room(d->w->state, "n", (struct cpu_memory){.cpu = 1000, .memory = GIB}), 0);
    see_pod(d, "p", "c",
            "'tolerations':[{'operator':'Exists'}],'containers':[{'name':'m','resources':{"
            "'requests':{'cpu':'2'}}}]");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
    see_pod(d, "p", "c",
            "'tolerations':[{'operator':'Exists'}],'containers':[{'name':'m','resources':{"
            "'requests':{'cpu':'500m'}}}]");
    run(d);
    assert_true(is_asked(d, "/resourceclaims/c"));
}

/* Bound by something else before its claim was allocated: kubelet waits for it there. */
static void test_a_bound_pod_stays_where_it_is(void **state) {
    struct dra_world *d = *state;
    add_node(d, "m", 1);
    see_node(d, "m", "'unschedulable':true");
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "'nodeName':'m'");
    allocate(d, "c", "\"values\":[\"m\"]");
}

/* Two names of the pod for one claim. */
static void test_a_claim_that_the_pod_has_twice(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see(d, DRA_PODS,
        "{'metadata':{'name':'p','namespace':'d','uid':'p-p'},'spec':{'resourceClaims':["
        "{'name':'one','resourceClaimName':'c'},{'name':'two','resourceClaimName':'c'}]}}");
    run(d);
    answer_claim(d, "c", "", 2, "delete-protection");
    const char *body = body_of(d, find_asked(d, "/resourceclaims/c/status", "\"device\""));
    assert_null(strstr(strstr(body, "\"device\"") + 1, "\"device\""));
    assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 170);
}

/* Kubernetes may get other requests than `exactly` and `firstAvailable`. */
static void test_a_request_of_a_kind_that_is_not_known(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "c", 1, true, "'requests':[" REQUEST("gpu", "'count':1") ",{'name':'x'}]", "");
    see_pod(d, "p", "c", "");
    run(d);
    assert_string_equal(dra_why(&d->dra, "d", "p"),
                        "claim c: its requests are of classes of several allocators, or of a kind "
                        "that is not known; make a claim for each");
}

static void test_claims_of_a_pod_are_on_one_node(void **state) {
    struct dra_world *d = *state;
    add_node(d, "m", 1);
    see_slice(d, "m", 1, "aliquot", "aliquot");
    see_claim(d, "a", 1, true, SHARE,
              "'allocation':{'devices':{'results':[{'request':'gpu','driver':'gpu.elasticgpu.io',"
              "'pool':'m','device':'gpu-0','consumedCapacity':{'core':'5','memory':'1Gi'}}]},"
              "'nodeSelector':{'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name',"
              "'operator':'In','values':['m']}]}]}}");
    see_share(d, "b", CORE("30"));
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "a,b,c", GATED);
    run(d);
    answer_claim(d, "b", "", 2, "");
    answer_claim(d, "b", "/status", 3, "\"values\":[\"m\"]");
    assert_false(is_asked(d, "/pods/p"));
    answer_claim(d, "c", "", 2, "");
    answer_claim(d, "c", "/status", 3, "\"values\":[\"m\"]");
    open_gate(d, "p");
    assert_int_equal(free_of(d, "m", 0).core, 35);
}

/* ---- taken back ---- */

static void test_a_node_that_was_refused_is_left_out_for_a_while(void **state) {
    struct dra_world *d = *state;
    add_node(d, "m", 2);
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    see_claim(d, "c", 3, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "30", "24Gi"), "p"));
    see_claim(d, "c", 4, true, SHARE, "");
    assert_int_equal(d->dra.taken_back, 1);
    run(d);
    answer_claim(d, "c", "/status", 5, "\"values\":[\"m\"]");
    /* And that one, too: nothing is left, until the time is over. */
    see_claim(d, "c", 6, true, SHARE, "");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
    d->w->now += 10001;
    run(d);
    assert_true(is_asked(d, "/resourceclaims/c/status"));
}

/* A standing claim that is empty again after its user has ended. */
static void test_an_end_is_no_refusal(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "c", 3, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "30", "24Gi"), "former"));
    see_pod(d, "p", "c", "");
    see_claim(d, "c", 4, true, SHARE, "");
    assert_int_equal(d->dra.taken_back, 0);
    run(d);
    answer_claim(d, "c", "/status", 5, "\"values\":[\"n\"]");
}

/* ---- crashes, and answers that are none ---- */

static void test_the_next_leader_goes_on(void **state) {
    struct dra_world *d = *state;
    /* Between the finalizer and the status. */
    see_claim(d, "a", 2, true, SHARE, "");
    see_pod(d, "p", "a", GATED);
    run(d);
    answer_claim(d, "a", "/status", 3, "allocationTimestamp");
    open_gate(d, "p");
    /* Between the status and the gate. */
    see_claim(d, "b", 2, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "30", "24Gi"), "q"));
    see_pod(d, "q", "b", GATED);
    open_gate(d, "q");
    assert_int_equal(d->w->nasked, 0);
}

static void test_a_conflict_is_tried_again(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    run(d);
    respond(d->w, find_asked(d, "/resourceclaims/c", ""), 409, false, NULL);
    assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 200);
    run(d);
    assert_int_equal(d->w->nasked, 0);
    d->w->now += 200;
    allocate(d, "c", "");
}

static void test_a_refused_write_is_tried_less_and_less_often(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    for (unsigned i = 0; i < 3; i++) {
        run(d);
        respond(d->w, find_asked(d, "/resourceclaims/c", ""), 403, false, NULL);
        d->w->now += (1000u << i) - 1;
        run(d);
        assert_int_equal(d->w->nasked, 0);
        d->w->now += 1;
    }
}

/* The write may have been done: what it is for is kept until the watch shows it, or a minute. */
static void test_no_answer_keeps_the_share(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    run(d);
    answer_claim(d, "c", "", 2, "");
    respond(d->w, find_asked(d, "/resourceclaims/c/status", ""), 0, true, NULL);
    run(d);
    assert_int_equal(d->w->nasked, 0);
    assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 170);
    d->w->now += 60000;
    run(d);
    run(d);
    assert_true(is_asked(d, "/resourceclaims/c/status"));
    assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 170);
}

/* A finalizer that the watch shows was written. */
static void test_an_answer_by_the_watch(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    run(d);
    respond(d->w, find_asked(d, "/resourceclaims/c", ""), 0, true, NULL);
    see_claim(d, "c", 2, true, SHARE, "");
    run(d);
    answer_claim(d, "c", "/status", 3, "allocationTimestamp");
}

/* A list may be older than an answer. */
static void test_an_older_list(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    allocate(d, "c", "");
    dra_sync_begin(&d->dra, DRA_CLAIMS);
    see_share(d, "c", CORE("30"));
    dra_sync_end(&d->dra, DRA_CLAIMS);
    assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 170);
    dra_sync_begin(&d->dra, DRA_CLAIMS);
    dra_sync_end(&d->dra, DRA_CLAIMS);
    assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 200);
}

static void test_a_replica_that_does_not_lead_writes_nothing_more(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c", "");
    run(d);
    leading = false;
    dra_lost(&d->dra);
    answer_claim(d, "c", "", 2, "");
    assert_int_equal(d->w->nasked, 0);
    assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 200);
}

/* ---- gates ---- */

static void test_other_gates_go_first(void **state) {
    struct dra_world *d = *state;
    see_share(d, "c", CORE("30"));
    see_pod(d, "p", "c",
            "'schedulingGates':[{'name':'gpu.elasticgpu.io/placement'},{'name':'kueue'}]");
    run(d);
    assert_int_equal(d->w->nasked, 0);
    see_pod(d, "p", "c", GATED);
    run(d);
    assert_true(is_asked(d, "/resourceclaims/c"));
}

/* kube-scheduler allocates them, which it does without the gate only. */
static void test_claims_of_others_do_not_keep_the_gate(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "c", 1, false, "'requests':[{'name':'gpu','exactly':{'deviceClassName':'other'}}]",
              "");
    see_pod(d, "p", "c", GATED);
    open_gate(d, "p");
    see_pod(d, "q", "not-there-yet", GATED);
    run(d);
    assert_int_equal(d->w->nasked, 0);
}

/* Part of it is allocated and the rest has no room there: kube-scheduler takes it back. */
static void test_the_gate_goes_where_the_rest_has_no_room(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "a", 2, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "30", "24Gi"), "p"));
    see_share(d, "b", "'count':2");
    see_pod(d, "p", "a,b", GATED);
    run(d);
    assert_true(is_asked(d, "/pods/p"));
}

/* ---- several requests ---- */

static const char *allocate_devices(struct dra_world *d, const char *devices) {
    see_claim(d, "c", 1, true, devices, "");
    see_pod(d, "p", "c", "");
    run(d);
    return is_asked(d, "/resourceclaims/c/status")
               ? body_of(d, find_asked(d, "/resourceclaims/c/status", ""))
               : NULL;
}

static unsigned count_of(const char *text, const char *word) {
    unsigned n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        n++;
    return n;
}

static void test_count_takes_different_cards(void **state) {
    const char *body =
        allocate_devices(*state, "'requests':[" REQUEST("gpu", "'count':2," CORE("30")) "]");
    assert_int_equal(count_of(body, "\"device\":\"gpu-0\""), 1);
    assert_int_equal(count_of(body, "\"device\":\"gpu-1\""), 1);
    assert_int_equal(count_of(body, "\"source\":\"FromClass\""), 1);
}

#define TWO "'requests':[" REQUEST("a", CORE("30")) "," REQUEST("b", CORE("40")) "]"

static void test_two_requests_share_a_card(void **state) {
    const char *body = allocate_devices(*state, TWO);
    assert_true(count_of(body, "\"device\":\"gpu-0\"") == 2 ||
                count_of(body, "\"device\":\"gpu-1\"") == 2);
}

static void test_distinct_cards(void **state) {
    const char *body = allocate_devices(
        *state, TWO ",'constraints':[{'distinctAttribute':'gpu.elasticgpu.io/uuid'}]");
    assert_int_equal(count_of(body, "\"device\":\"gpu-0\""), 1);
    assert_int_equal(count_of(body, "\"device\":\"gpu-1\""), 1);
}

static void test_equal_values(void **state) {
    struct dra_world *d = *state;
    /* No card of node n has that much left, and of m only those of the second NUMA node. */
    add_node(d, "m", 4);
    see_claim(d, "x", 1, true, SHARE,
              ALLOCATED("n", RESULT("gpu-0", "90", "8Gi") "," RESULT("gpu-1", "90", "8Gi"), "x"));
    see_claim(d, "y", 1, true, SHARE,
              "'allocation':{'devices':{'results':[{'request':'gpu','driver':'gpu.elasticgpu.io',"
              "'pool':'m','device':'gpu-1','consumedCapacity':{'core':'50','memory':'1Gi'}}]}}");
    const char *body =
        allocate_devices(d, "'requests':[" REQUEST("a", CORE("80")) "," REQUEST(
                                "b", CORE("60")) "],"
                                                 "'constraints':[{'requests':['a','b'],'"
                                                 "matchAttribute':'gpu.elasticgpu.io/numa'}]");
    assert_int_equal(count_of(body, "\"device\":\"gpu-2\""), 1);
    assert_int_equal(count_of(body, "\"device\":\"gpu-3\""), 1);
}

static void test_constraints_that_cannot_be_met(void **state) {
    struct dra_world *d = *state;
    assert_null(allocate_devices(
        d, "'requests':[" REQUEST("a", CORE("80")) "," REQUEST(
               "b", CORE("60")) "],"
                                "'constraints':[{'matchAttribute':'gpu.elasticgpu.io/uuid'}]"));
    assert_null(allocate_devices(d, TWO ",'constraints':[{'matchAttribute':'other/name'}]"));
    assert_null(allocate_devices(d, TWO ",'constraints':[{'distinctAttribute':'other/name'}]"));
    assert_null(allocate_devices(d, TWO ",'constraints':[{}]"));
}

static void test_the_first_choice_that_can_be_had(void **state) {
    const char *body = allocate_devices(
        *state, "'requests':[{'name':'gpu','firstAvailable':["
                "{'name':'big','deviceClassName':'gpu.elasticgpu.io',"
                "'capacity':{'requests':{'memory':'200Gi'}}},"
                "{'name':'small','deviceClassName':'gpu.elasticgpu.io'," BOTH(
                    "10", "8Gi") "},"
                                 "{'name':'smaller','deviceClassName':'gpu.elasticgpu.io'," BOTH(
                                     "5", "4Gi") "}]}]");
    assert_non_null(strstr(body, "\"request\":\"gpu/small\""));
}

static void test_the_claim_names_a_policy(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "x", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "30", "24Gi"), "x"));
    const char *body = allocate_devices(
        d, SHARE ",'config':[{'opaque':{'driver':'gpu.elasticgpu.io','parameters':{"
                 "'apiVersion':'gpu.elasticgpu.io/v1alpha1','kind':'ShareConfig',"
                 "'placementPolicy':'spread'}}}]");
    assert_non_null(strstr(body, "\"device\":\"gpu-1\""));
    assert_int_equal(count_of(body, "\"source\":\"FromClaim\""), 1);
}

/* ---- why a claim waits ---- */

static void test_events_say_why(void **state) {
    static const struct {
        const char *devices, *text;
    } rows[] = {
        {"'requests':[" REQUEST("gpu", CORE("0.5")) "]",
         "claim c: capacity core is not a whole number"},
        {"'requests':[" REQUEST("gpu", CORE("150")) "]", "core is a percentage of one card"},
        {"'requests':[" REQUEST("gpu", "'capacity':{'requests':{'memory':'4096'}}") "]",
         "memory is below 1 MiB"},
        {"'requests':[" REQUEST("gpu", "'adminAccess':true") "]", "adminAccess"},
        {"'requests':[" REQUEST("gpu", "'selectors':[{'cel':{'expression':'x'}}]") "]",
         "a selector has what is not evaluated here: x: the name x at column 1"},
        {"'requests':[" REQUEST("gpu", "'selectors':[{'cel':{'expression':'false'}}]") "]",
         "1 node(s): too few cards match the selectors"},
        {SHARE ",'config':[{'opaque':{'driver':'gpu.elasticgpu.io','parameters':{}}}]",
         "must be an object of apiVersion"},
        {"'requests':[" REQUEST("gpu", CORE("30")) ",{'name':'b','exactly':{"
                                                   "'deviceClassName':'other'}}]",
         "classes of several allocators"},
        {"'requests':[" REQUEST("gpu", "'count':3") "]",
         "no node has room for the claims of pod p: 1 node(s): node has fewer GPUs than asked for. "
         "Free: n card 0: 100 %, 80Gi; n card 1: 100 %, 80Gi"},
    };
    struct dra_world *d = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        d->w->now += 600000; /* every Event is written */
        assert_null(allocate_devices(d, rows[i].devices));
        event_writer_run(d->w->events, d->w->now += 1000);
        unsigned told = 0;
        while (d->w->nasked > 0) {
            told += strstr(body_of(d, 0), rows[i].text) != NULL;
            respond(d->w, 0, 201, false, NULL);
        }
        if (told != 2) /* of the pod, and of the claim */
            fail_msg("%u Events: %s", told, rows[i].text);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_three_writes_in_their_order),
        TEST(test_a_pod_without_a_gate),
        TEST(test_core_alone_comes_with_its_part_of_memory),
        TEST(test_memory_is_not_oversubscribed),
        TEST(test_shares_are_packed),
        TEST(test_a_share_counts_once_at_each_step),
        TEST(test_allocations_of_others_count),
        TEST(test_slices_that_go_leave_the_shares),
        TEST(test_a_node_waits_for_the_card_of_a_claim),
        TEST(test_a_card_that_comes_back_has_its_shares),
        TEST(test_both_ways_share_a_card),
        TEST(test_each_card_has_one_allocator),
        TEST(test_a_card_that_is_handed_over_with_its_claims),
        TEST(test_a_card_of_kube_scheduler_stays_its_own),
        TEST(test_devices_with_taints_take_nothing_new),
        TEST(test_nodes_that_cannot_take_the_pod),
        TEST(test_a_bound_pod_stays_where_it_is),
        TEST(test_a_claim_that_the_pod_has_twice),
        TEST(test_a_request_of_a_kind_that_is_not_known),
        TEST(test_claims_of_a_pod_are_on_one_node),
        TEST(test_a_node_that_was_refused_is_left_out_for_a_while),
        TEST(test_an_end_is_no_refusal),
        TEST(test_the_next_leader_goes_on),
        TEST(test_a_conflict_is_tried_again),
        TEST(test_a_refused_write_is_tried_less_and_less_often),
        TEST(test_no_answer_keeps_the_share),
        TEST(test_an_answer_by_the_watch),
        TEST(test_an_older_list),
        TEST(test_a_replica_that_does_not_lead_writes_nothing_more),
        TEST(test_other_gates_go_first),
        TEST(test_claims_of_others_do_not_keep_the_gate),
        TEST(test_the_gate_goes_where_the_rest_has_no_room),
        TEST(test_count_takes_different_cards),
        TEST(test_two_requests_share_a_card),
        TEST(test_distinct_cards),
        TEST(test_equal_values),
        TEST(test_constraints_that_cannot_be_met),
        TEST(test_the_first_choice_that_can_be_had),
        TEST(test_the_claim_names_a_policy),
        TEST(test_events_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
