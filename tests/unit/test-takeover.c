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
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "kube/client.h"
#include "kube/signing.h"
#include "scheduler/scheduler.h"

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
} last;                /* request */
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
    (void) body;
    (void) size;
    (void) ret_call;
    if (refuse)
        return err_errno(err, -refuse, "refused");
    last =
        (struct sent){.timeout_ms = timeout_ms, .on_response = on_response, .userdata = userdata};
    (void) snprintf(last.path, sizeof(last.path), "%s", path);
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
    static const struct scheduler_options options = {
        .listen = "127.0.0.1:0", .name_space = "aliquot-system", .identity = "a"};
    struct err err;
    nreflectors = 0;
    refuse = 0;
    woken = 0;
    broken = false;
    if (uv_loop_init(&loop) < 0 || scheduler_start(&s, &loop, &options, &err) < 0)
        return -1;
    last.on_response(&(struct kube_response){.text = "no keys here"}, last.userdata);
    if (watch_start(&s, &err) < 0)
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

/* ---- taking over ---- */

static bool holds_shares(const struct kube_reflector *r) {
    return strcmp(r->path, "/api/v1/pods") == 0 || strstr(r->path, "/elasticgpus") ||
           strstr(r->path, "/elasticgpureservations");
}

static void test_all_that_holds_shares_is_read_before_anything_is_begun(void **state) {
    struct scheduler *s = *state;
    unsigned holders = 0;
    for (size_t i = 0; i < nreflectors; i++)
        list(&reflectors[i], true);
    hold(s);
    assert_true(scheduler_leads(s));
    s->lease.on_acquired(s->lease.userdata);
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
    for (size_t i = 0; i < nreflectors; i++)
        list(&reflectors[i], true);
    hold(s);
    s->lease.on_acquired(s->lease.userdata);
    s->lease.held = false;
    s->lease.on_lost(s->lease.userdata);
    hold(s);
    s->lease.on_acquired(s->lease.userdata);
    for (size_t i = 0; i < nreflectors; i++)
        assert_int_equal(reflectors[i].relists, holds_shares(&reflectors[i]) ? 2 : 0);
    assert_false(scheduler_leads(s));
    for (size_t i = 0; i < nreflectors; i++)
        list(&reflectors[i], true);
    assert_true(scheduler_leads(s));
    s->lease.renewed_ms = scheduler_now(s) - (LEASE_DURATION_MS - LEASE_SETTLE_MS);
    assert_false(scheduler_leads(s));
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
    wake_ask(&s->wake);
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
    return s->lease.open_requests(s->lease.userdata);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_that_holds_shares_is_read_before_anything_is_begun,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lease_that_comes_back_is_another_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_on_what_was_true_long_ago_nothing_is_done, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_write_is_carried_out_soon_or_never, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_written_holds_nothing_back, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
