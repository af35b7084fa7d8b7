/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon without an API server: what it does when the Lease comes to it, and what becomes of
 * its writes. The client of the API server is this file. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "kube/api/client.h"
#include "kube/objects/signing.h"
#include "scheduler/daemon/scheduler.h"
#include "scheduler/daemon/watch_kinds.h"
#include "scheduler/pages/pages.h"
#include "wire/json.h"
#include "wire/json_write.h"

/* ---- the client ---- */

struct kube_client {
    int unused;
};

struct kube_reflector {
    char path[128];
    struct kube_reflector_handlers handlers;
    void *userdata;
    unsigned relists;
};

static struct kube_client the_client;
static struct kube_reflector reflectors[WATCHES_MAX];
static size_t nreflectors;
static struct sent {
    char path[512];
    unsigned timeout_ms;
    kube_response_cb on_response;
    void *userdata;
} last;                  /* request */
static struct sent keys; /* the last one for the signing key */
static char keys_body[4096];
static unsigned woken; /* how often kube-scheduler was */
static int refuse;     /* what kube_request() answers */
static bool broken;    /* the watches are */

int kube_config_load(const char *server, const char *token_file, const char *ca_file,
                     struct kube_config *ret, struct err *err) {
    (void) server;
    (void) token_file;
    (void) ca_file;
    (void) ret;
    (void) err;
    return 0;
}

void kube_config_done(struct kube_config *config) {
    (void) config;
}

int kube_client_new(uv_loop_t *loop, const struct kube_config *config, struct kube_client **ret,
                    struct err *err) {
    (void) loop;
    (void) config;
    (void) err;
    *ret = &the_client;
    return 0;
}

void kube_client_close(struct kube_client *client, void (*on_closed)(void *userdata),
                       void *userdata) {
    (void) client;
    (void) on_closed;
    (void) userdata;
}

int kube_request(struct kube_client *client, const char *method, const char *path,
                 const char *content_type, const char *body, size_t size, unsigned timeout_ms,
                 kube_response_cb on_response, void *userdata, struct kube_call **ret_call,
                 struct err *err) {
    (void) client;
    (void) content_type;
    (void) ret_call;
    if (refuse)
        return err_errno(err, -refuse, "refused");
    last =
        (struct sent){.timeout_ms = timeout_ms, .on_response = on_response, .userdata = userdata};
    (void) snprintf(last.path, sizeof(last.path), "%s", path);
    if (strstr(path, "/aliquot-signing")) {
        keys = last;
        (void) snprintf(keys_body, sizeof(keys_body), "%s %.*s", method, (int) size, body);
    }
    woken += strcmp(method, "PATCH") == 0 && strstr(path, "/csistoragecapacities/");
    return 0;
}

int kube_reflector_start(struct kube_client *client, const struct kube_reflector_options *options,
                         const struct kube_reflector_handlers *handlers, void *userdata,
                         struct kube_reflector **ret, struct err *err) {
    (void) client;
    (void) err;
    struct kube_reflector *r = &reflectors[nreflectors++];
    *r = (struct kube_reflector){.handlers = *handlers, .userdata = userdata};
    (void) snprintf(r->path, sizeof(r->path), "%s", options->path);
    *ret = r;
    return 0;
}

void kube_reflector_stop(struct kube_reflector *reflector) {
    (void) reflector;
}

void kube_reflector_relist(struct kube_reflector *reflector) {
    reflector->relists++;
}

bool kube_reflector_is_synced(const struct kube_reflector *reflector) {
    (void) reflector;
    return !broken;
}

/* ---- the daemon ---- */

static int set_up(void **state) {
    static struct scheduler s;
    static uv_loop_t loop;
    static const struct scheduler_options options = {.listen = "127.0.0.1:0",
                                                     .name_space = "aliquot-system",
                                                     .identity = "a",
                                                     .routes = scheduler_routes};
    struct err err;
    nreflectors = 0;
    refuse = 0;
    woken = 0;
    broken = false;
    if (uv_loop_init(&loop) < 0 || scheduler_start(&s, &loop, &options, &err) < 0)
        return -1;
    last.on_response(&(struct kube_response){.text = "no keys here"}, last.userdata);
    if (watch_start(&s, watch_kinds, &err) < 0)
        return -1;
    *state = &s;
    return 0;
}

