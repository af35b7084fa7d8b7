/* SPDX-License-Identifier: Apache-2.0 */

/* Which containers get a share, and of what. */

#include "grant-world.h"

static void signed_pod_gets_its_share(void **state) {
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    struct share_limits limits;
    struct ledger_usage usage;
    struct slot *slot;
    char path[384];
    struct err err;

    fill(f, N1, &w, "main");
    slot_path(&f->slots, N1, "limits", path);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_string_equal(limits.pod_uid, "u1");
    assert_string_equal(limits.container, "main");
    assert_int_equal(limits.ndevices, 1);
    assert_string_equal(limits.device[0].uuid, "GPU-a");
    assert_true(limits.device[0].memory_bytes == 24 * GIB);
    assert_int_equal(limits.device[0].core_percent, 30);
    slot = slot_find(&f->slots, N1);
    assert_non_null(slot->ledger);
    assert_int_equal(ledger_snapshot(slot->ledger, &usage), 0);

    /* What a context costs is learnt later than the first container may start. */
    assert_true(limits.device[0].context_bytes == 0);
    f->snapshot.devices[0].context_bytes = 400 << 20;
    slot_set_contexts(&f->slots, &f->snapshot);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_true(limits.device[0].context_bytes == 400 << 20);
    assert_true(limits.device[0].memory_bytes == 24 * GIB);
    /* A card that is not seen for a moment keeps its figure. */
    f->snapshot.devices[0].context_bytes = 0;
    slot_set_contexts(&f->slots, &f->snapshot);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_true(limits.device[0].context_bytes == 400 << 20);
}

/* What can change while a container runs, and an agent that is started again. */
static void terms_are_written_and_kept(void **state) {
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    const struct slot_terms terms = {SHARE_BURST, 60, 7, 2 * GIB, true};
    struct share_limits limits;
    struct slot *slot;
    char path[384];
    struct err err;

    fill(f, N1, &w, "main");
    slot = slot_find(&f->slots, N1);
    slot->grant.terms = terms;
    assert_int_equal(slot_write_limits(&f->slots, slot, &err), 0);
    slot_store_done(&f->slots);
    assert_int_equal(slot_store_load(&f->slots, f->dir, no_bad, NULL, &err), 0);
    slot = slot_find(&f->slots, N1);
    assert_int_equal(slot->grant.terms.policy, SHARE_BURST);
    assert_int_equal(slot->grant.terms.ceiling, 60);
    assert_int_equal(slot->grant.terms.weight, 7);
    assert_true(slot->grant.terms.slices);
    assert_true(slot->grant.terms.memory_limit == 2 * GIB);
    assert_true(slot->grant.devices[0].memory == 24 * GIB);
    slot_path(&f->slots, N1, "limits", path);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_true(limits.device[0].memory_bytes == 2 * GIB);
    assert_int_equal(limits.device[0].policy, SHARE_BURST);

    /* More than the share is the share; and back. */
    slot->grant.terms.memory_limit = 100 * GIB;
    assert_int_equal(slot_write_limits(&f->slots, slot, &err), 0);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_true(limits.device[0].memory_bytes == 24 * GIB);
}

