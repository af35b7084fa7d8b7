/* SPDX-License-Identifier: Apache-2.0 */

/* Cards that are put under MPS for claims: which card, when, and until when. */

#include "elastic-world.h"

#define CLASS(mode)                                                                                \
    "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/mps\",\"bindingMode\":\"" mode "\"}"
#define CLAIM_OF(name, core, memory)                                                               \
    "{" META(name, "1") ",\"namespace\":\"d\"" GUARD                                               \
                        "},\"spec\":{\"elasticGPUClassName\":\"k\",\"resources\":{\"requests\":{"  \
                        "\"elasticgpu.io/gpu-core\":" core                                         \
                        ",\"elasticgpu.io/gpu-memory\":\"" memory "\"}}}}"
#define EGPU_OF(name, card, core, memory)                                                          \
    "{" META("egpu-u-" name, "2") EGPU_GUARD                                                       \
        ",\"annotations\":{\"elasticgpu.io/provisioned-by\":\"elasticgpu.io/mps\"}},\"spec\":{"    \
        "\"capacity\":{\"elasticgpu.io/gpu-core\":\"" core                                         \
        "\",\"elasticgpu.io/gpu-memory\":\"" memory "\"},\"gpuShare\":{\"gpuName\":\"" card        \
        "\"},\"claimRef\":{\"namespace\":\"d\",\"name\":\"" name "\",\"uid\":\"u-" name            \
        "\"}},\"status\":{\"phase\":\"Bound\"}}"

#define ORDERED "{\\\"serial\\\":1,\\\"mps\\\":true,\\\"instances\\\":[]}"
#define ENDED "{\\\"serial\\\":2,\\\"instances\\\":[]}"
#define BEGINS "\\\"mps\\\":true"
#define MINUTE 61000

struct shown {
    const char *version, *order, *reason; /* reason: it is not healthy */
    bool dynamic, under_mps, unknown;
};

static void show(struct elastic_world *e, unsigned index, struct shown as) {
    struct gpu_object gpu = {.index = index,
                             .memory = 80 * GIB,
                             .healthy = !as.reason && !as.unknown,
                             .unknown = as.unknown,
                             .under_mps = as.under_mps,
                             .mps_on_demand = as.dynamic};
    char text[1024];
    struct json root;
    struct err err;

    snprintf(gpu.name, sizeof(gpu.name), "n-%02u", index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-n-%u", index);
    snprintf(gpu.node, sizeof(gpu.node), "n");
    assert_int_equal(state_gpu_seen(e->w->state, &gpu, "{\"allocatable\":null,\"allocated\":null}"),
                     0);
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"%s\",\"resourceVersion\":\"%s\",\"annotations\":{"
             "\"elasticgpu.io/mig-order\":\"%s\"}},\"status\":{\"reason\":\"%s\"}}",
             gpu.name, as.version, as.order ? as.order : "", as.reason ? as.reason : "");
    assert_int_equal(json_parse(e->w->parser, text, strlen(text), &root, &err), 0);
    elastic_gpu(&e->elastic, root);
}

static unsigned ordered, given_up; /* Events that were written */

/* A pass, past every hold-off; what is written of the claims themselves succeeds, and Events do. */
static void pass(struct elastic_world *e) {
    e->w->now += 6000;
    elastic_run(&e->elastic);
    event_writer_run(e->w->events, e->w->now);
    for (size_t i = 0; i < e->w->nasked;) {
        const struct asked *asked = &e->w->asked[i];
        bool event = strstr(asked->path, "/events") != NULL;

        ordered += event && strstr(buf_str(&asked->body), "MPSOrdered");
        given_up += event && strstr(buf_str(&asked->body), "MPSNotStarted");
        if (event || strstr(asked->path, "/elasticgpuclaims/"))
            respond(e->w, i, 200, false, NULL);
        else
            i++;
    }
}

static int set_up(void **state) {
    ordered = given_up = 0;
    return begin(state);
}

static int finish(void **state) {
    struct elastic_world *e = *state;

    while (e->w->nasked > 0)
        respond(e->w, 0, 409, false, NULL);
    return end(state);
}

