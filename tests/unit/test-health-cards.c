/* SPDX-License-Identifier: Apache-2.0 */

/* The health of the devices of a node: XIDs reach the right device, the verdict reaches the
 * snapshot, and a restarted agent goes on with what was saved. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/health/cards.h"
#include "agent/os/kmsg.h"
#include "agent/shares/slot.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"

static struct world {
    struct health_options rules;
    struct health_cards cards;
    struct gpu_device card, other, small, big; /* small and big are instances of `card` */
    char dir[64];
    uint32_t holders; /* of each device */
    unsigned counts;  /* of them */
    unsigned changes;
    char changed[GPU_UUID_MAX];
    enum health_state before;
    unsigned notices;
    char notice[64]; /* reason of the last one */
} w;

static uint32_t holders(const char *uuid, void *userdata) {
    (void) uuid;
    assert_ptr_equal(userdata, &w);
    w.counts++;
    return w.holders;
}

static void on_change(const struct health_card *card, enum health_state before, void *userdata) {
    assert_ptr_equal(userdata, &w);
    w.changes++;
    w.before = before;
    (void) snprintf(w.changed, sizeof(w.changed), "%s", card->uuid);
}

static void on_notice(const struct health_card *card, const char *reason, const char *text,
                      void *userdata) {
    assert_ptr_equal(userdata, &w);
    assert_string_equal(card->uuid, "GPU-2");
    assert_true(text[0]);
    (void) snprintf(w.notice, sizeof(w.notice), "%s", reason);
    w.notices++;
}

static void start(void) {
    const struct health_cards_options options = {.rules = &w.rules,
                                                 .state_dir = w.dir,
                                                 .holders = holders,
                                                 .on_change = on_change,
                                                 .on_notice = on_notice,
                                                 .userdata = &w};

    memset(&w.cards, 0, sizeof(w.cards));
    health_cards_start(&w.cards, &options);
}

/* A poll: the devices answer, unless their reason says why not. */
static void poll_all(void) {
    struct gpu_device *all[] = {&w.card, &w.small, &w.big, &w.other};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct gpu_device d = *all[i];

        w.counts = 0;
        health_cards_judge(&w.cards, &d);
        health_cards_set_problem(&w.cards, d.uuid, HEALTH_OFFER, NULL); /* there is none */
        assert_int_equal(w.counts, 1); /* it looks at all shares of the node */
        all[i]->service = d.service;
        if (all[i]->healthy)
            memcpy(all[i]->reason, d.reason, sizeof(d.reason));
    }
}