static void forgeries_get_nothing(void **state) {
    struct fixture *f = *state;
    const struct pod_spec bare = {.uid = "u1", .containers = SPEC};
    const struct pod_spec stolen = {
        .uid = "u1", .containers = SPEC, .assignment = MAIN_30, .signed_uid = "u2"};
    const struct pod_spec moved = {
        .uid = "u1", .containers = SPEC, .assignment = MAIN_30, .signed_node = "node-b"};
    const struct pod_spec forged = {
        .uid = "u1", .containers = SPEC, .assignment = MAIN_30, .key = f->other_key};
    const struct pod_spec absent = {.uid = "u1",
                                    .containers = SPEC,
                                    .assignment =
                                        ASSIGN("\"other\":" PART("GPU-a", "30", "1073741824"))};
    const struct pod_spec huge = {.uid = "u1",
                                  .containers = SPEC,
                                  .assignment =
                                      ASSIGN("\"main\":" PART("GPU-a", "30", "858993459200"))};
    const struct pod_spec done = {
        .uid = "u1", .containers = SPEC, .assignment = MAIN_30, .phase = "Succeeded"};

    expect(f, &bare, VERDICT_DENY, "was not placed by aliquot-scheduler");
    expect(f, &stolen, VERDICT_FORGED, "not made by aliquot-scheduler");
    expect(f, &moved, VERDICT_FORGED, "not made by aliquot-scheduler");
    expect(f, &forged, VERDICT_FORGED, "not made by aliquot-scheduler");
    expect(f, &absent, VERDICT_DENY, "no part for container main");
    expect(f, &huge, VERDICT_DENY, "has only 80 GiB");
    expect(f, &done, VERDICT_DENY, "finished");
}

static void what_is_missing_is_waited_for(void **state) {
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    const struct pod_spec nowhere = {.uid = "u1",
                                     .containers = SPEC,
                                     .assignment =
                                         ASSIGN("\"main\":" PART("GPU-z", "30", "1073741824"))};
    struct signing_verifier *verifier = f->verifier;
    struct slot_grant g;
    struct err err;

    assert_int_equal(judge(f, NULL, "u1", "main", &g, &err), VERDICT_WAIT);
    expect(f, &nowhere, VERDICT_WAIT, "GPU-z is not on this node");
    f->verifier = NULL;
    expect(f, &w, VERDICT_WAIT, "aliquot-signing");
    f->verifier = verifier;
    f->snapshot.devices[0].healthy = false;
    text_copy(f->snapshot.devices[0].reason, GPU_REASON_MAX, "fell off the bus");
    expect(f, &w, VERDICT_WAIT, "fell off the bus");
}

/* A forced delete: the old pod is gone from the API server, its container is not. */
static void nothing_is_given_twice(void **state) {
    struct fixture *f = *state;
    const struct pod_spec old = {.uid = "u1",
                                 .containers = SPEC,
                                 .assignment =
                                     ASSIGN("\"main\":" PART("GPU-a", "60", "53687091200"))};
    const struct pod_spec by_memory = {.uid = "u2",
                                       .containers = SPEC,
                                       .assignment =
                                           ASSIGN("\"main\":" PART("GPU-a", "10", "42949672960"))};
    const struct pod_spec by_core = {.uid = "u2",
                                     .containers = SPEC,
                                     .assignment =
                                         ASSIGN("\"main\":" PART("GPU-a", "50", "1073741824"))};
    const struct pod_spec beside = {.uid = "u2",
                                    .containers = SPEC,
                                    .assignment =
                                        ASSIGN("\"main\":" PART("GPU-a", "40", "32212254720"))};
    const struct pod_spec elsewhere = {.uid = "u2",
                                       .containers = SPEC,
                                       .assignment =
                                           ASSIGN("\"main\":" PART("GPU-b", "100", "85899345920"))};
    struct err err;

    fill(f, N1, &old, "main");
    slot_find(&f->slots, N1)->releasing = true;
    expect(f, &by_memory, VERDICT_WAIT,
           "still held by pod ns/p-u1, whose processes have not ended");
    expect(f, &by_core, VERDICT_WAIT, "still held by pod ns/p-u1");
    /* The text becomes an Event of the pod that waits: its readers know their own namespace. */
    text_copy(slot_find(&f->slots, N1)->grant.namespace,
              sizeof(slot_find(&f->slots, N1)->grant.namespace), "other");
    expect(f, &by_core, VERDICT_WAIT, "still held by a pod of another namespace, whose");
    expect(f, &beside, VERDICT_GRANT, NULL);
    expect(f, &elsewhere, VERDICT_GRANT, NULL);
    assert_int_equal(slot_remove(&f->slots, slot_find(&f->slots, N1), &err), 0);
    expect(f, &by_memory, VERDICT_GRANT, NULL);
}

