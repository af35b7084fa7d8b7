/* SPDX-License-Identifier: Apache-2.0 */

/* One scrape of the scheduler: each figure under its name. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include <utlist.h>

#include "metrics-page.h"
#include "scheduler/mig/orders.h"
#include "scheduler/pages/pages.h"
#include "scheduler/state/namespace_usage.h"

static unsigned refreshed;
static uint64_t now;
static bool ready, leads;

bool __wrap_scheduler_answers(const struct scheduler *s);
bool __wrap_scheduler_is_ready(const struct scheduler *s);
uint64_t __wrap_scheduler_now(const struct scheduler *s);
bool __wrap_scheduler_leads(const struct scheduler *s);
unsigned __wrap_evictor_waiting(const struct evictor *e);
void __wrap_event_writer_stats(const struct event_writer *w, struct event_writer_stats *ret);
void __wrap_state_refresh_all(struct state *s);
void __wrap_dra_waiting_each(const struct dra *d,
                             void (*each)(const char *namespace, const char *reason,
                                          void *userdata),
                             void *userdata);
void __wrap_mig_orders_stats(const struct mig_orders *o, struct mig_orders_stats *ret);

#define MIG_OF_CLAIMS ((struct mig_orders *) (uintptr_t) 8)

void __wrap_dra_waiting_each(const struct dra *d,
                             void (*each)(const char *namespace, const char *reason,
                                          void *userdata),
                             void *userdata) {
    static char other[] = "team"; /* another pointer, and the same namespace */
    (void) d;
    each("team", "no-room", userdata);
    for (int i = 1; i < 71; i++)
        each(other, "no-room", userdata);
    each("team", "missing", userdata);
}

bool __wrap_scheduler_answers(const struct scheduler *s) {
    (void) s;
    return ready;
}

bool __wrap_scheduler_is_ready(const struct scheduler *s) {
    (void) s;
    return ready;
}

uint64_t __wrap_scheduler_now(const struct scheduler *s) {
    (void) s;
    return now;
}

bool __wrap_scheduler_leads(const struct scheduler *s) {
    (void) s;
    return leads;
}

unsigned __wrap_evictor_waiting(const struct evictor *e) {
    (void) e;
    return 11;
}

void __wrap_event_writer_stats(const struct event_writer *w, struct event_writer_stats *ret) {
    (void) w;
    *ret = (struct event_writer_stats){.written = 12, .failed = 13, .dropped = 14};
}

void __wrap_state_refresh_all(struct state *s) {
    (void) s;
    refreshed++;
}

void __wrap_mig_orders_stats(const struct mig_orders *o, struct mig_orders_stats *ret) {
    if (o == MIG_OF_CLAIMS)
        *ret = (struct mig_orders_stats){
            .made = 8, .failed = 9, .waiting = 10, .time = {.buckets = {1}, .sum_ns = 500000000}};
    else
        *ret = (struct mig_orders_stats){.made = 20,
                                         .failed = 20,
                                         .waiting = 20,
                                         .time = {.buckets = {2}, .sum_ns = 2000000000}};
}

