/* SPDX-License-Identifier: Apache-2.0 */

/* What the scheduler writes beside Bindings: the gpu_status into GPU objects, the signing key. */

#include "scheduler-world.h"

#include "scheduler/cluster/key_ages.h"
#include "scheduler/cluster/keys.h"
#include "scheduler/daemon/requeue.h"
#include "wire/json_write.h"

static void observe_patch(struct world *w, const char *uuid_node, unsigned index,
                          const char *observed) {
    struct gpu_object gpu = {.index = index, .memory = 80 * GIB, .healthy = true};
    snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", uuid_node, index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", uuid_node, index);
    snprintf(gpu.node, sizeof(gpu.node), "%s", uuid_node);
    assert_int_equal(state_gpu_seen(w->state, &gpu, observed), 0);
}

#define FREE_ALL                                                                                   \
    "{\"allocatable\":{\"elasticgpu.io/gpu-core\":\"100\",\"elasticgpu.io/gpu-memory\":\"80Gi\"}," \
    "\"allocated\":{}}"
#define HALF_USED                                                                                  \
    "{\"allocatable\":{\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"40Gi\"},"  \
    "\"allocated\":{\"a\":{\"containers\":[{\"container\":\"main\",\"resource\":"                  \
    "{\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"40Gi\"}}],"                 \
    "\"namespace\":\"d\",\"pod\":\"pod-a\"}}}"

/* Carries out what is sent until nothing more is; returns how many patches that were. */
static unsigned patch_all(struct world *w) {
    unsigned n = 0;
    for (;;) {
        gpu_status_run(&w->gpu_status, w->parser);
        if (w->nasked == 0)
            return n;
        for (; w->nasked > 0; n++)
            respond(w, 0, 500, false, NULL); /* so that it stays to be done */
    }
}

/* However much there is to say of the cards, Bindings come first. */
static void test_projection_is_bounded(void **state) {
    struct world *w = *state;
    for (unsigned n = 0; n < 20; n++) {
        char node[16];
        snprintf(node, sizeof(node), "n%02u", n);
        show_node(w, node, 8);
    }
    assert_in_range(patch_all(w), 30, 50);
    w->now += 1000;
    assert_in_range(patch_all(w), 3, 8);
    w->now += 100000;
    assert_in_range(patch_all(w), 30, 50); /* what was not used for long is not saved up */
}

/* However many nodes there are, each is visited within seconds, whatever becomes of the patches. */
static void test_projection_comes_round(void **state) {
    struct world *w = *state;
    for (unsigned n = 0; n < 400; n++) {
        char node[16];
        snprintf(node, sizeof(node), "n%03u", n);
        show_node(w, node, 1);
    }
    unsigned sent = patch_all(w);
    for (int second = 0; second < 20; second++) {
        w->now += 1000;
        sent += patch_all(w);
    }
    assert_in_range(sent, 400, 600);
    for (struct state_node *n = w->state->nodes; n; n = n->hh.next)
        assert_int_not_equal(n->cards[0]->projected_ms, 0);
}

static void test_projection(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 1);
    observe_patch(w, "n", 0, FREE_ALL);
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    run_pod(w, "a", HALF, "n", &notes);
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 1);
    assert_string_equal(w->asked[0].method, "PATCH");
    assert_string_equal(w->asked[0].path, "/apis/elasticgpu.io/v1alpha1/gpus/n-00/status");
    assert_string_equal(buf_str(&w->asked[0].body), "{\"status\":" HALF_USED "}");
    gpu_status_run(&w->gpu_status, w->parser); /* not twice */
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    gpu_status_run(&w->gpu_status, w->parser); /* the watch has not shown it yet */
    assert_int_equal(w->nasked, 0);
    observe_patch(w, "n", 0, HALF_USED);
    w->now += 60000;
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    /* A user edits it: repaired. */
    observe_patch(w, "n", 0, "{\"allocatable\":null,\"allocated\":{\"b\":{\"pod\":\"x\"}}}");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_non_null(strstr(buf_str(&w->asked[0].body), "\"b\":null,\"a\":{"));
    respond(w, 0, 500, false, NULL);
    w->now += 60000;
    gpu_status_run(&w->gpu_status, w->parser); /* and again after a failure */
    respond(w, 0, 200, false, NULL);
    observe_patch(w, "n", 0, HALF_USED);
    state_pod_gone(w->state, "a");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_string_equal(buf_str(&w->asked[0].body),
                        "{\"status\":{\"allocatable\":{\"elasticgpu.io/gpu-core\":\"100\","
                        "\"elasticgpu.io/gpu-memory\":\"80Gi\"},\"allocated\":{\"a\":null}}}");
    respond(w, 0, 200, false, NULL);
    observe_patch(w, "n", 0, FREE_ALL);
}