/* An init container and the app container use the same memory one after the other: the pod counts
 * once. */
static void init_and_app_count_once(void **state) {
    struct fixture *f = *state;
    const struct pod_spec both = {
        .uid = "u1",
        .containers =
            "\"initContainers\":[" ASK("init", "60") "],\"containers\":[" ASK("main", "60") "]",
        .assignment = ASSIGN("\"init\":" PART("GPU-a", "60", "51539607552") ",\"main\":" PART(
            "GPU-a", "60", "51539607552"))};
    const struct pod_spec two = {
        .uid = "u2",
        .containers = "\"containers\":[" ASK("main", "20") "," ASK("side", "20") "]",
        .assignment = ASSIGN("\"main\":" PART("GPU-a", "20", "10737418240") ",\"side\":" PART(
            "GPU-a", "20", "10737418240"))};
    struct slot_total total;

    fill(f, N1, &both, "init");
    fill(f, N2, &both, "main");
    slot_card_use(&f->slots, "GPU-a", "", &total, NULL);
    assert_true(total.memory == 48 * GIB);
    assert_int_equal(total.core, 60);
    fill(f, N3, &two, "main");
    slot_card_use(&f->slots, "GPU-a", "", &total, NULL);
    assert_true(total.memory == 68 * GIB && total.physical == 68 * GIB);
    assert_int_equal(total.core, 100);
}

/* No other pod is on the card; the pod's own containers together are too much for it. */
static void a_pod_is_held_against_the_card_as_a_whole(void **state) {
    const struct pod_spec memory = {
        .uid = "u1",
        .containers = "\"containers\":[" ASK("main", "20") "," ASK("side", "20") "]",
        .assignment = ASSIGN("\"main\":" PART("GPU-a", "20", "64424509440") ",\"side\":" PART(
            "GPU-a", "20", "64424509440"))};
    const struct pod_spec core = {
        .uid = "u1",
        .containers = "\"containers\":[" ASK("main", "60") "," ASK("side", "60") "]",
        .assignment = ASSIGN("\"main\":" PART("GPU-a", "60", "10737418240") ",\"side\":" PART(
            "GPU-a", "60", "10737418240"))};

    expect(*state, &memory, VERDICT_DENY, "has only 80 GiB");
    expect(*state, &core, VERDICT_DENY, "has only 80 GiB");
}

static void the_assignment_of_a_newer_scheduler_is_refused(void **state) {
    const struct pod_spec w = {.uid = "u1",
                               .containers = SPEC,
                               .assignment =
                                   "{\"v\":2,\"node\":\"node-a\",\"containers\":{\"main\":" PART(
                                       "GPU-a", "30", "25769803776") "}}"};

    expect(*state, &w, VERDICT_DENY, "it is of a newer scheduler");
}

/* The scheduler signs more for a container that runs; what it signed before is still signed. */
static void a_share_grows_in_place(void **state) {
    struct fixture *f = *state;
    const struct pod_spec before = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    const struct pod_spec after = {.uid = "u1",
                                   .containers = SPEC,
                                   .assignment =
                                       ASSIGN("\"main\":" PART("GPU-a", "40", "30064771072"))};
    struct pod_entry *e = make_pod(f, &after);
    struct share_limits limits;
    struct slot_grant g;
    struct slot_total total;
    struct slot *slot;
    char path[384];
    struct err err;

    fill(f, N1, &before, "main");
    slot = slot_find(&f->slots, N1);
    assert_int_equal(judge(f, e, "u1", "main", &g, &err), VERDICT_GRANT);
    assert_true(slot_is_more(&slot->grant, &g));
    assert_false(slot_is_more(&g, &slot->grant));
    assert_false(slot_is_more(&g, &g));
    assert_int_equal(slot_grow(&f->slots, slot, &g, &err), 0);
    slot_grant_done(&g);
    pod_entry_free(e);
    slot_path(&f->slots, N1, "limits", path);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_true(limits.device[0].memory_bytes == 28 * GIB);
    assert_int_equal(limits.device[0].core_percent, 40);
    slot_store_done(&f->slots);
    assert_int_equal(slot_store_load(&f->slots, f->dir, no_bad, NULL, &err), 0);
    slot_card_use(&f->slots, "GPU-a", "", &total, NULL);
    assert_true(total.memory == 28 * GIB);
    assert_int_equal(total.core, 40);
}

