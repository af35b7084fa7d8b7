/* SPDX-License-Identifier: Apache-2.0 */

/* kubelet's calls to prepare and unprepare claims, against an API server of the test's own. What a
 * share is made of is the test's, too (test-claim-share.c). */

#include "dra-world.h"

#include <errno.h>
#include <sys/stat.h>

#include "agent/dra/messages.h"
#include "agent/dra/plugin.h"
#include "agent/dra/prepare.h"
#include "agent/shares/provision.h"
#include "agent/shares/shares.h"
#include "base/err.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "fake-monitor.h"
#include "kube/api/client.h"

#define U1 "0b1c2d3e-4f50-4a61-8b72-93a4b5c6d7e8"
#define U2 "1b1c2d3e-4f50-4a61-8b72-93a4b5c6d7e8"

struct fixture {
    struct dra_world world;
    struct shares shares;
    struct dra_prepares prepares;
    struct dra_plugin *plugin;
    Draplugin__NodePrepareResourcesResponse *answer;
    unsigned ready;
    bool closed;
};

/* ---- the API server ---- */

struct kube_call {
    kube_response_cb on_response;
    void *userdata;
    uv_timer_t timer;
    char path[256];
    bool cancelled;
};

static struct fixture *current;
static int status;
static const char *body;
static unsigned reads;
static char last_path[256];

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *text, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err);
void __wrap_kube_call_cancel(struct kube_call *call);

static void on_call_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void on_respond(uv_timer_t *timer) {
    struct kube_call *c = timer->data;
    struct kube_response r = {.status = status, .text = status == 200 ? "" : "the server says no"};
    struct json_parser *parser = NULL;

    if (!c->cancelled) {
        if (status == 200)
            assert_int_equal(json_open(body, strlen(body), &parser, &r.body, NULL), 0);
        c->on_response(&r, c->userdata);
        (void) json_parser_free(parser);
    }
    uv_close((uv_handle_t *) timer, on_call_closed);
}

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *text, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err) {
    struct kube_call *c = calloc(1, sizeof(*c));

    (void) client, (void) content_type, (void) text, (void) size, (void) timeout_ms, (void) err;
    assert_string_equal(method, "GET");
    c->on_response = on_response;
    c->userdata = userdata;
    text_copy(last_path, sizeof(last_path), path);
    (void) uv_timer_init(&current->world.loop, &c->timer);
    c->timer.data = c;
    (void) uv_timer_start(&c->timer, on_respond, 0, 0);
    *ret_call = c;
    reads++;
    return 0;
}

void __wrap_kube_call_cancel(struct kube_call *call) {
    if (call)
        call->cancelled = true;
}

/* ---- pods and shares ---- */

static struct pod_entry pod, second; /* `second` is known while it uses a claim */
static bool pod_is_known;

const struct pod_entry *__wrap_pods_find(const struct pods *p, const char *uid);

const struct pod_entry *__wrap_pods_find(const struct pods *p, const char *uid) {
    (void) p;
    if (second.nuses > 0 && strcmp(second.pod.uid, uid) == 0)
        return &second;
    return pod_is_known && strcmp(pod.pod.uid, uid) == 0 ? &pod : NULL;
}

static enum verdict verdict;
static const char *reason;
static unsigned tries;
static struct claim_share asked;
static struct assigned_device asked_devices[4];

enum verdict __wrap_provision_claim(struct shares *s, const struct claim_share *c, bool *once,
                                    struct err *why);

enum verdict __wrap_provision_claim(struct shares *s, const struct claim_share *c, bool *once,
                                    struct err *why) {
    (void) s, (void) once;
    tries++;
    asked = *c;
    assert_in_range(c->ndevices, 1, 4);
    memcpy(asked_devices, c->devices, c->ndevices * sizeof(*c->devices));
    if (verdict != VERDICT_GRANT)
        (void) err_set(why, EAGAIN, "%s", reason);
    return verdict;
}

/* ---- instances that are made for claims ---- */

static bool made, whole;
static unsigned wanted;