static int tear_down(void **state) {
    struct scheduler *s = *state;
    scheduler_done(s);
    return uv_loop_close(s->loop);
}

/* As the API server's answer to the renewal or the taking of the Lease. */
static void hold(struct scheduler *s) {
    s->lease.held = true;
    s->lease.renewed_ms = scheduler_now(s);
}

static void list(struct kube_reflector *r, bool whole) {
    r->handlers.on_sync_begin(r->userdata);
    if (whole)
        r->handlers.on_sync_end(r->userdata);
}

/* ---- the stored signing keys ---- */

#define PAIRS 2
#define WAIT_MS 60000 /* for what comes with the next tick */

static struct pair {
    struct signing_key *key;
    struct buf private, public; /* PEM */
} pairs[PAIRS];

static int make_pairs(void **state) {
    struct err err;
    (void) state;
    for (int i = 0; i < PAIRS; i++) {
        struct pair *p = &pairs[i];
        *p = (struct pair){.private = BUF_INIT(0), .public = BUF_INIT(0)};
        if (signing_key_generate(&p->key, &err) < 0 ||
            signing_key_save(p->key, &p->private, &err) < 0 ||
            signing_key_public(p->key, &p->public, &err) < 0)
            return -1;
    }
    return 0;
}

static int free_pairs(void **state) {
    (void) state;
    for (int i = 0; i < PAIRS; i++) {
        signing_key_free(pairs[i].key);
        buf_done(&pairs[i].private);
        buf_done(&pairs[i].public);
    }
    return 0;
}

/* The daemon as if it had read the first pair at its start, with all watches in order. */
static void begin_with_a_key(struct scheduler *s) {
    struct err err;
    const struct pair *p = &pairs[0];
    uv_timer_stop(&s->retry_keys);
    assert_int_equal(signing_key_load(p->private.data, p->private.len, &s->key, &err), 0);
    assert_int_equal(signing_verifier_load(p->public.data, p->public.len, &s->verifier, &err), 0);
    s->binder.key = s->key;
    for (size_t i = 0; i < nreflectors; i++)
        list(&reflectors[i], true);
    keys.on_response = NULL;
}

static void answer(int status, const char *body) {
    struct json_parser *parser = json_parser_new();
    struct kube_response response = {.status = status, .text = "test"};
    const struct sent asked = keys;
    assert_non_null(asked.on_response);
    keys.on_response = NULL;
    assert_int_equal(json_parse(parser, body, strlen(body), &response.body, NULL), 0);
    asked.on_response(&response, asked.userdata);
    json_parser_free(parser);
}

static void answer_object(const char *member, const char *text) {
    _cleanup_buf_ struct buf body = BUF_INIT(0);
    struct json_writer w = {.out = &body};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "data");
    json_put_string(&w, member, text);
    json_object_end(&w);
    json_object_end(&w);
    answer(200, buf_str(&body));
}

/* Answers both questions: the private key of one pair, the public keys of one or both. */
static void answer_keys(const struct pair *own, const char *public) {
    gnutls_datum_t text = {0};
    const gnutls_datum_t pem = {(unsigned char *) own->private.data, (unsigned) own->private.len};
    assert_non_null(strstr(keys.path, "/secrets/"));
    assert_true(gnutls_base64_encode2(&pem, &text) >= 0);
    answer_object("private.pem", (const char *) text.data);
    gnutls_free(text.data);
    assert_non_null(strstr(keys.path, "/configmaps/"));
    answer_object("public.pem", public);
}

/* As if that much time had passed since the keys were read, until they are asked for. */
static void let_keys_be_read(struct scheduler *s, uint64_t ms) {
    assert_null(keys.on_response);
    s->keys_ms -= ms;
    uv_timer_set_repeat(&s->tick, 1);
    uv_timer_again(&s->tick);
    for (uint64_t end = scheduler_now(s) + WAIT_MS; !keys.on_response;) {
        assert_true(scheduler_now(s) < end);
        (void) uv_run(s->loop, UV_RUN_ONCE);
    }
}

