/* SPDX-License-Identifier: Apache-2.0 */

/* Pods that request shares by resource names, as admission leaves them: the
 * templates that are made for them, and what their claims get. */

#include "claim-allocation-world.h"

#include "scheduler/dra/dra_internal.h"

#define TEMPLATES "/apis/resource.k8s.io/v1/namespaces/d/resourceclaimtemplates"
#define CODE "aliquot-native-core-30-memory-21474836480"

/* A pod with one container "main"; `claim`: what was made of the template, "" before. */
static void see_named(struct dra_world *d, const char *name, const char *code, const char *claim,
                      const char *annotations) {
    see(d, DRA_PODS,
        "{'metadata':{'name':'%s','namespace':'d','uid':'p-%s','annotations':{%s}},'spec':{" GATED
        ",'resourceClaims':[{'name':'main','resourceClaimTemplateName':'%s'}]},'status':{"
        "'resourceClaimStatuses':[%s%s%s]}}",
        name, name, annotations, code, *claim ? "{'name':'main','resourceClaimName':'" : "", claim,
        *claim ? "'}" : "");
}

static void pod_gone(struct dra_world *d, const char *name) {
    see_gone(d, DRA_PODS,
             "{'metadata':{'name':'%s','namespace':'d','uid':'p-%s'},'spec':{" GATED "}}", name,
             name);
}

static void see_template(struct dra_world *d, const char *name, const char *uid) {
    see(d, DRA_TEMPLATES,
        "{'metadata':{'name':'%s','namespace':'d','uid':'%s','labels':{"
        "'gpu.elasticgpu.io/made-by':'aliquot-scheduler'}},'spec':{'metadata':{'annotations':{"
        "'gpu.elasticgpu.io/request':'%s'}}}}",
        name, uid, name);
}

static void see_template_gone(struct dra_world *d, const char *name, const char *uid) {
    see_gone(d, DRA_TEMPLATES,
             "{'metadata':{'name':'%s','namespace':'d','uid':'%s','labels':{"
             "'gpu.elasticgpu.io/made-by':'aliquot-scheduler'}},'spec':{'metadata':{'annotations':{"
             "'gpu.elasticgpu.io/request':'%s'}}}}",
             name, uid, name);
}

/* Writes of templates that are in flight. */
static unsigned writes(const struct dra_world *d) {
    unsigned n = 0;
    for (size_t i = 0; i < d->w->nasked; i++)
        n += strstr(d->w->asked[i].path, "/resourceclaimtemplates") != NULL;
    return n;
}

/* The claim that Kubernetes makes of it. */
static void see_made(struct dra_world *d, const char *name, const char *pod, const char *code,
                     const char *exactly) {
    (void) snprintf(devices_shown, sizeof(devices_shown),
                    "\"requests\":[{\"name\":\"gpu\",\"exactly\":{\"deviceClassName\":"
                    "\"gpu.elasticgpu.io\"}}]");
    see(d, DRA_CLAIMS,
        "{'metadata':{'name':'%s','namespace':'d','uid':'u-%s','resourceVersion':'1',"
        "'finalizers':['resource.kubernetes.io/delete-protection'],'annotations':{"
        "'gpu.elasticgpu.io/request':'%s'},'ownerReferences':[{'kind':'Pod','uid':'p-%s',"
        "'controller':true}]},'spec':{'devices':{'requests':[{'name':'gpu','exactly':{"
        "'deviceClassName':'gpu.elasticgpu.io'%s}}]}}}",
        name, name, code, pod, exactly);
}

/* What the claim of a new pod gets. */
static const char *allocation(struct dra_world *d, const char *pod, const char *code,
                              const char *annotations) {
    char claim[64], path[128];
    (void) snprintf(claim, sizeof(claim), "%s-main", pod);
    (void) snprintf(path, sizeof(path), "/resourceclaims/%s/status", claim);
    see_named(d, pod, code, claim, annotations);
    see_made(d, claim, pod, code, "");
    run(d);
    return body_of(d, find_asked(d, path, ""));
}