static int make(const char *device, const struct gpu_device **ret, void *userdata,
                struct err *err) {
    (void) userdata;
    if (strcmp(device, "gpu-ab-3g-40gb-4") != 0)
        return -ENOENT;
    wanted++;
    *ret = made ? &snapshot.devices[2] : NULL;
    return made ? 0 : err_set(err, EAGAIN, "it is not made yet");
}

static bool is_whole(const struct gpu_device *d, void *userdata) {
    (void) d, (void) userdata;
    return whole;
}

/* ---- the fixture ---- */

static void on_prepare(struct grpc_call *c, const struct dra_claim_ids *claims, void *userdata) {
    dra_prepare_begin(&((struct fixture *) userdata)->prepares, c, claims);
}

static void on_unprepare(struct grpc_call *c, const struct dra_claim_ids *claims, void *userdata) {
    dra_unprepare(&((struct fixture *) userdata)->prepares, c, claims);
}

static void health(struct buf *out, void *userdata) {
    (void) out, (void) userdata;
}

static void on_state(bool registered, const char *why, void *userdata) {
    (void) registered, (void) why, (void) userdata;
}

static void on_prepared(void *userdata) {
    ((struct fixture *) userdata)->ready++;
}

static void no_bad(const char *nonce, const char *why, void *userdata) {
    (void) userdata;
    fail_msg("%s: %s", nonce, why);
}

static void start_plugin(struct fixture *f) {
    const struct dra_plugin_options options = {.kubelet_dir = f->world.dir,
                                               .on_prepare = on_prepare,
                                               .on_unprepare = on_unprepare,
                                               .health = health,
                                               .on_state = on_state,
                                               .userdata = f};

    assert_int_equal(dra_plugin_start(&f->world.loop, &options, &f->plugin, NULL), 0);
}

static int setup(void **state) {
    static struct pod_claim_use uses[3];
    struct fixture *f = calloc(1, sizeof(*f));
    char path[128];

    assert_non_null(f);
    current = f;
    world_init(&f->world);
    (void) snprintf(path, sizeof(path), "%s/plugins_registry", f->world.dir);
    assert_int_equal(mkdir(path, 0755), 0);
    f->shares.loop = &f->world.loop;
    f->shares.options = (struct share_options){.node_name = "node-a",
                                               .cdi_dir = f->world.dir,
                                               .compute_policy = SHARE_FIXED,
                                               .pod_policies = 1u << SHARE_BURST};
    assert_int_equal(slot_store_load(&f->shares.slots, f->world.dir, no_bad, NULL, NULL), 0);
    slot_gc_init(&f->shares);
    f->prepares = (struct dra_prepares){.shares = &f->shares,
                                        .source = {make, is_whole, NULL},
                                        .on_prepared = on_prepared,
                                        .userdata = f};
    made = whole = false;
    dra_prepare_init(&f->prepares);
    start_plugin(f);
    snapshot = (struct gpu_snapshot){
        .ndevices = 2,
        .devices = {{.uuid = "GPU-AB", .memory = 80 * GIB, .healthy = true},
                    {.uuid = "GPU-CD", .memory = 80 * GIB, .healthy = true, .index = 1}}};
    memset(&pod, 0, sizeof(pod));
    text_copy(pod.pod.uid, sizeof(pod.pod.uid), "p1");
    uses[0] = (struct pod_claim_use){"main", "c1"};
    uses[1] = (struct pod_claim_use){"side", "c1"};
    uses[2] = (struct pod_claim_use){"other", "c2"};
    pod.uses = uses;
    pod.nuses = 3;
    pod_is_known = true;
    status = 200;
    verdict = VERDICT_GRANT;
    reads = tries = 0;
    *state = f;
    return 0;
}

static void on_closed(void *userdata) {
    ((struct fixture *) userdata)->closed = true;
}