static struct kube_reflector *watch_of(const char *path) {
    for (size_t i = 0; i < nreflectors; i++)
        if (strcmp(reflectors[i].path, path) == 0)
            return &reflectors[i];
    fail();
    return NULL;
}

/* ---- taking over ---- */

static bool holds_shares(const struct kube_reflector *r) {
    return strcmp(r->path, "/api/v1/pods") == 0 || strstr(r->path, "/elasticgpus") ||
           strstr(r->path, "/elasticgpureservations");
}

static void test_all_that_holds_shares_is_read_before_anything_is_begun(void **state) {
    struct scheduler *s = *state;
    unsigned holders = 0;
    begin_with_a_key(s);
    hold(s);
    assert_true(scheduler_leads(s));
    s->lease.handlers->on_acquired(s->lease.userdata);
    answer_keys(&pairs[0], buf_str(&pairs[0].public));
    for (size_t i = 0; i < nreflectors; i++) {
        assert_int_equal(reflectors[i].relists, holds_shares(&reflectors[i]));
        holders += reflectors[i].relists;
    }
    assert_int_equal(holders, 3);
    for (size_t i = 0; i < nreflectors; i++) {
        assert_false(scheduler_leads(s));
        list(&reflectors[i], false); /* breaks off */
        assert_false(scheduler_leads(s));
        list(&reflectors[i], true);
        holders -= reflectors[i].relists;
        if (holders == 0)
            break;
    }
    assert_true(scheduler_leads(s));
}

/* Lost while it reads, and had again: what was decided meanwhile is in none of the lists that were
 * under way. */
static void test_a_lease_that_comes_back_is_another_one(void **state) {
    struct scheduler *s = *state;
    begin_with_a_key(s);
    hold(s);
    s->lease.handlers->on_acquired(s->lease.userdata);
    answer_keys(&pairs[0], buf_str(&pairs[0].public));
    s->lease.held = false;
    s->lease.handlers->on_lost(s->lease.userdata);
    hold(s);
    s->lease.handlers->on_acquired(s->lease.userdata);
    answer_keys(&pairs[0], buf_str(&pairs[0].public));
    for (size_t i = 0; i < nreflectors; i++)
        assert_int_equal(reflectors[i].relists, holds_shares(&reflectors[i]) ? 2 : 0);
    assert_false(scheduler_leads(s));
    for (size_t i = 0; i < nreflectors; i++)
        list(&reflectors[i], true);
    assert_true(scheduler_leads(s));
    s->lease.renewed_ms = scheduler_now(s) - (LEASE_DURATION_MS - LEASE_SETTLE_MS);
    assert_false(scheduler_leads(s));
}

/* Another replica may have made another key, and may have signed by it. */
static void test_the_signing_key_is_read_before_anything_is_begun(void **state) {
    struct scheduler *s = *state;
    begin_with_a_key(s);
    hold(s);
    s->lease.handlers->on_acquired(s->lease.userdata);
    for (size_t i = 0; i < nreflectors; i++)
        list(&reflectors[i], true);
    assert_false(scheduler_leads(s));
    answer(500, "{}");
    assert_false(scheduler_leads(s));
    let_keys_be_read(s, 2000);
    hold(s);
    answer_keys(&pairs[1], buf_str(&pairs[1].public));
    assert_true(scheduler_leads(s));
    assert_true(signing_key_id(s->binder.key) == signing_key_id(pairs[1].key));
}

static void test_a_key_that_was_asked_for_before_may_be_an_older_one(void **state) {
    struct scheduler *s = *state;
    begin_with_a_key(s);
    let_keys_be_read(s, 60000);
    hold(s);
    s->lease.handlers->on_acquired(s->lease.userdata);
    for (size_t i = 0; i < nreflectors; i++)
        list(&reflectors[i], true);
    answer_keys(&pairs[0], buf_str(&pairs[0].public));
    assert_false(scheduler_leads(s));
    let_keys_be_read(s, 2000);
    hold(s);
    answer_keys(&pairs[0], buf_str(&pairs[0].public));
    assert_true(scheduler_leads(s));
}

