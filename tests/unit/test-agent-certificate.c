/* SPDX-License-Identifier: Apache-2.0 */

/* How the agent comes by its certificate, with an API server and a clock of the test's own. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/cluster/certificate.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "fake-reflector.h"
#include "freed-keys.h"
#include "kube/objects/agent_certificate.h"
#include "wire/certificate.h"
#include "wire/certificate_authority.h"
#include "wire/certificate_request.h"
#include "wire/json.h"
#include "wire/server_cert.h"

uv_loop_t *__wrap_kube_client_loop(struct kube_client *client);
void __wrap_kube_call_cancel(struct kube_call *call);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t timeout,
                          uint64_t repeat);
time_t __wrap_time(time_t *ret);

static uv_loop_t loop;
static int64_t begin, passed_ms;
static struct {
    uv_timer_t *timer;
    uv_timer_cb callback;
    int64_t at;
} timer;
static struct {
    kube_response_cb callback; /* of the open request; NULL: none is open */
    void *userdata;
    char method[8], path[256], body[16384];
} api;
static unsigned creations, troubles, issues;
static struct certificate_authority authority;
static char dir[64];

time_t __wrap_time(time_t *ret) {
    (void) ret;
    return (time_t) (begin + passed_ms / 1000);
}

uint64_t __wrap_uv_now(const uv_loop_t *of) {
    (void) of;
    return 1 + (uint64_t) passed_ms;
}

int __wrap_uv_timer_start(uv_timer_t *handle, uv_timer_cb callback, uint64_t timeout,
                          uint64_t repeat) {
    assert_int_equal(repeat, 0);
    timer.timer = handle;
    timer.callback = callback;
    timer.at = passed_ms + (int64_t) timeout;
    return 0;
}

static void pass(int64_t seconds) {
    for (int64_t end = passed_ms + seconds * 1000; passed_ms < end;) {
        uv_timer_t *due = timer.timer;
        if (!due || timer.at > end) {
            passed_ms = end;
        } else {
            passed_ms = timer.at > passed_ms ? timer.at : passed_ms;
            timer.timer = NULL;
            timer.callback(due);
        }
    }
}

uv_loop_t *__wrap_kube_client_loop(struct kube_client *client) {
    (void) client;
    return &loop;
}

void __wrap_kube_call_cancel(struct kube_call *call) {
    if (call)
        api.callback = NULL;
}

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err) {
    (void) client, (void) content_type, (void) timeout_ms, (void) err;
    assert_null(api.callback);
    api.callback = on_response;
    api.userdata = userdata;
    (void) snprintf(api.method, sizeof(api.method), "%s", method);
    (void) snprintf(api.path, sizeof(api.path), "%s", path);
    if (size > 0)
        (void) snprintf(api.body, sizeof(api.body), "%.*s", (int) size, body);
    creations += strcmp(method, "POST") == 0;
    *ret_call = (struct kube_call *) &api;
    return 0;
}

static void answer(int status, const char *text) {
    _cleanup_json_ struct json_parser *parser = NULL;
    kube_response_cb callback = api.callback;
    struct kube_response response = {.status = status, .text = "refused", .reason = ""};
    assert_non_null(callback);
    if (text)
        assert_int_equal(json_open(text, strlen(text), &parser, &response.body, NULL), 0);
    api.callback = NULL;
    callback(&response, api.userdata);
}

/* The ConfigMap as it is; NULL: there is none. */
static void publish(const char *bundle) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    const struct fake_reflector *watch = reflector_of(AUTHORITY_CONFIG_MAP);
    struct json object;
    reflector_list_begins(watch);
    if (bundle) {
        buf_puts(&text, "{\"data\":{\"" AUTHORITY_ENTRY "\":\"");
        for (const char *c = bundle; *c; c++)
            *c == '\n' ? buf_puts(&text, "\\n") : buf_putc(&text, *c);
        buf_puts(&text, "\"}}");
        assert_int_equal(json_open(text.data, text.len, &parser, &object, NULL), 0);
        reflector_show(watch, KUBE_ADDED, object);
    }
    reflector_list_ends(watch);
}