static void drop_answer(struct fixture *f) {
    draplugin__node_prepare_resources_response__free_unpacked(f->answer, NULL);
    f->answer = NULL;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    drop_answer(f);
    dra_prepare_stop(&f->prepares);
    dra_plugin_close(f->plugin, on_closed, f);
    RUN_UNTIL(&f->world, f->closed);
    uv_close((uv_handle_t *) &f->prepares.wake, NULL);
    uv_close((uv_handle_t *) &f->shares.gc.timer, NULL);
    slot_store_done(&f->shares.slots);
    world_done(&f->world);
    (void) dir_remove(f->world.dir, NULL);
    free(f);
    return 0;
}

#define HEAD(uid, name)                                                                            \
    "{\"metadata\":{\"uid\":\"" uid "\",\"namespace\":\"ns\",\"name\":\"" name "\"},"
#define SPEC                                                                                       \
    "\"spec\":{\"devices\":{\"requests\":[{\"name\":\"gpu\",\"exactly\":{\"deviceClassName\":"     \
    "\"gpu.elasticgpu.io\"}}]}},"
#define RESULT(request, device, share, consumed)                                                   \
    "{\"request\":\"" request "\",\"driver\":\"gpu.elasticgpu.io\",\"pool\":\"node-a\","           \
    "\"device\":\"" device "\"" share ",\"consumedCapacity\":{" consumed "}}"
#define SHARE ",\"shareID\":\"5b1c2d3e-4f50-4a61-8b72-93a4b5c6d7e8\""
#define PART "\"core\":\"30\",\"memory\":\"20Gi\""
#define STATUS(results, configs)                                                                   \
    "\"status\":{\"reservedFor\":[{\"resource\":\"pods\",\"name\":\"p\",\"uid\":\"p1\"}],"         \
    "\"allocation\":{\"devices\":{\"results\":[" results "]" configs "}}}}"
#define CLAIM(results) HEAD(U1, "c1") SPEC STATUS(results, "")
#define CORE(n) "\"core\":\"" n "\",\"memory\":\"20Gi\""
#define PARAMETERS "\"apiVersion\":\"gpu.elasticgpu.io/v1alpha1\",\"kind\":\"ShareConfig\""
#define GOOD CLAIM(RESULT("gpu", "gpu-ab", SHARE, PART))

static void begin(struct fixture *f, const char *uid, const char *name, unsigned timeout_ms) {
    _cleanup_buf_ struct buf request = BUF_INIT(4096);

    drop_answer(f);
    put_claim(&request, "ns", uid, name);
    begin_call(&f->world, f->world.plugin, SERVICE "NodePrepareResources", &request, timeout_ms);
}

static void finish(struct fixture *f) {
    RUN_UNTIL(&f->world, f->world.answered);
    assert_int_equal(f->world.status, GRPC_OK);
    f->answer =
        draplugin__node_prepare_resources_response__unpack(NULL, f->world.size, f->world.reply);
    assert_non_null(f->answer);
}

static void prepare(struct fixture *f) {
    begin(f, U1, "c1", 45000);
    finish(f);
    assert_int_equal(f->answer->n_claims, 1);
    assert_string_equal(f->answer->claims[0]->key, U1);
}

static void expect_refused(struct fixture *f, const char *text) {
    const char *error;

    prepare(f);
    error = f->answer->claims[0]->value->error;
    if (!strstr(error, text))
        fail_msg("'%s' lacks '%s'", error, text);
    assert_int_equal(f->answer->claims[0]->value->n_devices, 0);
}

/* ---- the tests ---- */

