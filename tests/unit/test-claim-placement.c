/* SPDX-License-Identifier: Apache-2.0 */

/* A pod with ResourceClaims gets the cards that an equal pod with resource names gets. */

#include "claim-members-world.h"

#include "model/gpu_link.h"

/* Of four cards the first and the third have NVLinks, and the second and the fourth. */
static void show_linked(struct stage *s, const char *node) {
    for (unsigned i = 0; i < 4; i++) {
        struct gpu_object gpu = {
            .index = i, .memory = 80 * GIB, .healthy = true, .numa = (int8_t) (i / 2), .nlinks = 4};
        snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", node, i);
        snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", node, i);
        snprintf(gpu.node, sizeof(gpu.node), "%s", node);
        for (unsigned j = 0; j < 4; j++)
            gpu.links[j] = j == i ? LINK_UNKNOWN : (i + j) % 2 ? LINK_SYSTEM : LINK_NVLINK + 3;
        assert_int_equal(state_gpu_seen(s->w->state, &gpu, NULL), 0);
    }
}

/* Node "n" with two cards, "m" with four that are linked, both partly used. */
static void set_up(struct stage *s) {
    add_node(s->d, "m", 4);
    show_linked(s, "m");
    run_user(s, "a", RESULT("gpu-1", "20", "16Gi"), 0, "");
}

static void put_cards(char *out, size_t size, const char *uuid) {
    size_t len = strlen(out);
    (void) snprintf(out + len, size - len, "%s ", uuid);
}

/* The cards that a pod with resource names gets, by the extender; it gives them back. */
static void cards_by_names(struct stage *s, const char *resources, const char *notes, char *out,
                           size_t size) {
    show_pod(s->w, "named", resources, NULL, notes);
    s->w->annotations = notes;
    (void) ask_nodes(s->w, true, "named", resources, "\"n\",\"m\"");
    struct state_pod *pod = state_pod_find(s->w->state, "named");
    assert_int_equal(pod->stage, POD_ASSUMED);
    out[0] = '\0';
    for (uint32_t i = 0; i < pod->nallocations; i++)
        put_cards(out, size, pod->allocations[i].device.uuid);
    state_pod_ended(s->w->state, "named");
}

static void cards_by_claim(struct stage *s, const char *name, const char *devices,
                           const char *notes, char *out, size_t size) {
    char meta[512], id[128];
    see_claim(s->d, name, 1, true, devices, "");
    (void) snprintf(meta, sizeof(meta), ",'annotations':{%s}", notes);
    show_user(s, name, name, meta, "," GATED, "");
    run(s->d);
    (void) snprintf(id, sizeof(id), "resourceclaim/u-%s", name);
    const struct state_reserved *kept = state_reserved_find(s->w->state, id);
    assert_non_null(kept);
    out[0] = '\0';
    for (uint32_t i = 0; i < kept->ndevices; i++)
        put_cards(out, size, kept->devices[i].uuid);
    respond(s->w, 0, 409, false, NULL);
    see_gone(s->d, DRA_PODS, "{'metadata':{'name':'%s','namespace':'d','uid':'p-%s'}}", name, name);
    (void) snprintf(id, sizeof(id), "p-%s", name);
    state_pod_ended(s->w->state, id);
}

#define THIRD "\"elasticgpu.io/gpu-core\":\"30\",\"elasticgpu.io/gpu-memory\":\"25769803776\""
#define THIRD_CLAIM "'requests':[" REQUEST("gpu", BOTH("30", "24Gi")) "]"
#define PAIR "\"elasticgpu.io/gpu-core\":\"200\""
#define PAIR_CLAIM "'requests':[" REQUEST("gpu", "'count':2") "]"
#define POLICY(policy) "\"elasticgpu.io/placement-policy\":\"" policy "\""

