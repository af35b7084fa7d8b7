/* SPDX-License-Identifier: Apache-2.0 */

/* The agent without memory: each allocation fails once, and neither the process nor a pod's share
 * is lost. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/cluster/pods.h"
#include "agent/shares/slot.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "fail-malloc.h"
#include "fake-reflector.h"
#include "wire/json.h"

/* More than fit into the buckets that a hash table begins with, so that it has to grow. */
#define PODS 400
#define NEVER 1000000

/* ---- pods ---- */

struct world {
    struct json_parser *parser;
    struct pods *pods;
    unsigned gone, synced, troubles;
};

static void on_change(const struct pod_entry *e, void *userdata) {
    (void) e, (void) userdata;
}

static void on_gone(const struct pod_entry *e, void *userdata) {
    (void) e;
    ((struct world *) userdata)->gone++;
}

static void on_synced(void *userdata) {
    ((struct world *) userdata)->synced++;
}

static void on_trouble(const char *text, void *userdata) {
    (void) text;
    ((struct world *) userdata)->troubles++;
}

static void setup_world(struct world *w) {
    const struct pods_handlers handlers = {on_change, on_gone, on_synced, on_trouble, w};
    struct err err;

    *w = (struct world){.parser = json_parser_new()};
    assert_non_null(w->parser);
    assert_int_equal(pods_start(NULL, "node-a", true, &handlers, &w->pods, &err), 0);
    relists = 0;
}

static void teardown_world(struct world *w) {
    pods_stop(w->pods);
    json_parser_free(w->parser);
}

static void show_pod(struct world *w, unsigned n) {
    char text[256];
    struct json root;
    struct err err;

    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"uid\":\"uid-%u\",\"name\":\"p%u\",\"namespace\":\"ns\"},"
                    "\"spec\":{\"nodeName\":\"node-a\"},\"status\":{\"phase\":\"Running\"}}",
                    n, n);
    assert_int_equal(json_parse(w->parser, text, strlen(text), &root, &err), 0);
    reflector_show(reflector_of(""), KUBE_ADDED, root);
}

static void list_pods(struct world *w) {
    reflector_list_begins(reflector_of(""));
    for (unsigned i = 0; i < PODS; i++)
        show_pod(w, i);
    reflector_list_ends(reflector_of(""));
}

static void assert_all_known(const struct world *w) {
    char uid[32];

    for (unsigned i = 0; i < PODS; i++) {
        (void) snprintf(uid, sizeof(uid), "uid-%u", i);
        assert_non_null(pods_find(w->pods, uid));
    }
}

/* The nth allocation of a first list fails, then that of a second one that finds every pod known:
 * until a list is complete no pod counts as gone, and it is asked for. */
static void test_no_pod_is_lost(void **state) {
    (void) state;
    for (size_t nth = 1; nth < NEVER; nth++) {
        struct world w;
        bool failed;

        setup_world(&w);
        for (unsigned lists = 0; lists < 2; lists++) {
            unsigned synced = w.synced, troubles = w.troubles;

            fail_malloc_at(nth);
            list_pods(&w);
            failed = fail_malloc_end();
            assert_int_equal(w.synced, w.troubles > troubles ? synced : synced + 1);
            assert_int_equal(pods_synced(w.pods), w.synced > synced);
            pods_repair(w.pods);
            pods_repair(w.pods);
            assert_int_equal(relists, w.troubles);
            if (w.synced == synced)
                list_pods(&w);
            assert_int_equal(w.synced, synced + 1);
            assert_true(pods_synced(w.pods));
            assert_int_equal(w.gone, 0);
            assert_all_known(&w);
        }
        teardown_world(&w);
        if (!failed)
            return;
    }
}

/* ---- slots ---- */

static void on_bad(const char *nonce, const char *why, void *userdata) {
    (void) userdata;
    fail_msg("slot %s: %s", nonce, why);
}

static int fill(struct slot_store *s, const char *nonce, struct err *err) {
    struct slot_grant grant = {.ndevices = 0};
    struct slot *slot;

    (void) snprintf(grant.pod_uid, sizeof(grant.pod_uid), "uid-%.32s", nonce);
    (void) snprintf(grant.namespace, sizeof(grant.namespace), "ns");
    (void) snprintf(grant.pod, sizeof(grant.pod), "p");
    (void) snprintf(grant.container, sizeof(grant.container), "main");
    grant.devices = calloc(1, sizeof(*grant.devices));
    if (!grant.devices)
        return -ENOMEM;
    return slot_fill(s, nonce, &grant, &slot, err);
}

#define SLOTS 3

static void name_slot(unsigned n, char ret[static 33]) {
    (void) snprintf(ret, 33, "%032x", n);
}

/* A slot is filled, or the call says -ENOMEM and can be repeated; a store is read, or the call says
 * so: a record is never taken for a bad one. */
static void test_no_slot_is_lost(void **state) {
    char dir[] = "/tmp/aliquot-memory-XXXXXX";
    bool failed = true;

    (void) state;
    assert_non_null(mkdtemp(dir));
    for (size_t nth = 1; failed; nth++) {
        struct slot_store made = {0}, read = {0};
        struct err err;
        char nonce[33];
        int r;

        assert_int_equal(dir_remove(dir, &err), 0);
        assert_int_equal(slot_store_load(&made, dir, on_bad, NULL, &err), 0);
        fail_malloc_at(nth);
        for (unsigned i = 0; i < SLOTS; i++) {
            name_slot(i, nonce);
            r = fill(&made, nonce, &err);
            assert_true(r == 0 || (r == -ENOMEM && !slot_find(&made, nonce)));
            if (r < 0)
                assert_int_equal(fill(&made, nonce, &err), 0);
        }
        failed = fail_malloc_end();
        assert_int_equal(HASH_COUNT(made.slots), SLOTS);
        slot_store_done(&made);

        fail_malloc_at(nth);
        r = slot_store_load(&read, dir, on_bad, NULL, &err);
        failed |= fail_malloc_end();
        assert_true(r == 0 || r == -ENOMEM);
        slot_store_done(&read);
    }
    assert_int_equal(dir_remove(dir, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_pod_is_lost),
        cmocka_unit_test(test_no_slot_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
