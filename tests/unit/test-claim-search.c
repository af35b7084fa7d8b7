/* SPDX-License-Identifier: Apache-2.0 */

/* How far the search for places of ResourceClaims goes, and what it takes into account. */

#include "claim-allocation-world.h"

#include "base/cleanup.h"
#include "kube/objects/share_config.h"

#define EFFORT 2048 /* DRA_EFFORT of dra_search.h */

/* ---- work has an end ---- */

static unsigned placements;
static uint64_t slow_ms; /* that one takes */

static uint64_t any_key(void *self, const struct state_pod *pod) {
    (void) self, (void) pod;
    return 0;
}

static bool count_placement(void *self, const struct state_pod *pod, const struct state_node *node,
                            uint64_t allowed[static GPU_CONTAINERS_MAX]) {
    (void) pod, (void) node, (void) allowed;
    ((struct dra_world *) self)->w->now += slow_ms;
    placements++;
    return true;
}

static void count_placements(struct dra_world *d) {
    const struct state_selector counter = {"counter", PLACE_OTHER_WAY, d, any_key, count_placement};
    placements = 0;
    slow_ms = 0;
    assert_int_equal(state_add_selector(d->w->state, &counter), 0);
}

static bool is_asked_for(struct dra_world *d, const char *devices) {
    see_claim(d, "c", 1, true, devices, "");
    see_pod(d, "p", "c", "'nodeSelector':{'host':'m'}");
    run(d);
    return is_asked(d, "/resourceclaims/c/status");
}

static void test_eight_equal_constraints(void **state) {
    static const unsigned cards[] = {8, 16};
    struct dra_world *d = *state;
    _cleanup_buf_ struct buf devices = BUF_INIT(1 << 16);
    buf_puts(&devices, "'requests':[" REQUEST("a", "'count':1") "],'constraints':[");
    for (unsigned i = 0; i < 8; i++)
        buf_printf(&devices, "%s{'matchAttribute':'gpu.elasticgpu.io/uuid'}", i ? "," : "");
    buf_puts(&devices, "]");
    for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
        add_node(d, "m", cards[i]);
        count_placements(d);
        assert_true(is_asked_for(d, buf_str(&devices)));
        assert_in_range(placements, cards[i], EFFORT);
        respond(d->w, find_asked(d, "/resourceclaims/c/status", ""), 404, false, NULL);
        d->w->now += 1000;
    }
}

/* Each request may be on any of eight cards, and the last one as its constraint says. */
static bool is_met(struct dra_world *d, const char *last) {
    _cleanup_buf_ struct buf devices = BUF_INIT(1 << 16);
    buf_puts(&devices, "'requests':[");
    for (unsigned i = 0; i < 8; i++)
        buf_printf(&devices, "%s{'name':'r%u','exactly':{'deviceClassName':'%s',%s}}", i ? "," : "",
                   i, "gpu.elasticgpu.io", CORE("5"));
    buf_puts(&devices, "],'constraints':[");
    for (unsigned i = 0; i < 8; i++)
        buf_printf(&devices, "%s{'requests':['r%u'],'matchAttribute':'%s'}", i ? "," : "", i,
                   i < 7 ? "gpu.elasticgpu.io/uuid" : last);
    buf_puts(&devices, "]");
    add_node(d, "m", 8);
    count_placements(d);
    return is_asked_for(d, buf_str(&devices));
}

static void test_what_leads_to_no_placement_counts(void **state) {
    assert_false(is_met(*state, "other/name"));
    assert_int_equal(placements, 0);
}

/* The first place is kept, though not all could be compared. */
static void test_a_search_that_is_cut_short(void **state) {
    assert_true(is_met(*state, "gpu.elasticgpu.io/uuid"));
    assert_in_range(placements, 1, 2 * EFFORT);
}

int __real_share_config_of(const struct device_config *configs, uint32_t n, const char *request,
                           struct share_config *ret, struct err *err);
int __wrap_share_config_of(const struct device_config *configs, uint32_t n, const char *request,
                           struct share_config *ret, struct err *err);
static unsigned configs_read;

int __wrap_share_config_of(const struct device_config *configs, uint32_t n, const char *request,
                           struct share_config *ret, struct err *err) {
    configs_read++;
    return __real_share_config_of(configs, n, request, ret, err);
}

/* More than eight choices for each node are not tried, and what configs say of each is read once,
 * of the class and of the claim. */