static void a_slot_is_never_another_pods(void **state) {
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    const struct pod_spec other = {.uid = "u2", .containers = SPEC, .assignment = MAIN_30};
    struct pod_entry *e;
    struct slot_grant g;
    struct slot *slot;
    struct err err;

    fill(f, N1, &w, "main");
    e = make_pod(f, &other);
    assert_int_equal(judge(f, e, "u2", "main", &g, &err), VERDICT_GRANT);
    assert_int_equal(slot_fill(&f->slots, N1, &g, &slot, &err), -EEXIST);
    assert_string_equal(slot_find(&f->slots, N1)->grant.pod_uid, "u1");
    pod_entry_free(e);
}

/* The limits exceed the card; the physical parts together are the card. */
static void oversubscribed_memory_fits_by_its_physical_part(void **state) {
#define OVERSUBSCRIBED(memory, physical)                                                           \
    ASSIGN("\"main\":[{\"index\":0,\"uuid\":\"GPU-a\",\"core\":10,\"memory\":" memory              \
           ",\"physical\":" physical "}]")
    struct fixture *f = *state;
    const struct pod_spec one = {.uid = "u1",
                                 .containers = SPEC,
                                 .assignment = OVERSUBSCRIBED("107374182400", "53687091200")};
    const struct pod_spec fits = {.uid = "u2",
                                  .containers = SPEC,
                                  .assignment = OVERSUBSCRIBED("64424509440", "32212254720")};
    const struct pod_spec excess = {.uid = "u2",
                                    .containers = SPEC,
                                    .assignment = OVERSUBSCRIBED("64424509440", "32212254721")};
    const struct pod_spec alone = {.uid = "u2",
                                   .containers = SPEC,
                                   .assignment = OVERSUBSCRIBED("96636764160", "85899345921")};
    struct share_limits limits;
    struct slot_total total;
    char path[384];
    struct err err;

    fill(f, N1, &one, "main");
    slot_path(&f->slots, N1, "limits", path);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_true(limits.device[0].memory_bytes == 100 * GIB);
    assert_true(limits.more[0].physical_bytes == 50 * GIB);
    /* Also while its limit is lower: who starts now must keep to it when the limit is raised. */
    slot_find(&f->slots, N1)->grant.terms.memory_limit = 40 * GIB;
    slot_limits(&slot_find(&f->slots, N1)->grant, &limits);
    assert_true(limits.device[0].memory_bytes == 40 * GIB);
    assert_true(limits.more[0].physical_bytes == 50 * GIB);
    slot_find(&f->slots, N1)->grant.terms.memory_limit = 0;
    expect(f, &alone, VERDICT_DENY, "has only 80 GiB");
    expect(f, &excess, VERDICT_WAIT, "still held by pod ns/p-u1");
    expect(f, &fits, VERDICT_GRANT, NULL);
    /* And so an agent that starts anew has it. */
    slot_store_done(&f->slots);
    assert_int_equal(slot_store_load(&f->slots, f->dir, no_bad, NULL, &err), 0);
    slot_card_use(&f->slots, "GPU-a", "", &total, NULL);
    assert_true(total.memory == 100 * GIB && total.physical == 50 * GIB);
}

