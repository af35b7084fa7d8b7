/* SPDX-License-Identifier: Apache-2.0 */

/* The work of one scrape of the agent: what walks all pairs of shares runs once for each card. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include "agent/report/metrics.h"
#include "agent/report/report.h"
#include "base/buf.h"
#include "kube/api/event.h"
#include "kube/api/event_writer.h"

#define CARDS 3

static struct gpu_snapshot snapshot = {
    .ndevices = CARDS,
    .devices = {{.uuid = "GPU-a"}, {.uuid = "GPU-b"}, {.uuid = "GPU-c"}},
};
static unsigned walks;

const struct gpu_snapshot *__wrap_gpu_monitor_snapshot(const struct gpu_monitor *monitor);
void __wrap_gpu_monitor_status(const struct gpu_monitor *monitor,
                               struct gpu_monitor_status *ret_status);
const struct plugin *__wrap_kubelet_plugin(const struct kubelet *kubelet, size_t i);
void __wrap_plugin_stats(const struct plugin *plugin, struct plugin_stats *ret_stats);
bool __wrap_pods_synced(const struct pods *pods);
void __wrap_slot_card_use(const struct slot_store *slots, const char *uuid, const char *but,
                          struct slot_total *ret_granted, const struct slot **ret_holder);

const struct gpu_snapshot *__wrap_gpu_monitor_snapshot(const struct gpu_monitor *monitor) {
    (void) monitor;
    return &snapshot;
}

void __wrap_gpu_monitor_status(const struct gpu_monitor *monitor,
                               struct gpu_monitor_status *ret_status) {
    (void) monitor;
    memset(ret_status, 0, sizeof(*ret_status));
}

const struct plugin *__wrap_kubelet_plugin(const struct kubelet *kubelet, size_t i) {
    (void) kubelet, (void) i;
    return NULL;
}

void __wrap_plugin_stats(const struct plugin *plugin, struct plugin_stats *ret_stats) {
    (void) plugin;
    memset(ret_stats, 0, sizeof(*ret_stats));
}

bool __wrap_pods_synced(const struct pods *pods) {
    (void) pods;
    return true;
}

void __wrap_slot_card_use(const struct slot_store *slots, const char *uuid, const char *but,
                          struct slot_total *ret_granted, const struct slot **ret_holder) {
    (void) slots, (void) uuid, (void) but, (void) ret_holder;
    *ret_granted = (struct slot_total){.memory = ++walks};
}

static void test_one_walk_for_each_card(void **state) {
    static struct shares shares;
    static struct audit audit;
    static struct prestarts prestarts;
    struct report report = {.shares = &shares, .audit = &audit, .prestarts = &prestarts};
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    (void) state;
    shares.options.node_name = "node-a";
    metrics_write(&report, &out);
    assert_int_equal(buf_error(&out), 0);
    assert_non_null(strstr(buf_str(&out), "aliquot_gpu_memory_granted_bytes{"));
    assert_non_null(strstr(buf_str(&out), "uuid=\"GPU-c\""));
    assert_int_equal(walks, CARDS);
}

static int no_connection(void *context, const char *method, const char *path,
                         const char *content_type, const char *body, size_t size,
                         unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                         struct err *err) {
    (void) context, (void) method, (void) path, (void) content_type, (void) body, (void) size;
    (void) timeout_ms, (void) on_response, (void) userdata, (void) err;
    return -ENOTCONN;
}

/* There is room for one: the second takes the place of the first. */
static void test_events_that_were_dropped(void **state) {
    static struct shares shares;
    static struct audit audit;
    static struct prestarts prestarts;
    struct report report = {.shares = &shares, .audit = &audit, .prestarts = &prestarts};
    const struct event_writer_options options = {
        .component = "test", .request = no_connection, .objects_max = 1};
    struct event e = {.namespace = "n",
                      .name = "p",
                      .uid = "u1",
                      .api_version = "v1",
                      .kind = "Pod",
                      .reason = "R",
                      .message = "m"};
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    (void) state;
    shares.options.node_name = "node-a";
    shares.events.writer = event_writer_new(&options);
    assert_non_null(shares.events.writer);
    event_writer_note(shares.events.writer, &e, 0, false, 1000);
    e.uid = "u2";
    event_writer_note(shares.events.writer, &e, 0, false, 1000);
    metrics_write(&report, &out);
    assert_non_null(strstr(buf_str(&out), "\naliquot_agent_events_dropped_total 1\n"));
    assert_non_null(strstr(buf_str(&out), "\naliquot_agent_events_written_total 0\n"));
    assert_non_null(strstr(buf_str(&out), "\naliquot_agent_events_failed_total 1\n"));
    event_writer_free(shares.events.writer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_walk_for_each_card),
        cmocka_unit_test(test_events_that_were_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