static int setup(void **state) {
    (void) state;
    memset(&w, 0, sizeof(w));
    w.rules = health_defaults;
    w.holders = 1;
    (void) snprintf(w.dir, sizeof(w.dir), "/tmp/aliquot-health-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    w.card = (struct gpu_device){.uuid = "GPU-1", .pci = "00000000:3B:00.0", .healthy = true};
    w.other = (struct gpu_device){
        .uuid = "GPU-2", .pci = "00000000:3C:00.0", .index = 1, .healthy = true};
    w.small = (struct gpu_device){.kind = GPU_MIG_INSTANCE,
                                  .uuid = "MIG-small",
                                  .parent = "GPU-1",
                                  .mig = {.gi = 1, .ci = 0},
                                  .healthy = true};
    w.big = (struct gpu_device){.kind = GPU_MIG_INSTANCE,
                                .uuid = "MIG-big",
                                .parent = "GPU-1",
                                .index = 1,
                                .mig = {.gi = 2, .ci = 1},
                                .healthy = true};
    start();
    poll_all();
    return 0;
}

static int teardown(void **state) {
    (void) state;
    return dir_remove(w.dir, NULL);
}

static enum health_state state_of(const char *uuid) {
    return health_cards_view(&w.cards, uuid).state;
}

static bool nvml_xid(const char *uuid, uint32_t gi, uint32_t ci, uint32_t xid) {
    const struct gpu_xid x = {.uuid = uuid, .gi = gi, .ci = ci, .xid = xid};

    return health_cards_xid(&w.cards, &x);
}

/* ---- containers ---- */

static bool holds(const char *uuid, const struct slot *slot) {
    struct health_places places;

    health_cards_places(&w.cards, uuid, &places);
    return health_places_hold(&places, slot);
}

/* What is on an instance is on its card, whole or as a share. */
static void test_what_a_container_holds(void **state) {
    struct slot_whole whole = {.uuid = "MIG-small"};
    struct slot_device device = {.uuid = "MIG-big"};
    const struct slot one = {.grant = {.nwhole = 1, .whole = &whole}};
    const struct slot part = {.grant = {.ndevices = 1, .devices = &device}};
    const struct slot none = {.releasing = false};

    (void) state;
    assert_true(holds("MIG-small", &one) && holds("GPU-1", &one));
    assert_false(holds("MIG-big", &one) || holds("GPU-2", &one));
    assert_true(holds("MIG-big", &part) && holds("GPU-1", &part));
    assert_false(holds("MIG-small", &part) || holds("GPU-2", &part));
    assert_false(holds("GPU-1", &none));
    (void) snprintf(whole.uuid, sizeof(whole.uuid), "GPU-unknown");
    assert_true(holds("GPU-unknown", &one));
    assert_false(holds("GPU-1", &one));
}

/* ---- XIDs ---- */

static void test_card(void **state) {
    (void) state;
    assert_int_equal(state_of("GPU-1"), HEALTH_HEALTHY);
    assert_int_equal(state_of("GPU-nowhere"), HEALTH_UNKNOWN);
    w.changes = 0;
    assert_true(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
    assert_int_equal(w.changes, 1);
    assert_int_equal(w.before, HEALTH_HEALTHY);
    assert_string_equal(w.changed, "GPU-1");
    assert_int_equal(state_of("GPU-1"), HEALTH_UNHEALTHY);
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
    assert_int_equal(health_cards_view(&w.cards, "GPU-1").last_xid, 48);
    assert_true(health_cards_view(&w.cards, "GPU-1").since > 1700000000);
    poll_all();
    assert_int_equal(w.card.service, GPU_SERVES_NONE);
    assert_string_equal(w.card.reason, "XID 48 (double-bit ECC error): the card needs a reset");
    assert_int_equal(w.other.service, GPU_SERVES);
    assert_string_equal(w.other.reason, "");
    /* Its instances are lost with it, and have their own health back with it. */
    assert_int_equal(w.small.service, GPU_SERVES_NONE);
    assert_string_equal(w.small.reason, w.card.reason);
    assert_int_equal(state_of("MIG-small"), HEALTH_UNHEALTHY);
    assert_int_equal(health_cards_view(&w.cards, "MIG-small").last_xid, 0);
    assert_false(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 13));
    assert_false(nvml_xid("GPU-nowhere", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
    assert_false(nvml_xid("", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
}

static void test_instance(void **state) {
    (void) state;
    assert_true(nvml_xid("GPU-1", 1, 0, 46));
    poll_all();
    assert_int_equal(w.small.service, GPU_SERVES_NONE);
    assert_int_equal(w.big.service, GPU_SERVES);
    assert_int_equal(w.card.service, GPU_SERVES);
    assert_int_equal(state_of("GPU-1"), HEALTH_HEALTHY);
    /* Of all compute instances of the GPU instance. */
    assert_true(nvml_xid("GPU-1", 2, GPU_NOT_TOLD, 46));
    assert_int_equal(state_of("MIG-big"), HEALTH_UNHEALTHY);
    assert_int_equal(state_of("GPU-1"), HEALTH_HEALTHY);
    /* An instance that is not known, and another compute instance: the card's. */
    assert_true(nvml_xid("GPU-1", 1, 5, 46));
    assert_int_equal(state_of("GPU-1"), HEALTH_UNHEALTHY);
}

/* No program can reset a part of a card: neither the policy nor an order begins one. */
static void test_no_reset_of_an_instance(void **state) {
    static const enum health_reset policies[] = {HEALTH_RESET_DRAIN, HEALTH_RESET_IDLE};

    (void) state;
    assert_true(nvml_xid("GPU-1", 1, 0, 46));
    assert_false(health_cards_order(&w.cards, "MIG-small", HEALTH_ORDER_RESET, ""));
    assert_false(health_cards_order(&w.cards, "MIG-small", HEALTH_ORDER_RESET, "now"));
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        w.rules.reset = policies[i];
        w.holders = policies[i] == HEALTH_RESET_DRAIN;
        poll_all();
        assert_int_equal(state_of("MIG-small"), HEALTH_UNHEALTHY);
        assert_null(health_cards_waiting(&w.cards, HEALTH_EVICT));
        assert_null(health_cards_waiting(&w.cards, HEALTH_RESET));
    }
}

static void test_log(void **state) {
    struct kmsg_xid x = {
        .sequence = 7, .bus = 0x3c, .gi = KMSG_WHOLE_CARD, .ci = KMSG_WHOLE_CARD, .xid = 79};

    (void) state;
    assert_true(health_cards_log(&w.cards, &x));
    assert_int_equal(state_of("GPU-2"), HEALTH_UNHEALTHY);
    assert_int_equal(state_of("GPU-1"), HEALTH_HEALTHY);
    x.bus = 0x3b;
    x.gi = 2;
    x.ci = 1;
    assert_true(health_cards_log(&w.cards, &x));
    assert_int_equal(state_of("MIG-big"), HEALTH_UNHEALTHY);
    assert_int_equal(state_of("MIG-small"), HEALTH_HEALTHY);
    x.bus = 0x99;
    x.sequence = 9;
    assert_false(health_cards_log(&w.cards, &x));
    assert_int_equal(w.cards.log_sequence, 9);
}

/* A tenant that alternates two XIDs of its own causes no write for each. */
static void test_last_xid(void **state) {
    struct health_card *card = &w.cards.cards[0];

    (void) state;
    assert_false(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 13));
    assert_int_equal(health_cards_view(&w.cards, "GPU-1").last_xid, 13);
    assert_false(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 31));
    poll_all();
    assert_int_equal(health_cards_view(&w.cards, "GPU-1").last_xid, 13);
    card->shown_at -= HEALTH_SHOW_XID_MS;
    poll_all();
    assert_int_equal(health_cards_view(&w.cards, "GPU-1").last_xid, 31);
    assert_true(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 48)); /* a new state: at once */
    assert_int_equal(health_cards_view(&w.cards, "GPU-1").last_xid, 48);
}

/* ---- orders ---- */

static bool order(const char *text) {
    return health_cards_order(&w.cards, "GPU-1", HEALTH_ORDER_SET_HEALTHY, text);
}

/* Each new text is followed once, over a restart, too. */
static void test_set_healthy(void **state) {
    (void) state;
    w.rules.recover = false;
    w.rules.settle_ms = 0;
    assert_true(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
    assert_true(nvml_xid("GPU-1", 1, 0, 46));
    poll_all();
    assert_non_null(strstr(health_cards_view(&w.cards, "GPU-1").reason, GPU_SET_HEALTHY));
    assert_false(order("an old one")); /* the first one that is read */
    assert_int_equal(state_of("GPU-1"), HEALTH_UNHEALTHY);
    assert_true(order("2026-01-31T12:34:56Z"));
    assert_int_equal(state_of("GPU-1"), HEALTH_HEALTHY);
    assert_int_equal(state_of("MIG-small"), HEALTH_HEALTHY);
    assert_true(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
    poll_all();
    health_cards_save(&w.cards);
    start();
    assert_false(order("2026-01-31T12:34:56Z"));
    assert_false(order(""));
    assert_int_equal(state_of("GPU-1"), HEALTH_UNHEALTHY);
    assert_true(order("again"));
    assert_int_equal(state_of("GPU-1"), HEALTH_HEALTHY);
    assert_false(health_cards_order(&w.cards, "GPU-nowhere", HEALTH_ORDER_RESET, "x"));
}

/* For a MIG configuration. Nothing is told of an order that no user gave. */
static void test_reset_by_the_agent(void **state) {
    (void) state;
    poll_all();
    assert_true(health_cards_reset(&w.cards, "GPU-1"));
    assert_true(health_card_is_to_be_reset(health_cards_find(&w.cards, "GPU-1")));
    assert_int_equal(health_cards_find(&w.cards, "GPU-1")->health.ordered, HEALTH_ORDERED_NONE);
    assert_false(health_cards_reset(&w.cards, "GPU-nowhere"));
}

/* Since the last reading: it ends before the reset. */
static void test_a_container_that_has_just_begun(void **state) {
    (void) state;
    w.rules.reset = HEALTH_RESET_DRAIN;
    w.holders = 0;
    poll_all();
    w.holders = 1;
    assert_true(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
    assert_int_equal(state_of("GPU-1"), HEALTH_DRAINING);
    assert_false(health_cards_order(&w.cards, "GPU-2", HEALTH_ORDER_RESET, ""));
    assert_true(health_cards_order(&w.cards, "GPU-2", HEALTH_ORDER_RESET, "now"));
    assert_int_equal(state_of("GPU-2"), HEALTH_DRAINING);
    w.holders = 0;
    poll_all();
    assert_int_equal(state_of("GPU-1"), HEALTH_RESETTING);
    assert_int_equal(state_of("GPU-2"), HEALTH_RESETTING);
}

/* Ten thousand, of which as many kinds are counted as there is room for. */
static void test_storm(void **state) {
    const struct health_card *card;
    uint64_t counted = 0;

    (void) state;
    for (uint32_t i = 0; i < 10000; i++)
        (void) nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, i % 100);
    card = health_cards_find(&w.cards, "GPU-1");
    assert_int_equal(card->nxids, HEALTH_XIDS_MAX);
    for (uint32_t i = 0; i < card->nxids; i++)
        counted += card->xids[i].by_nvml;
    assert_int_equal(counted, 100 * HEALTH_XIDS_MAX);
    assert_int_equal(w.changes, 6); /* four at the start, the first XID, and a worse one */
}

/* ---- devices ---- */

static void test_suspicion_and_orders(void **state) {
    (void) state;
    assert_true(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 154));
    poll_all();
    assert_int_equal(state_of("GPU-1"), HEALTH_SUSPECT);
    assert_int_equal(w.card.service, GPU_SERVES_HOLDERS);
    assert_int_equal(w.small.service, GPU_SERVES_HOLDERS);
    assert_int_equal(state_of("MIG-small"), HEALTH_SUSPECT);
}

static void test_no_answer(void **state) {
    (void) state;
    w.other.healthy = false;
    (void) snprintf(w.other.reason, sizeof(w.other.reason), "GPU is lost");
    poll_all();
    assert_string_equal(health_cards_view(&w.cards, "GPU-2").reason, "GPU is lost");
    w.other.healthy = true;
    poll_all();
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
}

/* Instances are made and destroyed without end; the cards that stay keep what is known of them. */
static void test_instances_come_and_go(void **state) {
    (void) state;
    assert_true(nvml_xid("GPU-1", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
    for (unsigned i = 0; i < 10 * GPU_MAX; i++) {
        (void) snprintf(w.small.uuid, sizeof(w.small.uuid), "MIG-%u", i);
        poll_all();
        assert_non_null(health_cards_find(&w.cards, w.small.uuid));
        assert_int_equal(state_of("GPU-1"), HEALTH_UNHEALTHY);
        assert_non_null(health_cards_find(&w.cards, "MIG-big"));
    }
    assert_int_equal(w.cards.ncards, GPU_MAX);
}

/* ---- work ---- */

/* A driver that reports no recovery action: a probe, one at a time, and the next reading. */
static void test_probe(void **state) {
    const struct health_card *card;

    (void) state;
    w.rules.settle_ms = 0;
    w.other.recovery_action = GPU_NOT_TOLD;
    assert_null(health_cards_waiting(&w.cards, HEALTH_PROBE));
    assert_true(nvml_xid("GPU-2", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
    poll_all();
    card = health_cards_waiting(&w.cards, HEALTH_PROBE);
    assert_string_equal(card->uuid, "GPU-2");
    assert_int_equal(state_of("GPU-2"), HEALTH_PROBING);
    health_cards_begin(&w.cards, "GPU-2");
    assert_null(health_cards_waiting(&w.cards, HEALTH_PROBE));
    poll_all();
    assert_null(health_cards_waiting(&w.cards, HEALTH_PROBE));
    /* The agent is restarted: the probe has not ended, and is begun again. */
    health_cards_save(&w.cards);
    start();
    assert_string_equal(health_cards_waiting(&w.cards, HEALTH_PROBE)->uuid, "GPU-2");
    health_cards_begin(&w.cards, "GPU-2");
    w.changes = 0;
    health_cards_end(&w.cards, "GPU-2", HEALTH_PROBE, "error 46");
    assert_int_equal(w.changes, 1);
    assert_int_equal(state_of("GPU-2"), HEALTH_UNHEALTHY);
    assert_non_null(strstr(health_cards_view(&w.cards, "GPU-2").reason, "probe failed: error 46"));
    assert_null(health_cards_waiting(&w.cards, HEALTH_PROBE)); /* not at once again */
    health_cards_end(&w.cards, "GPU-nowhere", HEALTH_PROBE, NULL);
}

/* ---- the file ---- */

static void check_saved(const struct health_card *a, const struct health_card *b) {
    assert_string_equal(a->uuid, b->uuid);
    assert_string_equal(a->parent, b->parent);
    assert_string_equal(a->pci, b->pci);
    assert_int_equal(a->since, b->since);
    assert_int_equal(a->index, b->index);
    assert_int_equal(a->kind, b->kind);
    assert_memory_equal(&a->health, &b->health, sizeof(a->health));
}

static void test_restart(void **state) {
    struct kmsg_xid x = {
        .sequence = 77, .bus = 0x3c, .gi = KMSG_WHOLE_CARD, .ci = KMSG_WHOLE_CARD, .xid = 79};
    static struct health_cards old;

    (void) state;
    assert_true(health_cards_log(&w.cards, &x));
    w.card.recovery_action = GPU_NOT_TOLD; /* a negative number in the file */
    poll_all();
    health_cards_save(&w.cards);
    old = w.cards;
    start();
    assert_int_equal(w.cards.ncards, 4);
    assert_int_equal(w.cards.log_sequence, 77);
    for (uint32_t i = 0; i < 4; i++)
        check_saved(&w.cards.cards[i], &old.cards[i]);
    assert_int_equal(health_cards_find(&w.cards, "GPU-1")->health.recovery, -1);
    assert_int_equal(state_of("GPU-2"), HEALTH_UNHEALTHY);
}

/* A card that failed too often stays out over a restart, until an order. */
static void test_restart_of_a_flapping_card(void **state) {
    (void) state;
    w.rules.settle_ms = 0;
    w.rules.flapping_times = 1;
    w.other.healthy = false;
    (void) snprintf(w.other.reason, sizeof(w.other.reason), "lost");
    poll_all();
    w.other.healthy = true;
    poll_all();
    assert_non_null(strstr(health_cards_view(&w.cards, "GPU-2").reason, "failed too often"));
    assert_false(health_cards_order(&w.cards, "GPU-2", HEALTH_ORDER_SET_HEALTHY, ""));
    for (int i = 0; i < 2; i++) {
        health_cards_save(&w.cards);
        start();
        poll_all();
        assert_int_equal(state_of("GPU-2"), HEALTH_UNHEALTHY);
        assert_non_null(strstr(health_cards_view(&w.cards, "GPU-2").reason, "failed too often"));
    }
    assert_int_equal(state_of("GPU-1"), HEALTH_HEALTHY);
    assert_true(health_cards_order(&w.cards, "GPU-2", HEALTH_ORDER_SET_HEALTHY, "now"));
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
}

/* The agent is killed while the card's pods are being evicted. */
static void test_restart_while_draining(void **state) {
    const struct health_card *card;

    (void) state;
    w.rules.reset = HEALTH_RESET_DRAIN;
    assert_true(nvml_xid("GPU-2", GPU_NOT_TOLD, GPU_NOT_TOLD, 48));
    poll_all();
    for (int i = 0; i < 2; i++) {
        card = health_cards_find(&w.cards, "GPU-2");
        assert_int_equal(card->health.state, HEALTH_DRAINING);
        assert_int_equal(health_work(&card->health), HEALTH_EVICT);
        assert_null(health_cards_waiting(&w.cards, HEALTH_RESET));
        health_cards_save(&w.cards);
        start();
        poll_all();
    }
    w.holders = 0; /* the last pod ends while no agent runs */
    health_cards_save(&w.cards);
    start();
    poll_all();
    card = health_cards_waiting(&w.cards, HEALTH_RESET);
    assert_non_null(card);
    assert_string_equal(card->uuid, "GPU-2");
    assert_int_equal(card->health.state, HEALTH_RESETTING);
}

/* The log is read before the first poll: what the devices answer is not known then. */
static void test_before_the_first_poll(void **state) {
    struct kmsg_xid x = {
        .sequence = 78, .bus = 0x3b, .gi = KMSG_WHOLE_CARD, .ci = KMSG_WHOLE_CARD, .xid = 48};

    (void) state;
    health_cards_save(&w.cards);
    start();
    w.changes = 0;
    assert_true(health_cards_log(&w.cards, &x));
    w.other.healthy = false;
    w.other.saved = true;
    (void) snprintf(w.other.reason, sizeof(w.other.reason), "not seen since the agent started");
    poll_all();
    assert_int_equal(state_of("GPU-1"), HEALTH_UNHEALTHY);
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
    assert_int_equal(health_cards_find(&w.cards, "GPU-2")->health.nleft, 0);
    assert_int_equal(w.changes, 1);
    w.other.saved = false;
    poll_all();
    assert_int_equal(state_of("GPU-2"), HEALTH_UNHEALTHY);
}

/* Each field of the state is in the file: all bits of each are set. */
static void test_all_fields(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    static struct health_cards back;
    struct health *h = &w.cards.cards[0].health;

    (void) state;
    memset(&back, 0, sizeof(back));
    *h = (struct health){.state = HEALTH_DRAINING,
                         .reason = "a \"reason\"",
                         .since = UINT64_MAX >> 1,
                         .last_xid = UINT32_MAX,
                         .seen = true,
                         .xid = 1,
                         .evaluated = 2,
                         .evaluate_to = 3,
                         .recovery = -1,
                         .needs_reset = true,
                         .of_driver = true,
                         .holders = 4,
                         .processes = 5,
                         .cordoned = true,
                         .draining = true,
                         .released = true,
                         .reset_ordered = true,
                         .ordered = HEALTH_ORDERED_FAILED,
                         .ordered_failure = "reset failed: no",
                         .for_reset = true,
                         .proved = true,
                         .held = true,
                         .left = {9, 8, 7},
                         .nleft = 3,
                         .tries = 6,
                         .retry_at = 10,
                         .failure = "a failure"};
    for (enum health_cause cause = 0; cause < HEALTH_CAUSES; cause++)
        h->problems[cause] = (struct health_problem){.there = true,
                                                     .certain = true,
                                                     .over = true,
                                                     .since = 100 + cause,
                                                     .text = "a problem"};
    health_cards_encode(&w.cards, &text);
    assert_int_equal(health_cards_decode(buf_str(&text), text.len, &back, NULL), 0);
    check_saved(&back.cards[0], &w.cards.cards[0]);
}

static void test_bad_files(void **state) {
    static const struct {
        const char *text;
        int result;
    } cases[] = {
        {"", -EINVAL},
        {"{", -EINVAL},
        {"[]", -ESTALE},
        {"{\"boot\":\"another\",\"devices\":[]}", -ESTALE},
        {"{\"boot\":\"%s\"}", 0},
        {"{\"boot\":\"%s\",\"devices\":{}}", 0},
        {"{\"boot\":\"%s\",\"devices\":[{}]}", -EINVAL},
        {"{\"boot\":\"%s\",\"devices\":[{\"uuid\":\"u\",\"state\":\"Nonsense\"}]}", -EINVAL},
        {"{\"boot\":\"%s\",\"devices\":[{\"uuid\":\"u\",\"state\":\"Healthy\",\"seen\":7,"
         "\"problems\":[1,2,3],\"left\":[\"x\"]}]}",
         0},
    };
    _cleanup_buf_ struct buf boot = BUF_INIT(1 << 16);
    static struct health_cards back;
    struct err err;

    (void) state;
    assert_int_equal(file_read("/proc/sys/kernel/random/boot_id", 63, &boot, NULL), 0);
    boot.data[36] = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        const char *hole = strstr(cases[i].text, "%s");
        int n = hole ? snprintf(text, sizeof(text), "%.*s%s%s", (int) (hole - cases[i].text),
                                cases[i].text, boot.data, hole + 2)
                     : snprintf(text, sizeof(text), "%s", cases[i].text);
        int r;

        memset(&back, 0, sizeof(back));
        r = health_cards_decode(text, (size_t) n, &back, &err);
        assert_true(cases[i].result == 0 || cases[i].result == -ESTALE ? r == cases[i].result
                                                                       : r < 0);
        assert_int_equal(back.ncards, i == 8 ? 1 : 0);
    }
    assert_false(back.cards[0].health.seen);
    assert_int_equal(back.cards[0].health.nleft, 0);
}

/* Reads a file of this boot with one device, "u", that has these problems. */
static void read_problems(const char *problems, struct health_cards *ret) {
    _cleanup_buf_ struct buf boot = BUF_INIT(1 << 16);
    char text[1024];
    int n;

    assert_int_equal(file_read("/proc/sys/kernel/random/boot_id", 63, &boot, NULL), 0);
    boot.data[36] = 0;
    n = snprintf(text, sizeof(text),
                 "{\"boot\":\"%s\",\"devices\":[{\"uuid\":\"u\",\"state\":\"Healthy\","
                 "\"problems\":[%s]}]}",
                 boot.data, problems);
    memset(ret, 0, sizeof(*ret));
    assert_int_equal(health_cards_decode(text, (size_t) n, ret, NULL), 0);
}

/* The agent of 0.1.0 knows a problem by its place in the list, and has no HEALTH_OFFER. */
static void test_problems_of_an_earlier_release(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    static struct health_cards back;
    const struct health_problem *problems = back.cards[0].health.problems;

    (void) state;
    read_problems(
        "{},{},{},{},{\"text\":\"ended\"},{\"text\":\"down\"},{\"text\":\"hot\",\"there\":1}",
        &back);
    assert_string_equal(problems[HEALTH_MPS].text, "ended");
    assert_string_equal(problems[HEALTH_LINKS].text, "down");
    assert_string_equal(problems[HEALTH_TEMPERATURE].text, "hot");
    assert_true(problems[HEALTH_TEMPERATURE].there);
    assert_string_equal(problems[HEALTH_OFFER].text, "");
    health_cards_encode(&back, &text);
    assert_true(strstr(buf_str(&text), "\"down\"") < strstr(buf_str(&text), "\"hot\""));
    assert_true(strstr(buf_str(&text), "\"hot\"") < strstr(buf_str(&text), "\"offer\""));
}

/* It may know of more. */
static void test_problems_of_a_later_release(void **state) {
    static struct health_cards back;
    const struct health_problem *problems = back.cards[0].health.problems;

    (void) state;
    read_problems("{\"cause\":\"later\",\"there\":1},{\"cause\":\"offer\",\"text\":\"waits\"}",
                  &back);
    assert_false(problems[HEALTH_XID].there);
    assert_string_equal(problems[HEALTH_OFFER].text, "waits");
}

/* ---- memory and links ---- */

/* A restarted agent reports it not again. */
static void test_pending_repair(void **state) {
    (void) state;
    w.other.errors.remap_pending = 1;
    poll_all();
    poll_all();
    assert_int_equal(w.notices, 1);
    assert_string_equal(w.notice, "GPUMemoryRepairPending");
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
    health_cards_save(&w.cards);
    start();
    poll_all();
    assert_int_equal(w.notices, 1);
    w.other.errors.remap_pending = 0;
    poll_all();
    w.other.errors.retirement_pending = 1;
    poll_all();
    assert_int_equal(w.notices, 2);
}

/* It is reported when it is lost, once, and when it is back; the card works on. */
static void test_licence(void **state) {
    (void) state;
    w.other.traits.vgpu = 1;
    poll_all();
    assert_int_equal(w.notices, 0);
    w.other.traits.unlicensed = 1;
    poll_all();
    poll_all();
    assert_int_equal(w.notices, 1);
    assert_string_equal(w.notice, "VGPUUnlicensed");
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
    health_cards_save(&w.cards);
    start();
    poll_all();
    assert_int_equal(w.notices, 1);
    w.other.traits.unlicensed = 0;
    poll_all();
    assert_int_equal(w.notices, 2);
    assert_string_equal(w.notice, "VGPULicensed");
}

/* Nothing of the card's memory is left for a repair, or its SRAM had too many errors: the card
 * works on. What the driver does not report is as it was. */
static void test_thresholds(void **state) {
    (void) state;
    w.other.errors.banks_none = w.other.errors.sram_exceeded = GPU_NOT_TOLD;
    poll_all();
    w.other.errors.banks_none = 2;
    poll_all();
    poll_all();
    assert_int_equal(w.notices, 1);
    assert_string_equal(w.notice, "GPUMemorySpareRowsUsed");
    w.other.errors.sram_exceeded = 1;
    poll_all();
    assert_int_equal(w.notices, 2);
    assert_string_equal(w.notice, "GPUSRAMThresholdExceeded");
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
    w.other.errors.banks_none = w.other.errors.sram_exceeded = GPU_NOT_TOLD;
    health_cards_save(&w.cards);
    start();
    poll_all();
    w.other.errors.banks_none = w.other.errors.sram_exceeded = 1;
    poll_all();
    assert_int_equal(w.notices, 2);
}

/* Links of a card to one that does not answer are down with it, and no problem of their own. */
static void test_links_to_a_lost_card(void **state) {
    (void) state;
    w.rules.settle_ms = 0;
    w.card.errors.nvlinks = w.other.errors.nvlinks = 4;
    poll_all();
    w.card.healthy = false;
    (void) snprintf(w.card.reason, sizeof(w.card.reason), "GPU is lost");
    w.other.errors.nvlinks = 0;
    poll_all();
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
    w.card.healthy = true;
    poll_all();
    assert_int_equal(state_of("GPU-2"), HEALTH_UNHEALTHY);
    w.other.errors.nvlinks = 4;
    poll_all();
    assert_int_equal(state_of("GPU-2"), HEALTH_HEALTHY);
    /* The number that it has had is known after a restart. */
    health_cards_save(&w.cards);
    start();
    w.other.errors.nvlinks = 3;
    poll_all();
    assert_int_equal(state_of("GPU-2"), HEALTH_UNHEALTHY);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_what_a_container_holds),
        T(test_card),
        T(test_instance),
        T(test_no_reset_of_an_instance),
        T(test_log),
        T(test_last_xid),
        T(test_set_healthy),
        T(test_reset_by_the_agent),
        T(test_a_container_that_has_just_begun),
        T(test_storm),
        T(test_suspicion_and_orders),
        T(test_no_answer),
        T(test_instances_come_and_go),
        T(test_probe),
        T(test_restart),
        T(test_restart_of_a_flapping_card),
        T(test_restart_while_draining),
        T(test_pending_repair),
        T(test_licence),
        T(test_thresholds),
        T(test_links_to_a_lost_card),
        T(test_before_the_first_poll),
        T(test_all_fields),
        T(test_bad_files),
        T(test_problems_of_an_earlier_release),
        T(test_problems_of_a_later_release),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