static void test_one_template_for_equal_pods(void **state) {
    struct dra_world *d = *state;
    see_named(d, "a", CODE, "", "");
    see_named(d, "b", CODE, "", "");
    run(d);
    assert_int_equal(writes(d), 1);
    assert_string_equal(d->w->asked[0].method, "POST");
    assert_string_equal(d->w->asked[0].path, TEMPLATES);
    assert_string_equal(
        body_of(d, 0),
        "{\"apiVersion\":\"resource.k8s.io/v1\",\"kind\":\"ResourceClaimTemplate\",\"metadata\":{"
        "\"name\":\"" CODE "\",\"namespace\":\"d\",\"labels\":{\"gpu.elasticgpu.io/made-by\":"
        "\"aliquot-scheduler\"}},\"spec\":{\"metadata\":{\"annotations\":{"
        "\"gpu.elasticgpu.io/request\":\"" CODE "\"}},\"spec\":{\"devices\":{\"requests\":[{"
        "\"name\":\"gpu\",\"exactly\":{\"deviceClassName\":\"gpu.elasticgpu.io\",\"count\":1,"
        "\"capacity\":{\"requests\":{\"core\":\"30\",\"memory\":\"20Gi\"}}}}]}}}}");
    run(d);
    assert_int_equal(writes(d), 1); /* while it is in flight */
    see_template(d, CODE, "t1");
    respond(d->w, 0, 201, false, NULL);
    run(d);
    assert_int_equal(writes(d), 0);
}

/* A leader that starts in between, or another that was faster. */
static void test_one_that_is_there_already(void **state) {
    struct dra_world *d = *state;
    see_template(d, CODE, "t1");
    see_named(d, "a", CODE, "", "");
    run(d);
    assert_int_equal(writes(d), 0);
    see_named(d, "b", "aliquot-native-core-10", "", "");
    run(d);
    respond(d->w, 0, 409, false, NULL);
    run(d);
    assert_int_equal(writes(d), 0);
    see_template(d, "aliquot-native-core-10", "t2");
    d->w->now += 60000;
    run(d);
    assert_int_equal(writes(d), 0);
}

static void test_one_that_nobody_uses_goes(void **state) {
    struct dra_world *d = *state;
    see_template(d, CODE, "t1");
    see_named(d, "a", CODE, "a-main", "");
    d->w->now += 60000;
    run(d);
    assert_int_equal(writes(d), 0);
    pod_gone(d, "a");
    run(d);
    d->w->now += 9000;
    run(d);
    assert_int_equal(writes(d), 0);
    see_named(d, "b", CODE, "", ""); /* the next pod of the same controller */
    run(d);
    pod_gone(d, "b");
    run(d);
    d->w->now += 10000;
    run(d);
    assert_int_equal(writes(d), 1);
    assert_string_equal(d->w->asked[0].method, "DELETE");
    assert_string_equal(d->w->asked[0].path, TEMPLATES "/" CODE);
    assert_string_equal(body_of(d, 0), "{\"preconditions\":{\"uid\":\"t1\"}}");
    /* A pod that comes now waits for the new one. */
    see_named(d, "c", CODE, "", "");
    respond(d->w, 0, 200, false, NULL);
    run(d);
    assert_int_equal(writes(d), 1);
    assert_string_equal(d->w->asked[0].method, "POST");
    respond(d->w, 0, 201, false, NULL);
}

/* With the label, and not what Aliquot makes; or without it. */
static void test_one_of_a_user_stays(void **state) {
    struct dra_world *d = *state;
    see(d, DRA_TEMPLATES,
        "{'metadata':{'name':'" CODE "','namespace':'d','uid':'t','labels':{"
        "'gpu.elasticgpu.io/made-by':'aliquot-scheduler'}},'spec':{'spec':{}}}");
    run(d);
    d->w->now += 60000;
    run(d);
    assert_int_equal(writes(d), 0);
    /* Its claim has no annotation, and gets what it says. */
    see_named(d, "a", CODE, "a-main", "");
    see_made(d, "a-main", "a", "", "," CORE("10"));
    run(d);
    (void) find_asked(d, "/resourceclaims/a-main/status", "\"core\":\"10\",\"memory\":\"8Gi\"");
    event_writer_run(d->w->events, d->w->now);
    (void) find_asked(d, "/events", "was not made by Aliquot");
}

/* The name says what no capacity of a claim says. */
static void test_amounts(void **state) {
    static const struct {
        const char *code, *consumed;
    } rows[] = {
        {CODE, "{\"core\":\"30\",\"memory\":\"20Gi\"}"},
        {"aliquot-native-core-30", "{\"core\":\"30\",\"memory\":\"24Gi\"}"},
        {"aliquot-native-core-100", "{\"core\":\"100\",\"memory\":\"80Gi\"}"},
        {"aliquot-hami-cards-1-coreeach-30", "{\"core\":\"30\",\"memory\":\"80Gi\"}"},
        {"aliquot-hami-cards-1-memorypercent-50", "{\"core\":\"0\",\"memory\":\"40Gi\"}"},
        {"aliquot-timeslicing-replicas-1", "{\"core\":\"0\",\"memory\":\"8Gi\"}"},
        {"aliquot-kai-fraction-0d5", "{\"core\":\"50\",\"memory\":\"40Gi\"}"},
    };
    struct dra_world *d = *state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char pod[8];
        (void) snprintf(pod, sizeof(pod), "p%u", i);
        const char *body = allocation(d, pod, rows[i].code, "");
        if (!strstr(body, rows[i].consumed))
            fail_msg("%s: %s", rows[i].code, body);
        see_gone(d, DRA_CLAIMS, "{'metadata':{'name':'%s-main','namespace':'d','uid':'u-%s-main'}}",
                 pod, pod);
        pod_gone(d, pod);
        while (d->w->nasked > 0)
            respond(d->w, 0, 404, false, NULL);
    }
}

