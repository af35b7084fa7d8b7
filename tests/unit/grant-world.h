/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pods with signed assignments, and the slots of their containers. */

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
    assert_int_equal(pod_entry_new(root, false, &e), 0);
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