/* ---- gates ---- */

static void test_gates(void **state) {
    struct gates gates = {0};
    (void) state;
    for (size_t i = 0; i + 1 < GATES_MAX; i++)
        assert_int_equal(gates_add(&gates, &(struct gate){.name = "later"}, false), 0);
    assert_int_equal(gates_add(&gates, &(struct gate){.name = "first"}, true), 0);
    assert_string_equal(gates.rows[0].name, "first");
    assert_string_equal(gates.rows[1].name, "later");
    assert_int_equal(gates_add(&gates, &(struct gate){.name = "none"}, false), -ENOSPC);
    assert_int_equal(gates.n, GATES_MAX);
}

/* A selector that a full table does not take is said, with an errno. */
static void test_selectors(void **state) {
    struct world *w = *state;
    const struct state_selector selector = {.name = "test"};
    size_t added = 0;
    while (state_add_selector(w->state, &selector) == 0)
        added++;
    assert_in_range(added, 1, STATE_SELECTORS_MAX);
    assert_int_equal(state_add_selector(w->state, &selector), -ENOSPC);
}

/* ---- waking kube-scheduler ---- */

static void start_requeue(struct world *w, struct requeue *requeue) {
    *requeue = (struct requeue){.state = w->state, .api = {fake_request, w}, .name_space = "sys"};
}

static void check_woken(struct world *w, struct requeue *requeue, bool expected) {
    w->now += 2000;
    requeue_run(requeue, w->now);
    assert_int_equal(w->nasked, expected);
    if (!expected)
        return;
    assert_non_null(strstr(w->asked[0].path, "/namespaces/sys/csistoragecapacities/aliquot-wake"));
    requeue_run(requeue, w->now + 5000); /* one at a time */
    assert_int_equal(w->nasked, 1);
}

static void test_wake(void **state) {
    struct world *w = *state;
    struct requeue requeue;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    start_requeue(w, &requeue);
    show_node(w, "n", 1);
    show_node(w, "tainted", 1); /* has room, but kube-scheduler does not offer it */
    run_pod(w, "a", WHOLE, "n", &notes);
    show_pod(w, "b", WHOLE, NULL, "");
    check_woken(w, &requeue, false);
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '-');
    for (int i = 0; i < 3; i++)
        check_woken(w, &requeue, false);
    /* kube-scheduler saw the end of a before we did, and asked too early */
    state_pod_gone(w->state, "a");
    check_woken(w, &requeue, true);
    respond(w, 0, 500, false, NULL);
    check_woken(w, &requeue, true); /* once more, since it failed */
    respond(w, 0, 200, false, NULL);
    check_woken(w, &requeue, false);
    assert_string_equal(filter(w, "b", WHOLE, "\"n\""), "n");
    check_woken(w, &requeue, false);
}

/* However many kinds of pods wait before it, each pod has its turn. */
static void test_wake_behind_many_shapes(void **state) {
    struct world *w = *state;
    struct requeue requeue;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    char uid[16], resources[128];
    start_requeue(w, &requeue);
    show_node(w, "n", 2);
    run_pod(w, "a", WHOLE, "n", &a);
    run_pod(w, "b", WHOLE, "n", &b);
    for (int i = 0; i < 80; i++) {
        snprintf(uid, sizeof(uid), "q%d", i);
        snprintf(resources, sizeof(resources),
                 "\"elasticgpu.io/gpu-core\":\"200\",\"elasticgpu.io/gpu-memory\":\"%dGi\"", i + 1);
        show_pod(w, uid, resources, NULL, "");
        assert_int_equal(filter(w, uid, resources, "\"n\"")[0], '-');
    }
    assert_int_equal(filter(w, "z", TENTH, "\"n\"")[0], '-');
    state_pod_gone(w->state, "a"); /* z fits, the others want both cards */
    check_woken(w, &requeue, false);
    state_refresh_all(w->state);
    state_node_find(w->state, "n")->version = ++w->state->version; /* things go on meanwhile */
    check_woken(w, &requeue, false);
    check_woken(w, &requeue, true);
    respond(w, 0, 200, false, NULL);
}