static void test_many_choices_on_many_nodes(void **state) {
    struct dra_world *d = *state;
    _cleanup_buf_ struct buf devices = BUF_INIT(1 << 16);
    const unsigned nodes = 60;
    for (unsigned i = 0; i < nodes; i++) {
        char name[8];
        (void) snprintf(name, sizeof(name), "m%u", i);
        add_node(d, name, 1);
    }
    buf_puts(&devices, "'requests':[");
    for (unsigned i = 0; i < 16; i++) {
        if (i % 8 == 0)
            buf_printf(&devices, "%s{'name':'r%u','firstAvailable':[", i ? "]}," : "", i);
        buf_printf(&devices,
                   "%s{'name':'c%u','deviceClassName':'gpu.elasticgpu.io','capacity':{"
                   "'requests':{'memory':'%uGi'}}}",
                   i % 8 ? "," : "", i, 200 + i);
    }
    buf_puts(&devices, "]}]");
    count_placements(d);
    see_claim(d, "c", 1, true, buf_str(&devices), "");
    see_pod(d, "p", "c", "");
    configs_read = 0;
    run(d);
    assert_int_equal(configs_read, 2 * 16);
    assert_false(is_asked(d, "/resourceclaims/c/status"));
    assert_in_range(placements, 8 * nodes, EFFORT + 8 * (nodes + 1));
}

static unsigned changes;

static void note_change(void *userdata) {
    (void) userdata;
    changes++;
}

static void test_a_run_ends_after_a_while(void **state) {
    struct dra_world *d = *state;
    const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        see_share(d, names[i], CORE("5"));
        see_pod(d, names[i], names[i], "");
    }
    count_placements(d);
    slow_ms = 20;
    changes = 0;
    d->dra.changed = note_change;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(d->w->nasked, i);
        run(d);
        assert_int_equal(changes, i < 2 ? i + 1 : 2);
    }
    assert_int_equal(d->w->nasked, 3);
}

/* ---- which devices ---- */

#define SLICE(node, pool, generation, devices)                                                     \
    "{'metadata':{'name':'" node "-x'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'" node     \
    "','pool':{'name':'" pool "','generation':" generation                                         \
    ",'resourceSliceCount':1},'devices':[" devices "]}}"
#define LEFT_CARD                                                                                  \
    "{'name':'gpu-0','attributes':{'uuid':{'string':'GPU-n-0'},'allocator':{'string':"             \
    "'kube-scheduler'}}}"

/* Of the slice of another node, which has the UUID of a card of node n, and says that it is in the
 * pool of that. */
