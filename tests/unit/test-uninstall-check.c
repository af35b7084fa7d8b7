/* SPDX-License-Identifier: Apache-2.0 */
/* `aliquot-scheduler --check-uninstall` with the answers of an API server. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

#include "base/err.h"
#include "kube-wraps.h"
#include "kube/api/client.h"
#include "kube/api/config.h"
#include "scheduler/daemon/scheduler.h"
#include "scheduler/daemon/uninstall_check.h"
#include "wire/json.h"

#define PAGES_MAX 4
#define POD(name, phase)                                                                           \
    "{\"metadata\":{\"namespace\":\"team\",\"name\":\"" name "\",\"annotations\":"                 \
    "{\"elasticgpu.io/assignment\":\"{}\"}},\"spec\":{\"nodeName\":\"n\"},\"status\":{\"phase\":"  \
    "\"" phase "\"}}"

#define CLAIM(name, driver, users)                                                                 \
    "{\"metadata\":{\"namespace\":\"team\",\"name\":\"" name "\"},\"status\":{\"allocation\":"     \
    "{\"devices\":{\"results\":[{\"driver\":\"" driver "\"}]}},\"reservedFor\":[" users "]}}"
#define USER(name) "{\"resource\":\"pods\",\"name\":\"" name "\"}"

struct page {
    int status;
    const char *body; /* NULL: it is no JSON */
};

static struct page pages[PAGES_MAX];
static const char *const *paths; /* that are asked for, in this order */
static size_t asked;
static bool closed;
static kube_response_cb callback; /* of the open request; NULL: none is open */
static void *of_callback;

int __wrap_kube_config_load(const char *server, const char *token_file, const char *ca_file,
                            struct kube_config *ret_config, struct err *err);
int __wrap_kube_config_load(const char *server, const char *token_file, const char *ca_file,
                            struct kube_config *ret_config, struct err *err) {
    (void) server, (void) token_file, (void) ca_file, (void) err;
    *ret_config = (struct kube_config){0};
    return 0;
}

int __wrap_kube_client_new(uv_loop_t *loop, const struct kube_config *config,
                           struct kube_client **ret, struct err *err);
int __wrap_kube_client_new(uv_loop_t *loop, const struct kube_config *config,
                           struct kube_client **ret, struct err *err) {
    (void) loop, (void) config, (void) err;
    *ret = NULL;
    return 0;
}

void __wrap_kube_client_close(struct kube_client *client, void (*on_closed)(void *userdata),
                              void *userdata);
void __wrap_kube_client_close(struct kube_client *client, void (*on_closed)(void *userdata),
                              void *userdata) {
    (void) client, (void) on_closed, (void) userdata;
    assert_false(closed);
    closed = true;
}

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err) {
    (void) client, (void) content_type, (void) body, (void) size, (void) timeout_ms;
    (void) ret_call, (void) err;
    assert_true(++asked <= PAGES_MAX);
    assert_string_equal(method, "GET");
    assert_string_equal(path, paths[asked - 1]);
    callback = on_response;
    of_callback = userdata;
    return 0;
}

static void answer(const struct page *page) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct kube_response response = {
        .status = page->status, .text = page->status == 200 ? "" : "forbidden", .reason = ""};
    kube_response_cb respond = callback;
    struct err err;

    callback = NULL;
    if (page->body)
        assert_int_equal(json_open(page->body, strlen(page->body), &parser, &response.body, &err),
                         0);
    respond(&response, of_callback);
}

int __wrap_uv_run(uv_loop_t *loop, uv_run_mode mode);
int __wrap_uv_run(uv_loop_t *loop, uv_run_mode mode) {
    (void) loop, (void) mode;
    while (callback)
        answer(&pages[asked - 1]);
    assert_true(closed);
    return 0;
}