/* The terms stay in the pod's annotations, and get into the allocation. */
static void test_terms(void **state) {
    static const struct {
        const char *code, *annotations, *config;
    } rows[] = {
        {CODE, "'elasticgpu.io/compute-policy':'main=burst,other=weak'",
         "\"computePolicy\":\"burst\"}"},
        {CODE, "'elasticgpu.io/compute-policy':'burst','elasticgpu.io/compute-ceiling':'60'",
         "\"computePolicy\":\"burst\",\"ceiling\":60}"},
        {CODE, "'tencent.com/vcuda-core-limit':'70'",
         "\"computePolicy\":\"burst\",\"ceiling\":70}"},
        {CODE, "'elasticgpu.io/compute-weight':'7'", "\"kind\":\"ShareConfig\",\"weight\":7}"},
        {"aliquot-qgpu-memory-5-coreoffline-10", "", "\"computePolicy\":\"offline\"}"},
        {CODE, "", NULL},
        {CODE, "'elasticgpu.io/compute-policy':'other=burst'", NULL},
        {CODE, "'elasticgpu.io/compute-policy':'\\\\u0022burst'", NULL},
        {"aliquot-native-memory-21474836480", "'elasticgpu.io/compute-policy':'fixed'", NULL},
        {"aliquot-native-core-100", "'elasticgpu.io/compute-policy':'burst'", NULL},
    };
    struct dra_world *d = *state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char pod[8];
        (void) snprintf(pod, sizeof(pod), "p%u", i);
        const char *body = allocation(d, pod, rows[i].code, rows[i].annotations);
        const char *config = strstr(body, "\"source\":\"FromClaim\"");
        if (!config != !rows[i].config || (config && !strstr(config, rows[i].config)))
            fail_msg("%s, %s: %s", rows[i].code, rows[i].annotations, body);
        see_gone(d, DRA_CLAIMS, "{'metadata':{'name':'%s-main','namespace':'d','uid':'u-%s-main'}}",
                 pod, pod);
        pod_gone(d, pod);
        while (d->w->nasked > 0)
            respond(d->w, 0, 404, false, NULL);
    }
}

static void test_cards_that_the_pod_selects(void **state) {
    struct dra_world *d = *state;
    const char *body = allocation(d, "p", CODE, "'elasticgpu.io/gpu-uuid':'GPU-n-1'");
    assert_non_null(strstr(body, "\"device\":\"gpu-1\""));
    see_named(d, "q", CODE, "q-main", "'elasticgpu.io/topology':'fastest'");
    see_made(d, "q-main", "q", CODE, "");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/q-main"));
}

/* A tenant writes the name, or the annotation of a claim of its own. */
static void test_forged_names(void **state) {
    struct dra_world *d = *state;
    see_named(d, "a", "aliquot-native-core-150", "", "");
    run(d);
    assert_int_equal(writes(d), 0);
    size_t i = find_asked(d, "/events", "gpu-core must be below 100 or a multiple of 100");
    respond(d->w, i, 201, false, NULL);
    /* Another pod's claim, one that the pod names itself, and another name than the template's. */
    see_named(d, "b", CODE, "b-main", "");
    see_made(d, "b-main", "b", "aliquot-native-core-100", "," CORE("10"));
    run(d);
    (void) find_asked(d, "/resourceclaims/b-main/status", "\"core\":\"10\"");
    see_made(d, "c-main", "b", CODE, "," CORE("11"));
    see_pod(d, "c", "c-main", "");
    run(d);
    assert_false(is_asked(d, "/resourceclaims/c-main"));
}

/* ResourceQuota counts the devices of the spec. */
static void test_names_of_other_counts(void **state) {
    static const char *const others[] = {"", ",'count':3", ",'allocationMode':'All'"};
    struct dra_world *d = *state;
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char pod[8], claim[16], path[64];
        (void) snprintf(pod, sizeof(pod), "p%u", i);
        (void) snprintf(claim, sizeof(claim), "%s-main", pod);
        (void) snprintf(path, sizeof(path), "/resourceclaims/%s", claim);
        see_named(d, pod, "aliquot-native-core-200", claim, "");
        see_made(d, claim, pod, "aliquot-native-core-200", others[i]);
        run(d);
        assert_false(is_asked(d, path));
        event_writer_run(d->w->events, d->w->now);
        respond(d->w, find_asked(d, "/events", "asks for 2 devices by its annotation"), 201, false,
                NULL);
        while (d->w->nasked > 0)
            respond(d->w, 0, 201, false, NULL);
    }
    see_named(d, "q", "aliquot-native-core-200", "q-main", "");
    see_made(d, "q-main", "q", "aliquot-native-core-200", ",'count':2");
    run(d);
    (void) find_asked(d, "/resourceclaims/q-main/status", "gpu-1");
}