/* How many requests of that kind are open. */
static size_t count(const struct elastic_world *e, const char *path, const char *text) {
    size_t n = 0;

    for (size_t i = 0; i < e->w->nasked; i++)
        n += strstr(e->w->asked[i].path, path) && strstr(buf_str(&e->w->asked[i].body), text);
    return n;
}

static void expect(struct elastic_world *e, const char *path, const char *text, int status) {
    for (size_t i = 0; i < e->w->nasked; i++)
        if (strstr(e->w->asked[i].path, path) && strstr(buf_str(&e->w->asked[i].body), text)) {
            respond(e->w, i, status, false, NULL);
            return;
        }
    fail_msg("no request to %s with %s", path, text);
}

static void expect_none(const struct elastic_world *e) {
    if (count(e, "/gpus/", "") > 0)
        fail_msg("an order: %s", buf_str(&e->w->asked[0].body));
}

/* Whether a pod with a share of its own has room. */
static bool has_room(struct elastic_world *e, const char *core) {
    char limits[64];

    snprintf(limits, sizeof(limits), "\"elasticgpu.io/gpu-core\":\"%s\"", core);
    e->w->annotations = "";
    bool found = strcmp(filter(e->w, "other", limits, "\"n\""), "n") == 0;
    state_pod_gone(e->w->state, "other");
    return found;
}

/* The first card has a pod, the second is idle; both are given to claims under MPS. */
static void begin_claim(struct elastic_world *e, const char *mode) {
    bind_other(e, "x", "20");
    unsigned idle = free_core(e->w, "n", 0) == 80;
    assert_int_equal(idle, 1);
    for (unsigned i = 0; i < 2; i++)
        show(e, i, (struct shown){.version = "1", .dynamic = true});
    see(e, CLAIMS_CLASSES, mode);
    see(e, CLAIMS_CLAIMS, CLAIM_OF("c", "10", "4Gi"));
}

static void an_idle_card_is_put_under_mps_and_given_back(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("Immediate"));
    assert_true(has_room(e, "90"));
    pass(e);
    expect(e, "/gpus/n-01", "\"resourceVersion\":\"1\"", 200);
    assert_int_equal(count(e, "/elasticgpus", ""), 0);
    assert_int_equal(ordered, 1);
    /* From then on it is given to nothing else. */
    assert_false(has_room(e, "90"));
    assert_true(has_room(e, "80"));
    show(e, 1, (struct shown){.version = "1", .dynamic = true}); /* as it was before */
    assert_false(has_room(e, "90"));
    pass(e);
    expect_none(e);

    show(e, 1, (struct shown){.version = "2", .order = ORDERED, .dynamic = true});
    pass(e);
    show(e, 1,
         (struct shown){.version = "3",
                        .order = ORDERED,
                        .dynamic = true,
                        .under_mps = true,
                        .reason = "MPS: the MPS control daemon is being started"});
    pass(e);
    assert_int_equal(count(e, "/elasticgpus", ""), 0);
    show(e, 1,
         (struct shown){.version = "4", .order = ORDERED, .dynamic = true, .under_mps = true});
    pass(e);
    expect(e, "/elasticgpus", "\"gpuName\":\"n-01\"", 201);
    see(e, CLAIMS_EGPUS, EGPU_OF("c", "n-01", "10", "4Gi"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    e->w->now += MINUTE; /* for as long as the claim exists */
    pass(e);
    expect_none(e);
    assert_false(has_room(e, "85"));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    state_pod_gone(e->w->state, "p");
    claims_gone(e->elastic.claims, CLAIMS_PODS, "p");

    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    claims_gone(e->elastic.claims, CLAIMS_EGPUS, "egpu-u-c");
    pass(e);
    assert_int_equal(count(e, "/gpus/n-01", BEGINS), 0);
    expect(e, "/gpus/n-01", "serial", 200);
    /* Not before MPS has ended there. */
    show(e, 1, (struct shown){.version = "5", .dynamic = true, .under_mps = true});
    assert_false(has_room(e, "90"));
    show(e, 1, (struct shown){.version = "6", .dynamic = true});
    assert_true(has_room(e, "90"));
    pass(e);
    expect_none(e);
}

static void a_card_in_use_is_not(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("Immediate"));
    bind_other(e, "y", "90");
    pass(e);
    expect_none(e);
    /* Nor one that the configuration does not leave to claims, or that is not healthy. */
    state_pod_gone(e->w->state, "y");
    show(e, 1, (struct shown){.version = "1"});
    pass(e);
    show(e, 1, (struct shown){.version = "1", .dynamic = true, .reason = "XID 48"});
    pass(e);
    expect_none(e);
    /* Nor is one for a claim that has no room on it. */
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    see(e, CLAIMS_CLAIMS, CLAIM_OF("c", "10", "90Gi"));
    show(e, 1, (struct shown){.version = "1", .dynamic = true});
    pass(e);
    expect_none(e);
}

