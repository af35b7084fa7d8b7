/* SPDX-License-Identifier: Apache-2.0 */

/* Whole devices for a container: which nodes it gets, and that no two pods have one device, also
 * when kubelet believes that a pod has ended whose processes live. */

#include "provision-world.h"

/* The edits cover the directory of sysfs by one that has the guard's mount point. */
static void the_guard_lets_a_container_with_its_edits_start(void **state) {
    _cleanup_buf_ struct buf cdi = BUF_INIT(1 << 20);
    struct fixture *f = *state;
    _cleanup_buf_ struct buf device = BUF_INIT(1 << 20);
    char want[400], below[400], guard[400];
    struct err why;

    assert_int_equal(cdi_guard_install(f->dir, f->cdi, &f->shares.guard, NULL), 0);
    (void) snprintf(guard, sizeof(guard), "%s/elasticgpu.io-guard.json", f->cdi);
    assert_int_equal(unlink(guard), 0);
    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    expect_cdi(f, N1, &cdi);
    /* And as a device of its own: an agent without the guard leaves that file as it is. */
    assert_int_equal(file_read(guard, 4096, &device, NULL), 0);
    (void) snprintf(want, sizeof(want),
                    "{\"hostPath\":\"%s/guard/mem\",\"containerPath\":\"/sys/class/mem\"", f->dir);
    assert_non_null(strstr(buf_str(&cdi), want));
    assert_non_null(strstr(buf_str(&device), want));
    assert_non_null(strstr(buf_str(&device), "\"kind\":\"elasticgpu.io/guard\""));
    (void) snprintf(below, sizeof(below), "%s/aliquot", f->shares.guard.dir);
    assert_int_equal(access(below, F_OK), 0);
    assert_int_equal(access(f->shares.guard.file, F_OK), 0);
    assert_true(
        cdi_guard_refused("error mounting \"/run/aliquot/guard/" CDI_GUARD_NAME
                          "\" to rootfs at \"/sys/class/mem/aliquot\": operation not permitted"));
    assert_false(cdi_guard_refused("back-off 5m0s restarting failed container"));
}