static void test_wake_when_a_card_recovers(void **state) {
    struct world *w = *state;
    struct requeue requeue;
    start_requeue(w, &requeue);
    show_node(w, "n", 1);
    show_gpu(w, "n", 0, false);
    show_pod(w, "a", HALF, NULL, "");
    show_pod(w, "b", TENTH, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-no GPU of the node is healthy");
    show_gpu(w, "n", 0, true);
    check_woken(w, &requeue, true);
    respond(w, 0, 200, false, NULL);
    state_pod_gone(w->state, "a");
    check_woken(w, &requeue, false);
}

/* ---- the signing key ---- */

struct keys_result {
    struct signing_key *key;
    struct signing_verifier *verifier;
    char error[512];
    int calls;
};

static void on_keys(struct signing_key *key, struct signing_verifier *verifier, const char *error,
                    void *userdata) {
    struct keys_result *r = userdata;
    r->key = key;
    r->verifier = verifier;
    snprintf(r->error, sizeof(r->error), "%s", error ? error : "");
    r->calls++;
}

static void keys_result_done(struct keys_result *r) {
    signing_key_free(r->key);
    signing_verifier_free(r->verifier);
}

/* The text of a member of data or stringData that was sent. */
static void sent_text(struct world *w, const char *map, const char *key, struct buf *out) {
    struct json root;
    const struct buf *body = &w->asked[0].body;
    assert_int_equal(json_parse(w->parser, body->data, body->len, &root, NULL), 0);
    const char *text = json_string(JSON_PATH(root, map, key));
    assert_non_null(text);
    buf_puts(out, text);
}

static void put_base64_secret(struct buf *out, const struct signing_key *key) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    _cleanup_buf_ struct buf pem = BUF_INIT(0);
    struct err err;
    assert_int_equal(signing_key_save(key, &pem, &err), 0);
    buf_puts(out, "{\"data\":{\"private.pem\":\"");
    for (size_t i = 0; i < pem.len; i += 3) {
        unsigned n = 0;
        for (size_t j = 0; j < 3; j++)
            n = n << 8 | (i + j < pem.len ? (unsigned char) pem.data[i + j] : 0);
        for (unsigned j = 0; j < 4; j++)
            buf_putc(out, i + j <= pem.len ? digits[n >> (18 - 6 * j) & 63] : '=');
    }
    buf_puts(out, "\"}}");
}

static void test_keys_made(void **state) {
    struct world *w = *state;
    struct keys_result r = {0};
    const struct api api = {fake_request, w};
    _cleanup_buf_ struct buf pem = BUF_INIT(0), public = BUF_INIT(0);
    keys_start(&api, "sys", NULL, on_keys, &r);
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/sys/secrets/aliquot-signing");
    respond(w, 0, 404, false, NULL);
    sent_text(w, "stringData", "private.pem", &pem);
    buf_done(&w->asked[0].body);
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/sys/configmaps/aliquot-signing");
    respond(w, 0, 404, false, NULL);
    sent_text(w, "data", "public.pem", &public);
    assert_non_null(strstr(buf_str(&public), "BEGIN PUBLIC KEY"));
    respond(w, 0, 201, false, NULL);
    assert_true(r.calls == 1 && r.key && r.verifier && r.error[0] == '\0');
    keys_result_done(&r);
}

