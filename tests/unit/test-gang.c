/* SPDX-License-Identifier: Apache-2.0 */

/* Gangs: all of their pods get a share, or none does. */

#include "fail-malloc.h"
#include "gates-world.h"

#define GANG(name, size)                                                                           \
    "\"elasticgpu.io/gang\":\"" name "\",\"elasticgpu.io/gang-size\":\"" size "\""

static enum pod_stage stage_of(struct world *w, const char *uid) {
    return state_pod_find(w->state, uid)->stage;
}

static void test_gang_is_read(void **state) {
    struct world *w = *state;
    static const struct {
        const char *metadata, *name;
        uint32_t size, timeout_s;
    } cases[] = {
        {"{\"annotations\":{" GANG("g", "3") ",\"elasticgpu.io/gang-timeout\":\"1m30s\"}}", "g", 3,
         90},
        {"{\"labels\":{" GANG("g", "2") "}}", "g", 2, GANG_TIMEOUT_S},
        {"{\"annotations\":{" GANG("g", "0x2") "}}", "g", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{" GANG("g", "4097") "}}", "g", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{" GANG("\\u001b[2J", "2") "}}", "?", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{" GANG("", "2") "}}", "?", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{\"elasticgpu.io/gang\":\"g\"}}", "g", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{\"gang.scheduling.koordinator.sh/name\":\"k\","
         "\"gang.scheduling.koordinator.sh/min-available\":\"8\","
         "\"gang.scheduling.koordinator.sh/waiting-time\":\"10m\"}}",
         "k", 8, 600},
        {"{\"labels\":{\"pod-group.scheduling.sigs.k8s.io/name\":\"p\","
         "\"pod-group.scheduling.sigs.k8s.io/min-available\":\"4\"}}",
         "p", 4, GANG_TIMEOUT_S},
        {"{\"labels\":{\"pod-group.scheduling.sigs.k8s.io/name\":\"p\"}}", NULL, 0, 0},
        {"{}", NULL, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json metadata;
        struct pod_gang gang = {.name = ""};
        parse(w, cases[i].metadata, &metadata);
        assert_int_equal(gang_read(metadata, &gang), cases[i].name != NULL);
        if (!cases[i].name)
            continue;
        assert_string_equal(gang.name, cases[i].name);
        assert_int_equal(gang.size, cases[i].size);
        if (gang.size > 0)
            assert_int_equal(gang.timeout_s, cases[i].timeout_s);
    }
    static const char *const wrong[] = {"",   "0",    "s",        "5d", "1s1m",
                                        "-1", "1.5h", "99999999", "25h"};
    uint32_t seconds;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(gang_parse_seconds(wrong[i], &seconds));
}

#define THREE GANG("g", "3")

static void test_gang_waits_and_goes_together(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    arrive(w, "d", "1", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "-gang g: 1 of 3 pods have arrived");
    assert_string_equal(w->refusal, "GPUSchedulingGated: gang g: 1 of 3 pods have arrived");
    arrive(w, "d", "2", HALF, THREE);
    assert_string_equal(ask(w, "d", "2", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    arrive(w, "other", "9", HALF, THREE); /* a gang of that name elsewhere is another one */
    assert_string_equal(ask(w, "other", "9", HALF, THREE), "-gang g: 1 of 3 pods have arrived");
    requeue_run(&g.requeue, w->now);
    assert_int_equal(w->nasked, 0);
    arrive(w, "d", "3", WHOLE, THREE);
    /* The third one's coming is enough: no filter for it is needed first. */
    requeue_run(&g.requeue, w->now += 2000);
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    assert_int_equal(stage_of(w, "1"), POD_ASSUMED);
    assert_int_equal(stage_of(w, "2"), POD_ASSUMED);
    assert_int_equal(stage_of(w, "3"), POD_ASSUMED);
    /* kept for longer than the assumed allocation of a single pod */
    assert_int_equal(state_expire(w->state, w->now += ASSUMED_TTL_MS + 1, ASSUMED_TTL_MS), 0);
    assert_string_equal(ask(w, "other", "9", HALF, ""),
                        "!the GPU share that would fit is allocated to a pod that is being bound; "
                        "trying again in a moment");
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    assert_string_equal(ask(w, "d", "2", HALF, THREE), "fits");
    assert_string_equal(ask(w, "d", "3", WHOLE, THREE), "fits");
    ungovern(&g);
}

/* Whom only kube-scheduler tells of may be gone since: the others do not set out without it. */
static void test_gang_with_one_that_nobody_has_seen(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    arrive(w, "d", "1", HALF, THREE);
    arrive(w, "d", "2", HALF, THREE);
    const char *why = "-gang g: it has its places, and one of its pods is not known yet";
    assert_string_equal(ask(w, "d", "3", HALF, THREE), why);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), why);
    requeue_run(&g.requeue, w->now += 2000);
    assert_int_equal(w->nasked, 0);
    arrive(w, "d", "3", HALF, THREE);
    requeue_run(&g.requeue, w->now += 2000);
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    assert_string_equal(ask(w, "d", "3", HALF, THREE), "fits");
    /* While a list is read, those that it has not shown yet are there. */
    state_sync_begin(w->state, STATE_PODS);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    ungovern(&g);
}