/* The driver, the card's node and the instance's own nodes; no library, no files of a share. */
static void an_instance_is_given_whole(void **state) {
    _cleanup_buf_ struct buf cdi = BUF_INIT(1 << 20);
    struct fixture *f = *state;
    char path[384];
    struct err why;

    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    expect_cdi(f, N1, &cdi);
    assert_non_null(strstr(buf_str(&cdi), "\"/dev/nvidia0\""));
    assert_non_null(strstr(buf_str(&cdi), CAP "11\""));
    assert_non_null(strstr(buf_str(&cdi), CAP "12\""));
    assert_null(strstr(buf_str(&cdi), CAP "2"));
    assert_non_null(strstr(buf_str(&cdi), "libcuda.so.1"));
    assert_null(strstr(buf_str(&cdi), "aliquot"));
    assert_non_null(strstr(buf_str(&cdi), "NVIDIA_VISIBLE_DEVICES=void"));
    slot_path(&f->shares.slots, N1, "ledger", path);
    assert_int_not_equal(access(path, F_OK), 0);
    slot_path(&f->shares.slots, N1, "limits", path);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* A container that requests two profiles has two slots, and gets what is in each. */
static void two_slots_of_one_container(void **state) {
    _cleanup_buf_ struct buf cdi = BUF_INIT(1 << 20);
    const struct provision second = {
        .nonce = N2, .pod_uid = "u1", .container = "main", .companion = true};
    struct fixture *f = *state;
    const char *uuid = "MIG-2";
    struct err why;

    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    assert_int_equal(provision_whole(&f->shares, &second, &uuid, 1, false, &why), VERDICT_GRANT);
    expect_cdi(f, N2, &cdi);
    assert_non_null(strstr(buf_str(&cdi), CAP "21\""));
    assert_non_null(strstr(buf_str(&cdi), CAP "22\""));
}

static void expect_wait(struct fixture *f, const char *uid, const char *uuid, const char *text) {
    struct err why;

    assert_int_equal(give_whole(f, N2, uid, uuid, &why), VERDICT_WAIT);
    if (!strstr(why.text, text))
        fail_msg("'%s' lacks '%s'", why.text, text);
    assert_null(slot_find(&f->shares.slots, N2));
}

static void what_is_missing_is_waited_for(void **state) {
    struct fixture *f = *state;
    struct err why;

    expect_wait(f, "u3", "MIG-1", "pod u3 is not known");
    expect_wait(f, "u1", "MIG-3", "device MIG-3 is not on this node");
    snapshot.devices[1].healthy = false;
    text_copy(snapshot.devices[1].reason, sizeof(snapshot.devices[1].reason), "XID 48");
    expect_wait(f, "u1", "MIG-1", "MIG instance MIG-1 is unhealthy: XID 48");
    snapshot.devices[1].healthy = true;
    snapshot.devices[0].service = GPU_SERVES_NONE;
    text_copy(snapshot.devices[0].reason, sizeof(snapshot.devices[0].reason), "XID 79");
    expect_wait(f, "u1", "MIG-1", "GPU 0 of MIG instance MIG-1 is unhealthy: XID 79");
    snapshot.devices[0].service = GPU_SERVES;
    pods_of_node[0].pod.finished = true;
    assert_int_equal(give_whole(f, N2, "u1", "MIG-1", &why), VERDICT_DENY);
    assert_non_null(strstr(why.text, "pod ns/p-u1 has already finished"));
}

/* Also after a restart of the agent. */
static void a_device_has_one_pod(void **state) {
    struct fixture *f = *state;
    struct slot *slot;
    struct err why;

    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    expect_wait(f, "u2", "MIG-1", "MIG instance MIG-1 is still held by pod ns/p-u1");
    slot_store_done(&f->shares.slots);
    assert_int_equal(slot_store_load(&f->shares.slots, f->dir, no_bad, NULL, NULL), 0);
    slot = slot_find(&f->shares.slots, N1);
    assert_non_null(slot);
    slot->releasing = true;
    expect_wait(f, "u2", "MIG-1", "held by pod ns/p-u1, whose processes have not ended");
    text_copy(slot->grant.namespace, sizeof(slot->grant.namespace), "other");
    expect_wait(f, "u2", "MIG-1", "held by a pod of another namespace, whose processes");
    assert_int_equal(give_whole(f, N2, "u2", "MIG-2", &why), VERDICT_GRANT);
    assert_int_equal(slot_remove(&f->shares.slots, slot, &why), 0);
    assert_int_equal(give_whole(f, N1, "u2", "MIG-1", &why), VERDICT_GRANT);
}

/* kubelet gives the devices of an init container to the app containers of its pod. */
static void init_and_app_have_one_device(void **state) {
    struct fixture *f = *state;
    struct err why;

    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    assert_int_equal(give_whole(f, N2, "u1", "MIG-1", &why), VERDICT_GRANT);
}

static enum verdict give_card(struct fixture *f, const char *nonce, const char *uid, bool replica,
                              struct err *why) {
    const struct provision p = {
        .nonce = nonce, .pod_uid = uid, .container = "main", .polled = &polled};
    const char *card = "GPU-0";

    return provision_whole(&f->shares, &p, &card, 1, replica, why);
}

/* A card with replicas has several pods, and none that has it whole; also after a restart. */
static void replicas_have_several_pods(void **state) {
    struct fixture *f = *state;
    struct err why;

    snapshot.devices[0].divided = false;
    snapshot.ndevices = 1;
    assert_int_equal(give_card(f, N1, "u1", true, &why), VERDICT_GRANT);
    slot_store_done(&f->shares.slots);
    assert_int_equal(slot_store_load(&f->shares.slots, f->dir, no_bad, NULL, NULL), 0);
    assert_int_equal(give_card(f, N2, "u2", false, &why), VERDICT_WAIT);
    assert_non_null(strstr(why.text, "GPU GPU-0 is still held by pod ns/p-u1"));
    assert_int_equal(give_card(f, N2, "u2", true, &why), VERDICT_GRANT);
}

static void a_whole_card_has_one_pod(void **state) {
    struct fixture *f = *state;
    struct err why;

    snapshot.devices[0].divided = false;
    snapshot.ndevices = 1;
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_GRANT);
    assert_int_equal(give_card(f, N2, "u2", true, &why), VERDICT_WAIT);
    assert_int_equal(give_card(f, N2, "u2", false, &why), VERDICT_WAIT);
}