static void test_a_namespace_has_a_bound(void **state) {
    struct dra_world *d = *state;
    char code[64];
    d->w->now = 1000;
    for (unsigned i = 0; i < 256; i++) {
        (void) snprintf(code, sizeof(code), "aliquot-native-memory-%u", (1u << 20) + i);
        see_template(d, code, "t");
    }
    see_named(d, "a", CODE, "", "");
    run(d);
    assert_int_equal(writes(d), 0);
    d->w->now += 11000;
    run(d);
    (void) find_asked(d, "/events", "the namespace has 256 of them");
    for (size_t i = d->w->nasked; i-- > 0;) /* those without a pod go */
        if (strcmp(d->w->asked[i].method, "DELETE") == 0)
            respond(d->w, i, 200, false, NULL);
    d->w->now += 10000;
    run(d);
    (void) find_asked(d, TEMPLATES, CODE);
}

/* What is kept does not grow with the names that pods of a full namespace have. */
static void test_names_beyond_the_bound(void **state) {
    struct dra_world *d = *state;
    char code[64], pod[16];
    for (unsigned i = 0; i < 300; i++) {
        (void) snprintf(code, sizeof(code), "aliquot-native-memory-%u", (1u << 20) + i);
        (void) snprintf(pod, sizeof(pod), "p%u", i);
        see_named(d, pod, code, "", "");
    }
    run(d);
    assert_int_equal(HASH_COUNT(d->dra.templates), 256);
    assert_int_equal(writes(d), 16);
    /* Each of the others has its turn when one has gone. */
    for (unsigned i = 0; i < 300; i++) {
        (void) snprintf(pod, sizeof(pod), "p%u", i);
        if (i != 299)
            pod_gone(d, pod);
    }
    while (d->w->nasked > 0)
        respond(d->w, 0, 409, false, NULL);
    run(d);
    run(d);
    (void) find_asked(d, TEMPLATES, code);
    assert_int_equal(HASH_COUNT(d->dra.templates), 1);
}

/* A replica that does not lead, or does not any more, sees the same come and go. */
static void test_templates_that_are_gone(void **state) {
    struct dra_world *d = *state;
    see_template(d, CODE, "t1");
    see_template_gone(d, CODE, "t1");
    see_template(d, CODE, "t2");
    dra_sync_begin(&d->dra, DRA_TEMPLATES);
    dra_sync_end(&d->dra, DRA_TEMPLATES);
    assert_int_equal(HASH_COUNT(d->dra.templates), 0);
    see_template(d, CODE, "t3");
    see_named(d, "a", CODE, "a-main", "");
    see_named(d, "b", "aliquot-native-core-10", "", "");
    see_named(d, "c", "aliquot-native-core-150", "", "");
    run(d);
    leading = false;
    dra_lost(&d->dra);
    see_template_gone(d, CODE, "t3");
    respond(d->w, find_asked(d, TEMPLATES, "core-10"), 403, false, NULL);
    assert_int_equal(HASH_COUNT(d->dra.templates), 0);
}

/* A ResourceQuota of the namespace counts templates, too. */
static void test_a_template_that_is_refused(void **state) {
    struct dra_world *d = *state;
    see_named(d, "a", CODE, "", "");
    run(d);
    respond(d->w, 0, 403, false, NULL);
    run(d);
    assert_int_equal(writes(d), 0);
    d->w->now += 10000;
    run(d);
    event_writer_run(d->w->events, d->w->now);
    (void) find_asked(d, "/events", "claim main: its template cannot be made: test");
    (void) find_asked(d, TEMPLATES, CODE);
}

int main(void) {
#define AT(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        AT(test_one_template_for_equal_pods),
        AT(test_one_that_is_there_already),
        AT(test_one_that_nobody_uses_goes),
        AT(test_one_of_a_user_stays),
        AT(test_amounts),
        AT(test_terms),
        AT(test_cards_that_the_pod_selects),
        AT(test_forged_names),
        AT(test_names_of_other_counts),
        AT(test_a_namespace_has_a_bound),
        AT(test_names_beyond_the_bound),
        AT(test_templates_that_are_gone),
        AT(test_a_template_that_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
