/* SPDX-License-Identifier: Apache-2.0 */

/* Which cards the selectors of ResourceClaims allow, and all cards of a node. */

#include "claim-allocation-world.h"

#define SELECT(text) "'selectors':[{'cel':{'expression':'" text "'}}]"
#define ATTRIBUTES "device.attributes[\\\"gpu.elasticgpu.io\\\"]"
#define MEMORY "device.capacity[\\\"gpu.elasticgpu.io\\\"].memory"

/* The allocation that is written; NULL: none is. */
static const char *place_claim(struct dra_world *d, const char *devices) {
    see_claim(d, "c", 1, true, devices, "");
    see_pod(d, "p", "c", "");
    run(d);
    return is_asked(d, "/resourceclaims/c/status")
               ? body_of(d, find_asked(d, "/resourceclaims/c/status", ""))
               : NULL;
}

static unsigned cards_of(const char *body) {
    unsigned n = 0;
    for (; (body = strstr(body, "\"device\":\"")); body++)
        n++;
    return n;
}

static void test_a_selector_chooses_the_card(void **state) {
    struct dra_world *d = *state;
    const char *body =
        place_claim(d, "'requests':[" REQUEST("gpu", SELECT(ATTRIBUTES ".index == 1")) "]");
    assert_non_null(body);
    assert_non_null(strstr(body, "\"device\":\"gpu-1\""));
    assert_int_equal(cards_of(body), 1);
}

static void test_all_selectors_have_to_hold(void **state) {
    struct dra_world *d = *state;
    const char *body = place_claim(
        d, "'requests':[" REQUEST("gpu", "'count':2,'selectors':[{'cel':{'expression':'true'}},"
                                         "{'cel':{'expression':'" ATTRIBUTES ".index > 1'}}]") "]");
    assert_null(body);
    add_node(d, "m", 4);
    run(d);
    body = body_of(d, find_asked(d, "/resourceclaims/c/status", "\"device\":\"gpu-2\""));
    assert_non_null(strstr(body, "\"device\":\"gpu-3\""));
    assert_int_equal(cards_of(body), 2);
}

/* With a constraint beside it. */
static void test_selectors_and_constraints(void **state) {
    struct dra_world *d = *state;
    add_node(d, "m", 4);
    const char *body = place_claim(
        d, "'requests':[" REQUEST("a", SELECT(ATTRIBUTES ".index == 2")) "," REQUEST(
               "b", "'count':1") "],'constraints':[{'matchAttribute':'gpu.elasticgpu.io/numa'}]");
    assert_non_null(body);
    assert_non_null(strstr(body, "\"device\":\"gpu-2\""));
    assert_non_null(strstr(body, "\"device\":\"gpu-3\""));
}

static void test_the_first_choice_that_matches(void **state) {
    struct dra_world *d = *state;
    const char *body = place_claim(
        d,
        "'requests':[{'name':'gpu','firstAvailable':["
        "{'name':'large','deviceClassName':'gpu.elasticgpu.io'," SELECT(
            MEMORY ".isGreaterThan(quantity(\\\"100Gi\\\"))") "},"
                                                              "{'name':'small','deviceClassName':'"
                                                              "gpu.elasticgpu.io'," SELECT(
                                                                  MEMORY ".isLessThan(quantity("
                                                                         "\\\"100Gi\\\"))") "}]}]");
    assert_non_null(body);
    assert_non_null(strstr(body, "gpu/small"));
}

static void test_all_cards_of_a_node(void **state) {
    struct dra_world *d = *state;
    add_node(d, "m", 4);
    const char *body =
        place_claim(d, "'requests':[" REQUEST(
                           "gpu", "'allocationMode':'All'," SELECT(ATTRIBUTES ".numa == 0")) "]");
    assert_non_null(body);
    assert_int_equal(cards_of(body), 2);
    assert_null(strstr(body, "\"device\":\"gpu-2\""));
}