/* The one that was made in its stead is there. */
static void test_gang_with_one_that_is_gone_and_another(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 1);
    arrive(w, "d", "2", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    arrive(w, "d", "3", TENTH, THREE);
    arrive(w, "d", "4", TENTH, THREE);
    assert_string_equal(ask(w, "d", "2", HALF, THREE), "fits");
    assert_int_equal(stage_of(w, "1"), POD_PENDING);
    ungovern(&g);
}

static void test_gang_that_does_not_fit_takes_nothing(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 1);
    for (int i = 0; i < 3; i++) {
        char uid[2] = {(char) ('1' + i), 0};
        arrive(w, "d", uid, HALF, THREE);
    }
    assert_string_equal(ask(w, "d", "1", HALF, THREE),
                        "-gang g: all 3 pods have arrived, and do not fit together yet");
    assert_int_equal(free_core(w, "n", 0), 100);
    assert_string_equal(hold(w, "d", "4", HALF), "fits"); /* a single pod goes in between */
    show_node(w, "m", 1);
    requeue_run(&g.requeue, w->now += 2000);
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    ungovern(&g);
}

/* Each fits alone, both do not: one goes, whole, and it is the older one in either order. */
static void test_two_gangs(void **state) {
    struct world *w = *state;
    for (int first = 0; first < 2; first++) {
        struct governed g;
        govern(&g, w);
        show_node(w, "n", 1);
        show_node(w, "m", 1);
        static const char *const uids[2][3] = {{"1", "2", "3"}, {"4", "5", "6"}};
        static const char *const notes[] = {GANG("a-young", "3"), GANG("b-old", "3")};
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < 3; i++) {
                _cleanup_buf_ struct buf text = BUF_INIT(0);
                /* The age of a gang is that of its oldest member, whichever is seen first. */
                put_any(&text, "d", uids[k][i], HALF, notes[k],
                        k && i != first ? "2026-01-02T00:00:00Z"
                        : k             ? "2025-12-31T00:00:00Z"
                                        : EPOCH);
                show_text(w, buf_str(&text));
            }
        for (int k = 0; k < 2; k++)
            (void) ask(w, "d", uids[first ^ k][0], HALF, notes[first ^ k]);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(stage_of(w, uids[1][i]), POD_ASSUMED);
            assert_int_equal(stage_of(w, uids[0][i]), POD_PENDING);
        }
        /* The old one goes and ends; then it is the young one's turn. */
        for (int i = 0; i < 3; i++)
            state_pod_gone(w->state, uids[1][i]);
        w->now += 2000;
        assert_string_equal(ask(w, "d", "1", HALF, notes[0]), "fits");
        for (int i = 0; i < 3; i++)
            state_pod_gone(w->state, uids[0][i]);
        ungovern(&g);
    }
}

