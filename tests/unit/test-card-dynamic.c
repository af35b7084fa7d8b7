/* SPDX-License-Identifier: Apache-2.0 */

/* MIG instances on demand, with a clock, a snapshot and an executor of the test: when a card is
 * read and changed, and what follows where that fails. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/mig/executor.h"
#include "base/text.h"
#include "fake-monitor-wraps.h"
#include "mig/order.h"

#define CARD "GPU-00000000-0000-0000-0000-000000000000"
#define RETRY_MS 10000

static struct world {
    struct agent agent;
    struct node_config config;
    uint64_t now;
    struct mig_job *job; /* submitted */
    unsigned jobs;
} w;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
void __wrap_mig_executor_submit(struct mig_executor *x, struct mig_job *job);

uint64_t __wrap_uv_now(const uv_loop_t *loop) {
    (void) loop;
    return w.now;
}

void __wrap_mig_executor_submit(struct mig_executor *x, struct mig_job *job) {
    (void) x;
    assert_null(w.job);
    job->submitted = true;
    w.job = job;
    w.jobs++;
}

static const struct mig_report *reported(void) {
    const struct mig_report *report;

    return card_dynamic_report(CARD, &w.agent, &report) ? report : NULL;
}

/* One card in MIG mode without instances, which is given out by order. */
static int set_up(void **state) {
    struct gpu_device *d = &snapshot.devices[0];

    (void) state;
    memset(&w, 0, sizeof(w));
    memset(&snapshot, 0, sizeof(snapshot));
    w.now = 1000000;
    w.config.mig_dynamic = true;
    w.agent.node_config = &w.config;
    w.agent.whole_rows.strategy = MIG_STRATEGY_MIXED;
    snapshot.ndevices = 1;
    d->kind = GPU_CARD;
    d->divided = true;
    d->healthy = true;
    text_copy(d->uuid, sizeof(d->uuid), CARD);
    return 0;
}

static int tear_down(void **state) {
    (void) state;
    card_dynamic_done(&w.agent);
    return 0;
}

/* A card of one profile, of which one instance has room. */
static struct gpu_mig_card card(void) {
    struct gpu_mig_card ret = {.known = 1};

    ret.card.capable = ret.card.enabled = true;
    ret.card.nprofiles = 1;
    ret.card.profiles[0] = (struct mig_card_profile){.most = 1, .starts = 1, .size = 8};
    assert_int_equal(mig_name_parse("7g.80gb", &ret.card.profiles[0].name, NULL), 0);
    return ret;
}

/* The job ends; the next snapshot follows. */
static void end(const struct gpu_mig_card *c, int status, const char *error) {
    struct mig_job *job = w.job;
    unsigned before = polls;

    assert_non_null(job);
    w.job = NULL;
    if (c)
        job->on_card(job, c);
    job->submitted = false;
    job->on_done(job, status, error);
    assert_int_equal(polls, before + 1);
    card_dynamic_update(&w.agent);
}

static void expect_job(uint32_t kind) {
    card_dynamic_update(&w.agent);
    assert_non_null(w.job);
    assert_int_equal(w.job->order.kind, kind);
}

/* No job before the time of the retry, however many snapshots come; then this one. */
static void expect_retry(uint32_t kind) {
    assert_null(w.job);
    w.now += RETRY_MS - 1;
    card_dynamic_update(&w.agent);
    assert_null(w.job);
    w.now += 1;
    expect_job(kind);
}

static void a_card_that_cannot_be_read_is_read_again_later(void **state) {
    static const struct gpu_mig_card malformed = {.status = -EBADMSG, .error = "no checkpoint"};
    static const struct gpu_mig_card unread = {.status = 0};
    const struct gpu_mig_card read = card();

    (void) state;
    expect_job(GPU_MIG_READ);
    end(&malformed, 0, "");
    expect_retry(GPU_MIG_READ);
    end(&unread, 0, "");
    expect_retry(GPU_MIG_READ);
    assert_null(reported());
    end(&read, 0, "");
    assert_null(w.job);
    assert_non_null(reported());
    assert_int_equal(w.jobs, 3);
}

/* The scheduler orders the only instance that has room, for a pod. */
static void give_order(void) {
    static const char text[] =
        "{\"spec\":{\"uuid\":\"" CARD "\"},\"metadata\":{\"annotations\":{\"" MIG_ORDER_ANNOTATION
        "\":\"{\\\"serial\\\":5,\\\"instances\\\":[{\\\"profile\\\":\\\"7g.80gb\\\",\\\"start\\\":"
        "0,"
        "\\\"for\\\":\\\"pod\\\"}]}\"}}}";
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json object;
    struct err err;

    assert_int_equal(json_open(text, sizeof(text) - 1, &parser, &object, &err), 0);
    card_dynamic_object(object, &w.agent);
}

/* No answer of the driver about the card is in these ends: its child was killed, another process
 * divides cards. The order is carried out later, on the card as it is then. */