static enum verdict give_part(struct fixture *f, const char *nonce, const char *uid, uint32_t part,
                              struct err *why) {
    const struct provision p = {
        .nonce = nonce, .pod_uid = uid, .container = "main", .polled = &polled};
    const struct assigned_device device = {.uuid = "GPU-0",
                                           .core = 100 / part,
                                           .memory = 80 * GIB / part,
                                           .physical = 80 * GIB / part};

    return provision_parts(&f->shares, &p, &device, 1, why);
}

/* The configuration makes fewer replicas, which are larger, than those that pods have. */
static void fewer_replicas_wait_for_room(void **state) {
    struct fixture *f = *state;
    struct err why = {0};

    snapshot.devices[0].divided = false;
    snapshot.devices[0].offer = GPU_OFFER_PARTS;
    snapshot.ndevices = 1;
    assert_int_equal(give_part(f, N1, "u1", 1, &why), VERDICT_GRANT);
    assert_int_equal(slot_remove(&f->shares.slots, slot_find(&f->shares.slots, N1), &why), 0);
    assert_int_equal(give_part(f, N1, "u1", 4, &why), VERDICT_GRANT);
    assert_int_equal(give_part(f, N2, "u2", 1, &why), VERDICT_WAIT);
    assert_non_null(strstr(why.text, "GPU 0 (GPU-0) has no room for one of its present replicas "
                                     "while pod ns/p-u1 holds an earlier one"));
    assert_null(slot_find(&f->shares.slots, N2));
    assert_int_equal(give_part(f, N2, "u2", 2, &why), VERDICT_GRANT);
}

/* The driver can have changed since the container's last start. */
static void a_restarted_container_gets_its_nodes_anew(void **state) {
    _cleanup_buf_ struct buf cdi = BUF_INIT(1 << 20);
    struct fixture *f = *state;
    struct err why;

    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    put(f, CAPABILITIES "gi1/access", "DeviceFileMinor: 21\n");
    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    expect_cdi(f, N1, &cdi);
    assert_non_null(strstr(buf_str(&cdi), CAP "21\""));
    assert_null(strstr(buf_str(&cdi), CAP "11\""));
    snapshot.ndevices = 1; /* destroyed */
    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_WAIT);
    assert_non_null(strstr(why.text, "MIG-1 is not on this node"));
}

static void serve_shares(void) {
    snapshot.devices[0].divided = false;
    snapshot.ndevices = 1;
}

/* Its number, which a reset or another driver can change, is not known until it is read again, and
 * its node can be gone for a while. */
