/* SPDX-License-Identifier: Apache-2.0 */

/* The history of shares: what is written of a step, and what a restarted agent finds. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/report/history_page.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/text.h"

#define SLOT "0000000000000000000000000000000a"
#define MIB ((uint64_t) 1 << 20)
#define GIB ((uint64_t) 1 << 30)
#define MS 1000000u

struct world {
    struct history history;
    char dir[64];
    char path[96];
};

static void open_file(struct world *w) {
    assert_int_equal(history_open(&w->history, w->path, NULL), 0);
}

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    (void) snprintf(w->dir, sizeof(w->dir), "/tmp/aliquot-history-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void) snprintf(w->path, sizeof(w->path), "%s/history", w->dir);
    open_file(w);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;

    history_close(&w->history);
    (void) dir_remove(w->dir, NULL);
    free(w);
    return 0;
}

static void reopen(struct world *w) {
    history_close(&w->history);
    open_file(w);
}

/* A share of 20 GiB with a quarter of the card, in step `number`. */
static void put(struct world *w, uint64_t number, uint64_t memory, uint64_t taken_ms,
                uint64_t throttled_ms) {
    const struct history_figures now = {.memory = memory,
                                        .most = 20 * GIB,
                                        .taken = taken_ms * MS,
                                        .throttled = throttled_ms * MS,
                                        .entitled = 250000};

    history_put(&w->history, SLOT, 0, number, &now);
}

static const struct history_record *record(struct world *w) {
    const struct history_record *r = history_find(&w->history, SLOT, 0);

    assert_non_null(r);
    return r;
}

static void assert_step(struct world *w, uint32_t age, uint16_t taken, uint16_t throttled) {
    const struct history_step *step = history_at(record(w), age);

    assert_true(history_known(step));
    assert_int_equal(step->taken, taken);
    assert_int_equal(step->throttled, throttled);
    assert_int_equal(step->entitled, HISTORY_STEP_MS / 4);
}

/* Bytes of a step, to the unit. */
static void assert_memory(struct world *w, uint32_t age, uint64_t bytes) {
    const struct history_record *r = record(w);
    uint64_t seen = history_at(r, age)->memory * r->unit;

    assert_true(seen >= bytes && seen < bytes + r->unit);
}

static void totals_become_steps(void **state) {
    put(*state, 7, 3 * GIB, 1000, 0);
    put(*state, 8, 4 * GIB, 3500, 40);
    put(*state, 9, 0, 3500, 100040);
    assert_step(*state, 2, HISTORY_UNKNOWN, HISTORY_UNKNOWN);
    assert_step(*state, 1, 2500, 40);
    assert_step(*state, 0, 0, UINT16_MAX - 1);
    assert_memory(*state, 2, 3 * GIB);
    assert_memory(*state, 1, 4 * GIB);
    assert_memory(*state, 0, 0);
    assert_false(history_known(history_at(record(*state), 3)));
    assert_true(record(*state)->unit < MIB);
}

static void the_ring_keeps_the_newest_hour(void **state) {
    for (uint64_t n = 1; n <= HISTORY_STEPS + 5; n++)
        put(*state, n, 0, n * n, 0);
    for (uint32_t age = 0; age < HISTORY_STEPS; age++) {
        uint64_t n = HISTORY_STEPS + 5 - age;

        assert_step(*state, age, (uint16_t) (2 * n - 1), 0);
    }
}

/* A share that uses nothing is known to use nothing; what was not seen is not known. */
static void a_gap_is_not_known(void **state) {
    struct world *w = *state;

    put(w, 10, GIB, 100, 0);
    put(w, 11, GIB, 200, 0);
    reopen(w);
    assert_step(w, 0, 100, 0);
    put(w, 14, GIB, 900, 0);
    assert_step(w, 0, HISTORY_UNKNOWN, HISTORY_UNKNOWN);
    assert_memory(w, 0, GIB);
    assert_false(history_known(history_at(record(w), 1)));
    assert_false(history_known(history_at(record(w), 2)));
    assert_step(w, 3, 100, 0);
    put(w, 14 + HISTORY_STEPS + 1, GIB, 1000, 0);
    for (uint32_t age = 1; age < HISTORY_STEPS; age++)
        assert_false(history_known(history_at(record(w), age)));
}