/* The values of those with labels are of the first label set that is not 0. */
static const struct expected full[] = {
    {"aliquot_scheduler_requests_total", "15"},
    {"aliquot_scheduler_request_duration_seconds", "1.5"},
    {"aliquot_scheduler_pods", "9"},
    {"aliquot_scheduler_gpus", "4"},
    {"aliquot_scheduler_gpus_overcommitted", "1"},
    {"aliquot_scheduler_gpu_memory_free_bytes", "1000"},
    {"aliquot_scheduler_preemptors", "11"},
    {"aliquot_scheduler_evictions_total", "17"},
    {"aliquot_scheduler_evictions_refused_total", "18"},
    {"aliquot_scheduler_ready", "1"},
    {"aliquot_scheduler_acts", "1"},
    {"aliquot_scheduler_mig_orders_total", "28"},
    {"aliquot_scheduler_mig_orders_waiting", "30"},
    {"aliquot_scheduler_mig_order_duration_seconds", "2.5"},
    {"aliquot_scheduler_lease_changes_total", "19"},
    {"aliquot_scheduler_bind_conflicts_total", "21"},
    {"aliquot_scheduler_bind_doubts_total", "22"},
    {"aliquot_scheduler_forged_assignments_total", "23"},
    {"aliquot_scheduler_events_written_total", "12"},
    {"aliquot_scheduler_events_failed_total", "13"},
    {"aliquot_scheduler_events_dropped_total", "14"},
    {"aliquot_scheduler_gpu_patches_total", "24"},
    {"aliquot_scheduler_gpu_patches_failed_total", "25"},
    {"aliquot_scheduler_wakes_total", "26"},
    {"aliquot_scheduler_kube_scheduler_skew", "-31"},
    {"aliquot_scheduler_stands_back", "1"},
    {"aliquot_scheduler_objects_refused_total", "27"},
    {"aliquot_scheduler_time_to_bind_seconds", "44.5"},
    {"aliquot_scheduler_nodes_out_of_service", "2"},
    {"aliquot_scheduler_gpus_free", "1"},
    {"aliquot_scheduler_largest_share_percent", "100"},
    {"aliquot_scheduler_largest_share_memory_bytes", "200"},
    {"aliquot_scheduler_gpus_wanted", "3.25"},
    {"aliquot_scheduler_pods_waiting", "5"},
    {"aliquot_scheduler_resource_claims_total", "61"},
    {"aliquot_scheduler_resource_claims_waiting", "71"},
    {"aliquot_scheduler_shares", "6"},
    {"aliquot_scheduler_shares_compute_percent", "70"},
    {"aliquot_scheduler_shares_memory_bytes", "7000"},
    {"aliquot_scheduler_quota_used", "91"},
    {"aliquot_scheduler_quota_used_by_claims", "37"},
    {"aliquot_scheduler_quota_guaranteed", "51"},
    {"aliquot_scheduler_quota_max", "123"},
    {"aliquot_scheduler_quota_borrowed", "40"},
};

static struct state_node nodes[3];
static struct state_head heads[3];
static struct state_card cards[5], whole;
static struct state_space space = {.name = "team",
                                   .used = {.all.of = {91, 7777, 3}, .claims.of = {37, 5555, 2}}};
static struct state_pod pods[11];
static struct container_request by_core = {.container = "main", .cards = 1, .core = 50},
                                with_init[] = {{.container = "first", .cards = 3},
                                               {.container = "second", .cards = 1},
                                               {.container = "main", .cards = 2}},
                                by_memory = {.container = "main", .cards = 1, .memory = 300},
                                hami = {.container = "main", .cards = 1, .dialect = DIALECT_HAMI};
/* Both init containers take less than the app container, which has two cards. */
static struct state_allocation native[] = {
    {"first", CONTAINER_INIT, {.core = 20, .memory = 2000}},
    {"first", CONTAINER_INIT, {.core = 20, .memory = 2000}},
    {"first", CONTAINER_INIT, {.core = 20, .memory = 2000}},
    {"second", CONTAINER_INIT, {.core = 50, .memory = 5000}},
    {"main", CONTAINER_APP, {.core = 30, .memory = 3000}},
    {"main", CONTAINER_APP, {.core = 40, .memory = 4000}},
};

/* A node with four cards: three are healthy, of which one is overcommitted, one idle and one given
 * out whole only; a node without an agent; and one whose card another project's plugin gives out,
 * without an agent. */
static void fill_cards(struct state *state) {
    for (size_t i = 0; i < 5; i++) {
        struct state_node *node = &nodes[i / 4];
        node->cards[i % 4] = &cards[i];
        node->place[i % 4] = (struct place_card){.healthy = i != 0,
                                                 .memory = i == 2 ? 400 : 100 * i,
                                                 .whole_only = i == 3,
                                                 .free = {100 * i, i == 2 ? 60 : 100, 64}};
        cards[i].memory = 400;
        cards[i].healthy = true;
        (void) snprintf(cards[i].name, sizeof(cards[i].name), "card-%zu", i);
        HASH_ADD_STR(state->cards, name, &cards[i]);
    }
    nodes[0].place[3].free.core = 90;
    cards[2].overcommitted = true;
    for (size_t i = 0; i < 3; i++) {
        nodes[i].exists = true;
        nodes[i].head = &heads[i];
        nodes[i].ncards = i == 0 ? 4 : i == 1;
        (void) snprintf(nodes[i].name, sizeof(nodes[i].name), "node-%zu", i);
        HASH_ADD_STR(state->nodes, name, &nodes[i]);
    }
    heads[1].absence = PLACE_NO_AGENT;
    nodes[2].apart_absence = PLACE_NO_AGENT;
    whole = (struct state_card){.node = &nodes[2], .apart = true, .unknown = true};
    DL_APPEND(nodes[2].apart, &whole);
}