static void test_keys_race_and_older_key(void **state) {
    struct world *w = *state;
    struct keys_result r = {0};
    const struct api api = {fake_request, w};
    _cleanup_buf_ struct buf secret = BUF_INIT(0), old = BUF_INIT(0), map = BUF_INIT(0);
    struct signing_key *older;
    struct err err;
    char signature[SIGNATURE_TEXT_MAX], by_older[SIGNATURE_TEXT_MAX];
    assert_int_equal(signing_key_generate(&older, &err), 0);
    assert_int_equal(signing_key_public(older, &old, &err), 0);
    put_base64_secret(&secret, w->key);
    keys_start(&api, "sys", NULL, on_keys, &r);
    respond(w, 0, 404, false, NULL);
    respond(w, 0, 409, false, NULL); /* another scheduler made it in between: its key counts */
    respond(w, 0, 200, false, buf_str(&secret));
    struct json_writer writer = {.out = &map};
    json_object_begin(&writer, NULL);
    json_object_begin(&writer, "data");
    json_put_string(&writer, "public.pem", buf_str(&old));
    json_object_end(&writer);
    json_object_end(&writer);
    respond(w, 0, 200, false, buf_str(&map));
    assert_string_equal(w->asked[0].method, "PATCH");
    respond(w, 0, 200, false, NULL);
    assert_true(r.calls == 1 && r.key);
    assert_int_equal(assignment_sign(w->key, "u", "n", "t", signature, &err), 0);
    assert_int_equal(assignment_sign(older, "u", "n", "t", by_older, &err), 0);
    assert_int_equal(assignment_verify(r.verifier, "u", "n", "t", signature, &err), 0);
    assert_int_equal(assignment_verify(r.verifier, "u", "n", "t", by_older, &err), 0);
    keys_result_done(&r);
    signing_key_free(older);
}

/* ---- old public keys ---- */

#define OLD_KEYS 3

/* Key pairs that were ours before w->key, newest first, and a ConfigMap that has all of them. */
struct old_keys {
    struct signing_key *keys[OLD_KEYS];
    struct buf pem[OLD_KEYS], own, secret;
    uint64_t dropped; /* bit i: keys[i] is old */
    unsigned asked;
};

static void old_keys_start(struct world *w, struct old_keys *o) {
    struct err err;
    *o = (struct old_keys){.own = BUF_INIT(0), .secret = BUF_INIT(0)};
    assert_int_equal(signing_key_public(w->key, &o->own, &err), 0);
    put_base64_secret(&o->secret, w->key);
    for (int i = 0; i < OLD_KEYS; i++) {
        o->pem[i] = BUF_INIT(0);
        assert_int_equal(signing_key_generate(&o->keys[i], &err), 0);
        assert_int_equal(signing_key_public(o->keys[i], &o->pem[i], &err), 0);
    }
}

static void old_keys_done(struct old_keys *o) {
    buf_done(&o->own);
    buf_done(&o->secret);
    for (int i = 0; i < OLD_KEYS; i++) {
        signing_key_free(o->keys[i]);
        buf_done(&o->pem[i]);
    }
}

static void put_keys(struct buf *out, const struct old_keys *o, const char *which) {
    for (; *which; which++)
        buf_puts(out, *which == 'o' ? buf_str(&o->own) : buf_str(&o->pem[*which - '0']));
}

/* Answers the reading of the ConfigMap: `which` has a letter for each key, 'o' or a digit. */
static void answer_keys(struct world *w, const struct old_keys *o, const char *which,
                        const char *version) {
    _cleanup_buf_ struct buf pem = BUF_INIT(0), map = BUF_INIT(0);
    struct json_writer writer = {.out = &map};
    assert_string_equal(w->asked[0].method, "GET");
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/sys/configmaps/aliquot-signing");
    put_keys(&pem, o, which);
    json_object_begin(&writer, NULL);
    json_object_begin(&writer, "metadata");
    json_put_string(&writer, "resourceVersion", version);
    json_object_end(&writer);
    json_object_begin(&writer, "data");
    json_put_string(&writer, "public.pem", buf_str(&pem));
    json_object_end(&writer);
    json_object_end(&writer);
    respond(w, 0, 200, false, buf_str(&map));
}

/* What is being written to the ConfigMap, if it is still of that version. */
static void check_written(struct world *w, const struct old_keys *o, const char *which,
                          const char *version) {
    _cleanup_buf_ struct buf want = BUF_INIT(0), sent = BUF_INIT(0), of = BUF_INIT(0);
    put_keys(&want, o, which);
    assert_int_equal(w->nasked, 1);
    assert_string_equal(w->asked[0].method, "PATCH");
    sent_text(w, "data", "public.pem", &sent);
    sent_text(w, "metadata", "resourceVersion", &of);
    assert_string_equal(buf_str(&sent), buf_str(&want));
    assert_string_equal(buf_str(&of), version);
}