static void show_signed(struct kube_reflector *pods, const struct signing_key *key) {
    static const char text[] = "{\"v\":1,\"node\":\"n\",\"containers\":{\"main\":[{\"index\":0,"
                               "\"uuid\":\"GPU-0\",\"core\":10,\"memory\":1073741824}]}}";
    _cleanup_buf_ struct buf body = BUF_INIT(0);
    struct json_parser *parser = json_parser_new();
    struct json_writer w = {.out = &body};
    char signature[SIGNATURE_TEXT_MAX];
    struct json pod;
    struct err err;
    assert_int_equal(assignment_sign(key, "u", "n", text, signature, &err), 0);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "name", "p");
    json_put_string(&w, "namespace", "d");
    json_put_string(&w, "uid", "u");
    json_object_begin(&w, "annotations");
    json_put_string(&w, ANNOTATION_ASSIGNMENT, text);
    json_put_string(&w, ANNOTATION_SIGNATURE, signature);
    json_object_end(&w);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_put_string(&w, "nodeName", "n");
    json_object_end(&w);
    json_object_end(&w);
    assert_int_equal(json_parse(parser, body.data, body.len, &pod, NULL), 0);
    pods->handlers.on_object(KUBE_ADDED, pod, pods->userdata);
    json_parser_free(parser);
}

/* A replica that does not act reads the keys, too: it must know what pods hold that were bound
 * since a change of keys. */
static void test_pods_of_a_new_key_are_known_to_a_waiting_replica(void **state) {
    struct scheduler *s = *state;
    _cleanup_buf_ struct buf both = BUF_INIT(0);
    begin_with_a_key(s);
    struct kube_reflector *pods = watch_of("/api/v1/pods");
    show_signed(pods, pairs[1].key);
    assert_int_equal(state_pod_find(s->state, "u")->nallocations, 0);
    let_keys_be_read(s, 60000);
    buf_printf(&both, "%s%s", buf_str(&pairs[1].public), buf_str(&pairs[0].public));
    answer_keys(&pairs[1], buf_str(&both));
    assert_int_equal(pods->relists, 1);
    hold(s);
    assert_false(scheduler_leads(s));
    for (size_t i = 0; i < nreflectors; i++) {
        reflectors[i].handlers.on_sync_begin(reflectors[i].userdata);
        if (&reflectors[i] == pods)
            show_signed(pods, pairs[1].key);
        reflectors[i].handlers.on_sync_end(reflectors[i].userdata);
    }
    assert_true(scheduler_leads(s));
    assert_int_equal(state_pod_find(s->state, "u")->nallocations, 1);
    let_keys_be_read(s, 60000);
    answer_keys(&pairs[1], buf_str(&both));
    assert_int_equal(pods->relists, 1); /* nothing was new */
}

/* ---- old keys ---- */

/* The second pair is the older one. */
static void read_both(struct scheduler *s) {
    _cleanup_buf_ struct buf both = BUF_INIT(0);
    buf_printf(&both, "%s%s", buf_str(&pairs[0].public), buf_str(&pairs[1].public));
    let_keys_be_read(s, 60000);
    answer_keys(&pairs[0], buf_str(&both));
}

static void make_older(struct scheduler *s, uint64_t ms) {
    for (unsigned i = 0; i < s->key_ages.n; i++)
        s->key_ages.idle[i].idle_since_ms -= ms;
}

