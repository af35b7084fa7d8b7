/* SPDX-License-Identifier: Apache-2.0 */

/* ResourceClaims on MIG instances that are given out in shares. */

#include "claim-allocation-world.h"

/* Card 1 of the node is in MIG mode, with one instance. */
static void show_instance(struct dra_world *d, const char *uuid) {
    struct gpu_object gpu = {.index = 1,
                             .memory = 40 * GIB,
                             .capacity = 40 * GIB,
                             .core = 42,
                             .has_capacity = true,
                             .healthy = true,
                             .name = "n-01-gi1-ci0",
                             .node = "n",
                             .parent = "GPU-n-1",
                             .mig = {.profile = "3g.40gb", .size = 4, .slices = 3}};
    struct gpu_object card = {.index = 1,
                              .memory = 80 * GIB,
                              .no_shares = true,
                              .has_capacity = true,
                              .healthy = true,
                              .name = "n-01",
                              .node = "n",
                              .uuid = "GPU-n-1",
                              .mig = {.enabled = true}};
    (void) snprintf(gpu.uuid, sizeof(gpu.uuid), "%s", uuid);
    assert_int_equal(state_gpu_seen(d->w->state, &card, "{}"), 0);
    assert_int_equal(state_gpu_seen(d->w->state, &gpu, "{}"), 0);
}

#define INSTANCE(n)                                                                                \
    "{'name':'mig-n-" n                                                                            \
    "','allowMultipleAllocations':true,'attributes':{'uuid':{'string':'MIG-n-" n                   \
    "'},'profile':{'string':'3g.40gb'},'parentUUID':{'string':'GPU-n-1'},'allocator':{"            \
    "'string':'aliquot'},'index':{'int':1}},"                                                      \
    "'capacity':{'core':{'value':'42'},'memory':{'value':'40Gi'}}}"

static void see_devices(struct dra_world *d, unsigned generation, const char *devices) {
    see(d, DRA_SLICES,
        "{'metadata':{'name':'n-s'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'n',"
        "'pool':{'name':'n','generation':%u,'resourceSliceCount':1},'devices':[%s]}}",
        generation, devices);
}

/* The allocation that is written; NULL: none is. */
static const char *allocate_share(struct dra_world *d, const char *name, const char *amounts) {
    _cleanup_buf_ struct buf devices = BUF_INIT(1 << 16);
    char path[64], pod[16];
    (void) snprintf(path, sizeof(path), "/resourceclaims/%s/status", name);
    (void) snprintf(pod, sizeof(pod), "p%s", name);
    buf_printf(&devices,
               "'requests':[{'name':'gpu','exactly':{'deviceClassName':'gpu.elasticgpu.io'%s%s}}]",
               *amounts ? "," : "", amounts);
    see_claim(d, name, 1, true, buf_str(&devices), "");
    see_pod(d, pod, name, "");
    run(d);
    return is_asked(d, path) ? body_of(d, find_asked(d, path, "")) : NULL;
}

/* Percent is of a card: what the instance has of it, and no more. */
static void test_shares_of_an_instance(void **state) {
    struct dra_world *d = *state;
    show_instance(d, "MIG-n-1");
    see_devices(d, 2, INSTANCE("1"));
    const char *body = allocate_share(d, "a", BOTH("30", "20Gi"));
    assert_non_null(strstr(body, "\"device\":\"mig-n-1\""));
    answer_claim(d, "a", "/status", 3, "");
    assert_null(allocate_share(d, "b", BOTH("20", "10Gi")));
    body = allocate_share(d, "c", BOTH("12", "20Gi"));
    assert_non_null(strstr(body, "\"device\":\"mig-n-1\""));
}

/* No instance is a whole card, and compute alone comes with its part of the instance's memory. */
static void test_requests_without_an_amount(void **state) {
    struct dra_world *d = *state;
    show_instance(d, "MIG-n-1");
    see_devices(d, 2, INSTANCE("1"));
    assert_null(allocate_share(d, "a", ""));
    const char *body = allocate_share(d, "b", CORE("21"));
    assert_non_null(strstr(body, "\"core\":\"21\""));
    assert_non_null(strstr(body, "\"memory\":\"20Gi\""));
}

