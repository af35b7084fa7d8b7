/* SPDX-License-Identifier: Apache-2.0 */

/* Who gets a share and who does not, and what is kept about it. */

#include <errno.h>
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

#include "agent/shares/gputime.h"
#include "agent/shares/grant.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/text.h"
#include "model/driver_capability.h"
#include "share/ledger.h"
#include "share/limits.h"
#include "wire/json.h"

#define GIB ((uint64_t) 1 << 30)
#define N1 "00000000000000000000000000000001"
#define N2 "00000000000000000000000000000002"
#define N3 "00000000000000000000000000000003"

struct fixture {
    char dir[64];
    struct signing_key *key, *other_key;
    struct signing_verifier *verifier;
    struct gpu_snapshot snapshot;
    struct slot_store slots;
    struct json_parser *parser;
};

static void add_card(struct fixture *f, uint32_t index, const char *uuid) {
    struct gpu_device *d = &f->snapshot.devices[f->snapshot.ndevices++];

    d->index = index;
    d->memory = 80 * GIB;
    d->healthy = true;
    text_copy(d->uuid, sizeof(d->uuid), uuid);
}

static void no_bad(const char *nonce, const char *why, void *userdata) {
    (void) userdata;
    fail_msg("%s: %s", nonce, why);
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    _cleanup_buf_ struct buf pem = BUF_INIT(4096);
    struct err err;

    assert_non_null(f);
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-grant-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(signing_key_generate(&f->key, &err), 0);
    assert_int_equal(signing_key_generate(&f->other_key, &err), 0);
    assert_int_equal(signing_key_public(f->key, &pem, &err), 0);
    assert_int_equal(signing_verifier_load(pem.data, pem.len, &f->verifier, &err), 0);
    assert_int_equal(slot_store_load(&f->slots, f->dir, no_bad, NULL, &err), 0);
    add_card(f, 0, "GPU-a");
    add_card(f, 1, "GPU-b");
    f->parser = json_parser_new();
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    slot_store_done(&f->slots);
    (void) signing_key_free(f->key);
    (void) signing_key_free(f->other_key);
    (void) signing_verifier_free(f->verifier);
    (void) json_parser_free(f->parser);
    (void) dir_remove(f->dir, NULL);
    free(f);
    return 0;
}

struct pod_spec {
    const char *uid;
    const char *containers; /* spec: {"initContainers":[...],"containers":[...]} without braces */
    const char *assignment; /* NULL: none */
    const char *signed_uid; /* whose signature it carries; NULL: its own */
    const char *signed_node;
    const struct signing_key *key;
    const char *phase;
};

static struct pod_entry *make_pod(struct fixture *f, const struct pod_spec *w) {
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    char signature[SIGNATURE_TEXT_MAX];
    struct pod_entry *e;
    struct json root;
    struct err err;

    buf_printf(&text, "{\"metadata\":{\"uid\":\"%s\",\"name\":\"p-%s\",\"namespace\":\"ns\"",
               w->uid, w->uid);
    if (w->assignment) {
        assert_int_equal(assignment_sign(w->key ? w->key : f->key,
                                         w->signed_uid ? w->signed_uid : w->uid,
                                         w->signed_node ? w->signed_node : "node-a", w->assignment,
                                         signature, &err),
                         0);
        buf_puts(&text, ",\"annotations\":{\"elasticgpu.io/assignment\":\"");
        for (const char *c = w->assignment; *c; c++)
            buf_printf(&text, "%s%c", *c == '"' ? "\\" : "", *c);
        buf_printf(&text, "\",\"elasticgpu.io/assignment-signature\":\"%s\"}", signature);
    }
    buf_printf(&text, "},\"spec\":{\"nodeName\":\"node-a\",%s},\"status\":{\"phase\":\"%s\"}}",
               w->containers, w->phase ? w->phase : "Pending");
    assert_int_equal(json_parse(f->parser, text.data, text.len, &root, &err), 0);
    assert_int_equal(pod_entry_new(root, &e), 0);
    return e;
}

#define ASK(name, core)                                                                            \
    "{\"name\":\"" name "\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-core\":\"" core "\"}}}"
#define PART(uuid, core, memory)                                                                   \
    "[{\"index\":0,\"uuid\":\"" uuid "\",\"core\":" core ",\"memory\":" memory "}]"
#define ASSIGN(containers) "{\"v\":1,\"node\":\"node-a\",\"containers\":{" containers "}}"
#define MAIN_30 ASSIGN("\"main\":" PART("GPU-a", "30", "25769803776"))

static enum verdict judge(struct fixture *f, const struct pod_entry *e, const char *uid,
                          const char *container, struct slot_grant *ret, struct err *err) {
    struct grant_world w = {.node = "node-a",
                            .pod = e,
                            .keys = f->verifier,
                            .snapshot = &f->snapshot,
                            .slots = &f->slots};

    memset(ret, 0, sizeof(*ret));
    return grant_judge(&w, uid, container, ret, err);
}

static void expect(struct fixture *f, const struct pod_spec *w, enum verdict want,
                   const char *text) {
    struct pod_entry *e = make_pod(f, w);
    struct slot_grant g;
    struct err err = {0};
    enum verdict v = judge(f, e, w->uid, "main", &g, &err);

    if (v != want || (text && !strstr(err.text, text)))
        fail_msg("verdict %d, '%s'; expected %d, '%s'", (int) v, err.text, (int) want, text);
    slot_grant_done(&g);
    pod_entry_free(e);
}

static void fill(struct fixture *f, const char *nonce, const struct pod_spec *w,
                 const char *container) {
    struct pod_entry *e = make_pod(f, w);
    struct slot_grant g;
    struct slot *slot;
    struct err err = {0};

    if (judge(f, e, w->uid, container, &g, &err) != VERDICT_GRANT)
        fail_msg("%s", err.text);
    assert_int_equal(slot_fill(&f->slots, nonce, &g, &slot, &err), 0);
    pod_entry_free(e);
}

#define SPEC "\"containers\":[" ASK("main", "30") "]"

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

static void the_assignment_of_a_newer_scheduler_is_refused(void **state) {
    const struct pod_spec w = {.uid = "u1",
                               .containers = SPEC,
                               .assignment =
                                   "{\"v\":2,\"node\":\"node-a\",\"containers\":{\"main\":" PART(
                                       "GPU-a", "30", "25769803776") "}}"};

    expect(*state, &w, VERDICT_DENY, "it is of a newer scheduler");
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
    assert_int_equal(slot_remove(&f->slots, slot, NULL), 0);
    expect(f, &w, VERDICT_GRANT, NULL);
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
        cmocka_unit_test_setup_teardown(agent_restart_keeps_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(the_record_of_a_newer_agent_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_record_of_a_newer_agent_names_is_held, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_assignment_of_a_newer_scheduler_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_share_grows_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slot_is_never_another_pods, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pod_is_held_against_the_card_as_a_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(oversubscribed_memory_fits_by_its_physical_part, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(overhead_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(a_destroyed_ledger_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(a_destroyed_account_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(a_whole_card_has_no_shares, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_capabilities_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(an_assignment_that_is_too_long_is_not_signed, setup,
                                        teardown),
        cmocka_unit_test(percent_of_an_instance),
        cmocka_unit_test(a_share_of_an_instance),
        cmocka_unit_test(records_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