static void a_claim_is_prepared(void **state) {
    struct fixture *f = *state;
    const Draplugin__Device *d;

    body = CLAIM(RESULT("gpu/small", "gpu-ab", SHARE, PART));
    prepare(f);
    assert_string_equal(f->answer->claims[0]->value->error, "");
    assert_int_equal(f->answer->claims[0]->value->n_devices, 1);
    d = f->answer->claims[0]->value->devices[0];
    assert_string_equal(d->request_names[0], "gpu"); /* without the choice */
    assert_string_equal(d->pool_name, "node-a");
    assert_string_equal(d->device_name, "gpu-ab");
    assert_string_equal(d->share_id, "5b1c2d3e-4f50-4a61-8b72-93a4b5c6d7e8");
    assert_string_equal(d->cdi_device_ids[0],
                        "elasticgpu.io/share=0b1c2d3e4f504a618b7293a4b5c6d7e8");
    assert_string_equal(last_path, "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c1");
    assert_int_equal(tries, 1);
    assert_string_equal(asked_devices[0].uuid, "GPU-AB");
    assert_int_equal(asked_devices[0].core, 30);
    assert_int_equal(asked_devices[0].memory, 20 * GIB);
    assert_int_equal(asked_devices[0].physical, 20 * GIB);
    assert_int_equal(asked.terms.policy, SHARE_FIXED);
    assert_int_equal(f->ready, 1);
    assert_int_equal(f->prepares.prepared, 1);
}

/* The claim c1. */
static void has_a_share(struct fixture *f) {
    struct slot_grant g = {.ndevices = 1, .devices = calloc(2, sizeof(*g.devices))};
    struct slot *slot;

    text_copy(g.pod_uid, sizeof(g.pod_uid), "p1");
    text_copy(g.namespace, sizeof(g.namespace), "ns");
    text_copy(g.pod, sizeof(g.pod), "p");
    text_copy(g.container, sizeof(g.container), "main");
    assert_int_equal(slot_grant_claim(&g, U1, "c1"), 0);
    g.devices[0] = (struct slot_device){.memory = GIB, .pod_memory = GIB, .uuid = "GPU-AB"};
    assert_int_equal(
        slot_fill(&f->shares.slots, "0b1c2d3e4f504a618b7293a4b5c6d7e8", &g, &slot, NULL), 0);
}

/* As after the driver was switched off: a claim that has a share keeps it. */
static void no_new_claims(void **state) {
    struct fixture *f = *state;

    body = GOOD;
    f->prepares.refusal = "switched off";
    expect_refused(f, "ResourceClaim ns/c1: switched off");
    assert_int_equal(reads, 0);
    has_a_share(f);
    prepare(f);
    assert_string_equal(f->answer->claims[0]->value->error, "");
    assert_int_equal(f->answer->claims[0]->value->n_devices, 1);
}

/* Two results on one card are one share of it, and devices of other drivers are not ours. */
static void several_results(void **state) {
    struct fixture *f = *state;

    body =
        CLAIM(RESULT("a", "gpu-ab", SHARE, PART) "," RESULT("b", "gpu-cd", SHARE, PART) "," RESULT(
            "c", "gpu-ab", SHARE, PART) ",{\"request\":\"n\",\"driver\":\"nic\",\"pool\":\"x\","
                                        "\"device\":\"y\"}");
    prepare(f);
    assert_int_equal(f->answer->claims[0]->value->n_devices, 3);
    assert_int_equal(asked.ndevices, 2);
    assert_string_equal(asked_devices[0].uuid, "GPU-AB");
    assert_int_equal(asked_devices[0].core, 60);
    assert_int_equal(asked_devices[0].memory, 40 * GIB);
    assert_int_equal(asked_devices[1].core, 30);
}

static void what_is_late_is_waited_for(void **state) {
    struct fixture *f = *state;

    body = GOOD;
    status = 500;
    begin(f, U1, "c1", 45000);
    RUN_UNTIL(&f->world, reads == 2);
    status = 200;
    body = HEAD(U1, "c1") "\"spec\":{}}"; /* not allocated */
    RUN_UNTIL(&f->world, reads == 3);
    body = GOOD;
    pod_is_known = false;
    RUN_UNTIL(&f->world, reads == 5);
    assert_int_equal(tries, 0);
    verdict = VERDICT_WAIT;
    reason = "still held";
    pod_is_known = true;
    RUN_UNTIL(&f->world, tries == 2);
    snapshot.ndevices = 0; /* the driver's child is started again */
    f->prepares.blocker = "not configured yet";
    verdict = VERDICT_GRANT;
    dra_prepare_wake(&f->prepares);
    (void) uv_run(&f->world.loop, UV_RUN_NOWAIT);
    f->prepares.blocker = NULL;
    dra_prepare_wake(&f->prepares);
    (void) uv_run(&f->world.loop, UV_RUN_NOWAIT);
    assert_false(f->world.answered);
    snapshot.ndevices = 2;
    finish(f);
    assert_string_equal(f->answer->claims[0]->value->error, "");
}

