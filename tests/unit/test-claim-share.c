/* SPDX-License-Identifier: Apache-2.0 */

/* Shares of ResourceClaims: what all containers that use a claim have together. */

#include "provision-world.h"

#include <time.h>

#include "agent/os/cgroup.h"
#include "agent/report/claim_users.h"
#include "agent/shares/claim_rule.h"
#include "agent/shares/slot_gc.h"
#include "agent/shares/slot_owner.h"
#include "agent/shares/slot_users.h"
#include "share/limits.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define CLAIM "0b1c2d3e-4f50-4a61-8b72-93a4b5c6d7e8"
#define CLAIM_SLOT "0b1c2d3e4f504a618b7293a4b5c6d7e8"
#define OTHER "ffffffff-4f50-4a61-8b72-93a4b5c6d7e8"

/* One card of 80 GiB; both pods use the claim "shared", the first one in two containers. */
static int setup_claims(void **state) {
    static struct pod_claim_use uses[2][3] = {
        {{"main", "shared"}, {"side", "shared"}, {"own", "own"}},
        {{"main", "shared"}, {"main2", "own"}, {"", ""}},
    };
    int r = setup(state);
    struct fixture *f = *state;

    snapshot.devices[0].divided = false;
    snapshot.ndevices = 1;
    for (size_t i = 0; i < 2; i++) {
        pods_of_node[i].uses = uses[i];
        pods_of_node[i].nuses = 3 - i;
        pods_of_node[i].pod.finished = false;
    }
    f->shares.loop = uv_default_loop();
    slot_gc_init(&f->shares);
    return r;
}

static int teardown_claims(void **state) {
    struct fixture *f = *state;

    uv_close((uv_handle_t *) &f->shares.gc.timer, NULL);
    (void) uv_run(f->shares.loop, UV_RUN_DEFAULT);
    return teardown(state);
}

static enum verdict claim(struct fixture *f, const char *uid, const char *name, size_t pod,
                          uint32_t percent, struct err *why) {
    const struct assigned_device device = {.uuid = "GPU-0",
                                           .core = percent,
                                           .memory = 80 * GIB * percent / 100,
                                           .physical = 80 * GIB * percent / 100};
    const struct claim_share share = {.uid = uid,
                                      .namespace = "ns",
                                      .name = name,
                                      .pod = &pods_of_node[pod],
                                      .devices = &device,
                                      .ndevices = 1,
                                      .terms = {.policy = SHARE_BURST, .weight = 7}};
    bool once = true;

    why->text[0] = 0;
    return provision_claim(&f->shares, &share, &once, why);
}

static void restart(struct fixture *f) {
    slot_store_done(&f->shares.slots);
    assert_int_equal(slot_store_load(&f->shares.slots, f->dir, no_bad, NULL, NULL), 0);
}

static void names_of_slots(void **state) {
    char nonce[NONCE_LEN + 1];

    (void) state;
    assert_true(nonce_of_claim(CLAIM, nonce));
    assert_string_equal(nonce, CLAIM_SLOT);
    assert_false(nonce_of_claim("", nonce));
    assert_false(nonce_of_claim(CLAIM_SLOT, nonce));
    assert_false(nonce_of_claim("0b1c2d3e-4f50-4a61-8b72-93a4b5c6d7e", nonce));
    assert_false(nonce_of_claim(CLAIM "0", nonce));
    assert_false(nonce_of_claim("0B1c2d3e-4f50-4a61-8b72-93a4b5c6d7e8", nonce));
    assert_false(nonce_of_claim("0b1c2d3e-4f50-4a61-8b72-93a4b5c6d7/8", nonce));
    assert_false(nonce_of_claim("../../..-..../....-..../............", nonce));
    assert_string_equal(nonce, "");
}