/* An agent that is back within a step goes on without a gap, and writes none again. */
static void a_restart_loses_no_step(void **state) {
    struct world *w = *state;

    put(w, 9, GIB, 10, 0);
    put(w, 10, GIB, 100, 7);
    reopen(w);
    put(w, 10, GIB, 120, 7);
    assert_step(w, 0, 90, 7);
    put(w, 11, GIB, 350, 8);
    assert_step(w, 0, 250, 1);
}

static void an_account_that_begins_again_is_not_known(void **state) {
    put(*state, 1, 0, 5000, 300);
    put(*state, 2, 0, 100, 300);
    assert_step(*state, 0, HISTORY_UNKNOWN, 0);
}

static void unknown_figures(void **state) {
    struct world *w = *state;
    const struct history_figures none = {
        .memory = UINT64_MAX, .most = GIB, .taken = UINT64_MAX, .throttled = UINT64_MAX};

    put(w, 1, GIB, 10, 10);
    history_put(&w->history, SLOT, 0, 2, &none);
    put(w, 3, GIB, 20, 20);
    assert_int_equal(history_at(record(w), 1)->memory, HISTORY_UNKNOWN);
    assert_int_equal(history_at(record(w), 1)->taken, HISTORY_UNKNOWN);
    assert_step(w, 0, HISTORY_UNKNOWN, HISTORY_UNKNOWN);
}

/* The unit follows a share that grows, and what was written keeps its value. */
static void a_share_grows(void **state) {
    struct world *w = *state;
    struct history_figures now = {.memory = 3 * MIB, .most = 4 * MIB};
    uint64_t unit;

    history_put(&w->history, SLOT, 0, 1, &now);
    unit = record(w)->unit;
    now = (struct history_figures){.memory = 200 * GIB, .most = 288 * GIB};
    history_put(&w->history, SLOT, 0, 2, &now);
    assert_true(record(w)->unit > unit);
    assert_memory(w, 1, 3 * MIB);
    assert_memory(w, 0, 200 * GIB);
}

static void a_record_without_a_step_is_free(void **state) {
    struct world *w = *state;
    uint32_t before;

    put(w, 1, 0, 0, 0);
    history_put(&w->history, SLOT, 1, 1, &(struct history_figures){.most = GIB});
    history_end_step(&w->history, 1);
    before = w->history.records;
    put(w, 2, 0, 0, 0);
    history_end_step(&w->history, 2);
    assert_non_null(history_find(&w->history, SLOT, 0));
    assert_null(history_find(&w->history, SLOT, 1));
    history_put(&w->history, SLOT, 2, 2, &(struct history_figures){.most = GIB});
    assert_int_equal(w->history.records, before);
    assert_false(history_known(history_at(history_find(&w->history, SLOT, 2), 1)));
}

/* Its size is bounded, and a share beyond it costs nothing but its history. */
static void the_file_is_bounded(void **state) {
    struct world *w = *state;
    char nonce[NONCE_LEN + 1];
    struct stat st;

    for (unsigned i = 0; i <= HISTORY_MAX; i++) {
        (void) snprintf(nonce, sizeof(nonce), "%032x", i);
        history_put(&w->history, nonce, 0, 1, &(struct history_figures){.most = GIB});
        assert_int_equal(history_find(&w->history, nonce, 0) != NULL, i < HISTORY_MAX);
    }
    assert_int_equal(stat(w->path, &st), 0);
    assert_true(st.st_size <= HISTORY_MAX * 3072);
    reopen(w);
    for (unsigned i = 0; i < HISTORY_MAX; i++) {
        (void) snprintf(nonce, sizeof(nonce), "%032x", i);
        assert_non_null(history_find(&w->history, nonce, 0));
    }
}

/* A file of another release, of a disk that was full, or of the end of a machine. */
static void another_file_is_begun_again(void **state) {
    static const char *const texts[] = {"", "garbage that is longer than the head of a file"};
    struct world *w = *state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        history_close(&w->history);
        assert_int_equal(file_replace(w->path, texts[i], strlen(texts[i]), 0600, NULL), 0);
        open_file(w);
        assert_null(history_find(&w->history, SLOT, 0));
        put(w, 1, GIB, 0, 0);
        put(w, 2, GIB, 10, 0);
        assert_step(w, 0, 10, 0);
    }
}