static void new_authority(void) {
    static const char *const names[] = {"x", NULL};
    struct err err;
    certificate_authority_done(&authority);
    certificate_authority_init(&authority);
    assert_int_equal(certificate_authority_renew(&authority, names, begin + passed_ms / 1000, &err),
                     1);
}

/* Signs the request that was made last; the object as the API server has it then. */
static char *signed_object(void) {
    _cleanup_buf_ struct buf cert = BUF_INIT(CERTIFICATE_PEM_MAX);
    _cleanup_json_ struct json_parser *parser = NULL;
    const char *const names[] = {"node-a." AGENT_SERVER_NAME, NULL};
    gnutls_datum_t pem, text;
    struct json body;
    struct err err;
    char *object = NULL;
    assert_int_equal(json_open(api.body, strlen(api.body), &parser, &body, NULL), 0);
    const char *request = json_string(JSON_PATH(body, "spec", "request"));
    const gnutls_datum_t encoded = {(unsigned char *) (uintptr_t) request,
                                    (unsigned) strlen(request)};
    assert_int_equal(gnutls_base64_decode2(&encoded, &pem), 0);
    assert_int_equal(certificate_authority_sign(&authority, (char *) pem.data, pem.size, "node-a",
                                                names, AGENT_CERTIFICATE_SECONDS,
                                                begin + passed_ms / 1000, &cert, &err),
                     0);
    gnutls_free(pem.data);
    const gnutls_datum_t plain = {(unsigned char *) cert.data, (unsigned) cert.len};
    assert_int_equal(gnutls_base64_encode2(&plain, &text), 0);
    assert_true(asprintf(&object, "{\"status\":{\"certificate\":\"%s\"}}", text.data) > 0);
    gnutls_free(text.data);
    return object;
}

static void on_state(const char *trouble, void *userdata) {
    (void) userdata;
    if (trouble[0])
        troubles++;
    else
        issues++;
}

static struct agent_certificate *start_on(const char *node) {
    struct agent_certificate *c;
    struct err err;
    assert_int_equal(agent_certificate_new(dir, node, &c, &err), 0);
    assert_int_equal(agent_certificate_follow(c, (struct kube_client *) &api, "aliquot-system",
                                              on_state, NULL, &err),
                     0);
    return c;
}

static struct agent_certificate *start(void) {
    return start_on("node-a");
}

static void stop(struct agent_certificate *c) {
    agent_certificate_stop(c);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    timer.timer = NULL;
    (void) agent_certificate_free(c);
}

static void get_signed(void) {
    char *object = signed_object();
    assert_string_equal(api.method, "POST");
    assert_string_equal(api.path, CERTIFICATE_REQUESTS);
    answer(201, "{\"metadata\":{\"name\":\"aliquot-agent-x1\"}}");
    pass(1);
    assert_string_equal(api.path, CERTIFICATE_REQUESTS "/aliquot-agent-x1");
    answer(200, "{\"status\":{}}");
    pass(2);
    answer(200, object);
    free(object);
}