/* All of them, or none of the node. */
static void test_all_cards_where_one_is_taken(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "other", 1, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "30", "20Gi"), "x"));
    assert_null(place_claim(d, "'requests':[" REQUEST("gpu", "'allocationMode':'All'") "]"));
    add_node(d, "m", 3);
    run(d);
    const char *body = body_of(d, find_asked(d, "/resourceclaims/c/status", "\"pool\":\"m\""));
    assert_int_equal(cards_of(body), 3);
}

static void test_no_card_matches(void **state) {
    struct dra_world *d = *state;
    assert_null(place_claim(d, "'requests':[" REQUEST("gpu", SELECT("false")) "]"));
    assert_null(place_claim(
        d, "'requests':[" REQUEST("gpu", "'allocationMode':'All'," SELECT("false")) "]"));
}

/* An Event of the text, on the pod and on the claim. */
static void expect_events(struct dra_world *d, const char *text) {
    unsigned told = 0;
    d->w->now += 600000;
    run(d);
    event_writer_run(d->w->events, d->w->now += 1000);
    while (d->w->nasked > 0) {
        told += strstr(body_of(d, 0), text) != NULL;
        if (!strstr(body_of(d, 0), text))
            print_message("%s\n", body_of(d, 0));
        respond(d->w, 0, 201, false, NULL);
    }
    assert_int_equal(told, 2);
}

/* As for kube-scheduler: the pod is nowhere, though other cards match. */
static void test_an_error_stops_the_search(void **state) {
    struct dra_world *d = *state;
    assert_null(place_claim(
        d, "'requests':[" REQUEST(
               "gpu", SELECT(ATTRIBUTES ".index == 0 || " ATTRIBUTES ".model == \\\"x\\\"")) "]"));
    expect_events(d, "claim c: a selector fails for device gpu-1 of node n: no such key: model at "
                     "column ");
}

static void test_what_is_not_evaluated(void **state) {
    struct dra_world *d = *state;
    assert_null(place_claim(d, "'requests':[" REQUEST("gpu", SELECT("[1].exists(x, x == 1)")) "]"));
    expect_events(d, "claim c: a selector has what is not evaluated here: [1].exists(x, x == 1): "
                     "the name x at column 12");
}

/* What the slice has of the device is not all known here. */
static void test_a_device_with_other_attributes(void **state) {
    struct dra_world *d = *state;
    see(d, DRA_SLICES,
        "{'metadata':{'name':'n-s'},'spec':{'driver':'gpu.elasticgpu.io','nodeName':'n','pool':{"
        "'name':'n','generation':2,'resourceSliceCount':1},'devices':[{'name':'gpu-0','attributes':"
        "{'uuid':{'string':'GPU-n-0'},'allocator':{'string':'aliquot'},'index':{'int':0},"
        "'x':{'bool':true}},'capacity':{'core':{'value':'100'},'memory':{'value':'80Gi'}}}]}}");
    assert_null(place_claim(
        d, "'requests':[" REQUEST("gpu", SELECT("!(\\\"x\\\" in " ATTRIBUTES ")")) "]"));
    expect_events(d, "the device has other attributes or capacities than are known here");
}

static void test_too_many_selectors(void **state) {
    struct dra_world *d = *state;
    _cleanup_buf_ struct buf devices = BUF_INIT(1 << 20);
    buf_puts(&devices, "'requests':[");
    for (unsigned i = 0; i < 9; i++)
        buf_printf(&devices, "%s" REQUEST("r%u", SELECT("true%*s")), i ? "," : "", i, 8000, "");
    buf_puts(&devices, "]");
    assert_null(place_claim(d, buf_str(&devices)));
    expect_events(d, "the selectors of the claims of a pod have more than 65536 bytes");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_a_selector_chooses_the_card),
        TEST(test_all_selectors_have_to_hold),
        TEST(test_selectors_and_constraints),
        TEST(test_the_first_choice_that_matches),
        TEST(test_all_cards_of_a_node),
        TEST(test_all_cards_where_one_is_taken),
        TEST(test_no_card_matches),
        TEST(test_an_error_stops_the_search),
        TEST(test_what_is_not_evaluated),
        TEST(test_a_device_with_other_attributes),
        TEST(test_too_many_selectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
