/* SPDX-License-Identifier: Apache-2.0 */

/* The agents' TLS in the daemon: the certificate of a replica, and requests of agents. The client
 * of the API server is this file. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "freed-keys.h"
#include "kube/api/reflector.h"
#include "scheduler/cluster/agent_signer.h"
#include "scheduler/daemon/agent_tls.h"
#include "scheduler/daemon/scheduler.h"
#include "wire/certificate.h"
#include "wire/certificate_request.h"
#include "wire/tls.h"

bool __wrap_scheduler_leads(const struct scheduler *of);
uint64_t __wrap_scheduler_now(const struct scheduler *of);

static uv_loop_t loop;
static struct scheduler s;
static struct agent_tls *t;
static int64_t made; /* authorities of the test */
static uint64_t now_ms;
static bool leads;
static struct kube_reflector_handlers watch;
static unsigned requests, lists, asked; /* there are; readings of them; answers to them */
static kube_response_cb callbacks[AGENT_SIGNER_AT_ONCE];
static unsigned open_calls;
static void *signer;

bool __wrap_scheduler_leads(const struct scheduler *of) {
    (void) of;
    return leads;
}

uint64_t __wrap_scheduler_now(const struct scheduler *of) {
    (void) of;
    return now_ms;
}

int kube_reflector_start(struct kube_client *client, const struct kube_reflector_options *options,
                         const struct kube_reflector_handlers *handlers, void *userdata,
                         struct kube_reflector **ret_reflector, struct err *err) {
    (void) client, (void) options, (void) userdata, (void) err;
    watch = *handlers;
    *ret_reflector = NULL;
    return 0;
}

void kube_reflector_stop(struct kube_reflector *r) {
    (void) r;
}

/* A request that is to be denied. */
static void show(void) {
    static const char text[] = "{\"metadata\":{\"name\":\"x\"},\"spec\":{},\"status\":{}}";
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json object;
    assert_int_equal(json_open(text, sizeof(text) - 1, &parser, &object, NULL), 0);
    watch.on_object(KUBE_ADDED, object, t);
}

void kube_reflector_relist(struct kube_reflector *r) {
    (void) r;
    lists++;
    watch.on_sync_begin(t);
    for (unsigned i = 0; i < requests; i++)
        show();
    watch.on_sync_end(t);
}

bool kube_reflector_is_synced(const struct kube_reflector *r) {
    (void) r;
    return true;
}

static int ask(void *context, const char *method, const char *path, const char *content_type,
               const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
               void *userdata, struct err *err) {
    (void) context, (void) method, (void) path, (void) content_type, (void) body, (void) size;
    (void) timeout_ms, (void) err;
    signer = userdata;
    asked++;
    assert_true(open_calls < AGENT_SIGNER_AT_ONCE);
    callbacks[open_calls++] = on_response;
    return 0;
}

/* ---- the world ---- */

/* As the Secret has it, or as this replica has only made it. */
static void new_authority(bool stored) {
    static const char *const names[] = {"x", NULL};
    struct authority *a = &s.endpoints.authority;
    struct err err;
    certificate_authority_done(&a->own);
    certificate_authority_init(&a->own);
    assert_int_equal(
        certificate_authority_renew(&a->own, names, (int64_t) time(NULL) - 60 + made++, &err), 1);
    a->read_ms = stored ? uv_now(&loop) + 1 : 0;
}

static int setup(void **state) {
    struct err err;
    (void) state;
    now_ms = 1000000;
    made = 0;
    leads = true;
    requests = lists = asked = open_calls = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    s = (struct scheduler){
        .loop = &loop, .options.name_space = "aliquot-system", .requeue.api = {ask, NULL}};
    s.endpoints.authority.loop = &loop;
    certificate_authority_init(&s.endpoints.authority.own);
    assert_int_equal(agent_tls_start(&s, &t, &err), 0);
    return 0;
}