/* The second pod, also after a restart, has the share of the first as it is. */
static void pods_have_one_share(void **state) {
    _cleanup_buf_ struct buf cdi = BUF_INIT(1 << 20);
    struct fixture *f = *state;
    struct share_limits limits;
    struct slot *slot;
    char path[384];
    struct err why;

    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    expect_cdi(f, CLAIM_SLOT, &cdi);
    assert_non_null(strstr(buf_str(&cdi), "\"/dev/nvidia0\""));
    slot_path(&f->shares.slots, CLAIM_SLOT, "limits", path);
    assert_int_equal(limits_read(path, &limits, NULL), 0);
    assert_int_equal(limits.device[0].memory_bytes, 20 * GIB);
    assert_int_equal(limits.device[0].core_percent, 25);
    assert_int_equal(limits.device[0].policy, SHARE_BURST);
    assert_int_equal(limits.device[0].weight, 7);
    restart(f);
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_GRANT);
    restart(f);
    slot = slot_find(&f->shares.slots, CLAIM_SLOT);
    assert_int_equal(HASH_COUNT(f->shares.slots.slots), 1);
    assert_string_equal(slot->grant.claim->name, "shared");
    assert_string_equal(slot->grant.claim->uid, CLAIM);
    assert_int_equal(slot->grant.claim->npods, 2);
    assert_true(slot_is_of_pod(&slot->grant, "u1") && slot_is_of_pod(&slot->grant, "u2"));
    assert_false(slot_is_of_pod(&slot->grant, "u3"));
    assert_string_equal(slot->grant.container, "main");
    assert_int_equal(slot->grant.terms.weight, 7);
}

static void expect_terms(const struct share_device *d, uint32_t percent, enum share_policy policy,
                         uint32_t weight) {
    assert_int_equal(d->core_percent, percent);
    assert_int_equal(d->policy, policy);
    assert_int_equal(d->weight, weight);
}

/* Each device has the terms of its amount, also after a restart. */
static void amounts_that_differ(void **state) {
    static const uint32_t cores[] = {100, 0, 10};
    struct slot_grant g = {.ndevices = 3,
                           .devices = calloc(4, sizeof(*g.devices)),
                           .terms = {.policy = SHARE_FIXED, .weight = 7, .slices = true}};
    struct fixture *f = *state;
    struct share_limits limits;
    struct slot *slot;

    for (uint32_t i = 0; i < 3; i++) {
        g.devices[i] = (struct slot_device){.core = cores[i], .memory = GIB, .physical = GIB};
        (void) snprintf(g.devices[i].uuid, sizeof(g.devices[i].uuid), "GPU-%u", i);
    }
    text_copy(g.pod_uid, sizeof(g.pod_uid), "u1");
    text_copy(g.namespace, sizeof(g.namespace), "ns");
    text_copy(g.pod, sizeof(g.pod), "p");
    text_copy(g.container, sizeof(g.container), "main");
    assert_int_equal(slot_grant_claim(&g, CLAIM, "shared"), 0);
    assert_int_equal(slot_fill(&f->shares.slots, CLAIM_SLOT, &g, &slot, NULL), 0);
    for (int i = 0; i < 2; i++) {
        slot_limits(&slot_find(&f->shares.slots, CLAIM_SLOT)->grant, &limits);
        expect_terms(&limits.device[0], 0, SHARE_BEST_EFFORT, 0);
        expect_terms(&limits.device[1], 0, SHARE_BEST_EFFORT, 7);
        expect_terms(&limits.device[2], 10, SHARE_FIXED, 7);
        assert_int_equal(limits.more[0].options & LIMITS_HARDWARE_SLICES, 0);
        assert_int_not_equal(limits.more[2].options & LIMITS_HARDWARE_SLICES, 0);
        restart(f);
    }
}