struct old_keys_result {
    struct keys_result result; /* first, for on_keys() */
    struct old_keys old;
};

static bool is_old(uint64_t id, void *userdata) {
    struct old_keys *o = &((struct old_keys_result *) userdata)->old;
    o->asked++;
    for (int i = 0; i < OLD_KEYS; i++)
        if (signing_key_id(o->keys[i]) == id)
            return o->dropped >> i & 1;
    fail_msg("asked about a key that always stays");
    return true;
}

static void read_keys(struct world *w, struct old_keys_result *r) {
    const struct api api = {fake_request, w};
    keys_start(&api, "sys", is_old, on_keys, r);
    respond(w, 0, 200, false, buf_str(&r->old.secret));
}

static void check_done(struct old_keys_result *r, unsigned nkeys) {
    assert_int_equal(r->result.calls, 1);
    assert_string_equal(r->result.error, "");
    assert_int_equal(signing_verifier_count(r->result.verifier), nkeys);
    keys_result_done(&r->result);
    r->result = (struct keys_result){0};
}

static void test_old_public_keys_are_taken_out(void **state) {
    struct world *w = *state;
    struct old_keys_result r = {0};
    old_keys_start(w, &r.old);
    r.old.dropped = 1 << 0 | 1 << 2;
    read_keys(w, &r);
    answer_keys(w, &r.old, "o012", "7");
    check_written(w, &r.old, "o1", "7");
    respond(w, 0, 200, false, NULL);
    check_done(&r, 2);
    read_keys(w, &r); /* nothing is left to do, nor to write */
    answer_keys(w, &r.old, "o1", "8");
    assert_int_equal(w->nasked, 0);
    check_done(&r, 2);
    old_keys_done(&r.old);
}

/* What another replica or an operator has written in between is what counts. */
static void test_keys_that_change_meanwhile_are_read_again(void **state) {
    struct world *w = *state;
    struct old_keys_result r = {0};
    old_keys_start(w, &r.old);
    r.old.dropped = 1 << 0 | 1 << 1;
    read_keys(w, &r);
    answer_keys(w, &r.old, "o0", "7");
    check_written(w, &r.old, "o", "7");
    r.old.dropped = 1 << 1; /* a pod by the first has been seen */
    respond(w, 0, 409, false, NULL);
    answer_keys(w, &r.old, "o021", "9");
    check_written(w, &r.old, "o02", "9");
    respond(w, 0, 200, false, NULL);
    check_done(&r, 3);
    read_keys(w, &r);
    answer_keys(w, &r.old, "o1", "10");
    respond(w, 0, 0, true, NULL); /* no answer: it may have been written or not */
    assert_int_equal(r.result.calls, 1);
    assert_null(r.result.key);
    r.result = (struct keys_result){0};
    read_keys(w, &r);
    answer_keys(w, &r.old, "o", "11");
    check_done(&r, 1);
    old_keys_done(&r.old);
}

/* is_old() fails when it is asked about our own. */
static void test_our_own_and_the_newest_key_stay(void **state) {
    struct world *w = *state;
    struct old_keys_result r = {0};
    old_keys_start(w, &r.old);
    r.old.dropped = UINT64_MAX;
    read_keys(w, &r);
    answer_keys(w, &r.old, "0o1o", "7"); /* another replica's key is newer than ours */
    check_written(w, &r.old, "0oo", "7");
    respond(w, 0, 200, false, NULL);
    check_done(&r, 3);
    assert_int_equal(r.old.asked, 1);
    read_keys(w, &r);
    answer_keys(w, &r.old, "0", "8"); /* ours was taken out by hand */
    check_written(w, &r.old, "o", "8");
    respond(w, 0, 200, false, NULL);
    check_done(&r, 1);
    old_keys_done(&r.old);
}

#define ASSIGNED                                                                                   \
    "\"node\":\"n\",\"containers\":{\"main\":[{\"index\":0,"                                       \
    "\"uuid\":\"GPU-n-0\",\"core\":10,\"memory\":1073741824}]}}"