static void an_order_outlives_its_child(void **state) {
    static const int ends[] = {-EIO, -ETIMEDOUT, -EBUSY};
    const struct gpu_mig_card read = card();
    struct gpu_mig_card canceled = read;

    (void) state;
    give_order();
    expect_job(GPU_MIG_READ);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        end(&read, 0, "");
        expect_job(GPU_MIG_EDIT);
        end(NULL, ends[i], "it has ended");
        assert_int_equal(reported()->observed, 0);
        expect_retry(GPU_MIG_READ);
    }
    end(&read, 0, "");
    canceled.status = -ECANCELED;
    end(&canceled, -ECANCELED, "the agent withdraws too many devices");
    assert_int_equal(reported()->observed, 0);
    expect_retry(GPU_MIG_EDIT);
}

static void an_order_that_the_driver_refuses_is_reported(void **state) {
    struct gpu_mig_card c = card();

    (void) state;
    give_order();
    expect_job(GPU_MIG_READ);
    end(&c, 0, "");
    expect_job(GPU_MIG_EDIT);
    c.status = -EIO;
    text_copy(c.error, sizeof(c.error), "Insufficient Resources");
    end(&c, 0, "");
    assert_int_equal(reported()->observed, 5);
    assert_int_equal(reported()->nfailures, 1);
    assert_string_equal(reported()->failures[0].cause, "Insufficient Resources");
    w.now += RETRY_MS;
    card_dynamic_update(&w.agent);
    assert_null(w.job);
}

/* ---- for claims that kube-scheduler allocates ---- */

/* A card of two places for one slice and one for all of it; the first has an idle instance. */
static struct gpu_mig_card divided(void) {
    struct gpu_mig_card ret = card();

    ret.card.nprofiles = 2;
    ret.card.profiles[0].size = 2;
    ret.card.profiles[1] = (struct mig_card_profile){.id = 5, .most = 2, .starts = 3, .size = 1};
    assert_int_equal(mig_name_parse("1g.40gb", &ret.card.profiles[1].name, NULL), 0);
    ret.card.ninstances = 1;
    ret.card.instances[0] =
        (struct mig_instance){.id = 3, .profile = 1, .ncompute = 1, .compute = {{.slices = 1}}};
    return ret;
}

static void for_claims(void) {
    snapshot.devices[0].allocator = DRA_KUBE_SCHEDULER;
    w.agent.whole_rows.strategy = MIG_STRATEGY_NONE;
}

static uint32_t profiles_for_claims(void) {
    const struct mig_card *card = card_dynamic_for_claims(&w.agent, CARD);

    assert_non_null(card);
    return card->nprofiles;
}

static struct mig_place place_of(const char *profile, uint32_t start) {
    struct mig_place place = {.start = start};

    assert_int_equal(mig_name_parse(profile, &place.name, NULL), 0);
    return place;
}

/* Orders do not concern the card, and its state is not reported to the scheduler. */
static void a_claim_has_its_instance_made(void **state) {
    const struct mig_place second = place_of("1g.40gb", 1);
    struct gpu_mig_card c = divided();
    const struct mig_report *report;
    struct err why;

    (void) state;
    for_claims();
    give_order();
    assert_null(card_dynamic_for_claims(&w.agent, CARD));
    expect_job(GPU_MIG_READ);
    assert_false(card_dynamic_is_settled(&w.agent));
    assert_int_equal(profiles_for_claims(), 0);
    end(&c, 0, "");
    assert_true(card_dynamic_is_settled(&w.agent));
    assert_null(w.job);
    assert_int_equal(profiles_for_claims(), 2);
    assert_true(card_dynamic_report(CARD, &w.agent, &report));
    assert_null(report);
    assert_int_equal(card_dynamic_want(&w.agent, CARD, &second, &why), -EAGAIN);
    assert_int_equal(w.job->order.kind, GPU_MIG_EDIT);
    assert_int_equal(w.job->order.edit.nmake, 1);
    assert_int_equal(w.job->order.edit.make[0].start, 1);
    assert_int_equal(w.job->order.edit.nremove, 0);
    c.card.instances[c.card.ninstances++] = (struct mig_instance){
        .id = 4, .profile = 1, .start = 1, .ncompute = 1, .compute = {{.slices = 1}}};
    end(&c, 0, "");
    assert_int_equal(card_dynamic_want(&w.agent, CARD, &second, &why), -EAGAIN);
    assert_null(w.job); /* it is there, and shows with the next snapshot */
}

/* Idle instances go where their room is needed, and what a process uses stays. */
static void what_is_in_use_stays(void **state) {
    const struct mig_place all = place_of("7g.80gb", 0);
    struct gpu_mig_card c = divided();
    struct err why;

    (void) state;
    for_claims();
    c.card.instances[0].in_use = true;
    expect_job(GPU_MIG_READ);
    end(&c, 0, "");
    for (int i = 0; i < 2; i++)
        assert_int_equal(card_dynamic_want(&w.agent, CARD, &all, &why), -EAGAIN);
    assert_non_null(strstr(why.text, "1g.40gb at 0 is still in use by another process"));
    assert_null(w.job);
    w.now += RETRY_MS; /* its end is in no snapshot */
    expect_job(GPU_MIG_READ);
    c.card.instances[0].in_use = false;
    end(&c, 0, "");
    assert_int_equal(card_dynamic_want(&w.agent, CARD, &all, &why), -EAGAIN);
    assert_int_equal(w.job->order.kind, GPU_MIG_EDIT);
    assert_int_equal(w.job->order.edit.nremove, 1);
    assert_int_equal(w.job->order.edit.remove[0].start, 0);
}