/* Claims that wait get one that is made in its place under another UUID. */
static void test_an_instance_that_is_gone(void **state) {
    struct dra_world *d = *state;
    show_instance(d, "MIG-n-1");
    see_devices(d, 2, INSTANCE("1"));
    see_claim(d, "a", 1, true, SHARE, ALLOCATED("n", RESULT("mig-n-1", "42", "40Gi"), "x"));
    assert_null(allocate_share(d, "b", BOTH("20", "10Gi")));
    see_devices(d, 3, "");
    state_gpu_gone(d->w->state, "n-01-gi1-ci0");
    assert_null(allocate_share(d, "c", BOTH("20", "10Gi")));
    show_instance(d, "MIG-n-2");
    see_devices(d, 4, INSTANCE("2"));
    run(d);
    (void) find_asked(d, "/resourceclaims/b/status", "\"device\":\"mig-n-2\"");
    (void) find_asked(d, "/resourceclaims/c/status", "\"device\":\"mig-n-2\"");
}

#define CARD                                                                                       \
    "{'name':'gpu-0','allowMultipleAllocations':true,'attributes':{'uuid':{'string':'GPU-n-0'},"   \
    "'allocator':{'string':'aliquot'}},"                                                           \
    "'capacity':{'core':{'value':'100'},'memory':{'value':'80Gi'}}}"
#define PLACEMENT                                                                                  \
    "{'name':'gpu-n-1-3g-40gb-0','attributes':{'profile':{'string':'3g.40gb'},'parentUUID':{"      \
    "'string':'GPU-n-1'},'allocator':{'string':'kube-scheduler'}},"                                \
    "'capacity':{'core':{'value':'42'},'memory':{'value':'40Gi'}}}"

/* An instance that is made for a claim of kube-scheduler's is no card of the state; the other card
 * of the node is given out as ever. */
static void test_what_kube_scheduler_has_of_the_node(void **state) {
    struct dra_world *d = *state;
    see_devices(d, 2, CARD "," PLACEMENT);
    see_claim(d, "a", 1, true, SHARE,
              ALLOCATED("n", RESULT("gpu-n-1-3g-40gb-0", "42", "40Gi"), "x"));
    const char *body = allocate_share(d, "b", BOTH("20", "10Gi"));
    assert_non_null(body);
    assert_non_null(strstr(body, "\"device\":\"gpu-0\""));
}

#define CARD_UUID "32237478-23a2-4031-8865-bdef2c17aba4"

/* What a claim had of an instance that was made for it is not its card's, which is whole again. Nor
 * is it known what a claim had that names no amounts. */
static void test_what_is_gone_for_good(void **state) {
    struct dra_world *d = *state;
    struct gpu_object card = {.index = 1,
                              .memory = 80 * GIB,
                              .healthy = true,
                              .name = "n-01",
                              .node = "n",
                              .uuid = "GPU-" CARD_UUID};
    see_devices(d, 2, CARD);
    see_claim(d, "a", 1, true, SHARE,
              ALLOCATED("n", RESULT("gpu-" CARD_UUID "-1g-10gb-0", "14", "9728Mi"), "x"));
    see_claim(d, "b", 1, true, SHARE,
              ALLOCATED("n",
                        "{'request':'gpu','driver':'gpu.elasticgpu.io','pool':'n','device':"
                        "'gpu-" CARD_UUID "'}",
                        "y"));
    assert_int_equal(state_gpu_seen(d->w->state, &card, "{}"), 0);
    assert_int_equal(free_of(d, "n", 1).core, 100);
    assert_int_equal(free_of(d, "n", 1).memory, 80 * GIB);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_shares_of_an_instance),    TEST(test_requests_without_an_amount),
        TEST(test_an_instance_that_is_gone), TEST(test_what_kube_scheduler_has_of_the_node),
        TEST(test_what_is_gone_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