static void test_an_old_key_ends(void **state) {
    struct scheduler *s = *state;
    begin_with_a_key(s);
    hold(s);
    read_both(s);
    show_signed(watch_of("/api/v1/pods"), pairs[1].key);
    hold(s);
    read_both(s);
    assert_int_equal(s->key_ages.n, 0);
    state_pod_gone(s->state, "u");
    hold(s);
    read_both(s);
    assert_int_equal(s->key_ages.n, 1);
    make_older(s, KEY_IDLE_MS);
    hold(s);
    read_both(s);
    assert_non_null(keys.on_response);
    assert_non_null(strstr(keys.path, "/configmaps/aliquot-signing"));
    assert_memory_equal(keys_body, "PATCH", 5);
    const char *first = strstr(keys_body, "BEGIN PUBLIC KEY");
    assert_non_null(first);
    assert_null(strstr(first + 1, "BEGIN PUBLIC KEY"));
    answer(200, "{}");
    assert_int_equal(signing_verifier_count(s->verifier), 1);
}

/* Another replica acts: what this one has counted counts no more. */
static void test_no_key_ends_by_a_replica_that_does_not_act(void **state) {
    struct scheduler *s = *state;
    begin_with_a_key(s);
    hold(s);
    read_both(s);
    hold(s);
    read_both(s);
    assert_int_equal(s->key_ages.n, 1);
    make_older(s, KEY_IDLE_MS);
    s->lease.held = false;
    s->lease.handlers->on_lost(s->lease.userdata);
    read_both(s);
    assert_null(keys.on_response);
    assert_int_equal(s->key_ages.n, 0);
    hold(s);
    read_both(s);
    assert_null(keys.on_response);
    assert_int_equal(s->key_ages.n, 1);
}

/* ---- broken watches ---- */

static void test_on_what_was_true_long_ago_nothing_is_done(void **state) {
    struct scheduler *s = *state;
    struct err err;
    assert_int_equal(signing_key_generate(&s->key, &err), 0);
    for (size_t i = 0; i < nreflectors; i++)
        list(&reflectors[i], true);
    broken = true;
    for (size_t i = 0; i < nreflectors; i++)
        s->watches[i].fresh_ms -= 5001;
    hold(s);
    requeue_request(&s->requeue);
    uv_timer_set_repeat(&s->tick, 1);
    uv_timer_again(&s->tick);
    while (!s->watches_stale)
        (void) uv_run(s->loop, UV_RUN_ONCE);
    assert_int_equal(woken, 0);
    broken = false;
    while (woken == 0)
        (void) uv_run(s->loop, UV_RUN_ONCE);
    assert_true(scheduler_is_ready(s));
}

/* ---- writes that say who has what ---- */

static unsigned answered;

static void on_answer(const struct kube_response *response, void *userdata) {
    assert_ptr_equal(userdata, &answered);
    answered += 1 + (unsigned) response->status;
}

static int write_as(const struct api *api, const char *method, const char *path,
                    unsigned timeout_ms) {
    return api->request(api->context, method, path, NULL, "{}", 2, timeout_ms, on_answer, &answered,
                        NULL);
}

static unsigned open_requests(struct scheduler *s) {
    return s->lease.handlers->open_requests(s->lease.userdata);
}

static void test_a_write_is_carried_out_soon_or_never(void **state) {
    struct scheduler *s = *state;
    const struct api *deciders[] = {&s->binder.api, &s->evictor.api, &s->elastic.api};
    char want[64];
    (void) snprintf(want, sizeof(want), "/x?timeout=%us", (unsigned) LEASE_SERVER_S);
    for (size_t i = 0; i < sizeof(deciders) / sizeof(deciders[0]); i++) {
        assert_int_equal(write_as(deciders[i], "PATCH", "/x", 10000), 0);
        assert_string_equal(last.path, want);
        assert_int_equal(last.timeout_ms, LEASE_SEND_MS);
        assert_int_equal(open_requests(s), 1);
        answered = 0;
        last.on_response(&(struct kube_response){.status = 0, .maybe_applied = true, .text = ""},
                         last.userdata);
        assert_int_equal(answered, 1);
        assert_int_equal(open_requests(s), 0);
    }
    assert_int_equal(write_as(&s->binder.api, "POST", "/x", 50), 0);
    assert_int_equal(last.timeout_ms, 50);
    last.on_response(&(struct kube_response){.status = 201, .text = ""}, last.userdata);
    assert_int_equal(open_requests(s), 0);
}

