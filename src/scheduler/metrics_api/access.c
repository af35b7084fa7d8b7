/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/metrics_api/access.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "wire/json_write.h"

#define REVIEWS "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#define REVIEW_MAX ((size_t) 16 << 10)
#define TIMEOUT_MS 5000
#define EXTRA "X-Remote-Extra-"

/* One answer, by the whole text of its question. */
struct answer {
    UT_hash_handle hh;
    bool allowed;
    uint64_t until_ms;
    char question[];
};

struct check {
    struct check *prev, *next;
    struct access *access;
    access_cb done;
    void *userdata;
    struct buf question;
};

struct access {
    struct api api;
    struct answer *answers; /* uthash, the oldest first */
    struct check *checks;
    bool failing;
};

/* ---- the question ---- */

struct user {
    const char *name, *uid;
    struct json_writer *groups, *extra;
};

/* What a header's name may not have is percent-encoded in it. */
static void put_extra(struct json_writer *w, const char *name, const char *value) {
    char key[128];
    size_t n = 0;
    for (const char *at = name + strlen(EXTRA); *at && n < sizeof(key) - 1; at++) {
        char hex[3] = {0};
        if (at[0] == '%' && isxdigit((unsigned char) at[1]) && isxdigit((unsigned char) at[2])) {
            hex[0] = at[1];
            hex[1] = at[2];
            key[n++] = (char) strtoumax(hex, NULL, 16);
            at += 2;
        } else {
            key[n++] = (char) tolower((unsigned char) *at);
        }
    }
    key[n] = '\0';
    json_array_begin(w, key);
    json_put_string(w, NULL, value);
    json_array_end(w);
}

static void on_header(const char *name, const char *value, void *userdata) {
    struct user *user = userdata;
    if (strcasecmp(name, "X-Remote-User") == 0)
        user->name = user->name ? user->name : value;
    else if (strcasecmp(name, "X-Remote-Uid") == 0)
        user->uid = value;
    else if (strcasecmp(name, "X-Remote-Group") == 0)
        json_put_string(user->groups, NULL, value);
    else if (strncasecmp(name, EXTRA, strlen(EXTRA)) == 0)
        put_extra(user->extra, name, value);
}

/* As the API server names the parts of these paths. */
static void put_attributes(struct json_writer *w, const struct metrics_request *r) {
    bool custom = r->api == METRICS_API_CUSTOM;
    json_object_begin(w, "resourceAttributes");
    json_put_string(w, "namespace", r->namespace);
    json_put_string(w, "verb", custom ? "get" : "list");
    json_put_string(w, "group", custom ? METRICS_CUSTOM : METRICS_EXTERNAL);
    json_put_string(w, "version", custom ? METRICS_CUSTOM_VERSION : METRICS_EXTERNAL_VERSION);
    json_put_string(w, "resource", custom ? "pods" : r->metric);
    if (custom) {
        json_put_string(w, "subresource", r->metric);
        json_put_string(w, "name", r->pod);
    }
    json_object_end(w);
}

static bool write_question(const struct http_exchange *exchange, const struct metrics_request *r,
                           struct buf *out) {
    _cleanup_buf_ struct buf groups = BUF_INIT(REVIEW_MAX), extra = BUF_INIT(REVIEW_MAX);
    struct json_writer w = {.out = out}, group_list = {.out = &groups}, extras = {.out = &extra};
    struct user user = {.groups = &group_list, .extra = &extras};
    json_array_begin(&group_list, NULL);
    json_object_begin(&extras, NULL);
    http_each_header(exchange, on_header, &user);
    json_array_end(&group_list);
    json_object_end(&extras);
    if (!user.name || !*user.name || buf_error(&groups) < 0 || buf_error(&extra) < 0)
        return false;
    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "authorization.k8s.io/v1");
    json_put_string(&w, "kind", "SubjectAccessReview");
    json_object_begin(&w, "spec");
    json_put_string(&w, "user", user.name);
    if (user.uid)
        json_put_string(&w, "uid", user.uid);
    json_put_raw(&w, "groups", buf_str(&groups));
    json_put_raw(&w, "extra", buf_str(&extra));
    put_attributes(&w, r);
    json_object_end(&w);
    json_object_end(&w);
    return buf_error(out) == 0;
}