/* What a process has booked stays booked when another pod begins. */
static void a_share_in_use_is_left_alone(void **state) {
    struct fixture *f = *state;
    struct ledger_usage usage;
    struct ledger_owner o;
    char path[384];
    struct err why;

    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    slot_path(&f->shares.slots, CLAIM_SLOT, "ledger", path);
    assert_int_equal(ledger_claim(path, &o), 0);
    assert_int_equal(ledger_reserve(&o, 0, GIB, 0), 0);
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_GRANT);
    assert_int_equal(ledger_snapshot(slot_find(&f->shares.slots, CLAIM_SLOT)->ledger, &usage), 0);
    assert_int_equal(usage.used[0], GIB);
    ledger_release(&o);
}

/* Never more of a card than there is, and both kinds of shares count. */
static void a_card_is_given_once(void **state) {
    const struct provision p = {.nonce = N1, .pod_uid = "u1", .container = "main"};
    struct fixture *f = *state;
    struct err why;

    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT); /* 25 percent */
    assert_int_equal(claim(f, CLAIM, "own", 0, 80, &why), VERDICT_WAIT);
    assert_non_null(strstr(why.text, "still held by pod ns/p-u1"));
    assert_null(slot_find(&f->shares.slots, CLAIM_SLOT));
    assert_int_equal(claim(f, CLAIM, "own", 0, 70, &why), VERDICT_GRANT);
    assert_int_equal(claim(f, OTHER, "own", 0, 10, &why), VERDICT_WAIT);
    assert_int_equal(claim(f, OTHER, "own", 0, 5, &why), VERDICT_GRANT);
    assert_int_equal(claim(f, "00000000-4f50-4a61-8b72-93a4b5c6d7e8", "own", 0, 101, &why),
                     VERDICT_DENY);
    assert_int_equal(give_whole(f, N2, "u2", "GPU-0", &why), VERDICT_WAIT);
    assert_int_equal(claim(f, CLAIM, "none", 0, 5, &why), VERDICT_DENY);
}

static struct slot *owner(struct fixture *f, const char *pod, const char *container) {
    struct cgroup_id id = {0};

    text_copy(id.pod_uid, sizeof(id.pod_uid), pod);
    text_copy(id.container_id, sizeof(id.container_id), container);
    return slot_of_group(&f->shares, &id);
}

static void processes_belong_to_the_claim(void **state) {
    static struct pod_container containers[] = {{.name = "main", .id = "c1"},
                                                {.name = "side", .id = "c2"},
                                                {.name = "own", .id = "c3"},
                                                {.name = "none", .id = "c4"}};
    struct fixture *f = *state;
    struct slot *shared, *own;
    struct err why;

    f->shares.pods = (struct pods *) f; /* pods_find() is the test's */
    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    shared = slot_find(&f->shares.slots, CLAIM_SLOT);
    assert_ptr_equal(owner(f, "u1", "not known yet"), shared); /* it is the only one */
    assert_int_equal(claim(f, OTHER, "own", 0, 25, &why), VERDICT_GRANT);
    own = shared->hh.next;
    assert_null(owner(f, "u1", "not known yet"));
    pods_of_node[0].containers = containers;
    pods_of_node[0].ncontainers = 4;
    assert_ptr_equal(owner(f, "u1", "c1"), shared);
    assert_ptr_equal(owner(f, "u1", "c2"), shared);
    assert_ptr_equal(owner(f, "u1", "c3"), own);
    assert_null(owner(f, "u1", "c4"));
    assert_null(owner(f, "u2", "c1"));
    pods_of_node[0].ncontainers = 0;
    f->shares.pods = NULL;
}

static bool gone(struct fixture *f, const char *nonce) {
    uint64_t until = uv_hrtime() + UINT64_C(60000000000);

    while (slot_find(&f->shares.slots, nonce) && uv_hrtime() < until)
        (void) uv_run(f->shares.loop, UV_RUN_ONCE);
    return !slot_find(&f->shares.slots, nonce);
}