static void test_slices_of_other_nodes(void **state) {
    struct dra_world *d = *state;
    add_node(d, "m", 1);
    see(d, DRA_SLICES,
        SLICE("m", "n", "9",
              LEFT_CARD ",{'name':'gpu-7','attributes':{'uuid':{'string':'GPU-n-1'}}}"));
    assert_int_equal(d->dra.others, 0);
    assert_string_equal(filter(d->w, "two", "\"elasticgpu.io/gpu-core\":\"200\"", "\"n\""), "n");
    state_pod_gone(d->w->state, "two");
    see_claim(d, "c", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-7", "40", "8Gi"), "x"));
    assert_int_equal(free_of(d, "n", 1).core, 100);
    see_gone(d, DRA_SLICES, SLICE("m", "n", "9", ""));
    see_share(d, "e", CORE("30"));
    see_pod(d, "p", "e", "");
    run(d);
    assert_true(is_asked(d, "/resourceclaims/e"));
}

/* The agent writes the next generation slice by slice. */
static void test_a_device_that_is_in_two_slices(void **state) {
    struct dra_world *d = *state;
    see(d, DRA_SLICES, SLICE("n", "n", "2", LEFT_CARD));
    assert_int_equal(d->dra.others, 1);
    see_gone(d, DRA_SLICES, SLICE("n", "n", "2", ""));
    assert_int_equal(d->dra.others, 0);
    see_share(d, "c", "'count':2");
    see_pod(d, "p", "c", "");
    run(d);
    assert_true(is_asked(d, "/resourceclaims/c"));
}

#define DEVICE_OF(card)                                                                            \
    "{'name':'gpu-" card "','attributes':{'uuid':{'string':'GPU-n-" card "'}},"                    \
    "'allowMultipleAllocations':true}"

/* Of a pool in two slices the claim's device is not in the first. */
static void test_a_card_that_is_gone(void **state) {
    struct dra_world *d = *state;
    see(d, DRA_SLICES,
        "{'metadata':{'name':'n-s'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'n','pool':{"
        "'name':'n','generation':2,'resourceSliceCount':2},'devices':[" DEVICE_OF("0") "]}}");
    see_claim(d, "c", 1, true, SHARE,
              ALLOCATED("n", RESULT("gpu-9", "40", "8Gi") "," RESULT("gpu-0", "20", "8Gi"), "x"));
    see_share(d, "e", CORE("30"));
    see_pod(d, "p", "e", "");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/e"));
    see(d, DRA_SLICES,
        "{'metadata':{'name':'n-t'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'n','pool':{"
        "'name':'n','generation':2,'resourceSliceCount':2},'devices':[" DEVICE_OF("1") "]}}");
    d->w->now += 1000;
    run(d);
    assert_true(is_asked(d, "/resourceclaims/e"));
    assert_int_equal(free_of(d, "n", 0).core + free_of(d, "n", 1).core, 150);
}

/* A device has the name of its card, so that it is known without a slice. */
static void test_a_card_without_a_slice(void **state) {
    struct dra_world *d = *state;
    see_gone(d, DRA_SLICES,
             "{'metadata':{'name':'n-s'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'n',"
             "'pool':{'name':'n','generation':1,'resourceSliceCount':1}}}");
    see_claim(d, "c", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-n-1", "40", "8Gi"), "x"));
    assert_int_equal(free_of(d, "n", 1).core, 60);
    run(d);
    assert_int_equal(d->dra.unresolved, 0);
}

/* ---- which nodes ---- */

#define CPU(n) "'containers':[{'name':'m','resources':{'requests':{'cpu':'" n "'}}}]"

static void see_thirsty(struct dra_world *d, const char *name, const char *spec) {
    see_share(d, name, CORE("5"));
    see_pod(d, name, name, spec);
}

/* Each pod asks for half of the node's CPU. */
static void test_pods_on_their_way_take_room(void **state) {
    struct dra_world *d = *state;
    assert_int_equal(
        state_node_room(d->w->state, "n", (struct cpu_memory){.cpu = 2000, .memory = GIB}), 0);
    see_thirsty(d, "a", CPU("1"));
    see_thirsty(d, "b", CPU("1"));
    see_thirsty(d, "c", CPU("1"));
    run(d);
    assert_true(is_asked(d, "/resourceclaims/b"));
    assert_false(is_asked(d, "/resourceclaims/c"));
    answer_claim(d, "a", "", 2, "");
    answer_claim(d, "a", "/status", 3, "allocationTimestamp");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
    /* Another claim of a pod that is counted already. */
    see_share(d, "e", CORE("5"));
    see_pod(d, "a", "a,e", CPU("1"));
    run(d);
    assert_true(is_asked(d, "/resourceclaims/e"));
    see_gone(d, DRA_PODS,
             "{'metadata':{'name':'b','namespace':'d','uid':'p-b'},"
             "'spec':{'resourceClaims':[{'name':'x'}]}}");
    run(d);
    assert_true(is_asked(d, "/resourceclaims/c"));
}

/* ---- pods that wait for nothing, or for what does not come ---- */

static void see_gated(struct dra_world *d, const char *spec) {
    see(d, DRA_PODS, "{'metadata':{'name':'p','namespace':'d','uid':'p-p'},'spec':{%s}}", spec);
}

static void test_a_gate_without_claims(void **state) {
    struct dra_world *d = *state;
    see_gated(d, GATED ",'resourceClaims':[]");
    open_gate(d, "p");
    see_gated(d, GATED);
    open_gate(d, "p");
    assert_non_null(d->dra.pods);
    see_gated(d, "'containers':[]");
    assert_null(d->dra.pods);
    see_gated(d, GATED);
    see_gone(d, DRA_PODS, "{'metadata':{'name':'p','namespace':'d','uid':'p-p'}}");
    assert_null(d->dra.pods);
}

static bool is_told(struct dra_world *d, const char *text) {
    bool told = false;
    event_writer_run(d->w->events, d->w->now);
    while (d->w->nasked > 0) {
        told |= strstr(body_of(d, 0), text) != NULL;
        respond(d->w, 0, 201, false, NULL);
    }
    return told;
}

static void test_an_event_about_a_claim_that_does_not_come(void **state) {
    struct dra_world *d = *state;
    see_pod(d, "p", "unreadable", GATED);
    run(d);
    assert_false(is_told(d, "unreadable"));
    d->w->now += 9999;
    run(d);
    assert_false(is_told(d, "unreadable"));
    d->w->now += 1;
    run(d);
    assert_true(is_told(d, "claim unreadable: it is not there, or cannot be read"));
}

/* Those of the class count for each request: one of 22 configs is good for two. */
static void test_more_configs_than_fit(void **state) {
    struct dra_world *d = *state;
    _cleanup_buf_ struct buf configs = BUF_INIT(1 << 16);
    for (unsigned i = 0; i < 22; i++)
        buf_printf(&configs, "%s{'opaque':{'driver':'other','parameters':{}}}", i ? "," : "");
    see(d, DRA_CLASSES,
        "{'metadata':{'name':'gpu.elasticgpu.io','labels':{'gpu.elasticgpu.io/allocator':'aliquot'"
        "}},'spec':{'selectors':[{'cel':{'expression':'false'}}],'config':[%s]}}",
        buf_str(&configs));
    see_claim(d, "c", 1, true,
              "'requests':[" REQUEST("a", CORE("5")) "," REQUEST("b", CORE("5")) "," REQUEST(
                  "c", CORE("5")) "]",
              "");
    see_pod(d, "p", "c", GATED);
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c"));
    assert_true(is_told(d, "more configs than fit into an allocation"));
    see_claim(d, "c", 2, true,
              "'requests':[" REQUEST("a", CORE("5")) "," REQUEST("b", CORE("5")) "]", "");
    run(d);
    assert_true(is_asked(d, "/resourceclaims/c/status"));
}

/* ---- names of choices ---- */

#define CHOICES                                                                                    \
    "'requests':[{'name':'gpu','firstAvailable':[{'name':'big','deviceClassName':"                 \
    "'gpu.elasticgpu.io','capacity':{'requests':{'memory':'200Gi'}}},{'name':'small',"             \
    "'deviceClassName':'gpu.elasticgpu.io','capacity':{'requests':{'core':'5'}}}]},"               \
    "{'name':'b','exactly':{'deviceClassName':'gpu.elasticgpu.io','capacity':{'requests':{"        \
    "'core':'5'}}}}]"

static unsigned cards_of(struct dra_world *d, const char *devices) {
    see_claim(d, "c", 1, true, devices, "");
    see_pod(d, "p", "c", "");
    run(d);
    const char *body = body_of(d, find_asked(d, "/resourceclaims/c/status", ""));
    return (unsigned) (strstr(body, "\"device\":\"gpu-0\"") != NULL) +
           (strstr(body, "\"device\":\"gpu-1\"") != NULL);
}

static void test_a_constraint_names_a_choice(void **state) {
    assert_int_equal(cards_of(*state, CHOICES ",'constraints':[{'requests':['gpu/small','b'],"
                                              "'distinctAttribute':'gpu.elasticgpu.io/uuid'}]"),
                     2);
}

static void test_a_constraint_of_another_choice(void **state) {
    assert_int_equal(cards_of(*state, CHOICES ",'constraints':[{'requests':['gpu/big','b'],"
                                              "'distinctAttribute':'gpu.elasticgpu.io/uuid'}]"),
                     1);
}

static void test_a_config_names_a_choice(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "x", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "30", "24Gi"), "x"));
    (void) cards_of(d, CHOICES ",'config':[{'requests':['gpu/small'],'opaque':{'driver':"
                               "'gpu.elasticgpu.io','parameters':{'apiVersion':"
                               "'gpu.elasticgpu.io/v1alpha1','kind':'ShareConfig',"
                               "'placementPolicy':'spread'}}}]");
    assert_null(strstr(body_of(d, find_asked(d, "/resourceclaims/c/status", "")), "gpu-0"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_eight_equal_constraints),
        TEST(test_what_leads_to_no_placement_counts),
        TEST(test_a_search_that_is_cut_short),
        TEST(test_many_choices_on_many_nodes),
        TEST(test_a_run_ends_after_a_while),
        TEST(test_slices_of_other_nodes),
        TEST(test_a_device_that_is_in_two_slices),
        TEST(test_a_card_that_is_gone),
        TEST(test_a_card_without_a_slice),
        TEST(test_pods_on_their_way_take_room),
        TEST(test_a_gate_without_claims),
        TEST(test_an_event_about_a_claim_that_does_not_come),
        TEST(test_more_configs_than_fit),
        TEST(test_a_constraint_names_a_choice),
        TEST(test_a_constraint_of_another_choice),
        TEST(test_a_config_names_a_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