/* Nine pods wait, one of which the watch has not shown; two are on a node. */
static void fill_pods(struct state *state) {
    for (size_t i = 0; i < 11; i++) {
        struct state_pod *pod = &pods[i];
        *pod = (struct state_pod){.space = &space, .shown = true, .ncontainers = 1};
        pod->containers = i == 10 ? &hami : i < 5 ? &by_core : &by_memory;
        pod->stage = i < 9 ? POD_PENDING : POD_AWAITED;
        pod->requeue.reason = i < 5 ? "no-room" : i == 5 ? "quota" : NULL;
        (void) snprintf(pod->uid, sizeof(pod->uid), "pod-%zu", i);
        HASH_ADD_STR(state->pods, uid, pod);
        DL_APPEND2(state->open, pod, open_prev, open_next);
    }
    pods[6].problem = REQUEST_TWICE;
    pods[7].shown = false;
    pods[8].foreign.scheduler = (char *) (uintptr_t) "volcano";
    pods[8].ncontainers = 0;
    pods[9].containers = with_init;
    pods[9].ncontainers = 3;
    pods[9].allocations = native;
    pods[9].nallocations = 6;
    pods[10].allocations = &native[4];
    pods[10].nallocations = 1;
}

static void fill_state(struct state *state) {
    fill_cards(state);
    fill_pods(state);
    HASH_ADD_STR(state->spaces, name, &space);
    state->forged = 23;
}

/* One of a cohort, and one that limits nothing but the number of cards. */
static void fill_quotas(struct quotas *q, struct state *state) {
    struct quota_object object = {.namespace = "team",
                                  .name = "gold",
                                  .cohort = "all",
                                  .counted = {true},
                                  .guaranteed = {51},
                                  .max = {123}};
    q->state = state;
    assert_int_equal(quotas_seen(q, QUOTA_OF_OURS, &object), 0);
    object = (struct quota_object){.namespace = "team",
                                   .name = "cards",
                                   .counted = {[QUOTA_CARDS] = true},
                                   .guaranteed = {[QUOTA_CARDS] = 4},
                                   .max = {[QUOTA_CARDS] = UINT64_MAX}};
    assert_int_equal(quotas_seen(q, QUOTA_OF_KUBERNETES, &object), 0);
}

static void fill_scheduler(struct scheduler *s) {
    s->stats[VERB_BIND] =
        (struct verb_stats){.ok = 15, .failed = 16, .latency = {.sum_ns = 1500000000}};
    s->evictor.evicted = 17;
    s->evictor.spared = 18;
    s->lease.acquired = 19;
    s->lease.lost = 20;
    s->dra.allocated = 61;
    s->dra.taken_back = 62;
    s->dra.failed = 63;
    s->binder.conflicts = 21;
    s->binder.doubts = 22;
    s->gpu_status.patched = 24;
    s->gpu_status.failed = 25;
    s->requeue.sent = 26;
    s->objects_refused = 27;
    s->skew.ahead = -31;
    s->lease.own = true; /* and the Lease was not read yet */
    s->mig_claims = MIG_OF_CLAIMS;
    s->binder.waits = (struct prom_histogram){.bounds = prom_waits};
    prom_observe(&s->binder.waits, UINT64_C(44500000000));
}