static void test_gang_times_out(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    arrive(w, "d", "1", HALF, THREE);
    arrive(w, "d", "2", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    gangs_tick(&g.gangs, w->now += 59000);
    assert_int_equal(g.tellings, 0);
    gangs_tick(&g.gangs, w->now += 1001);
    assert_string_equal(g.told, "GPUGangIncomplete: gang g: 2 of 3 pods have arrived within 60 s; "
                                "nothing is kept for them, and it goes on waiting");
    assert_int_equal(g.tellings, 2);
    gangs_tick(&g.gangs, w->now += 90000);
    assert_int_equal(g.tellings, 2); /* said once */
    arrive(w, "d", "3", HALF, THREE);
    assert_string_equal(ask(w, "d", "3", HALF, THREE), "fits");
    requeue_run(&g.requeue, w->now); /* for the others, who were told to wait */
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    state_pod_stage(state_pod_find(w->state, "3"), POD_BINDING, w->now);
    gangs_tick(&g.gangs, w->now += 59000);
    assert_int_equal(stage_of(w, "1"), POD_ASSUMED);
    gangs_tick(&g.gangs, w->now += 1001);
    assert_int_equal(stage_of(w, "1"), POD_PENDING);
    assert_int_equal(stage_of(w, "3"), POD_BINDING);
    assert_string_equal(g.told, "GPUGangTimeout: gang g: 1 of 3 pods were bound within 60 s; the "
                                "shares of the others are given back, and it tries again in 1 s");
    /* after a moment, for the members that are missing */
    assert_string_equal(ask(w, "d", "1", HALF, THREE),
                        "-gang g: all 3 pods have arrived, and do not fit together yet");
    w->now += 1000;
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    assert_int_equal(stage_of(w, "2"), POD_ASSUMED);
    ungovern(&g);
}

/* Without memory to count it a gang waits. */
static void test_gang_without_memory(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    arrive(w, "d", "1", HALF, THREE);
    _cleanup_buf_ struct buf why = BUF_INIT(0);
    fail_malloc_at(1);
    assert_false(gangs_open(&g.gangs, state_pod_find(w->state, "1"), w->now, &why));
    assert_true(fail_malloc_end());
    assert_string_equal(buf_str(&why), "out of memory");
    ungovern(&g);
}

/* A gang that is complete and does not fit is not reported as incomplete. */
static void test_a_complete_gang_does_not_time_out(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 1);
    arrive(w, "d", "1", HALF, THREE);
    arrive(w, "d", "2", HALF, THREE);
    arrive(w, "d", "3", HALF, THREE);
    assert_non_null(strstr(ask(w, "d", "1", HALF, THREE), "gang g: "));
    gangs_tick(&g.gangs, w->now += 90000);
    assert_int_equal(g.tellings, 0);
    ungovern(&g);
}

/* A pod with scheduling gates is not bound by any scheduler: it counts when they are gone. */
static void test_gang_with_gates(void **state) {
    struct world *w = *state;
    struct governed g;
    static const char gated[] =
        "{\"metadata\":{\"name\":\"pod-3\",\"namespace\":\"d\",\"uid\":\"3\",\"annotations\":"
        "{" THREE "}},"
        "\"spec\":{\"schedulingGates\":[{\"name\":\"x\"}],\"containers\":[{\"name\":\"main\","
        "\"resources\":{\"limits\":{" HALF "}}}]},\"status\":{}}";
    govern(&g, w);
    show_node(w, "n", 2);
    show_text(w, gated);
    arrive(w, "d", "1", HALF, THREE);
    arrive(w, "d", "2", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE),
                        "-gang g: 2 of 3 pods have arrived, and 1 more has scheduling gates");
    assert_int_equal(stage_of(w, "2"), POD_PENDING);
    arrive(w, "d", "3", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    ungovern(&g);
}