/* Before kubelet gives the call up. */
static void the_reason_of_a_wait_is_told(void **state) {
    struct fixture *f = *state;

    body = GOOD;
    verdict = VERDICT_WAIT;
    reason = "GPU 0 is still held by pod ns/q";
    begin(f, U1, "c1", 3000);
    finish(f);
    assert_string_equal(f->answer->claims[0]->value->error, reason);
    assert_int_equal(f->prepares.refused, 1);
    assert_int_equal(dra_prepare_waiting(&f->prepares), 0);
}

static void what_does_not_pass_is_refused(void **state) {
    struct fixture *f = *state;

    status = 404;
    expect_refused(f, "ResourceClaim ns/c1 cannot be read: the server says no");
    status = 200;
    body = HEAD(U2, "c1") SPEC STATUS(RESULT("gpu", "gpu-ab", SHARE, PART), "");
    expect_refused(f, "is another one now");
    body = "{}";
    expect_refused(f, "");
    assert_true(f->answer->claims[0]->value->error[0]);
    body = CLAIM(RESULT("gpu", "gpu-ab", "", PART));
    expect_refused(f, "request gpu has no shareID");
    body = CLAIM(RESULT("gpu", "gpu-ab", SHARE, "\"core\":\"30\""));
    expect_refused(f, "does not say what it consumes");
    body = CLAIM(RESULT("gpu", "gpu-ab", SHARE, "\"core\":\"130\",\"memory\":\"20Gi\""));
    expect_refused(f, "consumes 130 percent");
    body = CLAIM(RESULT("gpu", "gpu-ab", SHARE, "\"core\":\"30\",\"memory\":\"81Gi\""));
    expect_refused(f, "more memory than GPU 0 has");
    body = CLAIM("{\"request\":\"n\",\"driver\":\"nic\",\"pool\":\"x\",\"device\":\"y\"}");
    expect_refused(f, "no device of gpu.elasticgpu.io is allocated");
    body = CLAIM("{\"request\":\"gpu\",\"driver\":\"gpu.elasticgpu.io\",\"pool\":\"node-b\","
                 "\"device\":\"gpu-ab\"" SHARE ",\"consumedCapacity\":{" PART "}}");
    expect_refused(f, "is of pool node-b");
    body = GOOD;
    verdict = VERDICT_DENY;
    reason = "no room on the node's disk";
    expect_refused(f, reason);
    assert_int_equal(tries, 1);
    assert_int_equal(f->ready, 0);
}

/* A card that is gone can come back, so that it is waited for. */
static void a_card_that_is_gone(void **state) {
    struct fixture *f = *state;

    body = CLAIM(RESULT("gpu", "gpu-ef", SHARE, PART));
    begin(f, U1, "c1", 3000);
    finish(f);
    assert_non_null(
        strstr(f->answer->claims[0]->value->error, "device gpu-ef is not on this node"));
}

static struct gpu_device instance(const char *uuid) {
    struct gpu_device d = {
        .kind = GPU_MIG_INSTANCE,
        .index = 3,
        .memory = 40 * GIB,
        .healthy = true,
        .offer = GPU_OFFER_SHARES,
        .parent = "GPU-AB",
        .mig = {.profile = "3g.40gb", .ci_slices = 3, .gi_slices = 3, .card_slices = 7}};

    text_copy(d.uuid, sizeof(d.uuid), uuid);
    return d;
}