/* The end of a pod is not that of the claim, which kubelet says. */
static void it_ends_with_the_claim(void **state) {
    struct fixture *f = *state;
    char path[256];
    struct slot *slot;
    struct err why;

    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    slot = slot_find(&f->shares.slots, CLAIM_SLOT);
    slot_gc_release(&f->shares, "u1", true);
    assert_false(slot->releasing);
    slot_gc_release_claim(&f->shares, slot, true);
    (void) snprintf(path, sizeof(path), "%s/elasticgpu.io-share-" CLAIM_SLOT ".json", f->cdi);
    assert_int_not_equal(access(path, F_OK), 0);
    slot_gc_cancel(&f->shares, "u1");
    assert_true(slot->releasing);
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_WAIT);
    assert_non_null(strstr(why.text, "still held by processes"));
    assert_true(gone(f, CLAIM_SLOT));
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_GRANT);
}

/* The claim was given back and allocated again while the agent was away. */
static void another_allocation_replaces_it(void **state) {
    struct fixture *f = *state;
    struct err why;

    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    assert_int_equal(claim(f, CLAIM, "shared", 0, 50, &why), VERDICT_WAIT);
    assert_true(gone(f, CLAIM_SLOT));
    assert_int_equal(claim(f, CLAIM, "shared", 0, 50, &why), VERDICT_GRANT);
    assert_int_equal(slot_find(&f->shares.slots, CLAIM_SLOT)->grant.devices[0].core, 50);
}

/* After a start: what no pod uses any more ends, whatever kubelet remembers. */
static void claims_without_pods_end(void **state) {
    struct fixture *f = *state;
    struct slot *slot;
    struct err why;

    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_GRANT);
    restart(f);
    slot = slot_find(&f->shares.slots, CLAIM_SLOT);
    pods_of_node[0].pod.finished = true;
    slot_gc_orphans(&f->shares);
    assert_false(slot->releasing);
    pods_of_node[1].pod.uid[0] = 'x';
    slot_gc_orphans(&f->shares);
    assert_true(slot->releasing);
    assert_true(gone(f, CLAIM_SLOT));
}

static bool all_pods_are_known;

bool __wrap_pods_ever_synced(const struct pods *p);

bool __wrap_pods_ever_synced(const struct pods *p) {
    (void) p;
    return all_pods_are_known;
}

/* The share has its claim's present pods, however many it had: a pod that is left out has nothing
 * there, and after a restart its share would end. */
static void pods_that_ended_make_room(void **state) {
    struct fixture *f = *state;
    struct slot *slot;
    char uid[16];
    struct err why;

    f->shares.pods = (struct pods *) f; /* pods_find() is the test's */
    all_pods_are_known = false;
    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    slot = slot_find(&f->shares.slots, CLAIM_SLOT);
    for (int i = 1; i < SLOT_CLAIM_PODS_MAX; i++) {
        (void) snprintf(uid, sizeof(uid), "gone-%d", i);
        assert_int_equal(slot_users_add(&f->shares, slot, uid, &why), 0);
    }
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_DENY);
    all_pods_are_known = true;
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_GRANT);
    restart(f);
    slot = slot_find(&f->shares.slots, CLAIM_SLOT);
    assert_int_equal(slot->grant.claim->npods, SLOT_CLAIM_PODS_MAX);
    assert_true(slot_is_of_pod(&slot->grant, "u1"));
    assert_true(slot_is_of_pod(&slot->grant, "u2"));
    assert_false(slot_is_of_pod(&slot->grant, "gone-1"));
    pods_of_node[0].pod.finished = true;
    slot_gc_orphans(&f->shares);
    assert_false(slot->releasing);
    f->shares.pods = NULL;
}