/* Signs the text for the pod as a scheduler with that key would have. */
static void show_signed_text(struct world *w, const char *uid, const struct signing_key *key,
                             const char *text) {
    _cleanup_buf_ struct buf members = BUF_INIT(0);
    struct json_writer writer = {.out = &members};
    char signature[SIGNATURE_TEXT_MAX];
    struct err err;
    assert_int_equal(assignment_sign(key, uid, "n", text, signature, &err), 0);
    json_put_string(&writer, ANNOTATION_ASSIGNMENT, text);
    json_put_string(&writer, ANNOTATION_SIGNATURE, signature);
    show_pod(w, uid, TENTH, "n", buf_str(&members));
}

static void show_signed(struct world *w, const char *uid, const struct signing_key *key) {
    show_signed_text(w, uid, key, "{\"v\":1," ASSIGNED);
}

/* What a scheduler of a later version has given out is not given out again. */
static void test_an_assignment_of_a_later_version_is_counted(void **state) {
    struct world *w = *state;
    show_signed_text(w, "later", w->key, "{\"v\":2,\"more\":{}," ASSIGNED);
    assert_int_equal(state_pod_find(w->state, "later")->nallocations, 1);
    assert_int_equal(state_pod_find(w->state, "later")->allocations[0].device.core, 10);
}

static struct signing_verifier *verifier_of(const struct old_keys *o, const char *which) {
    _cleanup_buf_ struct buf pem = BUF_INIT(0);
    struct signing_verifier *v;
    struct err err;
    put_keys(&pem, o, which);
    assert_int_equal(signing_verifier_load(pem.data, pem.len, &v, &err), 0);
    return v;
}

static void use_keys(struct world *w, const struct old_keys *o, const char *which) {
    signing_verifier_free(w->verifier);
    w->verifier = verifier_of(o, which);
}

/* '0' to '2' of those that are old after a note at this moment. */
static const char *old_after(struct world *w, const struct old_keys *o, struct key_ages *ages,
                             uint64_t ms) {
    static char out[OLD_KEYS + 1];
    size_t n = 0;
    w->now += ms;
    key_ages_note(ages, w->verifier, signing_key_id(w->key), w->state, w->now);
    assert_false(key_ages_is_old(ages, signing_key_id(w->key), w->now));
    for (int i = 0; i < OLD_KEYS; i++)
        if (key_ages_is_old(ages, signing_key_id(o->keys[i]), w->now))
            out[n++] = (char) ('0' + i);
    out[n] = '\0';
    return out;
}

static void test_a_key_is_old_some_minutes_after_its_last_pod(void **state) {
    struct world *w = *state;
    struct key_ages ages = {0};
    struct old_keys o;
    old_keys_start(w, &o);
    use_keys(w, &o, "o012");
    show_node(w, "n", 1);
    show_signed(w, "a", o.keys[0]);
    show_signed(w, "b", o.keys[1]);
    show_signed(w, "c", o.keys[1]);
    assert_string_equal(old_after(w, &o, &ages, 0), "");
    assert_string_equal(old_after(w, &o, &ages, KEY_IDLE_MS - 1), "");
    assert_string_equal(old_after(w, &o, &ages, 1), "2"); /* added by hand, or long without a pod */
    state_pod_gone(w->state, "b");
    assert_string_equal(old_after(w, &o, &ages, 2 * KEY_IDLE_MS), "2");
    state_pod_gone(w->state, "c");
    assert_string_equal(old_after(w, &o, &ages, 1), "2");
    assert_string_equal(old_after(w, &o, &ages, KEY_IDLE_MS - 1), "2");
    show_signed(w, "d", o.keys[1]); /* was bound all the time */
    assert_string_equal(old_after(w, &o, &ages, 1), "2");
    state_pod_gone(w->state, "d");
    assert_string_equal(old_after(w, &o, &ages, 1), "2");
    assert_string_equal(old_after(w, &o, &ages, KEY_IDLE_MS), "12");
    ages = (struct key_ages){0}; /* another process, or another replica */
    assert_string_equal(old_after(w, &o, &ages, 0), "");
    old_keys_done(&o);
}