/* Nothing is kept for a day: what keeps a member from its place may last for ever. */
static void test_gang_with_a_long_timeout(void **state) {
    struct world *w = *state;
    struct governed g;
    static const char day[] = GANG("g", "3") ",\"elasticgpu.io/gang-timeout\":\"24h\"";
    static const char *const uids[] = {"1", "2", "3"};
    govern(&g, w);
    show_node(w, "n", 2);
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, day);
    assert_string_equal(ask(w, "d", "1", HALF, day), "fits");
    /* As long as one after the other is bound, however slowly, the others keep their places. */
    for (int i = 0; i < 2; i++) {
        gangs_tick(&g.gangs, w->now += 59000);
        assert_int_equal(stage_of(w, "3"), POD_ASSUMED);
        state_pod_stage(state_pod_find(w->state, uids[i]), POD_BINDING, w->now);
        gangs_tick(&g.gangs, w->now += 1000);
    }
    gangs_tick(&g.gangs, w->now += 59000);
    assert_int_equal(stage_of(w, "3"), POD_ASSUMED);
    assert_int_equal(g.tellings, 0);
    gangs_tick(&g.gangs, w->now += 1000);
    assert_int_equal(stage_of(w, "3"), POD_PENDING);
    assert_string_equal(g.told, "GPUGangTimeout: gang g: 2 of 3 pods were bound within 180 s; the "
                                "shares of the others are given back, and it tries again in 1 s");
    for (int i = 0; i < 9; i++) { /* and less and less often */
        w->now += 300000;
        (void) ask(w, "d", "3", HALF, day);
        assert_int_equal(stage_of(w, "3"), POD_ASSUMED);
        gangs_tick(&g.gangs, w->now += 60000);
        assert_int_equal(stage_of(w, "3"), POD_PENDING);
    }
    assert_non_null(strstr(g.told, "tries again in 300 s"));
    w->now += 299000;
    (void) ask(w, "d", "3", HALF, day);
    assert_int_equal(stage_of(w, "3"), POD_PENDING);
    ungovern(&g);
}

/* Members that have ended leave the watch. Who is left, or is made anew, does not wait for them,
 * also after a restart; when none is left, the gang begins anew. */
static void test_gang_of_which_some_have_ended(void **state) {
    struct world *w = *state;
    struct governed g;
    static const char *const uids[] = {"1", "2", "3"};
    govern(&g, w);
    show_node(w, "n", 2);
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    for (int i = 0; i < 3; i++)
        state_pod_stage(state_pod_find(w->state, uids[i]), POD_BINDING, w->now);
    gangs_tick(&g.gangs, w->now += 1000);
    state_pod_gone(w->state, "1"); /* has succeeded */
    state_pod_gone(w->state, "2"); /* has failed, and comes again */
    gangs_tick(&g.gangs, w->now += 1000);
    arrive(w, "d", "4", HALF, THREE);
    assert_string_equal(ask(w, "d", "4", HALF, THREE), "fits");
    state_pod_gone(w->state, "4");
    ungovern(&g); /* another process */
    govern(&g, w);
    arrive(w, "d", "5", HALF, THREE);
    assert_string_equal(ask(w, "d", "5", HALF, THREE), "fits");
    state_pod_gone(w->state, "5");
    state_pod_gone(w->state, "3");
    arrive(w, "d", "6", HALF, THREE);
    assert_string_equal(ask(w, "d", "6", HALF, THREE), "-gang g: 1 of 3 pods have arrived");
    ungovern(&g);
}

