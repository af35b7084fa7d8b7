/* SPDX-License-Identifier: Apache-2.0 */

/* When a card changes hands between the allocators of ResourceClaims. The test is the driver and
 * the pods. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/cluster/keys.h"
#include "base/err.h"
#include "base/file.h"
#include "base/text.h"
#include "fake-monitor-wraps.h"
#include "model/dra.h"

#define CARD "GPU-0"
#define INSTANCE "MIG-0"
#define N1 "0b1c2d3e4f504a618b7293a4b5c6d7e8"
#define N2 "1b1c2d3e4f504a618b7293a4b5c6d7e8"

static struct world {
    struct agent agent;
    struct node_config config;
    struct pod_entry pod;
    const char *device; /* of which the shares are */
    bool awaited;       /* a pod with an assignment on the card has not started yet */
    char dir[64];
} w;

bool __wrap_grant_assigns(const struct signing_verifier *keys, const char *node,
                          const struct pod *pod, const char *uuid);
const struct signing_verifier *__wrap_keys_verifier(const struct keys *k);
const struct pod_entry *__wrap_pods_find_by(const struct pods *p,
                                            bool (*holds)(const struct pod_entry *e,
                                                          const void *userdata),
                                            const void *userdata);

bool __wrap_grant_assigns(const struct signing_verifier *keys, const char *node,
                          const struct pod *pod, const char *uuid) {
    (void) keys, (void) node, (void) pod;
    assert_string_equal(uuid, w.device);
    return w.awaited;
}

const struct signing_verifier *__wrap_keys_verifier(const struct keys *k) {
    (void) k;
    return NULL;
}

const struct pod_entry *__wrap_pods_find_by(const struct pods *p,
                                            bool (*holds)(const struct pod_entry *e,
                                                          const void *userdata),
                                            const void *userdata) {
    (void) p;
    return holds(&w.pod, userdata) ? &w.pod : NULL;
}

static void load(void) {
    assert_int_equal(slot_store_load(&w.agent.shares.slots, w.dir, NULL, NULL, NULL), 0);
}

static void be_of(const char *uuid) {
    static char assignment[64];

    (void) snprintf(assignment, sizeof(assignment), "... %s ...", uuid);
    w.device = uuid;
    w.pod.pod.assignment = assignment;
}