/* kubelet has lost what it knew of the claim. */
static void claims_that_kubelet_forgets(void **state) {
    struct fixture *f = *state;
    struct slot *slot;
    struct err why;

    f->shares.pods = (struct pods *) f; /* pods_find() is the test's */
    all_pods_are_known = true;
    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    slot = slot_find(&f->shares.slots, CLAIM_SLOT);
    slot_gc_claims(&f->shares);
    assert_int_equal(slot->unused_until, 0);
    pods_of_node[0].pod.finished = true;
    slot_gc_claims(&f->shares);
    assert_int_equal(slot->unused_until, uv_now(f->shares.loop) + SLOT_GC_UNUSED_MS);
    slot_gc_claims(&f->shares);
    assert_false(slot->releasing);
    pods_of_node[0].pod.finished = false; /* another pod, in time */
    slot_gc_claims(&f->shares);
    assert_int_equal(slot->unused_until, 0);
    pods_of_node[0].pod.finished = true;
    slot_gc_claims(&f->shares);
    slot->unused_until = uv_now(f->shares.loop); /* it is time */
    slot_gc_claims(&f->shares);
    assert_true(slot->releasing);
    assert_true(gone(f, CLAIM_SLOT));
    f->shares.pods = NULL;
}

/* kubelet asks for none of the pods after the first. */
static void one_share_for_a_container(void **state) {
    struct provision p = {.nonce = N1, .pod_uid = "u1", .container = "main"};
    struct fixture *f = *state;
    struct err why;

    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_DENY);
    assert_non_null(strstr(why.text, "container main uses ResourceClaim shared and requests"));
    assert_null(slot_find(&f->shares.slots, N1));
    assert_int_equal(give_whole(f, N2, "u2", "GPU-0", &why), VERDICT_DENY);
    assert_non_null(strstr(why.text, "container main uses ResourceClaim shared and requests"));
    p.container = "own"; /* its claim has no share of ours */
    assert_int_equal(provision(&f->shares, &p, &why), VERDICT_GRANT);
    assert_int_equal(claim_rule_check(&f->shares, &pods_of_node[0], "shared", NULL, NULL, &why), 0);
    text_copy(pods_of_node[1].uses[1].container, KUBE_LABEL_MAX, "main");
    assert_int_equal(claim_rule_check(&f->shares, &pods_of_node[1], "shared", NULL, NULL, &why), 0);
    assert_int_equal(claim(f, OTHER, "own", 1, 25, &why), VERDICT_GRANT);
    assert_int_equal(claim_rule_check(&f->shares, &pods_of_node[1], "shared", NULL, NULL, &why),
                     -EINVAL);
    assert_non_null(strstr(why.text, "container main uses ResourceClaims shared and own"));
    text_copy(pods_of_node[1].uses[1].container, KUBE_LABEL_MAX, "main2");
}

static void expect_user(struct fixture *f, uint32_t *at, const char *uid, const char *container) {
    struct slot_user user;

    assert_true(slot_users_next(&f->shares, slot_find(&f->shares.slots, CLAIM_SLOT), at, &user));
    assert_string_equal(user.uid, uid);
    assert_string_equal(user.container, container);
}

static void expect_no_user(struct fixture *f, uint32_t *at) {
    struct slot_user user;

    assert_false(slot_users_next(&f->shares, slot_find(&f->shares.slots, CLAIM_SLOT), at, &user));
}

static void put_user(struct buf *out, size_t pod, const char *container) {
    buf_printf(out, "%s{\"pod\":\"%s\",\"podUID\":\"%s\",\"container\":\"%s\"}",
               out->data[out->len - 1] == '[' ? "" : ",", pods_of_node[pod].pod.name,
               pods_of_node[pod].pod.uid, container);
}

/* What pages list under a claim: every container of every pod that has not ended. */
static void containers_of_a_share(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 16), want = BUF_INIT(1 << 16);
    struct json_writer w = {.out = &out};
    struct fixture *f = *state;
    struct slot *slot;
    struct err why;

    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_GRANT);
    f->shares.pods = (void *) &pods_of_node;
    slot = slot_find(&f->shares.slots, CLAIM_SLOT);
    json_object_begin(&w, NULL);
    claim_users_write(&f->shares, slot, &w);
    json_object_end(&w);
    buf_puts(&want, "{\"claim\":\"shared\",\"claimUID\":\"" CLAIM "\",\"users\":[");
    put_user(&want, 0, "main");
    put_user(&want, 0, "side");
    put_user(&want, 1, "main");
    buf_puts(&want, "]}");
    assert_string_equal(buf_str(&out), buf_str(&want));
    assert_true(claim_users_have(&f->shares, slot, pods_of_node[1].pod.name));
    pods_of_node[1].pod.finished = true;
    assert_false(claim_users_have(&f->shares, slot, pods_of_node[1].pod.name));
}