static void test_what_is_not_written_holds_nothing_back(void **state) {
    struct scheduler *s = *state;
    char path[4096] = "/";
    refuse = -ENOMEM;
    assert_true(write_as(&s->binder.api, "POST", "/x", 100) < 0);
    refuse = 0;
    memset(path + 1, 'x', sizeof(path) - 2);
    assert_true(write_as(&s->binder.api, "POST", path, 100) < 0);
    assert_int_equal(write_as(&s->binder.api, "GET", "/x", 100), 0);
    assert_string_equal(last.path, "/x");
    assert_int_equal(open_requests(s), 0);
}

/* ---- GPU objects ---- */

static void show(struct kube_reflector *r, enum kube_event event, const char *text) {
    struct json_parser *parser = json_parser_new();
    struct json object;
    assert_int_equal(json_parse(parser, text, strlen(text), &object, NULL), 0);
    r->handlers.on_object(event, object, r->userdata);
    json_parser_free(parser);
}

#define GPU(name, spec)                                                                            \
    "{\"metadata\":{\"name\":\"" name "\"},\"spec\":" spec ",\"status\":{\"evict\":[\"d/p/u\"]}}"
#define GPU_SPEC "{\"nodeName\":\"n\",\"index\":0,\"memory\":1073741824,\"uuid\":\"GPU-0\"}"

/* However the object of a drained card goes, its pods are no longer evicted. */
static void test_pods_of_a_card_that_is_gone_are_not_evicted(void **state) {
    struct scheduler *s = *state;
    struct kube_reflector *gpus = watch_of(GPU_OBJECTS_PATH);
    list(gpus, true);
    show(gpus, KUBE_ADDED, GPU("a", GPU_SPEC));
    assert_non_null(s->drainer.pods);
    show(gpus, KUBE_DELETED, GPU("a", GPU_SPEC));
    assert_null(s->drainer.pods);
    show(gpus, KUBE_ADDED, GPU("a", GPU_SPEC));
    show(gpus, KUBE_MODIFIED, GPU("a", "{\"nodeName\":1}"));
    assert_null(s->drainer.pods);
    show(gpus, KUBE_ADDED, GPU("a", GPU_SPEC));
    assert_non_null(s->drainer.pods);
    list(gpus, true); /* which is empty */
    assert_null(s->drainer.pods);
}

/* ---- what keeps it from being ready ---- */

static void check_refusal(struct scheduler *s, const char *word) {
    static const char body[] =
        "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\"},"
        "\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":"
        "{\"elasticgpu.io/gpu-core\":\"10\"}}}]}},\"NodeNames\":[\"n\"]}";
    _cleanup_buf_ struct buf answer = BUF_INIT(0);
    assert_true(extender_filter(&s->extender, body, strlen(body), 0, &answer) < 0);
    assert_non_null(strstr(buf_str(&answer), word));
}

/* Such as a CRD that was deleted. */
static void test_a_watch_says_why_it_fails(void **state) {
    static const char text[] = "cannot list " GPU_OBJECTS_PATH ": not found";
    struct scheduler *s = *state;
    struct kube_reflector *gpus = watch_of(GPU_OBJECTS_PATH);
    check_refusal(s, "still reading");
    broken = true;
    gpus->handlers.on_trouble(text, 1000, gpus->userdata);
    check_refusal(s, text);
    assert_string_equal(watch_trouble(s), text);
    broken = false;
    list(gpus, true);
    broken = true; /* another one */
    assert_string_equal(watch_trouble(s), "");
    check_refusal(s, "still reading");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_watch_says_why_it_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_that_holds_shares_is_read_before_anything_is_begun,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lease_that_comes_back_is_another_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_signing_key_is_read_before_anything_is_begun,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_that_was_asked_for_before_may_be_an_older_one,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pods_of_a_new_key_are_known_to_a_waiting_replica,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_old_key_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_key_ends_by_a_replica_that_does_not_act, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_on_what_was_true_long_ago_nothing_is_done, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_write_is_carried_out_soon_or_never, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_pods_of_a_card_that_is_gone_are_not_evicted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_written_holds_nothing_back, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, make_pairs, free_pairs);
}