/* A gang that was bound in the end waits no longer than another when it fails again. */
static void test_gang_that_succeeded_fails_anew(void **state) {
    struct world *w = *state;
    struct governed g;
    static const char day[] = GANG("g", "3") ",\"elasticgpu.io/gang-timeout\":\"24h\"";
    static const char *const uids[] = {"1", "2", "3"};
    govern(&g, w);
    show_node(w, "n", 2);
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, day);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(ask(w, "d", "3", HALF, day), "fits");
        for (int k = 0; k < 2; k++)
            state_pod_stage(state_pod_find(w->state, uids[k]), POD_BOUND, w->now);
        gangs_tick(&g.gangs, w->now += 1000);
        gangs_tick(&g.gangs, w->now += 60000);
        assert_int_equal(stage_of(w, "3"), POD_PENDING);
        w->now += 300000;
    }
    assert_non_null(strstr(g.told, "tries again in 4 s"));
    assert_string_equal(ask(w, "d", "3", HALF, day), "fits");
    state_pod_stage(state_pod_find(w->state, "3"), POD_BOUND, w->now);
    gangs_tick(&g.gangs, w->now += 1000);
    state_pod_gone(w->state, "3");
    arrive(w, "d", "4", HALF, day);
    assert_string_equal(ask(w, "d", "4", HALF, day), "fits");
    gangs_tick(&g.gangs, w->now += 60000);
    assert_int_equal(stage_of(w, "4"), POD_PENDING);
    assert_non_null(strstr(g.told, "tries again in 1 s"));
    ungovern(&g);
}

/* What another replica did meanwhile is not known by what was seen before it acted. */
static void test_gang_begun_by_another_replica(void **state) {
    struct world *w = *state;
    struct governed g;
    static const char *const uids[] = {"1", "2", "3"};
    govern(&g, w);
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, THREE);
    gangs_tick(&g.gangs, w->now += 1000);
    gangs_forget(&g.gangs);
    show_node(w, "n", 2);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    gangs_forget(&g.gangs); /* nor is anything kept for it for longer than for others */
    assert_int_equal(state_expire(w->state, w->now += ASSUMED_TTL_MS + 1, ASSUMED_TTL_MS), 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(hold(w, "d", uids[i], HALF), "fits");
        arrive(w, "d", uids[i], HALF, THREE);
    }
    state_pod_gone(w->state, "1");
    state_pod_gone(w->state, "2");
    arrive(w, "d", "4", HALF, THREE);
    assert_string_equal(ask(w, "d", "4", HALF, THREE), "fits");
    ungovern(&g);
}