/* A restarted agent makes the container's CDI file from its record. */
/* No share of a card that another pod has whole. */
static void a_whole_card_has_no_shares(void **state) {
    static const char *const card = "GPU-a";
    const struct pod_spec w = {.uid = "u2", .containers = SPEC, .assignment = MAIN_30};
    struct fixture *f = *state;
    const struct pod owner = {.uid = "u1", .namespace = "ns", .name = "owner"};
    struct slot_grant g;
    struct slot *slot;

    assert_int_equal(slot_grant_whole(&owner, "main", &card, 1, &g, NULL), 0);
    assert_int_equal(slot_fill(&f->slots, N1, &g, &slot, NULL), 0);
    expect(f, &w, VERDICT_WAIT, "GPU 0 (GPU-a) is whole with pod ns/owner");
    text_copy(slot->grant.namespace, sizeof(slot->grant.namespace), "other");
    expect(f, &w, VERDICT_WAIT, "GPU 0 (GPU-a) is whole with a pod of another namespace");
    assert_int_equal(slot_remove(&f->slots, slot, NULL), 0);
    expect(f, &w, VERDICT_GRANT, NULL);
}

/* A text that is too long for a signature is not signed in part. */
static void an_assignment_that_is_too_long_is_not_signed(void **state) {
    static char text[1 << 20];
    char signature[SIGNATURE_TEXT_MAX];
    struct fixture *f = *state;
    struct err err = {0};

    memset(text, 'x', sizeof(text) - 1);
    assert_true(assignment_sign(f->key, "uid", "node", text, signature, &err) < 0);
    assert_non_null(strstr(err.text, "cannot build the text to sign"));
}

/* The limits are in percent of the instance, the requests in percent of a card. */
static void percent_of_an_instance(void **state) {
    static const struct {
        uint32_t core, of, percent;
    } rows[] = {{21, 42, 50}, {42, 42, 100}, {1, 42, 2},   {1, 100, 1},  {0, 42, 0},
                {30, 0, 30},  {100, 0, 100}, {13, 14, 93}, {14, 14, 100}};
    struct slot_device devices[1] = {{.uuid = "MIG-1", .memory = GIB, .physical = GIB}};
    const struct slot_grant g = {.ndevices = 1, .devices = devices};
    struct share_limits limits;

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        devices[0].core = rows[i].core;
        devices[0].of_core = rows[i].of;
        assert_int_equal(slot_device_percent(&devices[0]), rows[i].percent);
        slot_limits(&g, &limits);
        assert_int_equal(limits.device[0].core_percent,
                         rows[i].percent == 100 ? 0 : rows[i].percent);
    }
}

/* An instance has its part of a card, and the record keeps how much that is. */
static void a_share_of_an_instance(void **state) {
    struct slot_grant g = {0}, back = {0};
    struct slot_device devices[1] = {
        {.uuid = "MIG-1", .core = 21, .of_core = 42, .memory = GIB, .physical = GIB}};
    _cleanup_buf_ struct buf record = BUF_INIT(4096);

    (void) state;
    g.ndevices = 1;
    g.devices = devices;
    text_copy(g.pod_uid, sizeof(g.pod_uid), "u");
    text_copy(g.namespace, sizeof(g.namespace), "ns");
    text_copy(g.pod, sizeof(g.pod), "p");
    text_copy(g.container, sizeof(g.container), "main");
    slot_record_encode(&g, &record);
    assert_int_equal(slot_record_decode(buf_str(&record), record.len, &back, NULL), 0);
    assert_int_equal(back.devices[0].of_core, 42);
    slot_grant_done(&back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(signed_pod_gets_its_share, setup, teardown),
        cmocka_unit_test_setup_teardown(terms_are_written_and_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(forgeries_get_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_missing_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_given_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(init_and_app_count_once, setup, teardown),
        cmocka_unit_test_setup_teardown(the_assignment_of_a_newer_scheduler_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_share_grows_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slot_is_never_another_pods, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pod_is_held_against_the_card_as_a_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(oversubscribed_memory_fits_by_its_physical_part, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_whole_card_has_no_shares, setup, teardown),
        cmocka_unit_test_setup_teardown(an_assignment_that_is_too_long_is_not_signed, setup,
                                        teardown),
        cmocka_unit_test(percent_of_an_instance),
        cmocka_unit_test(a_share_of_an_instance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
