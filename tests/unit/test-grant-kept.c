/* SPDX-License-Identifier: Apache-2.0 */

/* What is kept of a share: its record and its files, over restarts and rollbacks of the agent. */

#include "grant-world.h"

static void agent_restart_keeps_everything(void **state) {
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    struct slot *slot;
    struct slot_total total;
    struct err err;

    fill(f, N1, &w, "main");
    slot_store_done(&f->slots);
    assert_int_equal(slot_store_load(&f->slots, f->dir, no_bad, NULL, &err), 0);
    slot = slot_find(&f->slots, N1);
    assert_non_null(slot);
    assert_string_equal(slot->grant.pod, "p-u1");
    assert_non_null(slot->ledger);
    slot_card_use(&f->slots, "GPU-a", "", &total, NULL);
    assert_true(total.memory == 24 * GIB);
    fill(f, N1, &w, "main");
    assert_int_equal(HASH_COUNT(f->slots.slots), 1);
}

static void write_record(struct fixture *f, const char *record) {
    char path[384];

    slot_path(&f->slots, N1, "record.json", path);
    assert_int_equal(file_replace(path, record, strlen(record), 0600, NULL), 0);
    slot_store_done(&f->slots);
    assert_int_equal(slot_store_load(&f->slots, f->dir, no_bad, NULL, NULL), 0);
}

/* After a rollback: the card is not free, also where the pod is known no longer. */
static void what_the_record_of_a_newer_agent_names_is_held(void **state) {
    static const char newer[] =
        "{\"version\":2,\"podUID\":\"u1\",\"namespace\":\"ns\",\"pod\":\"p-u1\","
        "\"container\":\"main\",\"more\":{},\"devices\":[{\"index\":0,\"uuid\":\"GPU-a\","
        "\"core\":30,\"memory\":68719476736,\"podCore\":60,\"podMemory\":68719476736,"
        "\"physical\":68719476736,\"podPhysical\":68719476736,\"more\":{}}]}";
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    const struct pod_spec other = {.uid = "u2", .containers = SPEC, .assignment = MAIN_30};
    _cleanup_buf_ struct buf before = BUF_INIT(1 << 16), after = BUF_INIT(1 << 16);
    struct fixture *f = *state;
    struct slot_total total;
    struct slot *slot;
    char path[384];

    fill(f, N1, &w, "main");
    slot_path(&f->slots, N1, "limits", path);
    assert_int_equal(file_read(path, 1 << 16, &before, NULL), 0);
    write_record(f, newer);
    slot_card_use(&f->slots, "GPU-a", "", &total, NULL);
    assert_true(total.memory == 64 * GIB && total.physical == 64 * GIB);
    assert_int_equal(total.core, 60);
    expect(f, &other, VERDICT_WAIT, "still held by pod ns/p-u1");
    /* And its files are the newer agent's. */
    slot = slot_find(&f->slots, N1);
    assert_null(slot->ledger);
    f->snapshot.devices[0].context_bytes = 400 << 20;
    slot_set_contexts(&f->slots, &f->snapshot);
    assert_int_equal(slot_write_limits(&f->slots, slot, NULL), 0);
    assert_int_equal(file_read(path, 1 << 16, &after, NULL), 0);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
}

/* After a rollback: it stays as it is until the container starts again. */
static void the_record_of_a_newer_agent_is_kept(void **state) {
    static const char newer[] =
        "{\"version\":7,\"podUID\":\"u1\",\"namespace\":\"ns\",\"pod\":\"p-u1\","
        "\"container\":\"main\",\"parts\":{\"of\":\"another form\"},\"devices\":7}";
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 16);
    struct slot_total total;
    struct slot *slot;
    char path[384];

    fill(f, N1, &w, "main");
    write_record(f, newer);
    slot_path(&f->slots, N1, "record.json", path);
    slot = slot_find(&f->slots, N1);
    assert_true(slot->grant.newer);
    assert_string_equal(slot->grant.pod_uid, "u1");
    assert_int_equal(slot->grant.ndevices, 0);
    assert_int_equal(file_read(path, 4095, &text, NULL), 0);
    assert_string_equal(buf_str(&text), newer);
    fill(f, N1, &w, "main");
    assert_false(slot_find(&f->slots, N1)->grant.newer);
    slot_card_use(&f->slots, "GPU-a", "", &total, NULL);
    assert_true(total.memory == 24 * GIB);
}

/* What the driver holds unasked is kept over a restart of the agent, in the limits file. */
static void overhead_is_kept(void **state) {
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    struct share_limits limits;
    char path[384];
    struct err err;

    fill(f, N1, &w, "main");
    slot_find(&f->slots, N1)->grant.devices[0].overhead.bytes = 64 << 20;
    assert_int_equal(slot_write_limits(&f->slots, slot_find(&f->slots, N1), &err), 0);
    slot_store_done(&f->slots);
    assert_int_equal(slot_store_load(&f->slots, f->dir, no_bad, NULL, &err), 0);
    assert_true(slot_find(&f->slots, N1)->grant.devices[0].overhead.bytes == 64 << 20);
    slot_path(&f->slots, N1, "limits", path);
    assert_int_equal(limits_read(path, &limits, &err), 0);
    assert_true(limits.more[0].overhead_bytes == 64 << 20);
}