static void test_equal_pods(void **state) {
    static const struct {
        const char *notes, *resources, *devices;
    } cases[] = {
        {"", THIRD, THIRD_CLAIM},
        {"", PAIR, PAIR_CLAIM},
        {POLICY("spread"), THIRD, THIRD_CLAIM},
        {POLICY("binpack"), THIRD, THIRD_CLAIM},
        {POLICY("best-fit"), THIRD, THIRD_CLAIM},
        {"\"elasticgpu.io/topology\":\"best\"", PAIR, PAIR_CLAIM},
        {"\"elasticgpu.io/topology\":\"restricted\"", PAIR, PAIR_CLAIM},
        {"\"elasticgpu.io/gpu-uuid\":\"GPU-m-3\"", THIRD, THIRD_CLAIM},
    };
    struct stage *s = *state;
    set_up(s);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char names[256], claim[256], name[8];
        (void) snprintf(name, sizeof(name), "c%zu", i);
        cards_by_names(s, cases[i].resources, cases[i].notes, names, sizeof(names));
        cards_by_claim(s, name, cases[i].devices, cases[i].notes, claim, sizeof(claim));
        print_message("%zu: %s\n", i, names);
        assert_string_equal(claim, names);
    }
}

static void test_the_policy_of_the_namespace(void **state) {
    struct stage *s = *state;
    char names[256], claim[256], before[256];
    set_up(s);
    cards_by_claim(s, "x", THIRD_CLAIM, "", before, sizeof(before));
    assert_int_equal(state_namespace_policy(s->w->state, "d", "spread", "spread"), 0);
    cards_by_names(s, THIRD, "", names, sizeof(names));
    cards_by_claim(s, "y", THIRD_CLAIM, "", claim, sizeof(claim));
    assert_string_equal(claim, names);
    assert_string_not_equal(claim, before);
    /* What the claim says goes before that, and what the pod says before both. */
    const char *config = THIRD_CLAIM ",'config':[{'opaque':{'driver':'gpu.elasticgpu.io',"
                                     "'parameters':{'apiVersion':'gpu.elasticgpu.io/v1alpha1',"
                                     "'kind':'ShareConfig','placementPolicy':'binpack'}}}]";
    cards_by_claim(s, "z", config, "", claim, sizeof(claim));
    assert_string_equal(claim, before);
    cards_by_claim(s, "v", config, POLICY("spread"), claim, sizeof(claim));
    assert_string_equal(claim, names);
}

static void test_annotations_that_make_no_sense(void **state) {
    struct stage *s = *state;
    see_claim(s->d, "c", 1, true, THIRD_CLAIM, "");
    show_user(s, "odd", "c", ",'annotations':{'elasticgpu.io/topology':'very good'}", "," GATED,
              "");
    run(s->d);
    event_writer_run(s->w->events, s->w->now);
    assert_true(s->w->nasked > 0);
    for (size_t i = 0; i < s->w->nasked; i++)
        assert_non_null(strstr(body_of(s->d, i), "GPUClaimWaits"));
    answer_events(s);
}

/* A quota counts a claim once, however many pods use it. */
static void test_a_quota_and_a_claim_of_two_pods(void **state) {
    struct stage *s = *state;
    struct quota_object quota = {.namespace = "d", .name = "q"};
    quota.counted[QUOTA_CORE] = true;
    quota.max[QUOTA_CORE] = 90;
    assert_int_equal(quotas_seen(&s->quotas, QUOTA_OF_OURS, &quota), 0);
    see_share(s->d, "c", CORE("60"));
    wait_for(s, "one", "c", 0, "");
    wait_for(s, "two", "c", 0, "");
    allocate(s->d, "c", "allocationTimestamp");
    see_share(s->d, "e", CORE("30"));
    wait_for(s, "three", "e", 0, "");
    open_gate(s->d, "one");
    open_gate(s->d, "two");
    assert_int_equal(pod_of(s, "three")->stage, POD_ASSUMED);
    see_share(s->d, "f", CORE("10"));
    wait_for(s, "four", "f", 0, "");
    s->w->now += 2000;
    run(s->d);
    assert_int_equal(pod_of(s, "four")->stage, POD_PENDING);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_stage, clear_stage)
    const struct CMUnitTest tests[] = {
        TEST(test_equal_pods),
        TEST(test_the_policy_of_the_namespace),
        TEST(test_annotations_that_make_no_sense),
        TEST(test_a_quota_and_a_claim_of_two_pods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