static void pods_of_a_share(void **state) {
    struct fixture *f = *state;
    uint32_t at = 0;
    struct err why;

    f->shares.pods = (struct pods *) f; /* pods_find() is the test's */
    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_GRANT);
    expect_user(f, &at, "u1", "main");
    expect_user(f, &at, "u2", "main");
    expect_no_user(f, &at);
    at = 0;
    pods_of_node[0].pod.finished = true;
    expect_user(f, &at, "u2", "main");
    expect_no_user(f, &at);
    at = 0;
    pods_of_node[1].pod.finished = true;
    expect_user(f, &at, "u1", "main"); /* the share holds the card all the same */
    expect_no_user(f, &at);
    expect_no_user(f, &at);
    f->shares.pods = NULL;
}

/* The process of a control group is of one of the pods, and of one of its containers. */
static void the_pod_of_a_process(void **state) {
    static struct pod_container containers[] = {{.name = "main2", .id = "c1"}};
    struct cgroup_id id = {.pod_uid = "u2", .container_id = "c1"};
    struct fixture *f = *state;
    struct slot_user user;
    struct slot *slot;
    struct err why;

    f->shares.pods = (struct pods *) f; /* pods_find() is the test's */
    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_GRANT);
    assert_int_equal(claim(f, CLAIM, "shared", 1, 25, &why), VERDICT_GRANT);
    slot = slot_find(&f->shares.slots, CLAIM_SLOT);
    pods_of_node[1].containers = containers;
    pods_of_node[1].ncontainers = 1;
    slot_user_of_group(&f->shares, slot, &id, &user);
    assert_string_equal(user.uid, "u2");
    assert_string_equal(user.container, "main2");
    pods_of_node[1].ncontainers = 0;
    slot_user_of_group(&f->shares, slot, &id, &user);
    assert_string_equal(user.uid, "u2");
    assert_string_equal(user.container, "main");
    text_copy(id.pod_uid, sizeof(id.pod_uid), "u3");
    slot_user_of_group(&f->shares, slot, &id, &user);
    assert_string_equal(user.uid, "u1");
    slot_user_of_process(&f->shares, slot, 0, &user);
    assert_string_equal(user.uid, "u1");
    f->shares.pods = NULL;
}

static void a_required_limit_of_the_driver(void **state) {
    struct fixture *f = *state;
    struct err why;

    f->shares.options.driver_limits = DRIVER_LIMIT_REQUIRED;
    assert_int_equal(claim(f, CLAIM, "shared", 0, 25, &why), VERDICT_DENY);
    assert_non_null(strstr(why.text, "--driver-limits=required"));
    f->shares.options.driver_limits = DRIVER_LIMIT_AUTO;
}

static uint32_t newer_with(const char *text, const char *from, const char *to) {
    _cleanup_buf_ struct buf other = BUF_INIT(4096);
    const char *at = strstr(text, from);
    struct slot_grant g;
    uint32_t newer;

    if (!at)
        fail_msg("%s lacks %s", text, from);
    buf_append(&other, text, (size_t) (at - text));
    buf_printf(&other, "%s%s", to, at + strlen(from));
    assert_int_equal(slot_record_decode(buf_str(&other), other.len, &g, NULL), 0);
    newer = g.newer;
    slot_grant_done(&g);
    return newer;
}