#define PODS "/api/v1/pods?limit=500"
#define CLAIMS "/apis/resource.k8s.io/v1/resourceclaims?limit=500"
#define MORE "&continue=next"
#define LIST(items) "{\"metadata\":{},\"items\":[" items "]}"
#define PART(items) "{\"metadata\":{\"continue\":\"next\"},\"items\":[" items "]}"

static int check(struct err *err, const char *const *in_order, const struct page *answers,
                 size_t n) {
    static const struct scheduler_options options;
    int r;

    memcpy(pages, answers, n * sizeof(*answers));
    paths = in_order;
    asked = 0;
    closed = false;
    r = uninstall_check(&options, err);
    assert_int_equal(asked, n);
    return r;
}

static const char *const once[] = {PODS, CLAIMS};
static const char *const by_pages[] = {PODS, PODS MORE, CLAIMS, CLAIMS MORE};
static const struct page no_pods = {200, LIST("")};

static int check_pods(struct err *err, const char *list) {
    return check(err, once, (struct page[]){{200, list}, {200, LIST("")}}, 2);
}

static void pods_with_shares_are_counted_over_all_pages(void **state) {
    const struct page answers[] = {{200, PART(POD("a", "Running"))},
                                   {200, LIST(POD("b", "Pending"))},
                                   {200, PART(CLAIM("c", "other.example", USER("p")))},
                                   {200, LIST(CLAIM("d", "gpu.elasticgpu.io", ""))}};
    struct err err;

    (void) state;
    assert_int_equal(check_pods(&err, LIST("")), 0);
    assert_int_equal(check_pods(&err, LIST(POD("a", "Succeeded"))), 0);
    assert_int_equal(check(&err, by_pages, answers, 4), -EBUSY);
    assert_non_null(strstr(err.text, "2 pods hold shares: "));
}

static void claims_that_pods_use_are_counted(void **state) {
    const struct page answers[] = {
        no_pods,
        {200, LIST(CLAIM("c", "gpu.elasticgpu.io",
                         USER("p") "," USER("q")) "," CLAIM("d", "gpu.elasticgpu.io", USER("r")))}};
    struct err err;

    (void) state;
    assert_int_equal(check(&err, once, answers, 2), -EBUSY);
    assert_non_null(strstr(err.text, "0 pods hold shares, and pods use 2 ResourceClaims"));
}

static void an_api_server_without_claims_has_none(void **state) {
    struct err err;

    (void) state;
    assert_int_equal(check(&err, once, (struct page[]){no_pods, {404, "{}"}}, 2), 0);
    assert_int_equal(check(&err, once, (struct page[]){no_pods, {403, "{}"}}, 2), -EREMOTEIO);
    assert_non_null(strstr(err.text, "cannot list the ResourceClaims: forbidden"));
    assert_int_equal(check(&err, once, (struct page[]){{404, "{}"}}, 1), -EREMOTEIO);
}

static void what_is_no_list_is_not_an_empty_one(void **state) {
    struct err err;

    (void) state;
    assert_int_equal(check(&err, once, (struct page[]){{200, NULL}}, 1), -EBADMSG);
    assert_non_null(strstr(err.text, "the API server's answer is no list"));
    assert_int_equal(check(&err, once, (struct page[]){{200, "{\"items\":null}"}}, 1), -EBADMSG);
    assert_int_equal(check(&err, by_pages, (struct page[]){{200, PART("")}, {200, "{}"}}, 2),
                     -EBADMSG);
    assert_int_equal(check(&err, once, (struct page[]){{403, "{}"}}, 1), -EREMOTEIO);
    assert_non_null(strstr(err.text, "forbidden"));
    assert_int_equal(check(&err, once, (struct page[]){no_pods, {200, "{}"}}, 2), -EBADMSG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pods_with_shares_are_counted_over_all_pages),
        cmocka_unit_test(claims_that_pods_use_are_counted),
        cmocka_unit_test(an_api_server_without_claims_has_none),
        cmocka_unit_test(what_is_no_list_is_not_an_empty_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
