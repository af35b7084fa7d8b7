/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/token_review.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/audiences.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "kube/api/client.h"
#include "wire/http_status.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define TOKENS_PATH "/apis/authentication.k8s.io/v1/tokenreviews"
#define ACCESS_PATH "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#define REQUEST_MS 2000 /* a client waits for all of them */
#define REQUEST_MAX ((size_t) 256 << 10)
#define CREDENTIAL_ID "authentication.kubernetes.io/credential-id"

/* What the API server is being asked about. */
enum audience {
    AUDIENCE_BOTH,   /* the agents' and its own */
    AUDIENCE_AGENTS, /* its own is not known: it is asked about that later */
    AUDIENCE_SERVERS,
};

struct token_review {
    struct token_reviewer *reviewer;
    struct kube_call *call;
    char *token;
    enum audience audience;
    unsigned char account[VERDICT_KEY_SIZE];
    token_review_cb on_verdict;
    void *userdata;
};

static void review_free(struct token_review *review) {
    text_wipe(review->token);
    free(review);
}

static uint64_t now_of(const struct token_review *review) {
    return uv_now(kube_client_loop(review->reviewer->client));
}

static void end(struct token_review *review, enum access_verdict verdict, const char *text,
                uint64_t until) {
    token_review_cb on_verdict = review->on_verdict;
    void *userdata = review->userdata;

    review_free(review);
    on_verdict(verdict, text, until, userdata);
}

static int post(struct token_review *review, const char *path, struct buf *body,
                kube_response_cb on_response) {
    struct err err;

    if (buf_error(body) < 0)
        return buf_error(body);
    return kube_request(review->reviewer->client, "POST", path, NULL, body->data, body->len,
                        REQUEST_MS, on_response, review, &review->call, &err);
}

/* Whether the API server has answered; ends the review otherwise. */
static bool has_answered(struct token_review *review, const struct kube_response *response) {
    review->call = NULL;
    if (http_is_success(response->status))
        return true;
    end(review, response->status == 403 ? ACCESS_NO_RIGHT : ACCESS_NO_ANSWER, response->text, 0);
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
static void put_account(struct json_writer *w, struct json user, bool with_credential) {
    struct json_iter it = json_iter(json_get(user, "extra"));
    const char *key;
    struct json values;

    json_put_string(w, "user", json_string_or(json_get(user, "username"), ""));
    json_put_string(w, "uid", json_string_or(json_get(user, "uid"), ""));
    put_strings(w, "groups", json_get(user, "groups"));
    json_object_begin(w, "extra");
    while (json_next(&it, &key, &values))
        if (with_credential || strcmp(key, CREDENTIAL_ID) != 0)
            put_strings(w, key, values);
    json_object_end(w);
}

/* All tokens of an account have one verdict: what the API server calls each of them is left out. */
static int find_key(struct token_review *review, struct json user) {
    _cleanup_buf_ struct buf text = BUF_INIT(REQUEST_MAX);
    struct json_writer w = {.out = &text};

    json_object_begin(&w, NULL);
    put_account(&w, user, false);
    json_object_end(&w);
    return buf_error(&text) < 0 ? buf_error(&text)
                                : kept_verdict_key(text.data, text.len, review->account);
}

static void on_access(const struct kube_response *response, void *userdata) {
    struct token_review *review = userdata;
    struct json status = json_get(response->body, "status");
    bool allowed = false, denied = false;
    enum access_verdict verdict;
    uint64_t until;

    if (!has_answered(review, response))
        return;
    (void) json_bool(json_get(status, "allowed"), &allowed);
    (void) json_bool(json_get(status, "denied"), &denied);
    verdict = allowed && !denied ? ACCESS_ALLOWED : ACCESS_FORBIDDEN;
    until = now_of(review) + (verdict == ACCESS_ALLOWED ? ACCESS_ALLOWED_MS : ACCESS_REFUSED_MS);
    kept_verdicts_put(&review->reviewer->accounts, review->account, verdict, until);
    end(review, verdict, "", until);
}

static int post_access(struct token_review *review, struct json user) {
    _cleanup_buf_ struct buf body = BUF_INIT(REQUEST_MAX);
    struct json_writer w = {.out = &body};

    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "authorization.k8s.io/v1");
    json_put_string(&w, "kind", "SubjectAccessReview");
    json_object_begin(&w, "spec");
    put_account(&w, user, true);
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

static int find_access(struct token_review *review, struct json user) {
    const struct kept_verdict *kept;
    int r = find_key(review, user);

    if (r < 0)
        return r;
    kept = kept_verdicts_find(&review->reviewer->accounts, review->account);
    if (!kept || kept->until <= now_of(review))
        return post_access(review, user);
    end(review, kept->verdict, "", kept->until);
    return 0;
}

/* ---- which account it is ---- */

static int ask_account(struct token_review *review, enum audience audience);

/* An API server that knows no audiences names none: the token is its own then. One of those that it
 * was asked about is in its answer otherwise. */
static bool is_authenticated(const struct token_review *review, struct json status) {
    bool is = false;

    (void) json_bool(json_get(status, "authenticated"), &is);
    return is && (review->audience != AUDIENCE_AGENTS ||
                  json_has_string(json_get(status, "audiences"), AGENT_AUDIENCE));
}

static void on_account(const struct kube_response *response, void *userdata) {
    struct token_review *review = userdata;
    struct json status = json_get(response->body, "status");
    int r;

    if (!has_answered(review, response))
        return;
    if (is_authenticated(review, status))
        r = find_access(review, json_get(status, "user"));
    else if (review->audience == AUDIENCE_AGENTS)
        r = ask_account(review, AUDIENCE_SERVERS);
    else {
        end(review, ACCESS_UNKNOWN, "", now_of(review) + ACCESS_REFUSED_MS);
        return;
    }
    if (r < 0)
        end(review, ACCESS_NO_ANSWER, "a request to it cannot be sent", 0);
}

/* Without audiences the API server takes its own: that of tokens which pods have by default. */
static int ask_account(struct token_review *review, enum audience audience) {
    _cleanup_wipe_ struct buf body = BUF_INIT(REQUEST_MAX);
    struct json_writer w = {.out = &body};

    review->audience = audience;
    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "authentication.k8s.io/v1");
    json_put_string(&w, "kind", "TokenReview");
    json_object_begin(&w, "spec");
    json_put_string(&w, "token", review->token);
    if (audience != AUDIENCE_SERVERS) {
        json_array_begin(&w, "audiences");
        json_put_string(&w, NULL, AGENT_AUDIENCE);
        if (audiences_put(review->reviewer->token_file, &w) > 0)
            review->audience = AUDIENCE_BOTH;
        json_array_end(&w);
    }
    json_object_end(&w);
    json_object_end(&w);
    return post(review, TOKENS_PATH, &body, on_account);
}

int token_review_start(struct token_reviewer *reviewer, const char *token,
                       token_review_cb on_verdict, void *userdata, struct token_review **ret) {
    struct token_review *review = calloc(1, sizeof(*review));
    int r;

    if (!review)
        return -ENOMEM;
    *review = (struct token_review){.reviewer = reviewer,
                                    .token = strdup(token),
                                    .on_verdict = on_verdict,
                                    .userdata = userdata};
    r = review->token ? ask_account(review, AUDIENCE_AGENTS) : -ENOMEM;
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
