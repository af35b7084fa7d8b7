/* SPDX-License-Identifier: Apache-2.0 */

/* The writer of Events in virtual time; the test is the API server. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/ratelimit.h"
#include "fail-malloc.h"
#include "kube/api/event_writer.h"
#include "wire/json.h"

#define SECOND 1000
#define MINUTE 60000
#define HOUR 3600000

/* ---- an API server that keeps Events ---- */

struct stored {
    UT_hash_handle hh;
    char path[EVENT_PATH_MAX];
    char message[2048];
    char uid[64];
    uint64_t count;
};

struct world {
    struct event_writer *writer;
    struct json_parser *parser;
    struct stored *stored;
    uint64_t now;
    unsigned posts, patches, requests, in_second;
    unsigned most_in_second;
    uint64_t second;
    int status;    /* of all answers, where it is not 0 */
    bool failed;   /* an allocation of the writer's */
    int fail_next; /* so many are not sent at all */
    const char *gone;
};

static void create(struct world *w, const char *path, struct json root, int *ret_status) {
    struct stored *s = calloc(1, sizeof(*s)), *old;
    assert_non_null(s);
    (void) snprintf(s->path, sizeof(s->path), "%s/%s", path,
                    json_string(JSON_PATH(root, "metadata", "name")));
    HASH_FIND_STR(w->stored, s->path, old);
    if (old) {
        free(s);
        *ret_status = 409;
        return;
    }
    (void) snprintf(s->message, sizeof(s->message), "%s", json_string(json_get(root, "message")));
    (void) snprintf(s->uid, sizeof(s->uid), "%s",
                    json_string(JSON_PATH(root, "involvedObject", "uid")));
    assert_true(json_u64(json_get(root, "count"), &s->count));
    assert_true(strlen(s->message) > 0);
    HASH_ADD_STR(w->stored, path, s);
    w->posts++;
}

static void patch(struct world *w, const char *path, struct json root, char answer[static 64],
                  int *ret_status) {
    struct stored *s;
    const char *message = json_string(json_get(root, "message"));
    HASH_FIND_STR(w->stored, path, s);
    if (!s) {
        *ret_status = 404;
        return;
    }
    if (message)
        (void) snprintf(s->message, sizeof(s->message), "%s", message);
    (void) json_u64(json_get(root, "count"), &s->count);
    assert_non_null(json_string(json_get(root, "lastTimestamp")));
    (void) snprintf(answer, 64, "{\"count\":%" PRIu64 "}", s->count);
    w->patches++;
}

struct answer {
    struct world *w;
    kube_response_cb callback;
    void *userdata;
    int status;
    char body[64];
};

/* The answers come later, as the API server's do. */
static struct answer answers[64];
static size_t nanswers;

static int serve(void *context, const char *method, const char *path, const char *content_type,
                 const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                 void *userdata, struct err *err) {
    struct world *w = context;
    struct answer a = {w, on_response, userdata, strcmp(method, "POST") == 0 ? 201 : 200, "{}"};
    struct json root;
    (void) timeout_ms, (void) err;
    w->failed |= fail_malloc_end(); /* the server's own memory does not fail */
    if (w->fail_next > 0) {
        w->fail_next--;
        return -ENOBUFS;
    }
    w->requests++;
    w->in_second = w->now / SECOND == w->second ? w->in_second + 1 : 1;
    w->second = w->now / SECOND;
    if (w->in_second > w->most_in_second)
        w->most_in_second = w->in_second;
    assert_int_equal(json_parse(w->parser, body, size, &root, NULL), 0);
    if (w->status)
        a.status = w->status;
    else if (strcmp(method, "POST") == 0)
        create(w, path, root, &a.status);
    else
        patch(w, path, root, a.body, &a.status);
    assert_true((strcmp(method, "PATCH") == 0) ==
                (content_type && strcmp(content_type, KUBE_MERGE_PATCH) == 0));
    assert_in_range(nanswers, 0, 63);
    answers[nanswers++] = a;
    return 0;
}

static void deliver(void) {
    while (nanswers > 0) {
        struct answer a = answers[--nanswers];
        struct kube_response response = {.status = a.status, .text = "", .reason = ""};
        assert_int_equal(json_parse(a.w->parser, a.body, strlen(a.body), &response.body, NULL), 0);
        a.callback(&response, a.userdata);
    }
}