/* Its percent is of a card, and all of it is no part, so that the terms are those of the part. */
static void a_share_of_an_instance(void **state) {
    struct fixture *f = *state;

    snapshot.devices[0].divided = true;
    snapshot.devices[2] = instance("MIG-1");
    snapshot.devices[3] = instance("MIG-2");
    snapshot.ndevices = 4;
    body = HEAD(U1, "c1") SPEC STATUS(
        RESULT("all", "mig-2", SHARE, CORE("42")) "," RESULT("gpu", "mig-1", SHARE, PART),
        ",\"config\":[{\"source\":\"FromClaim\",\"requests\":[\"gpu\"],\"opaque\":{"
        "\"driver\":\"gpu.elasticgpu.io\",\"parameters\":{" PARAMETERS
        ",\"computePolicy\":\"burst\"}}}]");
    prepare(f);
    assert_string_equal(f->answer->claims[0]->value->error, "");
    assert_string_equal(asked_devices[1].uuid, "MIG-1");
    assert_int_equal(asked_devices[1].core, 30);
    assert_int_equal(asked.terms.policy, SHARE_BURST);
    body = CLAIM(RESULT("gpu", "mig-1", SHARE, "\"core\":\"30\",\"memory\":\"41Gi\""));
    expect_refused(f, "more memory than MIG instance 3 has");
    snapshot.devices[2].offer = GPU_OFFER_DEFAULT; /* kubelet gives it out */
    body = CLAIM(RESULT("gpu", "mig-1", SHARE, PART));
    begin(f, U1, "c1", 3000);
    finish(f);
    assert_non_null(strstr(f->answer->claims[0]->value->error, "is not given out in shares now"));
    body = CLAIM(RESULT("gpu", "gpu-ab", SHARE, PART)); /* its card was divided */
    begin(f, U1, "c1", 3000);
    finish(f);
    assert_non_null(strstr(f->answer->claims[0]->value->error, "is not given out in shares now"));
}

/* An allocation of a device that is given out whole has no shareID and no amounts. */
static void an_instance_is_made(void **state) {
    struct fixture *f = *state;

    snapshot.devices[0].divided = true;
    snapshot.devices[2] = instance("MIG-1");
    snapshot.ndevices = 3;
    wanted = 0;
    body = CLAIM(RESULT("gpu", "gpu-ab-3g-40gb-4", "", ""));
    begin(f, U1, "c1", 45000);
    RUN_UNTIL(&f->world, wanted == 2);
    made = true;
    finish(f);
    assert_non_null(strstr(f->answer->claims[0]->value->error, "has no shareID"));
    whole = true;
    prepare(f);
    assert_string_equal(f->answer->claims[0]->value->error, "");
    assert_string_equal(f->answer->claims[0]->value->devices[0]->device_name, "gpu-ab-3g-40gb-4");
    assert_string_equal(asked_devices[0].uuid, "MIG-1");
    assert_int_equal(asked_devices[0].core, 42);
    assert_int_equal(asked_devices[0].memory, 40 * GIB);
    made = false;
    begin(f, U1, "c1", 3000);
    finish(f);
    assert_non_null(strstr(f->answer->claims[0]->value->error, "it is not made yet"));
}

static void one_share_for_a_container(void **state) {
    struct fixture *f = *state;
    struct container_request *request = &pod.pod.request.containers[0];

    body = GOOD;
    text_copy(request->container, sizeof(request->container), "side");
    pod.pod.request.n = 1;
    expect_refused(f, "container side uses ResourceClaim c1 and requests a share");
    text_copy(request->container, sizeof(request->container), "another");
    prepare(f);
    assert_string_equal(f->answer->claims[0]->value->error, "");
}