static int setup(void **state) {
    (void) state;
    begin = 1790000000;
    passed_ms = 0;
    creations = troubles = issues = 0;
    api.callback = NULL;
    timer.timer = NULL;
    (void) snprintf(dir, sizeof(dir), "/tmp/aliquot-certificate-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(uv_loop_init(&loop), 0);
    certificate_authority_init(&authority);
    new_authority();
    return 0;
}

static int teardown(void **state) {
    struct err err;
    (void) state;
    certificate_authority_done(&authority);
    assert_int_equal(freed_keys(), 0);
    assert_int_equal(dir_remove(dir, &err), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}

static void test_from_nothing_to_a_certificate(void **state) {
    struct agent_certificate *c = start();
    (void) state;
    assert_non_null(agent_certificate_served(c)); /* for probes */
    publish(NULL);
    assert_non_null(strstr(agent_certificate_trouble(c), AUTHORITY_CONFIG_MAP));
    assert_null(api.callback);
    publish(buf_str(&authority.bundle));
    assert_non_null(strstr(api.body, "\"signerName\":\"" AGENT_SIGNER "\""));
    assert_non_null(strstr(api.body, "\"usages\":[\"digital signature\",\"server auth\"]"));
    get_signed();
    assert_string_equal(agent_certificate_trouble(c), "");
    pass(3600);
    assert_int_equal(creations, 1);
    assert_int_equal(troubles, 0);
    assert_int_equal(issues, 1);
    stop(c);
}

static void test_restart_goes_on(void **state) {
    struct agent_certificate *c = start();
    char file[128];
    struct stat st;
    (void) state;
    publish(buf_str(&authority.bundle));
    get_signed();
    stop(c);
    (void) snprintf(file, sizeof(file), "%s/" CERTIFICATE_FILE, dir);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    c = start();
    assert_string_equal(agent_certificate_trouble(c), "");
    publish(buf_str(&authority.bundle));
    pass(600);
    assert_int_equal(creations, 1);
    assert_int_equal(issues, 2); /* the process before may have been in trouble */
    stop(c);
    /* A damaged file is as none. */
    assert_int_equal(truncate(file, 100), 0);
    c = start();
    assert_true(agent_certificate_trouble(c)[0]);
    publish(buf_str(&authority.bundle));
    assert_int_equal(creations, 2);
    get_signed();
    assert_string_equal(agent_certificate_trouble(c), "");
    stop(c);
}

/* The certificate in the file is for the former name. */
static void test_restart_under_another_name(void **state) {
    struct agent_certificate *c = start();
    (void) state;
    publish(buf_str(&authority.bundle));
    get_signed();
    stop(c);
    c = start_on("node-b");
    assert_true(agent_certificate_trouble(c)[0]);
    publish(buf_str(&authority.bundle));
    assert_int_equal(creations, 2);
    api.callback = NULL;
    stop(c);
}

static void test_renewed_at_two_thirds(void **state) {
    struct agent_certificate *c = start();
    (void) state;
    publish(buf_str(&authority.bundle));
    get_signed();
    pass(AGENT_CERTIFICATE_SECONDS * 2 / 3 - 120);
    assert_int_equal(creations, 1);
    pass(240);
    assert_int_equal(creations, 2);
    get_signed();
    assert_string_equal(agent_certificate_trouble(c), "");
    pass(3600);
    assert_int_equal(creations, 2);
    assert_int_equal(issues, 2);
    stop(c);
}

/* Beside the old one a new authority changes nothing; in its place it does, at once. */
static void test_another_authority(void **state) {
    struct agent_certificate *c = start();
    _cleanup_buf_ struct buf both = BUF_INIT(0);
    (void) state;
    publish(buf_str(&authority.bundle));
    get_signed();
    char *old = strdup(buf_str(&authority.bundle));
    passed_ms += 1000;
    new_authority();
    buf_printf(&both, "%s%s", buf_str(&authority.bundle), old);
    publish(buf_str(&both));
    assert_int_equal(creations, 1);
    publish(buf_str(&authority.bundle));
    assert_int_equal(creations, 2);
    get_signed();
    assert_string_equal(agent_certificate_trouble(c), "");
    free(old);
    stop(c);
}

/* The request outlives errors; what the authority denies is asked for anew, and told. */
static void test_bad_answers(void **state) {
    struct agent_certificate *c = start();
    (void) state;
    publish(buf_str(&authority.bundle));
    answer(403, NULL);
    assert_non_null(strstr(agent_certificate_trouble(c), "refused"));
    pass(60);
    assert_int_equal(creations, 2);
    answer(201, "{\"metadata\":{\"name\":\"aliquot-agent-x1\"}}");
    pass(1);
    answer(0, NULL); /* the API server is away */
    pass(2);
    answer(200, "{\"status\":{\"certificate\":\"garbage\"}}");
    pass(4);
    answer(200, "{\"status\":{\"conditions\":[{\"type\":\"Denied\",\"message\":\"wrong node\"}]}}");
    assert_non_null(strstr(agent_certificate_trouble(c), "wrong node"));
    assert_int_equal(troubles, 3); /* it has lasted for more than a minute */
    pass(60);
    assert_int_equal(creations, 3);
    answer(201, "{\"metadata\":{\"name\":\"aliquot-agent-x2\"}}");
    pass(1);
    answer(404, NULL);
    pass(60);
    publish(buf_str(&authority.bundle)); /* the watch has been made anew */
    assert_int_equal(creations, 3);
    pass(60);
    assert_int_equal(creations, 4);
    assert_int_equal(issues, 0);
    get_signed();
    assert_string_equal(agent_certificate_trouble(c), "");
    assert_int_equal(issues, 1);
    stop(c);
}

/* It has a certificate before it knows the authority that has signed it. */
static void test_certificate_comes_first(void **state) {
    struct agent_certificate *c = start();
    (void) state;
    char *old = strdup(buf_str(&authority.bundle));
    publish(old);
    passed_ms += 1000;
    new_authority();
    get_signed();
    assert_true(agent_certificate_trouble(c)[0]);
    publish(buf_str(&authority.bundle));
    assert_string_equal(api.path, CERTIFICATE_REQUESTS "/aliquot-agent-x1");
    char *object = signed_object();
    answer(200, object);
    assert_string_equal(agent_certificate_trouble(c), "");
    assert_int_equal(creations, 1);
    free(object);
    free(old);
    stop(c);
}

/* It was signed by an authority that has been replaced: another one is requested, soon. */
static void test_signed_by_a_replaced_authority(void **state) {
    struct agent_certificate *c = start();
    struct certificate_authority old = authority;
    (void) state;
    certificate_authority_init(&authority);
    passed_ms += 1000;
    new_authority();
    publish(buf_str(&authority.bundle));
    struct certificate_authority current = authority;
    authority = old;
    char *object = signed_object();
    authority = current;
    answer(201, "{\"metadata\":{\"name\":\"aliquot-agent-x1\"}}");
    for (unsigned i = 0; creations == 1; i++) {
        assert_true(i < 20);
        pass(1);
        if (api.callback && strcmp(api.method, "GET") == 0)
            answer(200, object);
    }
    get_signed();
    assert_string_equal(agent_certificate_trouble(c), "");
    free(object);
    certificate_authority_done(&old);
    stop(c);
}

/* The ConfigMap stays behind, or the node's clock is wrong: each request leaves an object behind,
 * and a thousand agents may be in the same state. */
static void test_requests_in_vain_become_rare(void **state) {
    struct agent_certificate *c = start();
    (void) state;
    publish(buf_str(&authority.bundle));
    passed_ms += 1000;
    char *former = strdup(buf_str(&authority.bundle));
    new_authority();
    char *object = signed_object();
    for (unsigned i = 0; i < 7200; i++) {
        pass(1);
        if (api.callback && strcmp(api.method, "POST") == 0)
            answer(201, "{\"metadata\":{\"name\":\"aliquot-agent-x1\"}}");
        else if (api.callback)
            answer(200, object);
    }
    assert_in_range(creations, 12, 17);
    /* As soon as one has been of use, the next is made at once. */
    while (!api.callback)
        pass(1);
    publish(buf_str(&authority.bundle));
    get_signed();
    assert_string_equal(agent_certificate_trouble(c), "");
    unsigned before = creations;
    publish(former);
    assert_int_equal(creations, before + 1);
    free(object);
    free(former);
    stop(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_from_nothing_to_a_certificate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restart_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restart_under_another_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_renewed_at_two_thirds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_authority, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_certificate_comes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signed_by_a_replaced_authority, setup, teardown),
        cmocka_unit_test_setup_teardown(test_requests_in_vain_become_rare, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