static bool holds(const char *uid, void *userdata) {
    const struct world *w = userdata;
    return !w->gone || strcmp(w->gone, uid) != 0;
}

static struct event_writer *writer_of(struct world *w, unsigned objects_max) {
    const struct event_writer_options options = {.component = "test",
                                                 .request = serve,
                                                 .context = w,
                                                 .holds = holds,
                                                 .userdata = w,
                                                 .objects_max = objects_max};
    return event_writer_new(&options);
}

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->now = 1000 * (uint64_t) SECOND;
    w->parser = json_parser_new();
    w->writer = writer_of(w, 0);
    assert_non_null(w->writer);
    nanswers = 0;
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    struct stored *s, *next;
    event_writer_free(w->writer);
    HASH_ITER(hh, w->stored, s, next) {
        HASH_DEL(w->stored, s);
        free(s);
    }
    json_parser_free(w->parser);
    free(w);
    return 0;
}

/* ---- what is noted ---- */

static void note_key(struct world *w, const char *uid, const char *reason, uint64_t key,
                     const char *message) {
    char name[80];
    (void) snprintf(name, sizeof(name), "pod-%.64s", uid);
    const struct event e = {.namespace = "d",
                            .name = name,
                            .uid = uid,
                            .api_version = "v1",
                            .kind = "Pod",
                            .reason = reason,
                            .message = message};
    event_writer_note(w->writer, &e, key, true, w->now);
}

static void note(struct world *w, const char *uid, const char *message) {
    note_key(w, uid, "NoGPUFits", 0, message);
}

static void run(struct world *w, uint64_t ms) {
    for (uint64_t passed = 0; passed < ms; passed += SECOND) {
        w->now += SECOND;
        event_writer_run(w->writer, w->now);
        deliver();
    }
}

static const struct stored *stored_of(const struct world *w, const char *uid) {
    const struct stored *found = NULL;
    for (const struct stored *s = w->stored; s; s = s->hh.next)
        if (strcmp(s->uid, uid) == 0) {
            assert_null(found);
            found = s;
        }
    return found;
}

/* ---- tests ---- */

static void test_first_at_once(void **state) {
    struct world *w = *state;
    note(w, "a", "one");
    deliver();
    assert_int_equal(w->posts, 1);
    assert_string_equal(stored_of(w, "a")->message, "one");
    assert_int_equal(stored_of(w, "a")->count, 1);
}

/* What is noted too soon is written at the end of the interval, in its latest form, with a count.
 */
static void test_latest_form_with_count(void **state) {
    struct world *w = *state;
    note(w, "a", "one");
    deliver();
    for (int i = 0; i < 7; i++)
        note(w, "a", i < 6 ? "two" : "three");
    deliver();
    assert_string_equal(stored_of(w, "a")->message, "one");
    run(w, 4 * SECOND);
    assert_int_equal(w->requests, 1);
    run(w, 2 * SECOND);
    assert_int_equal(w->requests, 2);
    assert_int_equal(w->posts, 1);
    assert_string_equal(stored_of(w, "a")->message, "three");
    assert_int_equal(stored_of(w, "a")->count, 8);
    run(w, HOUR / 2);
    assert_int_equal(w->requests, 2);
}

/* Noted each second for an hour: at intervals that double, then every five minutes. */
static void test_intervals_double(void **state) {
    struct world *w = *state;
    char text[32];
    for (int i = 0; i < 3600; i++) {
        (void) snprintf(text, sizeof(text), "figure %d", i);
        note_key(w, "a", "NoGPUFits", 7, text);
        run(w, SECOND);
    }
    assert_int_equal(w->posts, 1);
    assert_in_range(w->patches, 12, 18);
    assert_string_equal(stored_of(w, "a")->message, "figure 0"); /* while the key is the same */
    assert_in_range(stored_of(w, "a")->count, 3300, 3600);
    note_key(w, "a", "NoGPUFits", 8, "another reason");
    run(w, 6 * SECOND); /* after so long without news it does not wait for the interval */
    assert_string_equal(stored_of(w, "a")->message, "another reason");
}