/* The first pod of the claim may be fine. */
static void every_pod_of_the_claim_is_checked(void **state) {
    struct container_request *request = &second.pod.request.containers[0];
    struct fixture *f = *state;
    struct pod_claim_use use = {"late", "c1"};

    body = HEAD(U1, "c1") SPEC
        "\"status\":{\"reservedFor\":["
        "{\"resource\":\"pods\",\"name\":\"p\",\"uid\":\"p1\"},"
        "{\"resource\":\"pods\",\"name\":\"q\",\"uid\":\"p2\"}],"
        "\"allocation\":{\"devices\":{\"results\":[" RESULT("gpu", "gpu-ab", SHARE, PART) "]}}}}";
    memset(&second, 0, sizeof(second));
    text_copy(second.pod.uid, sizeof(second.pod.uid), "p2");
    second.uses = &use;
    second.nuses = 1;
    text_copy(request->container, sizeof(request->container), "late");
    second.pod.request.n = 1;
    expect_refused(f, "container late uses ResourceClaim c1 and requests a share");
    second.pod.request.n = 0;
    prepare(f);
    assert_string_equal(f->answer->claims[0]->value->error, "");
    memset(&second, 0, sizeof(second));
}

static void two_claims_of_a_container(void **state) {
    _cleanup_buf_ struct buf request = BUF_INIT(4096);
    struct fixture *f = *state;

    body = GOOD; /* for c2 it is another claim's */
    put_claim(&request, "ns", U1, "c1");
    put_claim(&request, "ns", U2, "c2");
    begin_call(&f->world, f->world.plugin, SERVICE "NodePrepareResources", &request, 45000);
    finish(f);
    assert_int_equal(f->answer->n_claims, 2); /* each has its own entry */
    assert_string_equal(f->answer->claims[0]->value->error, "");
    assert_non_null(strstr(f->answer->claims[1]->value->error, "is another one now"));
    drop_answer(f);
    text_copy(pod.uses[2].container, sizeof(pod.uses[2].container), "main");
    begin_call(&f->world, f->world.plugin, SERVICE "NodePrepareResources", &request, 45000);
    finish(f);
    assert_non_null(
        strstr(f->answer->claims[0]->value->error, "container main uses ResourceClaims c1 and c2"));
}

static void names_that_are_none(void **state) {
    struct fixture *f = *state;
    static const char *const bad[][3] = {
        {"ns", "not-a-uid", "c1"}, {"ns", U1, "../../pods"}, {"ns", U1, ""},
        {"n/s", U1, "c1"},         {"", U1, "c1"},           {"ns", U1, "c1?x=y"}};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        _cleanup_buf_ struct buf request = BUF_INIT(4096);

        put_claim(&request, bad[i][0], bad[i][1], bad[i][2]);
        begin_call(&f->world, f->world.plugin, SERVICE "NodePrepareResources", &request, 45000);
        finish(f);
        assert_string_equal(f->answer->claims[0]->key, bad[i][1]);
        assert_non_null(strstr(f->answer->claims[0]->value->error, "kubelet names no"));
        drop_answer(f);
    }
    assert_int_equal(reads, 0);
}

#define CONFIG(parameters)                                                                         \
    HEAD(U1, "c1")                                                                                 \
    SPEC STATUS(RESULT("gpu", "gpu-ab", SHARE, PART),                                              \
                ",\"config\":[{\"source\":\"FromClaim\",\"opaque\":{\"driver\":"                   \
                "\"gpu.elasticgpu.io\",\"parameters\":" parameters "}}]")

static void terms_of_a_claim(void **state) {
    struct fixture *f = *state;

    body = CONFIG("{" PARAMETERS ",\"computePolicy\":\"burst\",\"weight\":9,\"ceiling\":60}");
    prepare(f);
    assert_string_equal(f->answer->claims[0]->value->error, "");
    assert_int_equal(asked.terms.policy, SHARE_BURST);
    assert_int_equal(asked.terms.weight, 9);
    assert_int_equal(asked.terms.ceiling, 60);
    body = CONFIG("{" PARAMETERS ",\"computePolicy\":\"online\"}");
    expect_refused(f, "does not let pods choose computePolicy 'online'");
    body = CONFIG("{" PARAMETERS ",\"computePolicy\":\"fast\"}");
    expect_refused(f, "computePolicy 'fast' is not known");
    body = CONFIG("{" PARAMETERS ",\"wieght\":9}");
    expect_refused(f, "wieght");
}