/* Half a record at the end does not count, and numbers of steps from another boot begin again. */
static void a_damaged_file(void **state) {
    struct world *w = *state;
    struct stat st;

    put(w, 1000000, GIB, 10, 0);
    history_close(&w->history);
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(truncate(w->path, st.st_size - 1), 0);
    open_file(w);
    put(w, 3, GIB, 20, 0);
    assert_int_equal(record(w)->last, 3);
    for (uint32_t age = 1; age < HISTORY_STEPS; age++)
        assert_false(history_known(history_at(record(w), age)));
}

static void no_file(void **state) {
    struct world *w = *state;

    history_close(&w->history);
    assert_int_equal(history_open(&w->history, "/nowhere/history", NULL), -ENOENT);
    put(w, 1, 0, 0, 0);
    history_end_step(&w->history, 1);
    assert_null(history_find(&w->history, SLOT, 0));
}

/* ---- the page ---- */

/* Slots of one device, of the namespace "even" or "odd". */
static void add_slots(struct slot_store *store, unsigned n) {
    static struct slot slots[HISTORY_PAGE_MAX + 1];
    static struct slot_device device;

    assert_in_range(n, 0, sizeof(slots) / sizeof(slots[0]));
    memset(slots, 0, sizeof(slots));
    for (unsigned i = 0; i < n; i++) {
        (void) snprintf(slots[i].nonce, sizeof(slots[i].nonce), "%032x", i);
        text_copy(slots[i].grant.namespace, sizeof(slots[i].grant.namespace),
                  i % 2 ? "odd" : "even");
        slots[i].grant.devices = &device;
        slots[i].grant.ndevices = 1;
        HASH_ADD_STR(store->slots, nonce, &slots[i]);
    }
}

static unsigned count(const char *text, const char *word) {
    unsigned n = 0;

    while ((text = strstr(text, word))) {
        n++;
        text++;
    }
    return n;
}

static void assert_page(struct report *report, struct history_query query, unsigned n,
                        const char *end) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    history_page_write(report, &query, &out);
    assert_int_equal(count(buf_str(&out), "\"throttledMs\":[null,5]"), n);
    assert_non_null(strstr(buf_str(&out), end));
}

/* A page is bounded and names the next one; what has no history is on none. */
static void pages(void **state) {
    struct world *w = *state;
    struct shares shares = {.options.node_name = "n"};
    struct report report = {.shares = &shares, .history = w->history};

    add_slots(&shares.slots, HISTORY_PAGE_MAX + 1);
    assert_page(&report, (struct history_query){0}, 0, "\"containers\":[]}");
    for (struct slot *slot = shares.slots.slots; slot; slot = slot->hh.next) {
        struct history_figures now = {.most = GIB};

        history_put(&report.history, slot->nonce, 0, 1, &now);
        now.throttled = 5 * MS;
        history_put(&report.history, slot->nonce, 0, 2, &now);
    }
    assert_page(&report, (struct history_query){0}, HISTORY_PAGE_MAX, "],\"next\":100}");
    assert_page(&report, (struct history_query){.skip = HISTORY_PAGE_MAX}, 1, "]}]}");
    assert_page(&report, (struct history_query){.skip = UINT64_MAX}, 0, "\"containers\":[]}");
    assert_page(&report, (struct history_query){.namespace = "odd"}, HISTORY_PAGE_MAX / 2, "]}]}");
    assert_page(&report, (struct history_query){.pod = "other"}, 0, "\"containers\":[]}");
    w->history = report.history;
    HASH_CLEAR(hh, shares.slots.slots);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(totals_become_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(the_ring_keeps_the_newest_hour, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gap_is_not_known, setup, teardown),
        cmocka_unit_test_setup_teardown(a_restart_loses_no_step, setup, teardown),
        cmocka_unit_test_setup_teardown(an_account_that_begins_again_is_not_known, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_figures, setup, teardown),
        cmocka_unit_test_setup_teardown(a_share_grows, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_without_a_step_is_free, setup, teardown),
        cmocka_unit_test_setup_teardown(the_file_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(another_file_is_begun_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_file, setup, teardown),
        cmocka_unit_test_setup_teardown(no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(pages, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