/* ---- answers ---- */

static uint64_t now_ms(void) {
    return uv_hrtime() / 1000000;
}

static void forget(struct access *a, struct answer *answer) {
    HASH_DEL(a->answers, answer);
    free(answer);
}

static void keep(struct access *a, const char *question, bool allowed) {
    struct answer *answer, *next;
    size_t len = strlen(question);
    uint64_t at = now_ms();
    HASH_FIND_STR(a->answers, question, answer);
    if (answer)
        forget(a, answer);
    HASH_ITER(hh, a->answers, answer, next)
        if (answer->until_ms <= at || HASH_COUNT(a->answers) >= ACCESS_MAX)
            forget(a, answer);
    if (!(answer = malloc(sizeof(*answer) + len + 1)))
        return;
    answer->allowed = allowed;
    answer->until_ms = at + (allowed ? ACCESS_ALLOWED_MS : ACCESS_REFUSED_MS);
    memcpy(answer->question, question, len + 1);
    HASH_ADD_STR(a->answers, question, answer);
    (void) hash_added_or_freed(answer);
}

static void end_check(struct check *check, enum access_verdict verdict) {
    if (check->done)
        check->done(verdict, check->userdata);
    DL_DELETE(check->access->checks, check);
    buf_done(&check->question);
    free(check);
}

static void on_review(const struct kube_response *response, void *userdata) {
    struct check *check = userdata;
    struct access *a = check->access;
    bool allowed = false;
    bool known = response->status >= 200 && response->status < 300 &&
                 json_bool(JSON_PATH(response->body, "status", "allowed"), &allowed);
    if (!known && !a->failing)
        log_warn("metrics API: cannot ask whether a user may read a metric: %s", response->text);
    a->failing = !known;
    if (known)
        keep(a, buf_str(&check->question), allowed);
    end_check(check, !known ? ACCESS_UNKNOWN : allowed ? ACCESS_YES : ACCESS_NO);
}

void access_check(struct access *a, const struct http_exchange *exchange,
                  const struct metrics_request *request, access_cb done, void *userdata) {
    struct buf question = BUF_INIT(REVIEW_MAX);
    struct answer *answer = NULL;
    struct err err;
    if (!write_question(exchange, request, &question)) {
        buf_done(&question);
        done(ACCESS_NO_USER, userdata);
        return;
    }
    HASH_FIND_STR(a->answers, buf_str(&question), answer);
    if (answer && answer->until_ms > now_ms()) {
        buf_done(&question);
        done(answer->allowed ? ACCESS_YES : ACCESS_NO, userdata);
        return;
    }
    struct check *check = malloc(sizeof(*check));
    if (!check) {
        buf_done(&question);
        done(ACCESS_UNKNOWN, userdata);
        return;
    }
    *check = (struct check){.access = a, .done = done, .userdata = userdata, .question = question};
    DL_APPEND(a->checks, check);
    if (a->api.request(a->api.context, "POST", REVIEWS, NULL, question.data, question.len,
                       TIMEOUT_MS, on_review, check, &err) < 0)
        end_check(check, ACCESS_UNKNOWN);
}

struct access *access_new(const struct api *api) {
    struct access *a = calloc(1, sizeof(*a));
    if (a)
        a->api = *api;
    return a;
}

struct access *access_free(struct access *a) {
    struct answer *answer, *next;
    struct check *check, *after;
    if (!a)
        return NULL;
    HASH_ITER(hh, a->answers, answer, next)
        forget(a, answer);
    DL_FOREACH_SAFE(a->checks, check, after) {
        check->done = NULL;
        end_check(check, ACCESS_UNKNOWN);
    }
    free(a);
    return NULL;
}