/* What was verified once stays, and so does its key; a pod that has grown has another. */
static void test_a_key_is_in_use_for_what_is_held_by_it(void **state) {
    struct world *w = *state;
    struct key_ages ages = {0};
    struct old_keys o;
    old_keys_start(w, &o);
    use_keys(w, &o, "o01");
    show_node(w, "n", 1);
    show_signed(w, "a", o.keys[0]);
    show_signed(w, "b", o.keys[1]);
    show_pod(w, "a", TENTH, "n", ""); /* rewritten by a tenant */
    show_signed(w, "b", w->key);
    assert_string_equal(old_after(w, &o, &ages, 0), "");
    assert_string_equal(old_after(w, &o, &ages, KEY_IDLE_MS), "1");
    old_keys_done(&o);
}

/* A Binding that was sent counts from then on, also under a newer key. */
static void test_a_binding_that_is_not_answered_uses_its_key(void **state) {
    struct world *w = *state;
    struct key_ages ages = {0};
    struct old_keys o;
    old_keys_start(w, &o);
    use_keys(w, &o, "o0");
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    w->binder.key = o.keys[0];
    bind_pod(w, "a", "n");
    w->binder.key = w->key;
    assert_string_equal(old_after(w, &o, &ages, 0), "");
    assert_string_equal(old_after(w, &o, &ages, KEY_IDLE_MS), "");
    respond(w, 0, 422, false, NULL); /* it is not bound */
    assert_string_equal(old_after(w, &o, &ages, 0), "");
    assert_string_equal(old_after(w, &o, &ages, KEY_IDLE_MS), "0");
    old_keys_done(&o);
}

/* A replica that did not act may see pods of a new key before the key. */
static void test_pods_are_verified_again_by_a_key_that_comes_late(void **state) {
    struct world *w = *state;
    struct old_keys o;
    old_keys_start(w, &o);
    show_node(w, "n", 1);
    show_signed(w, "a", o.keys[0]);
    show_signed(w, "b", o.keys[1]);
    show_signed(w, "c", w->key);
    assert_int_equal(w->state->forged, 2);
    assert_int_equal(free_core(w, "n", 0), 90);
    use_keys(w, &o, "0o");
    show_signed(w, "a", o.keys[0]);
    assert_int_equal(free_core(w, "n", 0), 90);
    assert_int_equal(state_recheck(w->state), 2);
    show_signed(w, "a", o.keys[0]);
    show_signed(w, "b", o.keys[1]);
    assert_int_equal(free_core(w, "n", 0), 80);
    assert_int_equal(w->state->forged, 2);
    old_keys_done(&o);
}

static void test_keys_errors(void **state) {
    struct world *w = *state;
    struct keys_result r = {0};
    const struct api api = {fake_request, w};
    keys_start(&api, "sys", NULL, on_keys, &r);
    respond(w, 0, 403, false, NULL);
    assert_true(r.calls == 1 && !r.key && strstr(r.error, "Secret"));
    keys_start(&api, "sys", NULL, on_keys, &r);
    respond(w, 0, 200, false, "{\"data\":{}}");
    assert_true(r.calls == 2 && !r.key && strstr(r.error, "private.pem"));
    keys_start(&api, "sys", NULL, on_keys, &r);
    respond(w, 0, 200, false, "{\"data\":{\"private.pem\":\"aGVsbG8=\"}}");
    assert_true(r.calls == 3 && !r.key);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_projection),
        T(test_projection_is_bounded),
        T(test_projection_comes_round),
        T(test_gates),
        T(test_selectors),
        T(test_wake),
        T(test_wake_behind_many_shapes),
        T(test_wake_when_a_card_recovers),
        T(test_keys_made),
        T(test_keys_race_and_older_key),
        T(test_keys_errors),
        T(test_old_public_keys_are_taken_out),
        T(test_keys_that_change_meanwhile_are_read_again),
        T(test_our_own_and_the_newest_key_stay),
        T(test_a_key_is_old_some_minutes_after_its_last_pod),
        T(test_a_key_is_in_use_for_what_is_held_by_it),
        T(test_a_binding_that_is_not_answered_uses_its_key),
        T(test_pods_are_verified_again_by_a_key_that_comes_late),
        T(test_an_assignment_of_a_later_version_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