/* A container that starts anew gets a ledger again if the one before it has destroyed its own. */
static void a_destroyed_ledger_is_replaced(void **state) {
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    struct ledger_usage usage;
    struct stat before, after;
    struct slot *slot;
    char path[384];
    struct err err;

    fill(f, N1, &w, "main");
    slot = slot_find(&f->slots, N1);
    slot_path(&f->slots, N1, "ledger", path);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(slot_mend_ledger(&f->slots, slot, &err), 0);
    assert_int_equal(stat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino); /* a good one stays */
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(ledger_snapshot(slot->ledger, &usage), -EBADMSG);
    assert_int_equal(slot_mend_ledger(&f->slots, slot, &err), 0);
    assert_int_equal(ledger_snapshot(slot->ledger, &usage), 0);
    /* The same after a restart of the agent, which could not even open it. */
    assert_int_equal(truncate(path, 100), 0);
    slot_store_done(&f->slots);
    assert_int_equal(slot_store_load(&f->slots, f->dir, no_bad, NULL, &err), 0);
    slot = slot_find(&f->slots, N1);
    assert_null(slot->ledger);
    assert_int_equal(slot_mend_ledger(&f->slots, slot, &err), 0);
    assert_int_equal(ledger_snapshot(slot->ledger, &usage), 0);
}

/* So does one that has destroyed its account of GPU time; until then the driver's figures are held
 * against its share. */
static void a_destroyed_account_is_replaced(void **state) {
    static struct shares s;
    struct fixture *f = *state;
    const struct pod_spec w = {.uid = "u1", .containers = SPEC, .assignment = MAIN_30};
    struct arbiter_view view;
    struct stat before, after;
    struct slot *slot;
    char path[384];
    struct err err;

    fill(f, N1, &w, "main");
    slot = slot_find(&f->slots, N1);
    slot_path(&f->slots, N1, "compute", path);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(slot_mend_account(&f->slots, slot, &err), 0);
    assert_int_equal(stat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino); /* a good one stays */
    assert_int_equal(truncate(path, 100), 0);
    s.slots = f->slots;
    assert_int_equal(gputime_start(&s, &err), 0);
    gputime_view(slot, 0, &view);
    assert_true(view.damaged);
    assert_int_equal(view.entitled, 300000);
    slot->grant.devices[0].driver_percent = 90;
    for (int i = 0; i < 3; i++) {
        s.gputime_sampled = uv_hrtime() - 2000000000;
        gputime_sample(&s);
    }
    assert_true(slot->grant.devices[0].compute_audit.over);
    assert_int_equal(slot_mend_account(&f->slots, slot, &err), 0);
    gputime_join(&s);
    assert_non_null(slot->compute);
    gputime_view(slot, 0, &view);
    assert_false(view.damaged);
    /* An older agent made none. */
    slot->compute = arbiter_leave(slot->compute);
    assert_int_equal(unlink(path), 0);
    gputime_join(&s);
    gputime_view(slot, 0, &view);
    assert_false(view.damaged);
    assert_int_equal(slot_mend_account(&f->slots, slot, &err), 0);
    gputime_join(&s);
    assert_non_null(slot->compute);
    gputime_stop(&s);
}

static void driver_capabilities_are_kept(void **state) {
    static const struct pod_spec w = {
        .uid = "u-driver",
        .containers = "\"containers\":[{\"name\":\"main\",\"env\":[{"
                      "\"name\":\"NVIDIA_DRIVER_CAPABILITIES\",\"value\":\"compute,video\"}],"
                      "\"resources\":{\"limits\":{\"elasticgpu.io/gpu-core\":\"30\"}}}]",
        .assignment = MAIN_30};
    struct fixture *f = *state;
    struct pod_entry *e = make_pod(f, &w);
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    struct slot_grant g, back;
    struct err err;

    assert_int_equal(judge(f, e, w.uid, "main", &g, &err), VERDICT_GRANT);
    assert_int_equal(g.driver, DRIVER_COMPUTE | DRIVER_VIDEO);
    slot_record_encode(&g, &text);
    assert_int_equal(slot_record_decode(text.data, text.len, &back, &err), 0);
    assert_int_equal(back.driver, DRIVER_COMPUTE | DRIVER_VIDEO);
    slot_grant_done(&g);
    slot_grant_done(&back);
    pod_entry_free(e);
}

static int decode_whole(const char *list, struct slot_grant *ret) {
    char text[512];
    int n = snprintf(text, sizeof(text),
                     "{\"version\":1,\"podUID\":\"u\",\"namespace\":\"ns\",\"pod\":\"p\","
                     "\"container\":\"c\",\"devices\":[],\"whole\":%s}",
                     list);

    return slot_record_decode(text, (size_t) n, ret, NULL);
}

static void records_are_checked(void **state) {
    struct slot_grant g;

    (void) state;
    assert_int_equal(slot_record_decode("", 0, &g, NULL), -EBADMSG);
    assert_int_equal(slot_record_decode("{}", 2, &g, NULL), -EBADMSG);
    assert_int_equal(slot_record_decode("{\"version\":2}", 13, &g, NULL), -EBADMSG);
    assert_int_equal(slot_record_decode("{\"version\":0}", 13, &g, NULL), -EBADMSG);
    assert_int_equal(decode_whole("[\"MIG-1\",\"MIG-2\"]", &g), 0);
    assert_int_equal(g.nwhole, 2);
    assert_string_equal(g.whole[1].uuid, "MIG-2");
    slot_grant_done(&g);
    assert_int_equal(decode_whole("\"MIG-1\"", &g), -EBADMSG);
    assert_int_equal(decode_whole("[1]", &g), -EBADMSG);
    assert_int_equal(decode_whole("[\"\"]", &g), -EBADMSG);
    assert_int_equal(decode_whole("[\"0123456789012345678901234567890123456789012345678901234567890"
                                  "12345678901234567890\"]",
                                  &g),
                     -EBADMSG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(agent_restart_keeps_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(the_record_of_a_newer_agent_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_record_of_a_newer_agent_names_is_held, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(overhead_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(a_destroyed_ledger_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(a_destroyed_account_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_capabilities_are_kept, setup, teardown),
        cmocka_unit_test(records_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