/* The terms are those of the part of a card, also beside a whole one and beside memory only. */
static void terms_of_different_amounts(void **state) {
    struct fixture *f = *state;

    body = HEAD(U1, "c1") SPEC STATUS(
        RESULT("all", "gpu-cd", SHARE, CORE("100")) "," RESULT("gpu", "gpu-ab", SHARE, PART),
        ",\"config\":[{\"source\":\"FromClaim\",\"requests\":[\"gpu\"],\"opaque\":{"
        "\"driver\":\"gpu.elasticgpu.io\",\"parameters\":{" PARAMETERS
        ",\"computePolicy\":\"burst\",\"weight\":9}}}]");
    prepare(f);
    assert_int_equal(asked.terms.policy, SHARE_BURST);
    assert_int_equal(asked.terms.weight, 9);
    body = CLAIM(RESULT("m", "gpu-cd", SHARE, CORE("0")) "," RESULT("gpu", "gpu-ab", SHARE, PART));
    prepare(f);
    assert_int_equal(asked.terms.policy, SHARE_FIXED);
    body = CLAIM(
        RESULT("m", "gpu-cd", SHARE, CORE("100")) "," RESULT("gpu", "gpu-ab", SHARE, CORE("0")));
    prepare(f);
    assert_int_equal(asked.terms.policy, SHARE_BEST_EFFORT);
}

/* kubelet does not wait any more: nothing is left of the call. */
static void kubelet_goes_away(void **state) {
    struct fixture *f = *state;

    body = GOOD;
    verdict = VERDICT_WAIT;
    reason = "still held";
    begin(f, U1, "c1", 2500);
    RUN_UNTIL(&f->world, tries > 0);
    assert_int_equal(dra_prepare_waiting(&f->prepares), 1);
    dra_plugin_close(f->plugin, on_closed, f);
    RUN_UNTIL(&f->world, f->closed && dra_prepare_waiting(&f->prepares) == 0);
    f->closed = false;
    start_plugin(f); /* for the teardown */
}

static void unprepare_ends_the_share(void **state) {
    _cleanup_buf_ struct buf request = BUF_INIT(4096);
    Draplugin__NodeUnprepareResourcesResponse *m;
    struct fixture *f = *state;

    has_a_share(f);
    put_claim(&request, "ns", U1, "c1");
    put_claim(&request, "ns", U2, "never-prepared");
    put_claim(&request, "ns", "odd", "odd");
    for (int i = 0; i < 2; i++) { /* kubelet may repeat it */
        call(&f->world, f->world.plugin, SERVICE "NodeUnprepareResources", &request);
        m = draplugin__node_unprepare_resources_response__unpack(NULL, f->world.size,
                                                                 f->world.reply);
        assert_non_null(m);
        assert_int_equal(m->n_claims, 3);
        for (size_t k = 0; k < 3; k++)
            assert_string_equal(m->claims[k]->value->error, "");
        draplugin__node_unprepare_resources_response__free_unpacked(m, NULL);
    }
    RUN_UNTIL(&f->world, !f->shares.slots.slots);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_claim_is_prepared, setup, teardown),
        cmocka_unit_test_setup_teardown(no_new_claims, setup, teardown),
        cmocka_unit_test_setup_teardown(several_results, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_late_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(the_reason_of_a_wait_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(what_does_not_pass_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_card_that_is_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_share_of_an_instance, setup, teardown),
        cmocka_unit_test_setup_teardown(an_instance_is_made, setup, teardown),
        cmocka_unit_test_setup_teardown(one_share_for_a_container, setup, teardown),
        cmocka_unit_test_setup_teardown(every_pod_of_the_claim_is_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(two_claims_of_a_container, setup, teardown),
        cmocka_unit_test_setup_teardown(names_that_are_none, setup, teardown),
        cmocka_unit_test_setup_teardown(terms_of_a_claim, setup, teardown),
        cmocka_unit_test_setup_teardown(terms_of_different_amounts, setup, teardown),
        cmocka_unit_test_setup_teardown(kubelet_goes_away, setup, teardown),
        cmocka_unit_test_setup_teardown(unprepare_ends_the_share, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