static int teardown(void **state) {
    (void) state;
    agent_tls_stop(t);
    agent_tls_done(t);
    authority_done(&s.endpoints.authority);
    assert_int_equal(freed_keys(), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}

/* ---- this replica's certificate ---- */

/* Whether the replica has a certificate, and agents and it know each other by this authority. */
static bool is_known_by(const char *bundle) {
    struct tls_client_options shown = {0};
    struct buf cert = BUF_INIT(0), key = BUF_INIT(0);
    if (!agent_tls_credentials(t, &shown) || strcmp(shown.ca, bundle) != 0)
        return false;
    buf_puts(&cert, shown.cert);
    buf_puts(&key, shown.key);
    bool known = certificate_renewal(&cert, &key, bundle) > (int64_t) time(NULL);
    buf_done(&cert);
    buf_wipe(&key);
    return known;
}

static void test_no_certificate_before_an_authority(void **state) {
    struct tls_client_options shown = {0};
    (void) state;
    agent_tls_tick(t);
    assert_false(agent_tls_credentials(t, &shown));
    new_authority(false);
    agent_tls_tick(t);
    assert_false(agent_tls_credentials(t, &shown));
    s.endpoints.authority.read_ms = uv_now(&loop) + 1;
    agent_tls_tick(t);
    assert_true(is_known_by(buf_str(&s.endpoints.authority.own.bundle)));
}

/* The API server refuses the Secret: the agents know the former authority only. */
static void test_an_authority_that_is_not_stored(void **state) {
    (void) state;
    new_authority(true);
    agent_tls_tick(t);
    char *former = strdup(buf_str(&s.endpoints.authority.own.bundle));
    new_authority(false);
    agent_tls_tick(t);
    assert_true(is_known_by(former));
    s.endpoints.authority.read_ms = uv_now(&loop) + 1;
    agent_tls_tick(t);
    assert_true(is_known_by(buf_str(&s.endpoints.authority.own.bundle)));
    free(former);
}

static void test_an_authority_without_its_key(void **state) {
    struct tls_client_options shown = {0};
    (void) state;
    new_authority(true);
    buf_wipe(&s.endpoints.authority.own.ca_key);
    agent_tls_tick(t);
    assert_false(agent_tls_credentials(t, &shown));
}

/* ---- requests of agents ---- */

static void answer(int status) {
    const struct kube_response response = {.status = status, .text = "no", .reason = ""};
    unsigned n = open_calls;
    open_calls = 0;
    for (unsigned i = 0; i < n; i++)
        callbacks[i](&response, signer);
}

/* As the daemon calls it; the API server answers all that way meanwhile. */
static void pass(unsigned seconds, int status) {
    for (unsigned i = 0; i < seconds; i++) {
        now_ms += 1000;
        agent_tls_tick(t);
        answer(status);
    }
}

static void test_refused_answers_become_rare(void **state) {
    (void) state;
    new_authority(true);
    requests = 3;
    kube_reflector_relist(NULL);
    answer(403);
    lists = asked = 0;
    pass(4, 403); /* after 1, 2 and 4 s */
    assert_int_equal(lists, 3);
    pass(596, 403);
    assert_in_range(lists, 12, 17);
    assert_int_equal(asked, lists * requests);
}

static void test_tried_at_once_after_a_success(void **state) {
    (void) state;
    new_authority(true);
    requests = 1;
    kube_reflector_relist(NULL);
    answer(403);
    pass(600, 403);
    show(); /* another one */
    answer(200);
    lists = 0;
    pass(1, 200);
    assert_int_equal(lists, 1);
    pass(10, 200);
    assert_int_equal(lists, 1);
    show();
    answer(500);
    lists = 0;
    pass(4, 500);
    assert_int_equal(lists, 3);
}

/* What succeeds is not slowed down, however much it is. */
static void test_more_than_fit_at_once(void **state) {
    (void) state;
    new_authority(true);
    requests = AGENT_SIGNER_AT_ONCE + 1;
    kube_reflector_relist(NULL);
    answer(200);
    lists = 0;
    pass(5, 200);
    assert_int_equal(lists, 5);
}

static void test_only_the_leader_answers(void **state) {
    (void) state;
    new_authority(true);
    requests = 1;
    leads = false;
    kube_reflector_relist(NULL);
    lists = 0;
    pass(5, 200);
    assert_int_equal(asked, 0);
    assert_int_equal(lists, 0);
    leads = true;
    pass(1, 200);
    assert_int_equal(asked, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_certificate_before_an_authority, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_authority_that_is_not_stored, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_authority_without_its_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_answers_become_rare, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tried_at_once_after_a_success, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_than_fit_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_the_leader_answers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
