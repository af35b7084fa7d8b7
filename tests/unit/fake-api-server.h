/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The test is the API server: it sees each write, answers it, and keeps the GPU objects. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "fake-reflector.h"
#include "kube/api/client.h"
#include "kube/objects/gpu_object.h"
#include "wire/json.h"

static struct {
    kube_response_cb callback; /* of the open request; NULL: none is open */
    void *userdata;
    char method[8], path[256], body[16384];
} api;

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
    (void) snprintf(api.body, sizeof(api.body), "%.*s", (int) size, body);
    *ret_call = (struct kube_call *) &api;
    return 0;
}

static void answer(const char *text) {
    struct kube_response response = {.status = 200, .text = "", .reason = ""};
    kube_response_cb callback = api.callback;
    _cleanup_json_ struct json_parser *parser = NULL;

    assert_int_equal(json_open(text, strlen(text), &parser, &response.body, NULL), 0);
    api.callback = NULL;
    callback(&response, api.userdata);
}

/* ---- GPU objects ---- */

#define OBJECTS_MAX 8

/* What the API server has. */
static struct {
    char name[64], uid[16], head[sizeof(api.body)]; /* metadata and spec */
    char status[sizeof(api.body)];                  /* the last one */
} objects_made[OBJECTS_MAX];
static unsigned nmade, uids;

static unsigned find_made(const char *name) {
    unsigned i = 0;

    while (i < nmade && strcmp(objects_made[i].name, name) != 0)
        i++;
    return i;
}

/* The object of the open request, by its path or its body. */
static void name_of_request(char ret[static 64]) {
    const char *at = strstr(api.path, GPU_OBJECTS_PATH "/");

    at = at ? at + strlen(GPU_OBJECTS_PATH "/") : strstr(api.body, "\"name\":\"") + 8;
    (void) snprintf(ret, 64, "%.*s", (int) strcspn(at, "/\""), at);
}

static inline void answer_object(void) {
    char name[64], text[3 * sizeof(api.body)];
    bool status = strstr(api.path, "/status") != NULL;
    unsigned i;

    name_of_request(name);
    i = find_made(name);
    if (strcmp(api.method, "DELETE") == 0) {
        assert_true(i < nmade);
        assert_non_null(strstr(api.body, objects_made[i].uid));
        objects_made[i] = objects_made[--nmade];
        answer("{\"kind\":\"Status\",\"status\":\"Success\"}");
        return;
    }
    if (strcmp(api.method, "POST") == 0) {
        assert_int_equal(i, nmade);
        assert_in_range(nmade++, 0, OBJECTS_MAX - 1);
        text_copy(objects_made[i].name, sizeof(objects_made[i].name), name);
        (void) snprintf(objects_made[i].uid, sizeof(objects_made[i].uid), "uid-%u", uids++);
    }
    assert_true(i < nmade);
    if (!status) {
        const char *metadata = strstr(api.body, "\"metadata\":{") + strlen("\"metadata\":{");
        char uid[sizeof(objects_made[i].uid)];

        memcpy(uid, objects_made[i].uid, sizeof(uid));
        (void) snprintf(objects_made[i].head, sizeof(objects_made[i].head),
                        "{\"metadata\":{\"uid\":\"%s\",%s", uid, metadata);
    }
    text_copy(objects_made[i].status, sizeof(objects_made[i].status), status ? api.body : "");
    (void) snprintf(text, sizeof(text), "%.*s%s%s", (int) strlen(objects_made[i].head) - 1,
                    objects_made[i].head, status ? "," : "", status ? api.body + 1 : "}");
    answer(text);
}