static void a_restarted_container_waits_for_its_card(void **state) {
    struct fixture *f = *state;
    char path[256], node[256];
    struct err why;

    serve_shares();
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_GRANT);
    (void) snprintf(path, sizeof(path), "%s/elasticgpu.io-share-%s.json", f->cdi, N1);
    assert_int_equal(unlink(path), 0);
    snapshot.devices[0].saved = true;
    polls_wanted = 0;
    polled = false;
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_WAIT);
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_WAIT);
    assert_int_equal(polls_wanted, 1);
    assert_non_null(strstr(why.text, "the number of GPU GPU-0 is not known"));
    assert_int_not_equal(access(path, F_OK), 0);
    snapshot.devices[0].saved = false;
    (void) snprintf(node, sizeof(node), "%s/dev/nvidia0", f->dir);
    assert_int_equal(unlink(node), 0);
    polled = false;
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_WAIT);
    assert_int_equal(polls_wanted, 2);
    assert_string_equal(why.text, "/dev/nvidia0 is not on this node");
    put(f, "/dev/nvidia0", "");
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_GRANT);
    assert_int_equal(access(path, F_OK), 0);
}

/* Neither comes by waiting: kubelet has the reason at once. */
static void a_container_is_refused_at_once(void **state) {
    struct fixture *f = *state;
    struct err why;

    serve_shares();
    polls_wanted = 0;
    polled = false;
    f->shares.extras = GPU_EXTRA_IMEX | GPU_EXTRA_IMEX_REQUIRED;
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_DENY);
    assert_non_null(strstr(why.text, "imex.required"));
    f->shares.extras = 0;
    assert_int_equal(symlink("/nonexistent/cdi", f->cdi), 0);
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_DENY);
    assert_int_equal(why.code, ENOENT);
    assert_int_equal(polls_wanted, 0);
    assert_int_equal(unlink(f->cdi), 0);
    assert_int_equal(give_card(f, N1, "u1", false, &why), VERDICT_GRANT);
}

/* The agent has not yet found out that the one before is dead. */
static void a_restarted_container_begins_without_a_peak(void **state) {
    const struct provision p = {.nonce = N1, .pod_uid = "u1", .container = "main"};
    struct fixture *f = *state;
    struct ledger_usage usage;
    struct ledger_owner o;
    const struct slot *slot;
    char path[384];
    struct err why;

    serve_shares();
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    slot_path(&f->shares.slots, N1, "ledger", path);
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(ledger_reserve(&o, 0, GIB, 0), 0);
    ledger_release(&o);
    polls_wanted = 0;
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    slot = slot_find(&f->shares.slots, N1);
    assert_int_equal(ledger_snapshot(slot->ledger, &usage), 0);
    assert_int_equal(usage.used[0], 0);
    assert_int_equal(usage.peak[0], 0);
    assert_int_equal(f->shares.reclaimed, 1);
    assert_int_equal(polls_wanted, 1);
}

/* The agent starts after one of a later release, which has raised the version of the record. */
static struct slot *start_after_newer(struct fixture *f, bool other_ledger) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 16);
    struct slot *slot;
    char path[384], *version;

    slot_path(&f->shares.slots, N1, "record.json", path);
    assert_int_equal(file_read(path, 1 << 16, &text, NULL), 0);
    version = strstr(text.data, "\"version\":1");
    assert_non_null(version);
    version[strlen("\"version\":")] = '2';
    assert_int_equal(file_replace(path, text.data, text.len, 0600, NULL), 0);
    slot_path(&f->shares.slots, N1, "ledger", path);
    if (other_ledger)
        assert_int_equal(file_replace(path, "another form", 12, 0666, NULL), 0);
    slot_store_done(&f->shares.slots);
    assert_int_equal(slot_store_load(&f->shares.slots, f->dir, no_bad, NULL, NULL), 0);
    slot = slot_find(&f->shares.slots, N1);
    assert_non_null(slot);
    assert_true(slot->grant.newer);
    assert_null(slot->ledger);
    return slot;
}

static void expect_filled(struct fixture *f, uint32_t ndevices) {
    const struct slot *slot = slot_find(&f->shares.slots, N1);
    struct ledger_usage usage;

    assert_non_null(slot);
    assert_false(slot->grant.newer);
    assert_int_equal(slot->grant.ndevices, ndevices);
    if (ndevices > 0)
        assert_non_null(slot->ledger);
    if (ndevices > 0)
        assert_int_equal(ledger_snapshot(slot->ledger, &usage), 0);
}