static int setup(void **state) {
    (void) state;
    memset(&w, 0, sizeof(w));
    text_copy(w.dir, sizeof(w.dir), "/tmp/card-allocator-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    load();
    w.agent.node_config = &w.config;
    w.agent.config.allocator = DRA_ALIQUOT;
    w.agent.shares.pods = (struct pods *) &w;
    w.agent.shares.keys = (struct keys *) &w;
    be_of(CARD);
    snapshot = (struct gpu_snapshot){
        .ndevices = 1, .devices = {{.kind = GPU_CARD, .uuid = CARD, .memory = 1 << 30}}};
    return 0;
}

static int teardown(void **state) {
    (void) state;
    slot_store_done(&w.agent.shares.slots);
    return dir_remove(w.dir, NULL);
}

static struct slot *share(const char *nonce, enum dra_allocator allocator) {
    struct slot_grant g = {.ndevices = 1, .devices = calloc(2, sizeof(*g.devices))};
    struct slot *slot = NULL;

    assert_non_null(g.devices);
    text_copy(g.pod_uid, sizeof(g.pod_uid), nonce);
    text_copy(g.namespace, sizeof(g.namespace), "ns");
    text_copy(g.pod, sizeof(g.pod), "p");
    text_copy(g.container, sizeof(g.container), "main");
    g.devices[0] = (struct slot_device){.memory = 1 << 20, .pod_memory = 1 << 20};
    text_copy(g.devices[0].uuid, sizeof(g.devices[0].uuid), w.device);
    if (allocator != DRA_NONE) {
        assert_int_equal(slot_grant_claim(&g, "0b1c2d3e-4f50-4a61-8b72-93a4b5c6d7e8", "c"), 0);
        g.claim->allocator = (uint8_t) allocator;
    }
    assert_int_equal(slot_fill(&w.agent.shares.slots, nonce, &g, &slot, NULL), 0);
    return slot;
}

/* By the option, as no entry names the card. */
static void expect(enum dra_allocator wanted, enum dra_allocator has, const char *why) {
    char text[GPU_REASON_MAX] = "";

    w.agent.config.allocator = wanted;
    assert_int_equal(card_allocator_judge(&w.agent, &snapshot.devices[0], text), why[0] != 0);
    assert_string_equal(text, why);
    assert_string_equal(dra_allocator_name(snapshot.devices[0].allocator), dra_allocator_name(has));
}

static void an_idle_card(void **state) {
    (void) state;
    expect(DRA_ALIQUOT, DRA_ALIQUOT, "");
    expect(DRA_KUBE_SCHEDULER, DRA_KUBE_SCHEDULER, "");
    expect(DRA_NONE, DRA_NONE, "");
}

/* The option is what is not said of the card. */
static void an_entry_of_the_configuration(void **state) {
    (void) state;
    w.config.ncards = 1;
    w.config.cards[0] = (struct config_cards){.allocator = DRA_KUBE_SCHEDULER};
    expect(DRA_ALIQUOT, DRA_KUBE_SCHEDULER, "");
    w.config.cards[0].allocator = DRA_NONE;
    expect(DRA_ALIQUOT, DRA_NONE, "");
    w.config.cards[0].allocator = DRA_ALIQUOT;
    expect(DRA_NONE, DRA_NONE, ""); /* the agent is no driver */
}

#define TO_KUBE                                                                                    \
    "kube-scheduler allocates it to ResourceClaims when shares that aliquot-scheduler has "        \
    "allocated have ended: "
#define TO_ALIQUOT                                                                                 \
    "aliquot-scheduler allocates it to ResourceClaims when shares that kube-scheduler has "        \
    "allocated have ended: "

/* Also after a restart of the agent. */
static void shares_of_claims(void **state) {
    struct slot *slot;

    (void) state;
    (void) share(N1, DRA_KUBE_SCHEDULER);
    expect(DRA_KUBE_SCHEDULER, DRA_KUBE_SCHEDULER, "");
    expect(DRA_ALIQUOT, DRA_KUBE_SCHEDULER, TO_ALIQUOT "1 left");
    slot_store_done(&w.agent.shares.slots);
    load();
    expect(DRA_ALIQUOT, DRA_KUBE_SCHEDULER, TO_ALIQUOT "1 left");
    (void) share(N2, DRA_KUBE_SCHEDULER);
    expect(DRA_ALIQUOT, DRA_KUBE_SCHEDULER, TO_ALIQUOT "2 left");
    while ((slot = w.agent.shares.slots.slots))
        assert_int_equal(slot_remove(&w.agent.shares.slots, slot, NULL), 0);
    expect(DRA_ALIQUOT, DRA_ALIQUOT, "");
    slot = share(N1, DRA_ALIQUOT);
    expect(DRA_KUBE_SCHEDULER, DRA_ALIQUOT, TO_KUBE "1 left");
    slot->grant.claim->allocator = DRA_NONE; /* its record does not say */
    expect(DRA_KUBE_SCHEDULER, DRA_ALIQUOT, TO_KUBE "1 left");
    expect(DRA_ALIQUOT, DRA_KUBE_SCHEDULER, TO_ALIQUOT "1 left");
}

static void shares_by_resource_names(void **state) {
    (void) state;
    (void) share(N1, DRA_NONE);
    expect(DRA_ALIQUOT, DRA_ALIQUOT, "");
    expect(DRA_KUBE_SCHEDULER, DRA_ALIQUOT, TO_KUBE "1 left");
    w.config.ncards = 1;
    w.config.cards[0] = (struct config_cards){.allocator = DRA_NONE};
    expect(DRA_ALIQUOT, DRA_NONE, ""); /* they are in no claims */
}

/* Its pod is bound to the card and on its way. */
static void a_pod_that_is_awaited(void **state) {
    (void) state;
    w.awaited = true;
    expect(DRA_ALIQUOT, DRA_ALIQUOT, "");
    expect(DRA_KUBE_SCHEDULER, DRA_ALIQUOT, TO_KUBE "1 left");
    w.pod.pod.finished = true;
    expect(DRA_KUBE_SCHEDULER, DRA_KUBE_SCHEDULER, "");
}

/* What has an instance has a part of the card, which would be divided anew for claims. */
static void instances_of_the_card(void **state) {
    struct slot *slot;

    (void) state;
    snapshot.ndevices = 3;
    snapshot.devices[0].divided = true;
    snapshot.devices[1] = (struct gpu_device){.kind = GPU_MIG_INSTANCE, .parent = "GPU-1"};
    snapshot.devices[2] = (struct gpu_device){.kind = GPU_MIG_INSTANCE, .parent = CARD};
    text_copy(snapshot.devices[1].uuid, sizeof(snapshot.devices[1].uuid), "MIG-1");
    text_copy(snapshot.devices[2].uuid, sizeof(snapshot.devices[2].uuid), INSTANCE);
    be_of(INSTANCE);
    slot = share(N1, DRA_NONE);
    expect(DRA_KUBE_SCHEDULER, DRA_ALIQUOT, TO_KUBE "1 left");
    assert_int_equal(slot_remove(&w.agent.shares.slots, slot, NULL), 0);
    slot = share(N1, DRA_KUBE_SCHEDULER);
    expect(DRA_ALIQUOT, DRA_KUBE_SCHEDULER, TO_ALIQUOT "1 left");
    assert_int_equal(slot_remove(&w.agent.shares.slots, slot, NULL), 0);
    expect(DRA_KUBE_SCHEDULER, DRA_KUBE_SCHEDULER, "");
    w.awaited = true;
    expect(DRA_KUBE_SCHEDULER, DRA_ALIQUOT, TO_KUBE "1 left");
    be_of("MIG-1");
    (void) share(N2, DRA_NONE);
    expect(DRA_KUBE_SCHEDULER, DRA_KUBE_SCHEDULER, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_idle_card, setup, teardown),
        cmocka_unit_test_setup_teardown(an_entry_of_the_configuration, setup, teardown),
        cmocka_unit_test_setup_teardown(shares_of_claims, setup, teardown),
        cmocka_unit_test_setup_teardown(shares_by_resource_names, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pod_that_is_awaited, setup, teardown),
        cmocka_unit_test_setup_teardown(instances_of_the_card, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