static void test_gang_loses_a_member(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    static const char *const uids[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    state_pod_gone(w->state, "3");
    gangs_tick(&g.gangs, w->now);
    assert_int_equal(stage_of(w, "1"), POD_PENDING);
    assert_int_equal(stage_of(w, "2"), POD_PENDING);
    assert_string_equal(ask(w, "d", "2", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    /* When all run, one that is made anew goes alone. */
    arrive(w, "d", "3", HALF, THREE);
    w->now += 1000;
    assert_string_equal(ask(w, "d", "3", HALF, THREE), "fits");
    for (int i = 0; i < 3; i++)
        state_pod_stage(state_pod_find(w->state, uids[i]), POD_BOUND, w->now);
    gangs_tick(&g.gangs, w->now);
    state_pod_gone(w->state, "2");
    gangs_tick(&g.gangs, w->now);
    assert_int_equal(stage_of(w, "1"), POD_BOUND);
    arrive(w, "d", "4", HALF, THREE);
    assert_string_equal(ask(w, "d", "4", HALF, THREE), "fits");
    ungovern(&g);
}

/* However many older ones wait in vain, one that fits has its turn soon. */
static void test_gang_among_many_in_vain(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    for (int i = 0; i < 360; i++) {
        char uid[16], gang[96];
        snprintf(uid, sizeof(uid), "v%d", i);
        snprintf(gang, sizeof(gang), GANG("v%d", "3"), i / 3);
        arrive(w, "d", uid, WHOLE, gang);
        state_pod_find(w->state, uid)->requeue.gated = true;
    }
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    put_any(&text, "d", "1", HALF, GANG("young", "1"), "2026-02-01T00:00:00Z");
    show_text(w, buf_str(&text));
    state_pod_find(w->state, "1")->requeue.gated = true;
    for (int i = 0; i < 3 && w->nasked == 0; i++)
        requeue_run(&g.requeue, w->now += 1000);
    assert_int_equal(stage_of(w, "1"), POD_ASSUMED);
    respond(w, 0, 200, false, NULL);
    ungovern(&g);
}

/* One that is to go is no member, and takes no place in the gang that is made in its stead. */
static void test_gang_made_anew(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 4);
    static const char *const uids[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    for (int i = 0; i < 3; i++) {
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        state_pod_stage(state_pod_find(w->state, uids[i]), POD_BOUND, w->now);
        put_any(&text, "d", uids[i], HALF, THREE,
                EPOCH "\",\"deletionTimestamp\":\"2026-01-01T00:01:00Z");
        show_text(w, buf_str(&text));
    }
    arrive(w, "d", "4", HALF, THREE);
    assert_string_equal(ask(w, "d", "4", HALF, THREE), "-gang g: 1 of 3 pods have arrived");
    arrive(w, "d", "5", HALF, THREE);
    arrive(w, "d", "6", HALF, THREE);
    assert_string_equal(ask(w, "d", "6", HALF, THREE), "fits");
    ungovern(&g);
}

/* A member that goes and another that comes before the gang is evaluated again. */
static void test_gang_with_a_member_replaced(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    arrive(w, "d", "1", HALF, THREE);
    arrive(w, "d", "2", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    for (int i = 3; i < 9; i++) {
        char uid[2] = {(char) ('0' + i), 0}, last[2] = {(char) ('0' + i - 1), 0};
        state_pod_gone(w->state, last);
        arrive(w, "d", uid, HALF, THREE);
        assert_string_equal(ask(w, "d", uid, HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    }
    arrive(w, "d", "2", HALF, THREE);
    assert_string_equal(ask(w, "d", "8", HALF, THREE), "fits");
    assert_int_equal(stage_of(w, "2"), POD_ASSUMED);
    ungovern(&g);
}

/* A member that is about to be deleted is none, from that event on. */
static void test_gang_with_a_member_that_is_deleted(void **state) {
    struct world *w = *state;
    struct governed g;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    govern(&g, w);
    show_node(w, "n", 2);
    arrive(w, "d", "1", HALF, THREE);
    arrive(w, "d", "2", HALF, THREE);
    arrive(w, "d", "3", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    put_any(&text, "d", "3", HALF, THREE, EPOCH "\",\"deletionTimestamp\":\"2026-01-01T00:01:00Z");
    show_text(w, buf_str(&text));
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    gangs_tick(&g.gangs, w->now);
    assert_int_equal(stage_of(w, "1"), POD_PENDING);
    ungovern(&g);
}

/* The timeout of a gang is the longest, and its size the largest, that a member says. */
static void test_gang_of_which_members_differ(void **state) {
    struct world *w = *state;
    struct governed g;
    static const char *const notes[] = {
        GANG("g", "2") ",\"elasticgpu.io/gang-timeout\":\"90s\"",
        GANG("g", "3") ",\"elasticgpu.io/gang-timeout\":\"70s\"",
    };
    for (int first = 0; first < 2; first++) {
        govern(&g, w);
        show_node(w, "n", 2);
        arrive(w, "d", "1", HALF, notes[first]);
        arrive(w, "d", "2", HALF, notes[!first]);
        assert_string_equal(ask(w, "d", "1", HALF, notes[first]),
                            "-gang g: 2 of 3 pods have arrived");
        gangs_tick(&g.gangs, w->now += 89999);
        assert_int_equal(g.tellings, 0);
        gangs_tick(&g.gangs, w->now += 1);
        assert_int_equal(g.tellings, 2);
        state_pod_gone(w->state, "1");
        state_pod_gone(w->state, "2");
        ungovern(&g);
    }
}

/* The member with the largest request over all of its containers and cards is placed first, and
 * the name decides between equal ones. */
static void test_the_largest_member_is_placed_first(void **state) {
    static const struct {
        const char *first, *other;
    } rows[] = {
        {CONTAINER("a", CORE(60)), CONTAINER("a", CORE(50))},
        {CONTAINER("a", CORE(30)) "," CONTAINER("b", CORE(31)), CONTAINER("a", CORE(60))},
        {CONTAINER("a", CORE(10)) "," CONTAINER("b", CORE(60)), CONTAINER("a", CORE(60))},
        {CONTAINER("a", WHOLE), CONTAINER("a", CORE(99))},
        {CONTAINER("a", CORE(200)), CONTAINER("a", WHOLE)},
        {CONTAINER("a", CORE(200)), CONTAINER("a", WHOLE) "," CONTAINER("b", CORE(99))},
        {CONTAINER("a", CARDS(2, 31)), CONTAINER("a", CORE(60))},
        {CONTAINER("a", CARDS(2, 31)), CONTAINER("a", CARDS(3, 20))},
    };
    static const char one[] = GANG("g", "1");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int swapped = 0; swapped < 2; swapped++) {
            struct world *w = *state;
            struct governed g;
            _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
            govern(&g, w);
            show_node(w, "n", 4);
            (void) arrive_with(w, "d", "1", "", swapped ? rows[i].other : rows[i].first, one);
            (void) arrive_with(w, "d", "2", "", swapped ? rows[i].first : rows[i].other, one);
            assert_true(gangs_open(&g.gangs, state_pod_find(w->state, "1"), w->now, &why));
            if (stage_of(w, "1") != (swapped ? POD_PENDING : POD_ASSUMED) ||
                stage_of(w, "2") != (swapped ? POD_ASSUMED : POD_PENDING))
                fail_msg("row %zu: pod %d is placed first", i, stage_of(w, "1") ? 1 : 2);
            state_pod_gone(w->state, "1");
            state_pod_gone(w->state, "2");
            ungovern(&g);
        }
}

/* Of members with equal requests the first in the order of their names is placed. */
static void test_equal_members_are_placed_by_name(void **state) {
    for (int swapped = 0; swapped < 2; swapped++) {
        struct world *w = *state;
        struct governed g;
        _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
        static const char one[] = GANG("g", "1");
        govern(&g, w);
        show_node(w, "n", 1);
        arrive(w, "d", swapped ? "2" : "1", HALF, one);
        arrive(w, "d", swapped ? "1" : "2", HALF, one);
        assert_true(gangs_open(&g.gangs, state_pod_find(w->state, "1"), w->now, &why));
        assert_int_equal(stage_of(w, "1"), POD_ASSUMED);
        assert_int_equal(stage_of(w, "2"), POD_PENDING);
        state_pod_gone(w->state, "1");
        state_pod_gone(w->state, "2");
        ungovern(&g);
    }
}

static void test_gang_and_quota(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 4);
    show_quota(&g, "d", "q", "\"max\":{" CORES(100) "}");
    static const char *const uids[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE),
                        "-quota exceeded: namespace d uses 100 of 100 elasticgpu.io/gpu-core, and "
                        "this pod asks 50");
    assert_int_equal(state_space_find(w->state, "d")->used.all.of[QUOTA_CORE], 0);
    show_quota(&g, "d", "q", "\"max\":{" CORES(150) "}");
    w->now += 1000;
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    ungovern(&g);
}

static void test_gang_malformed(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 1);
    assert_non_null(strstr(ask(w, "d", "1", HALF, GANG("g", "three")), "its size a number from 1"));
    ungovern(&g);
}

static const char *const any_notes[] = {GANG("a", "3"), GANG("b", "3"), GANG("c", "2")};
static const uint32_t any_sizes[] = {3, 3, 2};

/* A member of a gang comes, goes, is filtered or bound, or time passes. */
static void any_step(struct world *w, uint64_t *seed) {
    int gang = (int) (rnd(seed) % 3);
    char uid[16];
    snprintf(uid, sizeof(uid), "%d-%u", gang, (unsigned) (rnd(seed) % 4));
    struct state_pod *pod = state_pod_find(w->state, uid);
    switch (rnd(seed) % 5) {
    case 0:
        if (!pod)
            arrive(w, "d", uid, HALF, any_notes[gang]);
        break;
    case 1:
        if (pod)
            state_pod_gone(w->state, uid);
        break;
    case 2:
        if (pod && pod->stage <= POD_ASSUMED)
            (void) ask(w, "d", uid, HALF, any_notes[gang]);
        break;
    case 3:
        if (pod && pod->stage == POD_ASSUMED)
            state_pod_stage(pod, POD_BOUND, w->now);
        break;
    default:
        w->now += rnd(seed) % 20000;
    }
}

static void count_gang(struct world *w, int gang, uint32_t *ret_there, uint32_t *ret_assumed,
                       uint32_t *ret_placed) {
    *ret_there = *ret_assumed = *ret_placed = 0;
    for (struct state_pod *p = w->state->pods; p; p = p->hh.next) {
        if (p->uid[0] != '0' + gang)
            continue;
        *ret_there += 1;
        *ret_assumed += p->stage == POD_ASSUMED;
        *ret_placed += p->stage >= POD_ASSUMED;
    }
}

static void pass_time(struct governed *g, uint64_t ms) {
    g->w->now += ms;
    gangs_tick(&g->gangs, g->w->now);
    (void) state_expire(g->w->state, g->w->now, ASSUMED_TTL_MS);
}

/* kube-scheduler asks about all that wait, and binds what fits. */
static void bind_what_fits(struct world *w) {
    for (struct state_pod *p = w->state->pods; p; p = p->hh.next)
        if (p->stage <= POD_ASSUMED &&
            strcmp(ask(w, "d", p->uid, HALF, any_notes[p->uid[0] - '0']), "fits") == 0 &&
            p->stage == POD_ASSUMED)
            state_pod_stage(p, POD_BOUND, w->now);
}

static void clear(struct world *w) {
    struct state_pod *pod, *next;
    HASH_ITER(hh, w->state->pods, pod, next)
        state_pod_gone(w->state, pod->uid);
    for (unsigned i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "m-%02u", i);
        state_gpu_gone(w->state, name);
    }
    state_node_gone(w->state, "m");
}

/* In any order of arrivals, deaths, binds and time: nothing is kept for a gang that is not whole,
 * and when there is room and no pod leaves, every whole gang runs. */
static void test_gangs_in_any_order(void **state) {
    struct world *w = *state;
    uint32_t there, assumed, placed;
    uint64_t seed = 7;
    for (int round = 0; round < 150; round++) {
        struct governed g;
        govern(&g, w);
        show_node(w, "n", 2);
        for (int step = 0; step < 60; step++) {
            any_step(w, &seed);
            pass_time(&g, 0);
            for (int k = 0; k < 3; k++) {
                count_gang(w, k, &there, &assumed, &placed);
                assert_true(assumed == 0 || there >= any_sizes[k]);
            }
        }
        show_node(w, "m", 4);
        for (int turn = 0; turn < 10; turn++) {
            pass_time(&g, 61000);
            bind_what_fits(w);
        }
        for (int k = 0; k < 3; k++) {
            count_gang(w, k, &there, &assumed, &placed);
            assert_true(there < any_sizes[k] || placed >= any_sizes[k]);
        }
        clear(w);
        ungovern(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_gang_is_read),
        T(test_gang_waits_and_goes_together),
        T(test_gang_with_one_that_nobody_has_seen),
        T(test_gang_with_one_that_is_gone_and_another),
        T(test_gang_that_does_not_fit_takes_nothing),
        T(test_two_gangs),
        T(test_gang_times_out),
        T(test_gang_without_memory),
        T(test_a_complete_gang_does_not_time_out),
        T(test_gang_with_gates),
        T(test_gang_with_a_long_timeout),
        T(test_gang_of_which_some_have_ended),
        T(test_gang_that_succeeded_fails_anew),
        T(test_gang_begun_by_another_replica),
        T(test_gang_loses_a_member),
        T(test_the_largest_member_is_placed_first),
        T(test_equal_members_are_placed_by_name),
        T(test_gang_and_quota),
        T(test_gang_with_a_member_replaced),
        T(test_gang_with_a_member_that_is_deleted),
        T(test_gang_of_which_members_differ),
        T(test_gang_among_many_in_vain),
        T(test_gang_made_anew),
        T(test_gang_malformed),
        T(test_gangs_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
