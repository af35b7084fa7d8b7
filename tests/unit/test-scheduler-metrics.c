/* SPDX-License-Identifier: Apache-2.0 */

/* One scrape of the scheduler: each figure under its name. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include "metrics-page.h"
#include "scheduler/mig/orders.h"
#include "scheduler/pages/pages.h"

static unsigned refreshed;
static bool ready, leads;

bool __wrap_scheduler_answers(const struct scheduler *s);
bool __wrap_scheduler_leads(const struct scheduler *s);
unsigned __wrap_evictor_waiting(const struct evictor *e);
void __wrap_event_writer_stats(const struct event_writer *w, struct event_writer_stats *ret);
void __wrap_state_refresh_all(struct state *s);
void __wrap_mig_orders_stats(const struct mig_orders *o, struct mig_orders_stats *ret);

#define MIG_OF_CLAIMS ((struct mig_orders *) (uintptr_t) 8)

bool __wrap_scheduler_answers(const struct scheduler *s) {
    (void) s;
    return ready;
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
    {"aliquot_scheduler_pods", "2"},
    {"aliquot_scheduler_gpus", "3"},
    {"aliquot_scheduler_gpus_overcommitted", "1"},
    {"aliquot_scheduler_gpu_memory_free_bytes", "600"},
    {"aliquot_scheduler_preemptors", "11"},
    {"aliquot_scheduler_evictions_total", "17"},
    {"aliquot_scheduler_evictions_refused_total", "18"},
    {"aliquot_scheduler_ready", "1"},
    {"aliquot_scheduler_acts", "0"},
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
};

/* A node with four cards: three are healthy, of which one is overcommitted; and two pods. */
static void fill_state(struct state *state) {
    static struct state_node node;
    static struct state_card cards[4];
    static struct state_pod pods[2];

    for (size_t i = 0; i < 4; i++) {
        node.cards[i] = &cards[i];
        node.place[i] = (struct place_card){.healthy = i != 0, .free.memory = 100 * i};
        (void) snprintf(cards[i].name, sizeof(cards[i].name), "card-%zu", i);
        HASH_ADD_STR(state->cards, name, &cards[i]);
    }
    cards[2].overcommitted = true;
    node.ncards = 4;
    (void) snprintf(node.name, sizeof(node.name), "node");
    HASH_ADD_STR(state->nodes, name, &node);
    for (size_t i = 0; i < 2; i++) {
        pods[i].stage = POD_AWAITED;
        (void) snprintf(pods[i].uid, sizeof(pods[i].uid), "pod-%zu", i);
        HASH_ADD_STR(state->pods, uid, &pods[i]);
    }
    state->forged = 23;
}

static void fill_scheduler(struct scheduler *s) {
    s->stats[VERB_BIND] =
        (struct verb_stats){.ok = 15, .failed = 16, .latency = {.sum_ns = 1500000000}};
    s->evictor.evicted = 17;
    s->evictor.spared = 18;
    s->lease.acquired = 19;
    s->lease.lost = 20;
    s->binder.conflicts = 21;
    s->binder.doubts = 22;
    s->gpu_status.patched = 24;
    s->gpu_status.failed = 25;
    s->requeue.sent = 26;
    s->objects_refused = 27;
    s->skew.ahead = -31;
    s->lease.own = true; /* and the Lease was not read yet */
    s->mig_claims = MIG_OF_CLAIMS;
}

static void test_each_figure_under_its_name(void **unused) {
    static const struct vocabulary *const vocabularies[] = {&scheduler_vocabulary};
    static const char *const lines[] = {
        "\naliquot_scheduler_requests_total{verb=\"bind\",outcome=\"ok\"} 15\n",
        "\naliquot_scheduler_requests_total{verb=\"bind\",outcome=\"error\"} 16\n",
        "\naliquot_scheduler_requests_total{verb=\"preempt\",outcome=\"ok\"} 0\n",
        "\naliquot_scheduler_request_duration_seconds_sum{verb=\"bind\"} 1.5\n",
        "\naliquot_scheduler_pods{stage=\"awaited\"} 2\n",
        "\naliquot_scheduler_pods{stage=\"bound\"} 0\n",
        "\naliquot_scheduler_gpus{state=\"healthy\"} 3\n",
        "\naliquot_scheduler_gpus{state=\"unhealthy\"} 1\n",
        "\naliquot_scheduler_mig_orders_total{result=\"failed\"} 29\n",
        "\naliquot_scheduler_mig_order_duration_seconds_count 3\n",
        "\naliquot_scheduler_lease_changes_total{change=\"acquired\"} 19\n",
        "\naliquot_scheduler_lease_changes_total{change=\"lost\"} 20\n",
    };
    static struct scheduler s;
    static struct state state;
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) unused;
    s.state = &state;
    fill_state(&state);
    fill_scheduler(&s);
    ready = true;
    scheduler_write_metrics(&s, PROM_TEXT, &out);
    assert_int_equal(buf_error(&out), 0);
    assert_int_equal(refreshed, 1);
    assert_page(buf_str(&out), vocabularies, 1, full, sizeof(full) / sizeof(full[0]));
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(buf_str(&out), lines[i]))
            fail_msg("not on the page: %s", lines[i]);
    /* Those that are 0 or 1, the other way round, and what can be unknown. */
    ready = false;
    leads = true;
    s.lease.own = false;
    version_skew_init(&s.skew);
    buf_reset(&out);
    scheduler_write_metrics(&s, PROM_TEXT, &out);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_ready", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_acts", "1"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_scheduler_stands_back", "0"), 1);
    assert_absent(buf_str(&out), vocabularies, 1);
    HASH_CLEAR(hh, state.cards);
    HASH_CLEAR(hh, state.nodes);
    HASH_CLEAR(hh, state.pods);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_figure_under_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
