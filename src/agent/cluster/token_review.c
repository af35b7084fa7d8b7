/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/token_review.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "kube/api/client.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define TOKENS_PATH "/apis/authentication.k8s.io/v1/tokenreviews"
#define ACCESS_PATH "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#define REQUEST_MS 2000 /* a client waits for all of them */
#define REQUEST_MAX ((size_t) 256 << 10)

struct token_review {
    struct kube_client *client;
    struct kube_call *call;
    char *token;
    bool is_own_audience; /* that the API server is being asked about */
    token_review_cb on_verdict;
    void *userdata;
};

static void review_free(struct token_review *review) {
    free(review->token);
    free(review);
}

static void end(struct token_review *review, enum access_verdict verdict, const char *text) {
    token_review_cb on_verdict = review->on_verdict;
    void *userdata = review->userdata;

    review_free(review);
    on_verdict(verdict, text, userdata);
}

static int post(struct token_review *review, const char *path, struct buf *body,
                kube_response_cb on_response) {
    struct err err;

    if (buf_error(body) < 0)
        return buf_error(body);
    return kube_request(review->client, "POST", path, NULL, body->data, body->len, REQUEST_MS,
                        on_response, review, &review->call, &err);
}

/* Whether the API server has answered; ends the review otherwise. */
static bool has_answered(struct token_review *review, const struct kube_response *response) {
    review->call = NULL;
    if (response->status >= 200 && response->status < 300)
        return true;
    end(review, response->status == 403 ? ACCESS_NO_RIGHT : ACCESS_NO_ANSWER, response->text);
    return false;
}

/* ---- what the account may do ---- */

static void put_strings(struct json_writer *w, const char *key, struct json list) {
    struct json_iter it = json_iter(list);
    struct json value;

    json_array_begin(w, key);
    while (json_next(&it, NULL, &value))
        json_put_string(w, NULL, json_string_or(value, ""));
    json_array_end(w);
}

/* All that the TokenReview says of the account: authorizers other than RBAC use it. */
static void put_account(struct json_writer *w, struct json user) {
    struct json_iter it = json_iter(json_get(user, "extra"));
    const char *key;
    struct json values;

    json_put_string(w, "user", json_string_or(json_get(user, "username"), ""));
    json_put_string(w, "uid", json_string_or(json_get(user, "uid"), ""));
    put_strings(w, "groups", json_get(user, "groups"));
    json_object_begin(w, "extra");
    while (json_next(&it, &key, &values))
        put_strings(w, key, values);
    json_object_end(w);
}

static void on_access(const struct kube_response *response, void *userdata) {
    struct token_review *review = userdata;
    struct json status = json_get(response->body, "status");
    bool allowed = false, denied = false;

    if (!has_answered(review, response))
        return;
    (void) json_bool(json_get(status, "allowed"), &allowed);
    (void) json_bool(json_get(status, "denied"), &denied);
    end(review, allowed && !denied ? ACCESS_ALLOWED : ACCESS_FORBIDDEN, "");
}

static int ask_access(struct token_review *review, struct json user) {
    _cleanup_buf_ struct buf body = BUF_INIT(REQUEST_MAX);
    struct json_writer w = {.out = &body};

    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "authorization.k8s.io/v1");
    json_put_string(&w, "kind", "SubjectAccessReview");
    json_object_begin(&w, "spec");
    put_account(&w, user);
    json_object_begin(&w, "resourceAttributes");
    json_put_string(&w, "group", "elasticgpu.io");
    json_put_string(&w, "resource", "gpus");
    json_put_string(&w, "subresource", "usage");
    json_put_string(&w, "verb", "get");
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    return post(review, ACCESS_PATH, &body, on_access);
}

/* ---- which account it is ---- */

static int ask_account(struct token_review *review, bool is_own_audience);

static bool has_string(struct json list, const char *wanted) {
    struct json_iter it = json_iter(list);
    struct json value;

    while (json_next(&it, NULL, &value))
        if (json_is_string(value, wanted))
            return true;
    return false;
}

/* An API server that knows no audiences names none: the token is its own then. */
static bool is_authenticated(const struct token_review *review, struct json status) {
    bool is = false;

    (void) json_bool(json_get(status, "authenticated"), &is);
    return is &&
           (!review->is_own_audience || has_string(json_get(status, "audiences"), AGENT_AUDIENCE));
}

static void on_account(const struct kube_response *response, void *userdata) {
    struct token_review *review = userdata;
    struct json status = json_get(response->body, "status");
    int r;

    if (!has_answered(review, response))
        return;
    if (is_authenticated(review, status))
        r = ask_access(review, json_get(status, "user"));
    else if (review->is_own_audience)
        r = ask_account(review, false);
    else {
        end(review, ACCESS_UNKNOWN, "");
        return;
    }
    if (r < 0)
        end(review, ACCESS_NO_ANSWER, "a request to it cannot be sent");
}

/* Without audiences the API server takes its own: that of tokens which pods have by default. */
static int ask_account(struct token_review *review, bool is_own_audience) {
    _cleanup_buf_ struct buf body = BUF_INIT(REQUEST_MAX);
    struct json_writer w = {.out = &body};

    review->is_own_audience = is_own_audience;
    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "authentication.k8s.io/v1");
    json_put_string(&w, "kind", "TokenReview");
    json_object_begin(&w, "spec");
    json_put_string(&w, "token", review->token);
    if (is_own_audience) {
        json_array_begin(&w, "audiences");
        json_put_string(&w, NULL, AGENT_AUDIENCE);
        json_array_end(&w);
    }
    json_object_end(&w);
    json_object_end(&w);
    return post(review, TOKENS_PATH, &body, on_account);
}

int token_review_start(struct kube_client *client, const char *token, token_review_cb on_verdict,
                       void *userdata, struct token_review **ret) {
    struct token_review *review = calloc(1, sizeof(*review));
    int r;

    if (!review)
        return -ENOMEM;
    *review = (struct token_review){
        .client = client, .token = strdup(token), .on_verdict = on_verdict, .userdata = userdata};
    r = review->token ? ask_account(review, true) : -ENOMEM;
    if (r < 0) {
        review_free(review);
        return r;
    }
    *ret = review;
    return 0;
}

void token_review_cancel(struct token_review *review) {
    if (review->call)
        kube_call_cancel(review->call);
    review_free(review);
}