/* A claim that waits no more has nothing made, and what the driver says is told. */
static void a_wish_ends(void **state) {
    const struct mig_place second = place_of("1g.40gb", 1);
    struct gpu_mig_card c = divided();
    struct err why;

    (void) state;
    for_claims();
    expect_job(GPU_MIG_READ);
    end(&c, 0, "");
    (void) card_dynamic_want(&w.agent, CARD, &second, &why);
    c.status = -EIO;
    text_copy(c.error, sizeof(c.error), "Insufficient Resources");
    end(&c, 0, "");
    (void) card_dynamic_want(&w.agent, CARD, &second, &why);
    assert_non_null(strstr(why.text, "Insufficient Resources"));
    assert_null(w.job);
    w.now += RETRY_MS;
    card_dynamic_update(&w.agent);
    assert_null(w.job);
}

/* With the MIG strategy `mixed` kubelet gives the instances out, and orders are followed. */
static void a_card_of_kubelet(void **state) {
    struct gpu_mig_card c = card();

    (void) state;
    for_claims();
    w.agent.whole_rows.strategy = MIG_STRATEGY_MIXED;
    give_order();
    expect_job(GPU_MIG_READ);
    end(&c, 0, "");
    assert_null(card_dynamic_for_claims(&w.agent, CARD));
    assert_non_null(reported());
    expect_job(GPU_MIG_EDIT);
}

/* Another program has left it without a compute instance, or has divided it once more. */
static void an_idle_instance_that_is_in_parts(void **state) {
    const struct mig_place all = place_of("7g.80gb", 0);
    struct gpu_mig_card c = divided();
    struct mig_want want;
    struct err why;

    (void) state;
    for_claims();
    c.card.instances[0].ncompute = 0;
    expect_job(GPU_MIG_READ);
    end(&c, 0, "");
    (void) card_dynamic_want(&w.agent, CARD, &all, &why);
    assert_non_null(w.job);
    assert_int_equal(mig_want_edit(&c.card, &w.job->order.edit, &want, &why), 0);
    assert_int_equal(want.n, 1);
    assert_int_equal(want.instances[0].profile, 0);
}

static void a_wish_that_cannot_be_fails_alone(void **state) {
    const struct mig_place nowhere = place_of("1g.40gb", 5), second = place_of("1g.40gb", 1);
    struct gpu_mig_card c = divided();
    struct err why;

    (void) state;
    for_claims();
    expect_job(GPU_MIG_READ);
    end(&c, 0, "");
    for (int i = 0; i < 2; i++)
        (void) card_dynamic_want(&w.agent, CARD, &nowhere, &why);
    assert_non_null(strstr(why.text, "the card can have no 1g.40gb at 5"));
    assert_null(w.job);
    (void) card_dynamic_want(&w.agent, CARD, &second, &why);
    assert_non_null(w.job);
    assert_int_equal(w.job->order.edit.nmake, 1);
    assert_int_equal(w.job->order.edit.make[0].start, 1);
}

/* The Event of the claim's pod is for its namespace. */
static void pods_of_others_are_not_named(void **state) {
    const struct mig_place second = place_of("1g.40gb", 1);
    struct gpu_mig_card c = divided();
    struct err why;

    (void) state;
    for_claims();
    expect_job(GPU_MIG_READ);
    end(&c, 0, "");
    (void) card_dynamic_want(&w.agent, CARD, &second, &why);
    c.result.pending = true;
    text_copy(c.result.reason, sizeof(c.result.reason), "in use: the card by pod other/web");
    end(&c, 0, "");
    (void) card_dynamic_want(&w.agent, CARD, &second, &why);
    assert_null(strstr(why.text, "other/web"));
    assert_non_null(strstr(why.text, "what is in its way is in use"));
}

/* The snapshot is of before the mode was switched off, and says nothing when it is on again. */
static void a_card_that_left_mig_mode(void **state) {
    struct gpu_mig_card c = divided();

    (void) state;
    for_claims();
    c.card.enabled = false;
    expect_job(GPU_MIG_READ);
    end(&c, 0, "");
    assert_int_equal(profiles_for_claims(), 0);
    c.card.enabled = true;
    expect_retry(GPU_MIG_READ);
    end(&c, 0, "");
    assert_int_equal(profiles_for_claims(), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_card_that_cannot_be_read_is_read_again_later, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_order_outlives_its_child, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_order_that_the_driver_refuses_is_reported, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_claim_has_its_instance_made, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_in_use_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wish_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_card_of_kubelet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_idle_instance_that_is_in_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wish_that_cannot_be_fails_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pods_of_others_are_not_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_card_that_left_mig_mode, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("card-dynamic", tests, NULL, NULL);
}