/* After a rollback: what the container is to have is decided anew, and its files are made anew. */
static void a_share_of_a_newer_agent_is_filled_again(void **state) {
    const struct provision p = {.nonce = N1, .pod_uid = "u1", .container = "main"};
    struct fixture *f = *state;
    struct err why;

    serve_shares();
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    expect_filled(f, 1);
    (void) start_after_newer(f, true);
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    expect_filled(f, 1);
    (void) start_after_newer(f, false);
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    expect_filled(f, 1);
}

static void a_companion_of_a_newer_agent_is_filled_again(void **state) {
    const struct provision p = {
        .nonce = N1, .pod_uid = "u1", .container = "main", .companion = true};
    struct fixture *f = *state;
    struct err why;

    serve_shares();
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    assert_int_equal(start_after_newer(f, false)->grant.ndevices, 0);
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    expect_filled(f, 0);
}

static void a_replica_of_a_newer_agent_is_filled_again(void **state) {
    struct fixture *f = *state;
    struct err why;

    serve_shares();
    snapshot.devices[0].offer = GPU_OFFER_PARTS;
    assert_int_equal(give_part(f, N1, "u1", 4, &why), VERDICT_GRANT);
    assert_true(start_after_newer(f, true)->grant.replica);
    assert_int_equal(give_part(f, N1, "u1", 4, &why), VERDICT_GRANT);
    expect_filled(f, 1);
    assert_int_equal(give_part(f, N2, "u2", 4, &why), VERDICT_GRANT);
}

static void a_device_of_a_newer_agent_has_one_pod(void **state) {
    struct fixture *f = *state;
    struct err why;

    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    (void) start_after_newer(f, false);
    expect_wait(f, "u2", "MIG-1", "MIG instance MIG-1 is still held by pod ns/p-u1");
    assert_int_equal(give_whole(f, N1, "u1", "MIG-1", &why), VERDICT_GRANT);
    expect_filled(f, 0);
}

/* Its library is not known, and it has none. */
static void a_companion_of_a_newer_agent_keeps_no_library(void **state) {
    const struct provision p = {
        .nonce = N1, .pod_uid = "u1", .container = "main", .companion = true};
    const struct library current = {.dir = "fedcba9876543210"};
    struct fixture *f = *state;
    char path[384];
    struct err why;

    serve_shares();
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    (void) start_after_newer(f, false);
    put(f, "/lib/0123456789abcdef/libaliquot.so", "");
    library_clean(&current, f->dir, &f->shares.slots);
    (void) snprintf(path, sizeof(path), "%s/lib/0123456789abcdef", f->dir);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_instance_is_given_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(the_guard_lets_a_container_with_its_edits_start, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(two_slots_of_one_container, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_missing_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(a_device_has_one_pod, setup, teardown),
        cmocka_unit_test_setup_teardown(init_and_app_have_one_device, setup, teardown),
        cmocka_unit_test_setup_teardown(replicas_have_several_pods, setup, teardown),
        cmocka_unit_test_setup_teardown(a_whole_card_has_one_pod, setup, teardown),
        cmocka_unit_test_setup_teardown(fewer_replicas_wait_for_room, setup, teardown),
        cmocka_unit_test_setup_teardown(a_restarted_container_gets_its_nodes_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(a_restarted_container_waits_for_its_card, setup, teardown),
        cmocka_unit_test_setup_teardown(a_restarted_container_begins_without_a_peak, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_container_is_refused_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_share_of_a_newer_agent_is_filled_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_companion_of_a_newer_agent_is_filled_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_replica_of_a_newer_agent_is_filled_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_device_of_a_newer_agent_has_one_pod, setup, teardown),
        cmocka_unit_test_setup_teardown(a_companion_of_a_newer_agent_keeps_no_library, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
