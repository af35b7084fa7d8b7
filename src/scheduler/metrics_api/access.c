/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/metrics_api/access.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "kube/api/kept_verdicts.h"
#include "wire/http_status.h"
#include "wire/json_write.h"

#define REVIEWS "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#define REVIEW_MAX ((size_t) 16 << 10)
#define TIMEOUT_MS 5000
#define EXTRA "X-Remote-Extra-"
#define EXTRA_KEY_MAX 128
#define EXTRAS_MAX 32

struct check {
    struct check *prev, *next;
    struct access *access;
    access_cb done;
    void *userdata;
    unsigned char key[VERDICT_KEY_SIZE]; /* of the question's text */
};

struct access {
    struct api api;
    struct kept_verdicts verdicts;
    struct check *checks;
    bool failing;
};

/* ---- the question ---- */

struct extra {
    char key[EXTRA_KEY_MAX];
    const char *value;
};

struct user {
    const char *name;
    struct json_writer *groups;
    struct extra extras[EXTRAS_MAX];
    size_t nextras;
    bool unread; /* more than fits here */
};

/* What a header's name may not have is percent-encoded in it. False: it does not fit. */
static bool read_key(const char *name, char key[EXTRA_KEY_MAX]) {
    size_t n = 0;
    for (const char *at = name; *at; at++) {
        int byte = at[0] == '%' ? num_hex_byte(at + 1) : -1;
        if (n == EXTRA_KEY_MAX - 1)
            return false;
        if (byte >= 0) {
            key[n++] = (char) byte;
            at += 2;
        } else {
            key[n++] = (char) tolower((unsigned char) *at);
        }
    }
    key[n] = '\0';
    return true;
}

static void add_extra(struct user *user, const char *name, const char *value) {
    struct extra *e = &user->extras[user->nextras];
    if (user->nextras < EXTRAS_MAX && read_key(name, e->key)) {
        e->value = value;
        user->nextras++;
    } else {
        user->unread = true;
    }
}

/* A header for each value; the review has one list of each key. */
static void put_extras(struct json_writer *w, const struct user *user) {
    bool put[EXTRAS_MAX] = {0};
    json_object_begin(w, "extra");
    for (size_t i = 0; i < user->nextras; i++) {
        if (put[i])
            continue;
        json_array_begin(w, user->extras[i].key);
        for (size_t k = i; k < user->nextras; k++) {
            if (strcmp(user->extras[k].key, user->extras[i].key) != 0)
                continue;
            json_put_string(w, NULL, user->extras[k].value);
            put[k] = true;
        }
        json_array_end(w);
    }
    json_object_end(w);
}

/* X-Remote-Uid is not read: API servers before 1.32 hand on what the client itself has sent. */
static void on_header(const char *name, const char *value, void *userdata) {
    struct user *user = userdata;
    if (strcasecmp(name, ACCESS_USER) == 0)
        user->name = user->name ? user->name : value;
    else if (strcasecmp(name, "X-Remote-Group") == 0)
        json_put_string(user->groups, NULL, value);
    else if (strncasecmp(name, EXTRA, strlen(EXTRA)) == 0)
        add_extra(user, name + strlen(EXTRA), value);
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
    _cleanup_buf_ struct buf groups = BUF_INIT(REVIEW_MAX);
    struct json_writer w = {.out = out}, group_list = {.out = &groups};
    struct user user = {.groups = &group_list};
    json_array_begin(&group_list, NULL);
    http_each_header(exchange, on_header, &user);
    json_array_end(&group_list);
    if (!user.name || !*user.name || user.unread || buf_error(&groups) < 0)
        return false;
    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "authorization.k8s.io/v1");
    json_put_string(&w, "kind", "SubjectAccessReview");
    json_object_begin(&w, "spec");
    json_put_string(&w, "user", user.name);
    json_put_raw(&w, "groups", buf_str(&groups));
    put_extras(&w, &user);
    put_attributes(&w, r);
    json_object_end(&w);
    json_object_end(&w);
    return buf_error(out) == 0;
}

/* ---- verdicts ---- */

static uint64_t now_ms(void) {
    return uv_hrtime() / 1000000;
}

static void keep(struct access *a, const unsigned char *key, enum access_verdict verdict) {
    uint64_t at = now_ms();
    kept_verdicts_forget_ended(&a->verdicts, at);
    kept_verdicts_put(&a->verdicts, key, verdict,
                      at + (verdict == ACCESS_YES ? ACCESS_ALLOWED_MS : ACCESS_REFUSED_MS));
}

static void end_check(struct check *check, enum access_verdict verdict) {
    if (check->done)
        check->done(verdict, check->userdata);
    DL_DELETE(check->access->checks, check);
    free(check);
}

static void on_review(const struct kube_response *response, void *userdata) {
    struct check *check = userdata;
    struct access *a = check->access;
    bool allowed = false;
    bool known = http_is_success(response->status) &&
                 json_bool(JSON_PATH(response->body, "status", "allowed"), &allowed);
    if (!known && !a->failing)
        log_warn("metrics API: cannot ask whether a user may read a metric: %s", response->text);
    a->failing = !known;
    enum access_verdict verdict = !known ? ACCESS_UNKNOWN : allowed ? ACCESS_YES : ACCESS_NO;
    if (known)
        keep(a, check->key, verdict);
    end_check(check, verdict);
}

void access_check(struct access *a, const struct http_exchange *exchange,
                  const struct metrics_request *request, access_cb done, void *userdata) {
    _cleanup_buf_ struct buf question = BUF_INIT(REVIEW_MAX);
    unsigned char key[VERDICT_KEY_SIZE];
    struct err err;
    if (!write_question(exchange, request, &question)) {
        done(ACCESS_NO_USER, userdata);
        return;
    }
    if (kept_verdict_key(question.data, question.len, key) < 0) {
        done(ACCESS_UNKNOWN, userdata);
        return;
    }
    const struct kept_verdict *kept = kept_verdicts_find(&a->verdicts, key);
    if (kept && kept->until > now_ms()) {
        done(kept->verdict, userdata);
        return;
    }
    struct check *check = malloc(sizeof(*check));
    if (!check) {
        done(ACCESS_UNKNOWN, userdata);
        return;
    }
    *check = (struct check){.access = a, .done = done, .userdata = userdata};
    memcpy(check->key, key, sizeof(key));
    DL_APPEND(a->checks, check);
    if (a->api.request(a->api.context, "POST", REVIEWS, NULL, question.data, question.len,
                       TIMEOUT_MS, on_review, check, &err) < 0)
        end_check(check, ACCESS_UNKNOWN);
}

struct access *access_new(const struct api *api) {
    struct access *a = calloc(1, sizeof(*a));
    if (a)
        *a = (struct access){.api = *api, .verdicts = {.max = ACCESS_MAX}};
    return a;
}

struct access *access_free(struct access *a) {
    struct check *check, *after;
    if (!a)
        return NULL;
    kept_verdicts_forget_ended(&a->verdicts, UINT64_MAX);
    DL_FOREACH_SAFE(a->checks, check, after) {
        check->done = NULL;
        end_check(check, ACCESS_UNKNOWN);
    }
    free(a);
    return NULL;
}