/* 300 pods that wait, of each of which there is something else to say every 2 s. */
static void test_one_event_for_each_pod(void **state) {
    struct world *w = *state;
    char uid[16], text[64];
    for (int second = 0; second < 600; second += 2) {
        for (int i = 0; i < 300; i++) {
            (void) snprintf(uid, sizeof(uid), "u%d", i);
            (void) snprintf(text, sizeof(text), "free: %d of %d", second, i);
            note(w, uid, text);
        }
        run(w, 2 * SECOND);
        if (second == 40) /* each had its turn */
            assert_int_equal(w->posts, 300);
    }
    assert_int_equal(w->posts, 300);
    assert_int_equal(HASH_COUNT(w->stored), 300);
    assert_in_range(w->most_in_second, 1, 20); /* a second's tokens, and those kept from before */
    assert_in_range(w->requests, 300, 300 * 10);
}

/* One pod with ever more to say, of ever more kinds, takes one of ten writes a second; a neighbour
 * has its turn within a second. */
static void test_noisy_pod(void **state) {
    struct world *w = *state;
    char reason[32], text[64], uid[16];
    for (int second = 0; second < 120; second++) {
        for (int i = 0; i < 500; i++) {
            (void) snprintf(reason, sizeof(reason), "Reason%d", i % 40);
            (void) snprintf(text, sizeof(text), "%d %d", second, i);
            note_key(w, "noisy", reason, 0, text);
        }
        (void) snprintf(uid, sizeof(uid), "n%d", second);
        note(w, uid, "once");
        run(w, SECOND);
        assert_non_null(stored_of(w, uid));
    }
    assert_in_range(w->requests, 121, 120 + 125);
}

static void test_too_many_objects(void **state) {
    struct world *w = *state;
    struct event_writer_stats stats;
    char uid[16];
    event_writer_free(w->writer);
    w->writer = writer_of(w, 20);
    assert_non_null(w->writer);
    for (int i = 0; i < 100; i++) {
        (void) snprintf(uid, sizeof(uid), "u%d", i);
        note(w, uid, "text");
        note(w, uid, "more");
    }
    event_writer_stats(w->writer, &stats);
    assert_int_equal(stats.objects, 20);
    assert_int_equal(stats.dropped, 160);
    deliver();
    run(w, MINUTE); /* those have had their say and make room */
    for (int i = 100; i < 140; i++) {
        (void) snprintf(uid, sizeof(uid), "u%d", i);
        note(w, uid, "text");
        run(w, SECOND);
        assert_non_null(stored_of(w, uid));
    }
    event_writer_stats(w->writer, &stats);
    assert_int_equal(stats.objects, 20);
    run(w, 3 * (uint64_t) HOUR / 2);
    event_writer_stats(w->writer, &stats);
    assert_int_equal(stats.objects, 0);
}

/* A process before this one has written the Event: it goes on with its count. */
static void test_taken_over(void **state) {
    struct world *w = *state;
    note(w, "a", "one");
    deliver();
    for (int i = 0; i < 9; i++)
        note(w, "a", "two");
    run(w, 10 * SECOND);
    assert_int_equal(stored_of(w, "a")->count, 10);
    event_writer_free(w->writer);
    w->writer = writer_of(w, 0);
    note(w, "a", "three");
    note(w, "a", "four");
    run(w, 30 * SECOND);
    assert_int_equal(w->posts, 1);
    assert_string_equal(stored_of(w, "a")->message, "four");
    assert_int_equal(stored_of(w, "a")->count, 12);
}

static void forget_all(struct world *w) {
    struct stored *s, *next;
    HASH_ITER(hh, w->stored, s, next) {
        HASH_DEL(w->stored, s);
        free(s);
    }
}

/* The API server removes Events after an hour. */
static void test_removed_event_is_made_again(void **state) {
    struct world *w = *state;
    note_key(w, "a", "NoGPUFits", 7, "one");
    run(w, 10 * SECOND);
    forget_all(w);
    note_key(w, "a", "NoGPUFits", 7, "two"); /* finds out */
    run(w, 10 * SECOND);
    note_key(w, "a", "NoGPUFits", 7, "three");
    run(w, 2 * SECOND);
    assert_non_null(stored_of(w, "a"));
    assert_string_equal(stored_of(w, "a")->message, "three");
    assert_int_equal(stored_of(w, "a")->count, 3);
}