/* What else is on that page. */
static const char *const lines[] = {
    "\naliquot_scheduler_requests_total{verb=\"bind\",outcome=\"ok\"} 15\n",
    "\naliquot_scheduler_requests_total{verb=\"bind\",outcome=\"error\"} 16\n",
    "\naliquot_scheduler_requests_total{verb=\"preempt\",outcome=\"ok\"} 0\n",
    "\naliquot_scheduler_request_duration_seconds_sum{verb=\"bind\"} 1.5\n",
    "\naliquot_scheduler_pods{stage=\"awaited\"} 2\n",
    "\naliquot_scheduler_pods{stage=\"bound\"} 0\n",
    "\naliquot_scheduler_gpus{state=\"healthy\"} 4\n",
    "\naliquot_scheduler_gpus{state=\"unhealthy\"} 1\n",
    "\naliquot_scheduler_mig_orders_total{result=\"failed\"} 29\n",
    "\naliquot_scheduler_mig_order_duration_seconds_count 3\n",
    "\naliquot_scheduler_resource_claims_total{result=\"taken-back\"} 62\n",
    "\naliquot_scheduler_resource_claims_total{result=\"failed\"} 63\n",
    "\naliquot_scheduler_resource_claims_waiting{namespace=\"team\",reason=\"no-room\"} 71\n"
    "aliquot_scheduler_resource_claims_waiting{namespace=\"team\",reason=\"missing\"} 1\n",
    "\naliquot_scheduler_lease_changes_total{change=\"acquired\"} 19\n",
    "\naliquot_scheduler_lease_changes_total{change=\"lost\"} 20\n",
    "\naliquot_scheduler_time_to_bind_seconds_bucket{le=\"30\"} 0\n",
    "\naliquot_scheduler_time_to_bind_seconds_bucket{le=\"45\"} 1\n",
    "\naliquot_scheduler_time_to_bind_seconds_bucket{le=\"86400\"} 1\n",
    "\naliquot_scheduler_pods_waiting{namespace=\"team\",reason=\"no-room\"} 5\n"
    "aliquot_scheduler_pods_waiting{namespace=\"team\",reason=\"quota\"} 1\n"
    "aliquot_scheduler_pods_waiting{namespace=\"team\",reason=\"malformed\"} 1\n"
    "aliquot_scheduler_pods_waiting{namespace=\"team\",reason=\"other-scheduler\"} 1\n#",
    "\naliquot_scheduler_shares{namespace=\"team\",dialect=\"Elastic GPU (elasticgpu.io)\"} 6\n"
    "aliquot_scheduler_shares{namespace=\"team\",dialect=\"HAMi (nvidia.com/gpu)\"} 1\n#",
    "\naliquot_scheduler_quota_used{namespace=\"team\",kind=\"ResourceQuota\",quota=\"cards\","
    "resource=\"elasticgpu.io/gpu\"} 3\n",
};

static void test_each_figure_under_its_name(void **unused) {
    static const struct vocabulary *const vocabularies[] = {&scheduler_vocabulary};
    static struct scheduler s;
    static struct state state;
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) unused;
    s.state = &state;
    fill_state(&state);
    fill_scheduler(&s);
    fill_quotas(&s.govern.quotas, &state);
    ready = leads = true;
    scheduler_write_metrics(&s, PROM_TEXT, &out);
    assert_int_equal(buf_error(&out), 0);
    assert_int_equal(refreshed, 1);
    assert_page(buf_str(&out), vocabularies, 1, full, sizeof(full) / sizeof(full[0]));
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(buf_str(&out), lines[i]))
            fail_msg("not on the page: %s", lines[i]);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_quota_max", NULL), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_quota_borrowed", NULL), 1);
    /* A replica that waits knows the cluster, and not for which reason a pod waits. */
    leads = false;
    buf_reset(&out);
    scheduler_write_metrics(&s, PROM_TEXT, &out);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_pods_waiting", NULL), 0);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_shares", NULL), 2);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_gpus_wanted", "3.25"), 1);
    /* Those that are 0 or 1, the other way round, and what can be unknown. */
    ready = false;
    s.lease.own = false;
    version_skew_init(&s.skew);
    buf_reset(&out);
    scheduler_write_metrics(&s, PROM_TEXT, &out);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_ready", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_acts", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_stands_back", "0"), 1);
    assert_absent(buf_str(&out), vocabularies, 1);
    quotas_done(&s.govern.quotas);
    HASH_CLEAR(hh, state.spaces);
    HASH_CLEAR(hh, state.cards);
    HASH_CLEAR(hh, state.nodes);
    HASH_CLEAR(hh, state.pods);
}

/* Other hosts may read the page as often as they like: it is made once a second for each format. */
static void test_page_for_other_hosts(void **unused) {
    static struct scheduler s;
    static struct state state;
    _cleanup_buf_ struct buf out = BUF_INIT(0), open = BUF_INIT(0);

    (void) unused;
    s.state = &state;
    ready = true;
    refreshed = 0;
    now = 5;
    for (unsigned i = 0; i < 3; i++, now += SHARED_PAGE_MS - 1) {
        buf_reset(&out);
        s.requeue.sent = i;
        scheduler_copy_metrics(&s, PROM_TEXT, &out);
        assert_int_equal(buf_error(&out), 0);
        assert_int_equal(refreshed, i < 2 ? 1 : 2);
        assert_int_equal(
            page_samples(buf_str(&out), "aliquot_scheduler_wakes_total", i < 2 ? "0" : "2"), 1);
    }
    scheduler_copy_metrics(&s, PROM_OPENMETRICS, &open);
    assert_non_null(strstr(buf_str(&open), "# EOF\n"));
    assert_null(strstr(buf_str(&out), "# EOF\n"));
    for (size_t i = 0; i < PROM_FORMATS; i++)
        buf_done(&s.shared_pages[i].text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_figure_under_its_name),
        cmocka_unit_test(test_page_for_other_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
