/* SPDX-License-Identifier: Apache-2.0 */

/* Memory that containers have exported by descriptor, as the agent judges it poll by poll. The
 * driver is played by this file; ledgers and time are real. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/audit/audit.h"
#include "agent/audit/audit_internal.h"
#include "base/file.h"
#include "base/text.h"
#include "fake-monitor.h"
#include "share/ledger.h"

#define GIB ((uint64_t) 1 << 30)
#define CONTAINERS 2
#define SHARE (4 * GIB)
#define POLLS 4 /* two credit, two find */
#define MANY_POLLS (UNATTRIBUTED_RESTLESS_POLLS + 2)

/* ---- a card with two containers ---- */

struct world {
    struct shares shares;
    struct audit audit;
    uv_loop_t loop;
    char dir[64];
    struct container {
        struct slot *slot;
        struct slot_device *device;
        char path[384];
        struct ledger_owner own, exports; /* of its processes */
    } containers[CONTAINERS];
};

static void make_container(struct world *w, size_t i) {
    struct slot_grant g = {.namespace = "n", .ndevices = 1};
    struct container *c = &w->containers[i];
    char nonce[NONCE_LEN + 1];

    (void) snprintf(nonce, sizeof(nonce), "%032zu", i);
    (void) snprintf(g.pod_uid, sizeof(g.pod_uid), "pod-%zu", i);
    (void) snprintf(g.pod, sizeof(g.pod), "pod-%zu", i);
    (void) snprintf(g.container, sizeof(g.container), "main");
    g.devices = calloc(1, sizeof(*g.devices));
    assert_non_null(g.devices);
    text_copy(g.devices[0].uuid, sizeof(g.devices[0].uuid), "GPU-a");
    g.devices[0].memory = g.devices[0].physical = SHARE;
    assert_int_equal(slot_fill(&w->shares.slots, nonce, &g, &c->slot, NULL), 0);
    c->device = &c->slot->grant.devices[0];
    slot_path(&w->shares.slots, nonce, "ledger", c->path);
    assert_int_equal(ledger_claim(c->path, &c->own), 0);
    assert_int_equal(ledger_claim_exports(c->path, &c->exports), 0);
    ledger_note_descriptors(&c->exports);
}

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    *state = w;
    (void) snprintf(w->dir, sizeof(w->dir), "/tmp/aliquot-orphans-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    assert_int_equal(uv_loop_init(&w->loop), 0);
    w->audit.shares = &w->shares;
    w->shares.loop = &w->loop;
    w->audit.initial_pids = true;
    (void) uv_timer_init(&w->loop, &w->audit.poll_timer);
    assert_int_equal(slot_store_load(&w->shares.slots, w->dir, NULL, NULL, NULL), 0);
    for (size_t i = 0; i < CONTAINERS; i++)
        make_container(w, i);
    snapshot.ndevices = 1;
    snapshot.devices[0] = (struct gpu_device){.uuid = "GPU-a", .memory = 80 * GIB, .healthy = true};
    snapshot.devices[0].sample.attributable = true;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;

    for (size_t i = 0; i < CONTAINERS; i++) {
        ledger_release(&w->containers[i].own);
        ledger_release(&w->containers[i].exports);
    }
    slot_store_done(&w->shares.slots);
    uv_close((uv_handle_t *) &w->audit.poll_timer, NULL);
    (void) uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    assert_int_equal(dir_remove(w->dir, NULL), 0);
    free(w);
    return 0;
}

/* One of its processes exports memory and ends. */
static void orphan(struct container *c, uint64_t bytes) {
    assert_int_equal(ledger_reserve(&c->exports, 0, bytes, 0), 0);
    assert_int_equal(ledger_orphan(&c->exports, 0, bytes), 0);
}

/* A process of it holds so much by ledger and driver. */
static void hold(struct container *c, uint64_t bytes) {
    assert_int_equal(ledger_reserve(&c->own, 0, bytes, 0), 0);
    c->device->driver_memory = bytes;
    c->device->driver_processes = 1;
}

static uint64_t orphaned(const struct container *c) {
    uint64_t bytes = UINT64_MAX;

    assert_int_equal(ledger_get_orphaned(c->slot->ledger, 0, &bytes), 0);
    return bytes;
}

/* The driver is asked several times, with so much in use on the card. */
static void poll_with(struct world *w, uint64_t used, int times) {
    snapshot.devices[0].sample.memory_most = snapshot.devices[0].sample.memory_allocated = used;
    for (int i = 0; i < times; i++) {
        (void) usleep((AUDIT_MEMORY_CONFIRM_MS + 5) * 1000);
        uv_update_time(&w->loop);
        audit_begin(&w->audit);
        for (size_t k = 0; k < CONTAINERS; k++)
            w->containers[k].device->living = w->containers[k].device->driver_memory;
        audit_end(&w->audit);
    }
}