/* For an agent that knows no claims it is a newer agent's: that one keeps its hands off. */
static void the_version_of_a_record(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(4096);
    struct slot_grant g = {.devices = NULL};

    (void) state;
    text_copy(g.pod_uid, sizeof(g.pod_uid), "u");
    text_copy(g.namespace, sizeof(g.namespace), "n");
    text_copy(g.pod, sizeof(g.pod), "p");
    text_copy(g.container, sizeof(g.container), "c");
    slot_record_encode(&g, &text);
    assert_false(newer_with(buf_str(&text), "\"version\":1", "\"version\":1"));
    assert_true(newer_with(buf_str(&text), "\"version\":1", "\"version\":2"));
    buf_reset(&text);
    assert_int_equal(slot_grant_claim(&g, CLAIM, "shared"), 0);
    slot_record_encode(&g, &text);
    assert_false(newer_with(buf_str(&text), "\"version\":2", "\"version\":2"));
    assert_true(newer_with(buf_str(&text), "\"version\":2", "\"version\":3"));
    slot_grant_done(&g);
}

/* Older agents have not recorded it, and it is not known what newer ones mean. */
static void the_allocator_of_a_record(void **state) {
    static const struct {
        const char *text;
        enum dra_allocator allocator;
    } cases[] = {
        {"", DRA_NONE},
        {",\"allocator\":\"kube-scheduler\"", DRA_KUBE_SCHEDULER},
        {",\"allocator\":\"another\"", DRA_NONE},
        {",\"allocator\":7", DRA_NONE},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        _cleanup_buf_ struct buf again = BUF_INIT(4096);
        struct slot_grant g, h;
        char text[512];

        (void) snprintf(text, sizeof(text),
                        "{\"version\":2,\"podUID\":\"u\",\"namespace\":\"n\",\"pod\":\"p\","
                        "\"container\":\"c\",\"claim\":{\"uid\":\"u\",\"name\":\"c\"%s,"
                        "\"pods\":[]},\"devices\":[]}",
                        cases[i].text);
        assert_int_equal(slot_record_decode(text, strlen(text), &g, NULL), 0);
        assert_int_equal(g.claim->allocator, cases[i].allocator);
        slot_record_encode(&g, &again);
        assert_int_equal(slot_record_decode(buf_str(&again), again.len, &h, NULL), 0);
        assert_int_equal(h.claim->allocator, cases[i].allocator);
        slot_grant_done(&g);
        slot_grant_done(&h);
    }
}

static void records_that_are_none(void **state) {
    static const char *const claims[] = {
        "1",
        "{\"uid\":\"u\",\"name\":\"c\"}",
        "{\"uid\":\"\",\"name\":\"c\",\"pods\":[]}",
        "{\"uid\":\"u\",\"name\":7,\"pods\":[]}",
        "{\"uid\":\"u\",\"name\":\"c\",\"pods\":[\"\"]}",
        "{\"uid\":\"u\",\"name\":\"c\",\"pods\":[3]}",
    };
    struct slot_grant g;

    (void) state;
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        char text[512];

        (void) snprintf(text, sizeof(text),
                        "{\"version\":1,\"podUID\":\"u\",\"namespace\":\"n\",\"pod\":\"p\","
                        "\"container\":\"c\",\"claim\":%s,\"devices\":[]}",
                        claims[i]);
        if (slot_record_decode(text, strlen(text), &g, NULL) == 0)
            fail_msg("read: %s", text);
    }
}