static void a_conflict_is_tried_again(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("Immediate"));
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 409);
    show(e, 1, (struct shown){.version = "2", .dynamic = true});
    pass(e);
    expect(e, "/gpus/n-01", "\"resourceVersion\":\"2\"", 0); /* without an answer */
    pass(e);
    expect_none(e);
    pass(e);
    assert_int_equal(count(e, "/gpus/n-01", BEGINS), 1);
}

/* Nothing of the GPU object changes then that could tell. */
static void a_lost_write_leaves_the_card_to_later_claims(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("Immediate"));
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 0);
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    pass(e);
    pass(e);
    expect_none(e);
    assert_true(has_room(e, "90"));
    see(e, CLAIMS_CLAIMS, CLAIM_OF("b", "10", "4Gi"));
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
}

/* The agent goes on with the order that it had read: so does the scheduler, and says it anew. */
static void a_malformed_order_is_written_anew(void **state) {
    struct elastic_world *e = *state;
    struct shown as = {.version = "2", .order = "{", .dynamic = true, .under_mps = true};

    begin_claim(e, CLASS("Immediate"));
    see(e, CLAIMS_EGPUS, EGPU_OF("c", "n-01", "10", "4Gi"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    show(e, 1, as);
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    state_pod_gone(e->w->state, "p");
    claims_gone(e->elastic.claims, CLAIMS_PODS, "p");
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
    pass(e); /* the watch is behind */
    expect_none(e);
    show(e, 1, as);
    expect_none(e);

    /* The last claim goes before it is. */
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    claims_gone(e->elastic.claims, CLAIMS_EGPUS, "egpu-u-c");
    pass(e);
    assert_int_equal(count(e, "/gpus/n-01", BEGINS), 0);
    expect(e, "/gpus/n-01", "serial", 200);
}

/* Of a card that is not under MPS it orders nothing, and the card is free. */
static void a_malformed_order_of_an_idle_card(void **state) {
    struct elastic_world *e = *state;

    show(e, 0, (struct shown){.version = "1", .order = "{"});
    show(e, 1, (struct shown){.version = "2", .order = "{", .dynamic = true});
    assert_true(has_room(e, "90"));
    pass(e);
    assert_int_equal(count(e, "/gpus/n-00", ""), 0);
    assert_int_equal(count(e, "/gpus/n-01", BEGINS), 0);
    expect(e, "/gpus/n-01", "\"resourceVersion\":\"2\"", 200);
    show(e, 1, (struct shown){.version = "3", .order = ENDED, .dynamic = true});
    pass(e);
    expect_none(e);
}

static void a_claim_that_is_deleted_meanwhile_ends_it(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("Immediate"));
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    show(e, 1, (struct shown){.version = "2", .order = ORDERED, .dynamic = true});
    pass(e);
    assert_int_equal(count(e, "/gpus/n-01", BEGINS), 0);
    expect(e, "/gpus/n-01", "\\\"serial\\\":2", 200);
}

static void two_claims(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("Immediate"));
    state_pod_gone(e->w->state, "x");
    see(e, CLAIMS_CLAIMS, CLAIM_OF("b", "95", "70Gi"));
    pass(e);
    assert_int_equal(count(e, "/gpus/", BEGINS), 1);
    expect(e, "/gpus/n-00", BEGINS, 200);
    show(e, 0, (struct shown){.version = "2", .order = ORDERED, .dynamic = true});
    pass(e);
    expect_none(e); /* the second one waits for what is left */
    show(e, 0,
         (struct shown){.version = "3", .order = ORDERED, .dynamic = true, .under_mps = true});
    pass(e);
    expect(e, "/elasticgpus", "\"gpuName\":\"n-00\"", 201);
    see(e, CLAIMS_EGPUS, EGPU_OF("c", "n-00", "10", "4Gi"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
    /* With room beside the first one the first card is enough. */
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/b");
    see(e, CLAIMS_CLAIMS, CLAIM_OF("a", "20", "8Gi"));
    show(e, 1, (struct shown){.version = "4", .order = ORDERED, .dynamic = true});
    pass(e);
    assert_int_equal(count(e, "/gpus/n-01", BEGINS), 0);
    expect(e, "/gpus/n-01", "serial", 200);
    expect(e, "/elasticgpus", "\"gpuName\":\"n-00\"", 201);
}

/* More than are served in one pass wait for a card that none has, before one that can be served. */
static void a_claim_behind_many_others(void **state) {
    struct elastic_world *e = *state;
    char text[512];

    show(e, 1, (struct shown){.version = "1", .dynamic = true});
    see(e, CLAIMS_CLASSES, CLASS("WaitForFirstConsumer"));
    for (unsigned i = 0; i < 600; i++) {
        snprintf(text, sizeof(text),
                 "{\"metadata\":{\"name\":\"m%u\",\"uid\":\"u-m%u\",\"resourceVersion\":\"1\","
                 "\"namespace\":\"d\",\"annotations\":{\"elasticgpu.io/selected-node\":\"n\"}" GUARD
                 "},\"spec\":{\"elasticGPUClassName\":\"k\",\"resources\":{\"requests\":{"
                 "\"elasticgpu.io/gpu-core\":10,\"elasticgpu.io/gpu-memory\":\"90Gi\"}}}}",
                 i, i);
        see(e, CLAIMS_CLAIMS, text);
    }
    see(e, CLAIMS_CLAIMS, CLAIM_OF("c", "10", "4Gi"));
    see_pod(e, "p", NULL, USES("c"));
    for (unsigned i = 0; i < 3; i++)
        pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
    /* It keeps the card while it is the others' turn. */
    show(e, 1, (struct shown){.version = "2", .order = ORDERED, .dynamic = true});
    for (unsigned i = 0; i < 4; i++)
        pass(e);
    expect_none(e);
}

static void a_card_that_does_not_come_is_given_up(void **state) {
    static const struct shown states[] = {
        {.reason = "MPS: no nvidia-cuda-mps-control", .under_mps = true}, {.unknown = true}};

    for (size_t i = 0; i < 2; i++) {
        struct elastic_world *e;
        struct shown as = states[i];
        void *mine = NULL;

        assert_int_equal(set_up(&mine), 0);
        e = mine;
        begin_claim(e, CLASS("Immediate"));
        pass(e);
        expect(e, "/gpus/n-01", BEGINS, 200);
        as.version = "2";
        as.order = ORDERED;
        as.dynamic = true;
        show(e, 1, as);
        pass(e);
        state_pod_gone(e->w->state, "x");
        pass(e);
        expect_none(e);
        e->w->now += MINUTE;
        pass(e);
        assert_int_equal(given_up, 1);
        expect(e, "/gpus/n-00", BEGINS, 200);
        expect(e, "/gpus/n-01", "\\\"serial\\\":2", 200);
        assert_int_equal(finish(&mine), 0);
    }
    (void) state;
}

static void a_card_that_fails_meanwhile_is_given_up_at_once(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("Immediate"));
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
    state_pod_gone(e->w->state, "x");
    show(e, 1,
         (struct shown){.version = "2", .order = ORDERED, .dynamic = true, .reason = "XID 79"});
    pass(e);
    expect(e, "/gpus/n-00", BEGINS, 200);
    expect(e, "/gpus/n-01", "\\\"serial\\\":2", 200);
}

/* All that is known then comes from the watches. */
static void another_scheduler_goes_on(void **state) {
    struct elastic_world *e = *state;

    /* An order, and no ElasticGPU yet. */
    begin_claim(e, CLASS("Immediate"));
    show(e, 1, (struct shown){.version = "2", .order = ORDERED, .dynamic = true});
    pass(e);
    expect_none(e);
    assert_false(has_room(e, "90"));
    /* An ElasticGPU, and no order any more; also where its class is gone. */
    claims_gone(e->elastic.claims, CLAIMS_CLASSES, "k");
    see(e, CLAIMS_EGPUS, EGPU_OF("c", "n-01", "10", "4Gi"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    show(e, 1, (struct shown){.version = "3", .dynamic = true});
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
    /* Its pod does not start without MPS. */
    show(e, 1, (struct shown){.version = "4", .order = ORDERED, .dynamic = true});
    see_pod(e, "p", NULL, USES("c"));
    assert_string_not_equal(ask(e, "p"), "n");
    show(e, 1,
         (struct shown){.version = "5", .order = ORDERED, .dynamic = true, .under_mps = true});
    assert_string_equal(ask(e, "p"), "n");
    /* An agent that does not know its configuration yet. */
    show(e, 1, (struct shown){.version = "6", .order = ORDERED});
    pass(e);
    expect_none(e);
    assert_false(has_room(e, "85"));
}

/* Of a card in mode `mps` nothing is ordered. */
static void a_card_that_is_under_mps_by_its_configuration(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("Immediate"));
    show(e, 0, (struct shown){.version = "1", .under_mps = true});
    pass(e);
    expect_none(e);
    expect(e, "/elasticgpus", "\"gpuName\":\"n-00\"", 201);
    see(e, CLAIMS_EGPUS, EGPU_OF("c", "n-00", "10", "4Gi"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    pass(e);
    expect_none(e);
    assert_true(has_room(e, "70") && has_room(e, "90"));
}

static void a_claim_for_its_first_pod(void **state) {
    struct elastic_world *e = *state;

    begin_claim(e, CLASS("WaitForFirstConsumer"));
    pass(e);
    expect_none(e);
    see_pod(e, "p", NULL, USES("c"));
    assert_string_not_equal(ask(e, "p"), "n");
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
    show(e, 1,
         (struct shown){.version = "3", .order = ORDERED, .dynamic = true, .under_mps = true});
    assert_string_equal(ask(e, "p"), "n");
    pass(e);
    expect_none(e);
    bind_by(e, "p");
    expect(e, "/elasticgpuclaims/c", "\"elasticgpu.io/selected-node\":\"n\"", 200);
    state_pod_gone(e->w->state, "p");
    claims_gone(e->elastic.claims, CLAIMS_PODS, "p");
    pass(e);
    expect(e, "/gpus/n-01", "serial", 200);
}

static void a_claim_beyond_its_quota(void **state) {
    struct elastic_world *e = *state;
    struct quotas quotas = {.state = e->w->state};
    struct quota_object quota = {.namespace = "d", .name = "q"};

    quota.counted[QUOTA_CORE] = true;
    quota.max[QUOTA_CORE] = 25;
    quota.max[QUOTA_MEMORY] = quota.max[QUOTA_CARDS] = UINT64_MAX;
    assert_int_equal(quotas_seen(&quotas, QUOTA_OF_OURS, &quota), 0);
    begin_claim(e, CLASS("Immediate")); /* beside a pod with 20 */
    e->elastic.quotas = &quotas;
    pass(e);
    expect_none(e);
    quota.max[QUOTA_CORE] = 30;
    assert_int_equal(quotas_seen(&quotas, QUOTA_OF_OURS, &quota), 0);
    pass(e);
    expect(e, "/gpus/n-01", BEGINS, 200);
    e->elastic.quotas = NULL;
    quotas_done(&quotas);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, finish)
    const struct CMUnitTest tests[] = {
        TEST(an_idle_card_is_put_under_mps_and_given_back),
        TEST(a_card_in_use_is_not),
        TEST(a_conflict_is_tried_again),
        TEST(a_lost_write_leaves_the_card_to_later_claims),
        TEST(a_malformed_order_is_written_anew),
        TEST(a_malformed_order_of_an_idle_card),
        TEST(a_claim_that_is_deleted_meanwhile_ends_it),
        TEST(two_claims),
        TEST(a_claim_behind_many_others),
        cmocka_unit_test(a_card_that_does_not_come_is_given_up),
        TEST(a_card_that_fails_meanwhile_is_given_up_at_once),
        TEST(another_scheduler_goes_on),
        TEST(a_card_that_is_under_mps_by_its_configuration),
        TEST(a_claim_for_its_first_pod),
        TEST(a_claim_beyond_its_quota),
    };

    return cmocka_run_group_tests_name("elastic-mps", tests, NULL, NULL);
}