/* What could not be sent is sent later, a bounded number of times. */
static void test_failures(void **state) {
    struct world *w = *state;
    w->fail_next = 1;
    note(w, "a", "one");
    w->status = 503;
    run(w, 6 * SECOND);
    assert_int_equal(w->requests, 1);
    w->status = 0;
    run(w, 12 * SECOND);
    assert_string_equal(stored_of(w, "a")->message, "one");
    w->status = 403;
    note(w, "b", "one");
    run(w, HOUR / 2);
    assert_int_equal(w->requests, 2 + 5);
    w->status = 0;
    note(w, "b", "two");
    run(w, 6 * MINUTE);
    assert_string_equal(stored_of(w, "b")->message, "two");
}

static void test_lapsed(void **state) {
    struct world *w = *state;
    note(w, "a", "one");
    deliver();
    note(w, "a", "two");
    w->gone = "a";
    run(w, MINUTE);
    assert_int_equal(w->requests, 1);
}

/* A note that comes while a write is under way is not lost, whichever of the two is the same. */
static void test_note_in_flight(void **state) {
    struct world *w = *state;
    note_key(w, "a", "NoGPUFits", 1, "one");
    deliver();
    run(w, 10 * SECOND);
    note_key(w, "a", "NoGPUFits", 2, "two");
    assert_int_equal(nanswers, 1);
    note_key(w, "a", "NoGPUFits", 1, "one again");
    deliver();
    assert_string_equal(stored_of(w, "a")->message, "two");
    run(w, MINUTE);
    assert_string_equal(stored_of(w, "a")->message, "one again");
    assert_int_equal(stored_of(w, "a")->count, 3);
}

static void test_names(void **state) {
    struct event e = {.component = "test", .namespace = "d", .uid = "u", .reason = "R"};
    char name[251] = "", one[EVENT_PATH_MAX], two[EVENT_PATH_MAX];
    (void) state;
    for (size_t i = 0; i < 250; i++)
        name[i] = i == 198 ? '.' : i == 199 ? '-' : 'x';
    e.name = name;
    event_object_path(&e, one);
    const char *at = strrchr(one, '/') + 1;
    assert_int_equal(strcspn(at, ".-"), 198);
    assert_true(at[198] == '.' && at[199] != '.' && at[199] != '-');
    e.message = "does not matter";
    event_object_path(&e, two);
    assert_string_equal(one, two);
    e.container = "main";
    event_object_path(&e, two);
    assert_string_not_equal(one, two);
}

static void test_out_of_memory(void **state) {
    struct world *w = *state;
    bool failed = true;
    for (size_t nth = 1; failed; nth++) {
        event_writer_free(w->writer);
        w->writer = writer_of(w, 0);
        assert_non_null(w->writer);
        w->failed = false;
        fail_malloc_at(nth);
        note(w, "a", "one");
        failed = fail_malloc_end() || w->failed;
        deliver();
        note(w, "a", "two");
        run(w, MINUTE);
        assert_string_equal(stored_of(w, "a")->message, "two");
        forget_all(w);
    }
}

static void test_ratelimit(void **state) {
    struct ratelimit limit = {.per_second = 4};
    uint64_t now = 5000;
    unsigned taken = 0;
    (void) state;
    for (; ratelimit_take(&limit, now); taken++)
        ;
    assert_int_equal(taken, 4);
    assert_false(ratelimit_take(&limit, now + 249));
    assert_true(ratelimit_take(&limit, now + 250));
    assert_false(ratelimit_take(&limit, now + 251));
    for (taken = 0, now += 3600000; ratelimit_take(&limit, now); taken++)
        ;
    assert_int_equal(taken, 4);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_first_at_once),    T(test_latest_form_with_count),
        T(test_intervals_double), T(test_one_event_for_each_pod),
        T(test_noisy_pod),        T(test_too_many_objects),
        T(test_taken_over),       T(test_removed_event_is_made_again),
        T(test_failures),         T(test_lapsed),
        T(test_note_in_flight),   T(test_names),
        T(test_out_of_memory),    T(test_ratelimit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