/* Claims of templates are named by the status, and are there later than the pod. */
static void claims_of_a_pod(void **state) {
    static const char text[] =
        "{\"metadata\":{\"uid\":\"u\",\"name\":\"p\",\"namespace\":\"ns\"},"
        "\"spec\":{\"resourceClaims\":[{\"name\":\"a\",\"resourceClaimTemplateName\":\"t\"},"
        "{\"name\":\"b\",\"resourceClaimName\":\"standing\"},"
        "{\"name\":\"late\",\"resourceClaimTemplateName\":\"t\"}],"
        "\"initContainers\":[{\"name\":\"i\",\"resources\":{\"claims\":[{\"name\":\"b\"}]}}],"
        "\"containers\":[{\"name\":\"m\",\"resources\":{\"claims\":[{\"name\":\"a\"},"
        "{\"name\":\"a\",\"request\":\"x\"},{\"name\":\"late\"},{\"name\":\"none\"},{},7]}}]},"
        "\"status\":{\"resourceClaimStatuses\":[{\"name\":\"a\",\"resourceClaimName\":\"p-a-1\"}]}"
        "}";
    _cleanup_json_ struct json_parser *parser = NULL;
    struct pod_entry *e;
    struct json root;

    (void) state;
    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    assert_int_equal(pod_entry_new(root, false, &e), 0);
    assert_int_equal(e->nuses, 0);
    pod_entry_free(e);
    assert_int_equal(pod_entry_new(root, true, &e), 0);
    assert_int_equal(e->nuses, 2);
    assert_non_null(pod_claim_use_find(e, "i", "standing"));
    assert_string_equal(pod_claim_use_find(e, NULL, "p-a-1")->container, "m");
    assert_null(pod_claim_use_find(e, "i", "p-a-1"));
    pod_entry_free(e);
}

/* What a pod may say is not bounded by the API server, what the loop does for it is. */
static void more_claims_than_are_read(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(4 << 20);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct timespec start, end;
    struct pod_entry *e;
    struct json root;

    (void) state;
    buf_puts(&text, "{\"metadata\":{\"uid\":\"u\",\"name\":\"p\",\"namespace\":\"ns\"},\"spec\":{"
                    "\"resourceClaims\":[");
    for (int i = 0; i < 4000; i++)
        buf_printf(&text, "%s{\"name\":\"c%d\",\"resourceClaimName\":\"r%d\"}", i > 0 ? "," : "", i,
                   i);
    buf_puts(&text, "],\"containers\":[");
    for (int i = 0; i < 15 * 4000; i++)
        buf_printf(&text, "%s{\"name\":\"c%d\"}%s",
                   i % 4000 > 0 ? "," : "{\"name\":\"m\",\"resources\":{\"claims\":[", i % 4000,
                   i % 4000 < 3999     ? ""
                   : i < 15 * 4000 - 1 ? "]}},"
                                       : "]}}");
    buf_puts(&text, "]}}");
    assert_int_equal(json_open(buf_str(&text), text.len, &parser, &root, NULL), 0);
    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    assert_int_equal(pod_entry_new(root, true, &e), 0);
    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    assert_int_equal(e->nuses, 256);
    assert_in_range(end.tv_sec - start.tv_sec, 0, 1);
    pod_entry_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_slots),
        cmocka_unit_test(records_that_are_none),
        cmocka_unit_test(the_allocator_of_a_record),
        cmocka_unit_test(the_version_of_a_record),
        cmocka_unit_test(claims_of_a_pod),
        cmocka_unit_test(more_claims_than_are_read),
        cmocka_unit_test_setup_teardown(pods_have_one_share, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(amounts_that_differ, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(a_share_in_use_is_left_alone, setup_claims,
                                        teardown_claims),
        cmocka_unit_test_setup_teardown(a_card_is_given_once, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(processes_belong_to_the_claim, setup_claims,
                                        teardown_claims),
        cmocka_unit_test_setup_teardown(it_ends_with_the_claim, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(another_allocation_replaces_it, setup_claims,
                                        teardown_claims),
        cmocka_unit_test_setup_teardown(claims_without_pods_end, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(pods_that_ended_make_room, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(containers_of_a_share, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(pods_of_a_share, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(the_pod_of_a_process, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(claims_that_kubelet_forgets, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(one_share_for_a_container, setup_claims, teardown_claims),
        cmocka_unit_test_setup_teardown(a_required_limit_of_the_driver, setup_claims,
                                        teardown_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