/* ---- what is credited ---- */

/* The two hold 4 GiB each, and one gives them back. The figures do not tell which: the other one
 * must not be credited, whatever the order in which they came. */
static void no_container_gains_by_another_ones_return(void **state) {
    struct world *w = *state;
    struct container *one = &w->containers[0], *two = &w->containers[1];

    orphan(one, 4 * GIB);
    poll_with(w, 4 * GIB, POLLS);
    orphan(two, 4 * GIB);
    poll_with(w, 8 * GIB, POLLS);
    poll_with(w, 4 * GIB, POLLS);
    assert_int_equal(orphaned(one), 4 * GIB);
    assert_int_equal(orphaned(two), 4 * GIB);
    /* Neither can hold more than there is. */
    poll_with(w, GIB, POLLS);
    assert_int_equal(orphaned(one), GIB);
    assert_int_equal(orphaned(two), GIB);
    poll_with(w, 0, POLLS);
    assert_int_equal(orphaned(one), 0);
    assert_int_equal(orphaned(two), 0);
}

/* What a neighbour holds by processes or by its ledger is certain, and keeps nothing booked here.
 */
static void a_neighbour_at_work_delays_nothing(void **state) {
    struct world *w = *state;
    struct container *one = &w->containers[0], *two = &w->containers[1];

    hold(two, 3 * GIB);
    orphan(one, 4 * GIB);
    poll_with(w, 7 * GIB, POLLS);
    assert_int_equal(orphaned(one), 4 * GIB);
    poll_with(w, 5 * GIB, 2);
    assert_int_equal(orphaned(one), 2 * GIB);
    poll_with(w, 3 * GIB, 2);
    assert_int_equal(orphaned(one), 0);
}

/* What it claims beyond its share does not explain what another one holds. */
static void a_claim_counts_up_to_the_share(void **state) {
    struct world *w = *state;
    struct container *one = &w->containers[0], *two = &w->containers[1];

    assert_int_equal(ledger_reserve(&two->own, 0, 70 * GIB, 0), 0);
    orphan(one, 4 * GIB);
    poll_with(w, SHARE + 4 * GIB, POLLS);
    assert_int_equal(orphaned(one), 4 * GIB);
}

/* ---- what is held against the container ---- */

/* Beside a neighbour, where nothing that is not attributed is charged. */
static void listed_and_orphaned_memory_count_together(void **state) {
    struct world *w = *state;
    struct container *one = &w->containers[0], *two = &w->containers[1];

    hold(two, GIB);
    hold(one, 3 * GIB);
    orphan(one, 3 * GIB); /* past the limit: its ledger is forged */
    poll_with(w, 7 * GIB, POLLS);
    assert_int_equal(one->device->memory_audit.state, AUDIT_MEMORY_OVER);
    assert_int_equal(two->device->memory_audit.state, AUDIT_MEMORY_FINE);
}

/* Memory that an importer has open is in its own figure: it does not count twice, also while a
 * moving ledger delays the credit. */
static void imported_memory_does_not_count_twice(void **state) {
    struct world *w = *state;
    struct container *one = &w->containers[0];

    hold(one, 3 * GIB);
    orphan(one, 3 * GIB);
    for (int i = 0; i < POLLS; i++) {
        assert_int_equal(ledger_reserve(&one->own, 0, 1, 0), 0);
        poll_with(w, 3 * GIB, 1);
        assert_int_equal(one->device->memory_audit.state, AUDIT_MEMORY_FINE);
    }
}

/* A limit that was lowered below what is held leaves it attributed: it is within the share. */
static void a_lowered_limit_hides_no_owner(void **state) {
    struct world *w = *state;
    struct container *one = &w->containers[0];

    orphan(one, 3 * GIB);
    one->slot->grant.terms.memory_limit = GIB;
    poll_with(w, 3 * GIB, MANY_POLLS);
    assert_int_equal(w->audit.audits[0].memory.bytes, 0);
    assert_int_equal(one->device->memory_audit.state, AUDIT_MEMORY_LOWERED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_container_gains_by_another_ones_return, setup, teardown),
        cmocka_unit_test_setup_teardown(a_neighbour_at_work_delays_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_claim_counts_up_to_the_share, setup, teardown),
        cmocka_unit_test_setup_teardown(listed_and_orphaned_memory_count_together, setup, teardown),
        cmocka_unit_test_setup_teardown(imported_memory_does_not_count_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lowered_limit_hides_no_owner, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
