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
#include "kube/api/reflector.h"
#include "scheduler/daemon/agent_tls.h"
#include "scheduler/daemon/scheduler.h"
#include "wire/certificate_request.h"
#include "wire/tls.h"

bool __wrap_scheduler_leads(const struct scheduler *of);

static uv_loop_t loop;
static struct scheduler s;
static struct agent_tls *t;
static int64_t made; /* authorities of the test */

bool __wrap_scheduler_leads(const struct scheduler *of) {
    (void) of;
    return true;
}

int kube_reflector_start(struct kube_client *client, const struct kube_reflector_options *options,
                         const struct kube_reflector_handlers *handlers, void *userdata,
                         struct kube_reflector **ret_reflector, struct err *err) {
    (void) client, (void) options, (void) handlers, (void) userdata, (void) err;
    *ret_reflector = NULL;
    return 0;
}

void kube_reflector_stop(struct kube_reflector *r) {
    (void) r;
}

void kube_reflector_relist(struct kube_reflector *r) {
    (void) r;
}

bool kube_reflector_is_synced(const struct kube_reflector *r) {
    (void) r;
    return true;
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
    made = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    s = (struct scheduler){.loop = &loop, .options.name_space = "aliquot-system"};
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
    buf_done(&key);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_certificate_before_an_authority, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_authority_that_is_not_stored, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
