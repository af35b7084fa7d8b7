/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/file.h"
#include "kube/api/config.h"
#include "kube/api/token_file.h"

static void takes_addresses_apart(void **state) {
    static const struct {
        const char *url, *host, *port, *authority;
    } good[] = {
        {"https://10.96.0.1", "10.96.0.1", "443", "10.96.0.1"},
        {"https://10.96.0.1:6443/", "10.96.0.1", "6443", "10.96.0.1:6443"},
        {"https://localhost:1", "localhost", "1", "localhost:1"},
        {"https://[fd00::1]:6443", "fd00::1", "6443", "[fd00::1]:6443"},
        {"https://[fd00::1]", "fd00::1", "443", "[fd00::1]"},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct kube_address address;
        struct err err;
        assert_int_equal(kube_address_parse(good[i].url, &address, &err), 0);
        assert_string_equal(address.host, good[i].host);
        assert_string_equal(address.port, good[i].port);
        assert_string_equal(address.authority, good[i].authority);
    }
}

static void refuses_other_addresses(void **state) {
    static const char *const bad[] = {
        "",
        "http://a",
        "https://",
        "https://:1",
        "https://a:",
        "https://a//",
        "https://a:0",
        "https://a:65536",
        "https://a:x",
        "https://a/b",
        "https://[",
        "https://[fd00::1",
        "https://[]:1",
        "https://[a]b",
        "https://[a]:",
        "https:///",
        "https://a:123456",
        "https://a:-1",
        "https://a:1:2:3",
    };
    (void) state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct kube_address address;
        struct err err = {0};
        int r = kube_address_parse(bad[i], &address, &err);
        assert_int_equal(r, -EINVAL);
        assert_non_null(strstr(err.text, "the API server's address"));
    }
    char host[300] = "https://";
    memset(host + 8, 'a', sizeof(host) - 9);
    struct kube_address address;
    assert_int_equal(kube_address_parse(host, &address, NULL), -EINVAL);
}

static void explains_what_is_missing(void **state) {
    struct kube_config config;
    struct err err;
    (void) state;
    (void) unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(kube_config_load(NULL, NULL, NULL, &config, &err), -ENOENT);
    assert_non_null(strstr(err.text, "--api-server"));
    assert_int_equal(kube_config_load("https://a", NULL, NULL, &config, &err), -EINVAL);
    assert_non_null(strstr(err.text, "CA file"));
    assert_int_equal(kube_config_load("https://a", NULL, "/nonexistent", &config, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent"));
    assert_int_equal(kube_config_load("https://a", "/nonexistent", "/dev/null", &config, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "token file /nonexistent"));
}

static void loads_from_the_pod(void **state) {
    struct kube_config config;
    struct err err;
    (void) state;
    (void) setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    (void) setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    assert_int_equal(kube_config_load(NULL, "/dev/null", "/dev/null", &config, &err), 0);
    assert_string_equal(config.server, "https://[fd00::1]:443");
    kube_config_done(&config);
    (void) setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
    assert_int_equal(kube_config_load(NULL, "/dev/null", "/dev/null", &config, &err), 0);
    assert_string_equal(config.server, "https://10.96.0.1:443");
    kube_config_done(&config);
}

/* A read that fails leaves the token that was read. */
static void follows_the_token_file(void **state) {
    static const char *const bad[] = {"", " \n", "two words", "\x7f", "first\nsecond"};
    char path[] = "/tmp/aliquot-token-XXXXXX";
    struct token_file file = {.path = path};
    struct err err = {0};
    (void) state;
    assert_return_code(close(mkstemp(path)), errno);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(file_replace(path, bad[i], strlen(bad[i]), 0600, &err), 0);
        assert_int_equal(token_file_refresh(&file, &err), -EINVAL);
        assert_non_null(strstr(err.text, path));
        assert_null(token_file_token(&file));
    }
    assert_int_equal(file_replace(path, "first\r\n", 7, 0600, &err), 0);
    assert_int_equal(token_file_refresh(&file, &err), 0);
    assert_string_equal(token_file_token(&file), "first");
    assert_int_equal(file_replace(path, "", 0, 0600, &err), 0);
    assert_int_equal(token_file_refresh(&file, &err), 0);
    assert_string_equal(token_file_header(&file), "Bearer first");
    assert_int_equal(file_replace(path, "second", 6, 0600, &err), 0);
    assert_int_equal(token_file_refresh(&file, &err), 0);
    assert_string_equal(token_file_header(&file), "Bearer second");
    assert_return_code(unlink(path), errno);
    assert_int_equal(token_file_refresh(&file, &err), 0);
    assert_string_equal(token_file_token(&file), "second");
    token_file_done(&file);
    assert_int_equal(token_file_refresh(&file, &err), -ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_addresses_apart),    cmocka_unit_test(refuses_other_addresses),
        cmocka_unit_test(explains_what_is_missing), cmocka_unit_test(loads_from_the_pod),
        cmocka_unit_test(follows_the_token_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
