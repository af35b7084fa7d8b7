/* SPDX-License-Identifier: Apache-2.0 */

/* Verdicts on tokens: what the API server is asked, for how long its answers are kept, and what a
 * flood of tokens can do. The test is the API server and the clock. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cluster/access.h"
#include "kube-wraps.h"
#include "kube/api/client.h"
#include "wire/json.h"

#define OPEN_MAX 128
#define TOKEN_SIZE 64
#define SERVER_AUDIENCE "https://kubernetes.default.svc"

uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t timeout,
                          uint64_t repeat);
uv_loop_t *__wrap_kube_client_loop(struct kube_client *client);
void __wrap_kube_call_cancel(struct kube_call *call);

/* ---- the clock ---- */

static uv_loop_t loop;
static uint64_t now;
static struct {
    uv_timer_t *timer; /* NULL: none runs */
    uv_timer_cb callback;
    uint64_t at;
} timer;

uint64_t __wrap_uv_now(const uv_loop_t *of) {
    (void) of;
    return now;
}

int __wrap_uv_timer_start(uv_timer_t *handle, uv_timer_cb callback, uint64_t timeout,
                          uint64_t repeat) {
    assert_int_equal(repeat, 0);
    timer.timer = handle;
    timer.callback = callback;
    timer.at = now + timeout;
    return 0;
}

static void pass(uint64_t ms) {
    for (uint64_t end = now + ms; now < end;) {
        if (!timer.timer || timer.at > end) {
            now = end;
        } else {
            uv_timer_t *due = timer.timer;

            now = timer.at;
            timer.timer = NULL;
            timer.callback(due);
        }
    }
}

/* ---- the API server ---- */

/* Tokens say themselves what they are: own-*, of the agents' audience; server-*, of the API
 * server's; elsewhere-*, of another one; late-*, without the right until `granted`; other ones are
 * not known. */
static struct request {
    bool is_open;
    kube_response_cb callback;
    void *userdata;
    char path[128], body[1024];
} requests[OPEN_MAX];
static unsigned asked;        /* TokenReviews and SubjectAccessReviews */
static unsigned asked_rights; /* of these, SubjectAccessReviews */
static bool granted, agent_may_ask;
static int status; /* of all answers */

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err) {
    struct request *r = requests;

    (void) client, (void) content_type, (void) timeout_ms, (void) err;
    assert_string_equal(method, "POST");
    while (r->is_open)
        assert_true(++r < requests + OPEN_MAX);
    *r = (struct request){.is_open = true, .callback = on_response, .userdata = userdata};
    (void) snprintf(r->path, sizeof(r->path), "%s", path);
    (void) snprintf(r->body, sizeof(r->body), "%.*s", (int) size, body);
    *ret_call = (struct kube_call *) r;
    asked += strstr(path, "/self") == NULL;
    asked_rights += strstr(path, "/subjectaccess") != NULL;
    return 0;
}

void __wrap_kube_call_cancel(struct kube_call *call) {
    ((struct request *) call)->is_open = false;
}

uv_loop_t *__wrap_kube_client_loop(struct kube_client *client) {
    (void) client;
    return &loop;
}

static bool begins(struct json text, const char *with) {
    return strncmp(json_string_or(text, ""), with, strlen(with)) == 0;
}

static bool has(struct json list, const char *text) {
    struct json_iter it = json_iter(list);
    struct json value;
    bool is = false;

    while (json_next(&it, NULL, &value))
        is = is || json_is_string(value, text);
    return is;
}

/* Tokens of one account have the same number behind their dash, and differ behind the next one. The
 * API server tells them apart, too, as from Kubernetes 1.30 on. */
static void put_account(struct json spec, char *ret, size_t size) {
    const char *token = json_string(json_get(spec, "token"));
    struct json audiences = json_get(spec, "audiences");
    bool own_asked = has(audiences, AGENT_AUDIENCE);
    bool server_asked = !json_valid(audiences) || has(audiences, SERVER_AUDIENCE);
    bool own = strncmp(token, "own-", 4) == 0 || strncmp(token, "late-", 5) == 0;
    bool server = strncmp(token, "server-", 7) == 0;
    const char *dash = own || server ? strchr(strchr(token, '-') + 1, '-') : NULL;

    if (strncmp(token, "elsewhere-", 10) == 0 && !server_asked) /* it knows no audiences */
        (void) snprintf(ret, size, "{\"status\":{\"authenticated\":true}}");
    else if (!(own && own_asked) && !(server && server_asked))
        (void) snprintf(ret, size, "{\"status\":{\"authenticated\":false,\"error\":\"no\"}}");
    else
        (void) snprintf(ret, size,
                        "{\"status\":{\"authenticated\":true,\"audiences\":[\"%s\"],\"user\":{"
                        "\"username\":\"%.*s\",\"uid\":\"u\",\"groups\":[\"a\",\"b\"],"
                        "\"extra\":{\"example.org/k\":[\"v\",\"w\"],"
                        "\"authentication.kubernetes.io/credential-id\":[\"JTI=%s\"]}}}}",
                        own ? AGENT_AUDIENCE : SERVER_AUDIENCE,
                        dash ? (int) (dash - token) : (int) strlen(token), token, token);
}

static void put_rights(struct json spec, char *ret, size_t size) {
    struct json of = json_get(spec, "resourceAttributes");
    struct json extra = json_get(spec, "extra");
    bool may = !begins(json_get(spec, "user"), "late-") || granted;

    assert_true(json_is_string(json_get(of, "group"), "elasticgpu.io"));
    assert_true(json_is_string(json_get(of, "resource"), "gpus"));
    assert_true(json_is_string(json_get(of, "subresource"), "usage"));
    assert_true(json_is_string(json_get(of, "verb"), "get"));
    assert_true(json_is_string(json_get(spec, "uid"), "u"));
    assert_true(has(json_get(spec, "groups"), "b"));
    assert_true(has(json_get(extra, "example.org/k"), "w"));
    (void) snprintf(ret, size, "{\"status\":{\"allowed\":%s}}", may ? "true" : "false");
}

static void answer(struct request *r) {
    struct kube_response response = {.status = status, .text = "", .reason = ""};
    _cleanup_json_ struct json_parser *asked_parser = NULL, *parser = NULL;
    char text[1024] = "{}";
    struct json body;

    assert_int_equal(json_open(r->body, strlen(r->body), &asked_parser, &body, NULL), 0);
    if (status != 201)
        response.text = "it is away";
    else if (strstr(r->path, "/self"))
        (void) snprintf(text, sizeof(text), "{\"status\":{\"allowed\":%s}}",
                        agent_may_ask ? "true" : "false");
    else if (strstr(r->path, "/tokenreviews"))
        put_account(json_get(body, "spec"), text, sizeof(text));
    else
        put_rights(json_get(body, "spec"), text, sizeof(text));
    assert_int_equal(json_open(text, strlen(text), &parser, &response.body, NULL), 0);
    r->is_open = false;
    r->callback(&response, r->userdata);
}

/* Answers all, and what follows from that. */
static void answer_all(void) {
    bool some = true;

    while (some) {
        some = false;
        for (struct request *r = requests; r < requests + OPEN_MAX; r++)
            if (r->is_open) {
                some = true;
                answer(r);
            }
    }
}

/* ---- clients ---- */

static struct access *access_of_agent;
static unsigned no_rights;
static char *token_path; /* of the agent; NULL: it has none */

struct seen {
    unsigned n;
    enum access_verdict verdict;
    char text[64];
};

static struct seen flooding; /* of a flood: some wait until the end of the test */

static void on_verdict(enum access_verdict verdict, const char *text, void *userdata) {
    struct seen *seen = userdata;

    seen->n++;
    seen->verdict = verdict;
    (void) snprintf(seen->text, sizeof(seen->text), "%s", text);
}

static void on_no_right(const char *text, void *userdata) {
    (void) userdata;
    assert_true(text[0]);
    no_rights++;
}

static void ask_from(unsigned char host, const char *token, struct seen *seen) {
    const unsigned char address[16] = {[15] = host};

    access_ask(access_of_agent, token, address, on_verdict, seen);
}

static enum access_verdict ask(const char *token) {
    struct seen seen = {0};

    ask_from(1, token, &seen);
    answer_all();
    assert_int_equal(seen.n, 1);
    return seen.verdict;
}

static int begin(const char *token_file) {
    const struct access_options options = {.token_file = token_file, .on_no_right = on_no_right};

    memset(requests, 0, sizeof(requests));
    timer.timer = NULL;
    now = 1000000;
    granted = false;
    agent_may_ask = true;
    status = 201;
    asked = asked_rights = no_rights = 0;
    flooding.n = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(access_start(&options, &access_of_agent, NULL), 0);
    return 0;
}

/* The agent does not know the API server's audience. */
static int setup(void **state) {
    (void) state;
    return begin(NULL);
}

/* Its token says that: {"aud":["https://kubernetes.default.svc"],"sub":"\xc3\xbf?>"}. */
static int setup_audience(void **state) {
    static const char token[] =
        "eyJhbGciOiJSUzI1NiJ9."
        "eyJhdWQiOlsiaHR0cHM6Ly9rdWJlcm5ldGVzLmRlZmF1bHQuc3ZjIl0sInN1YiI6IsO_Pz4ifQ.c2ln";
    char path[] = "/tmp/aliquot-access-XXXXXX";
    int fd = mkstemp(path);

    (void) state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, token, strlen(token)), strlen(token));
    (void) close(fd);
    token_path = strdup(path);
    return begin(path);
}

static int teardown(void **state) {
    (void) state;
    if (token_path)
        (void) unlink(token_path);
    free(token_path);
    token_path = NULL;
    access_stop(access_of_agent);
    for (struct request *r = requests; r < requests + OPEN_MAX; r++)
        assert_false(r->is_open);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}

/* ---- verdicts ---- */

static void audiences(void **state) {
    (void) state;
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    assert_int_equal(asked, 2);
    assert_int_equal(ask("server-1"), ACCESS_ALLOWED);
    assert_int_equal(asked, 5);
    assert_int_equal(ask("elsewhere-1"), ACCESS_UNKNOWN);
    assert_int_equal(ask("garbage \"\n\xff"), ACCESS_UNKNOWN);
    assert_int_equal(ask("late-1"), ACCESS_FORBIDDEN);
    assert_int_equal(asked, 11);
}

static void one_review_for_both_audiences(void **state) {
    (void) state;
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    assert_int_equal(ask("server-1"), ACCESS_ALLOWED);
    assert_int_equal(asked, 4);
    assert_int_equal(ask("bad"), ACCESS_UNKNOWN);
    assert_int_equal(ask("elsewhere-1"), ACCESS_UNKNOWN);
    assert_int_equal(asked, 6);
}

/* It is that of a legacy token, of another file, or of none. */
static void a_token_of_the_agent_that_names_no_audience(void **state) {
    static const char *const texts[] = {
        "",
        ".",
        "..",
        "a.b.c",
        "a.!!!!.c",
        "a.bnVsbA.c",
        "a.e30.c",
        "a.eyJhdWQiOltdfQ.c",
        "a.eyJhdWQiOls3LHt9XX0.c"}; /* null; {}; {"aud":[]}; {"aud":[7,{}]} */

    (void) state;
    for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char token[TOKEN_SIZE];
        FILE *file = fopen(token_path, "w");

        assert_non_null(file);
        (void) fputs(texts[i], file);
        assert_int_equal(fclose(file), 0);
        (void) snprintf(token, sizeof(token), "server-%u", i);
        asked = 0;
        assert_int_equal(ask(token), ACCESS_ALLOWED);
        assert_int_equal(asked, 3);
    }
}

/* As the command line requests them. The verdict is no older than a minute for any of them. */
static void one_review_for_the_tokens_of_an_account(void **state) {
    (void) state;
    granted = true;
    assert_int_equal(ask("late-1-a"), ACCESS_ALLOWED);
    pass(ACCESS_ALLOWED_MS - 1);
    granted = false;
    assert_int_equal(ask("late-1-b"), ACCESS_ALLOWED);
    assert_int_equal(asked, 3);
    assert_int_equal(asked_rights, 1);
    assert_int_equal(ask("late-2-a"), ACCESS_FORBIDDEN);
    assert_int_equal(asked_rights, 2);
    pass(1);
    assert_int_equal(ask("late-1-b"), ACCESS_FORBIDDEN);
    assert_int_equal(asked_rights, 3);
    granted = true;
    pass(ACCESS_REFUSED_MS - 1);
    assert_int_equal(ask("late-1-c"), ACCESS_FORBIDDEN);
    pass(1);
    assert_int_equal(ask("late-1-c"), ACCESS_ALLOWED);
}

static void a_token_that_is_too_long_is_not_sent(void **state) {
    static char token[ACCESS_TOKEN_MAX + 2];

    (void) state;
    memset(token, 'x', sizeof(token) - 1);
    assert_int_equal(ask(token), ACCESS_UNKNOWN);
    assert_int_equal(asked, 0);
}

static void verdicts_are_kept_for_a_time(void **state) {
    (void) state;
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    assert_int_equal(ask("late-1"), ACCESS_FORBIDDEN);
    assert_int_equal(ask("bad"), ACCESS_UNKNOWN);
    asked = 0;
    granted = true;
    pass(ACCESS_REFUSED_MS - 1);
    assert_int_equal(ask("late-1"), ACCESS_FORBIDDEN);
    assert_int_equal(ask("bad"), ACCESS_UNKNOWN);
    assert_int_equal(asked, 0);
    pass(1);
    assert_int_equal(ask("late-1"), ACCESS_ALLOWED);
    assert_int_equal(ask("bad"), ACCESS_UNKNOWN);
    assert_int_equal(asked, 4);
    pass(ACCESS_ALLOWED_MS - ACCESS_REFUSED_MS - 1);
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    assert_int_equal(asked, 4);
    pass(1);
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    assert_int_equal(asked, 6);
}

static void a_right_that_is_taken_away_ends_with_the_minute(void **state) {
    (void) state;
    granted = true;
    assert_int_equal(ask("late-1"), ACCESS_ALLOWED);
    granted = false;
    pass(ACCESS_ALLOWED_MS - 1);
    assert_int_equal(ask("late-1"), ACCESS_ALLOWED);
    pass(1);
    assert_int_equal(ask("late-1"), ACCESS_FORBIDDEN);
    assert_int_equal(ask("late-1"), ACCESS_FORBIDDEN);
}

static void while_the_api_server_is_away(void **state) {
    struct seen seen = {0};

    (void) state;
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    status = 0;
    assert_int_equal(ask("own-2"), ACCESS_NO_ANSWER);
    pass(ACCESS_ALLOWED_MS - 1);
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    pass(1);
    ask_from(1, "own-1", &seen);
    answer_all();
    assert_int_equal(seen.verdict, ACCESS_NO_ANSWER);
    assert_string_equal(seen.text, "it is away");
    status = 201; /* what failed is not kept */
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    assert_int_equal(ask("own-2"), ACCESS_ALLOWED);
    assert_int_equal(no_rights, 0);
}

static void an_agent_that_may_not_ask(void **state) {
    (void) state;
    agent_may_ask = false;
    answer_all();
    assert_int_equal(no_rights, 1);
    status = 403;
    assert_int_equal(ask("own-1"), ACCESS_NO_RIGHT);
    assert_int_equal(no_rights, 2);
}

static void one_review_for_one_token(void **state) {
    struct seen seen = {0};

    (void) state;
    for (unsigned char i = 0; i < 100; i++)
        ask_from(i, "own-1", &seen);
    assert_int_equal(seen.n, 0);
    answer_all();
    assert_int_equal(seen.n, 100);
    assert_int_equal(seen.verdict, ACCESS_ALLOWED);
    assert_int_equal(asked, 2);
}

static void all_are_answered_at_the_end(void **state) {
    struct seen seen = {0};

    for (unsigned i = 0; i < ACCESS_BURST + 3; i++) {
        char token[TOKEN_SIZE];

        (void) snprintf(token, sizeof(token), "bad-%u", i);
        ask_from((unsigned char) i, token, &seen);
    }
    assert_int_equal(teardown(state), 0);
    assert_int_equal(seen.n, ACCESS_BURST + 3);
    assert_int_equal(seen.verdict, ACCESS_NO_ANSWER);
    assert_int_equal(setup(state), 0);
}

/* ---- floods ---- */

static unsigned tokens_made;

/* Bad tokens that were never sent before, from these addresses, as many as they can. */
static void flood(unsigned char addresses, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        char token[TOKEN_SIZE];

        (void) snprintf(token, sizeof(token), "bad-%u", tokens_made++);
        ask_from((unsigned char) (100 + i % addresses), token, &flooding);
    }
}

static void a_flood_does_not_reach_the_api_server(void **state) {
    (void) state;
    for (unsigned i = 0; i < 100; i++) { /* ten seconds */
        flood(50, 200);
        answer_all();
        pass(100);
        answer_all();
    }
    assert_in_range(asked, ACCESS_BURST, ACCESS_BURST + ACCESS_PER_SECOND * 10);
    assert_true(flooding.n > 15000); /* the rest is told at once to try again */
}

static void a_flood_from_one_address_does_not_hold_others_up(void **state) {
    struct seen good = {0};

    (void) state;
    for (unsigned i = 0; i < 20; i++) {
        flood(1, 100);
        answer_all();
        pass(100);
    }
    flood(1, 100);
    ask_from(2, "own-1", &good);
    for (unsigned i = 0; good.n == 0 && i < 30; i++) {
        answer_all();
        pass(100);
        flood(1, 100);
    }
    assert_int_equal(good.n, 1); /* within three seconds */
    assert_int_equal(good.verdict, ACCESS_ALLOWED);
    assert_int_equal(flooding.verdict, ACCESS_BUSY);
}

static void a_flood_from_everywhere_leaves_what_was_allowed(void **state) {
    struct seen good = {0};

    (void) state;
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    for (unsigned i = 0; i < ACCESS_ALLOWED_MS / 100; i++) {
        flood(50, 50);
        answer_all();
        pass(100);
    }
    flood(50, 50);
    ask_from(2, "own-1", &good); /* its minute is over */
    assert_int_equal(good.n, 0);
    answer_all();
    assert_int_equal(good.n, 1);
    assert_int_equal(good.verdict, ACCESS_ALLOWED);
}

/* Behind an address that others use, too. */
static void a_full_address_has_room_for_one_more(void **state) {
    struct seen good = {0};

    (void) state;
    for (unsigned i = 0; i * ACCESS_REVIEWS_OF_CLIENT <= ACCESS_BURST; i++) {
        flood(1, ACCESS_REVIEWS_OF_CLIENT);
        answer_all();
    }
    flood(1, ACCESS_REVIEWS_OF_CLIENT); /* so many wait for their turn now */
    flooding.n = 0;
    ask_from(100, "own-1", &good);
    assert_int_equal(flooding.n, 1); /* one gives way */
    assert_int_equal(flooding.verdict, ACCESS_BUSY);
    assert_int_equal(good.n, 0);
    for (unsigned i = 0; good.n == 0 && i < 30; i++) {
        pass(100);
        answer_all();
    }
    assert_int_equal(good.verdict, ACCESS_ALLOWED);
}

/* What has been sent to the API server is not taken back. */
static void reviews_that_have_begun_give_no_way(void **state) {
    struct seen good = {0};

    (void) state;
    flood(1, ACCESS_REVIEWS_OF_CLIENT);
    ask_from(100, "own-1", &good);
    assert_int_equal(good.verdict, ACCESS_BUSY);
    assert_int_equal(flooding.n, 0);
    answer_all();
    assert_int_equal(flooding.n, ACCESS_REVIEWS_OF_CLIENT);
}

static void a_token_that_was_allowed_is_new_after_a_time(void **state) {
    struct seen good = {0};

    (void) state;
    assert_int_equal(ask("own-1"), ACCESS_ALLOWED);
    pass(ACCESS_ALLOWED_MS + ACCESS_RETURN_MS - 1);
    flood(50, 50);
    ask_from(2, "own-1", &good);
    answer_all();
    assert_int_equal(good.n, 1);
    pass(ACCESS_ALLOWED_MS + ACCESS_RETURN_MS);
    flood(50, 50);
    ask_from(2, "own-1", &good);
    answer_all();
    assert_int_equal(good.n, 2);
    assert_int_equal(good.verdict, ACCESS_BUSY);
}

/* Many that return at once have a bound, too. */
static void tokens_that_return_have_a_bound(void **state) {
    struct seen seen = {0};
    char token[TOKEN_SIZE];

    (void) state;
    for (unsigned i = 0; i < ACCESS_RETURN_PER_SECOND + 10; i++) {
        (void) snprintf(token, sizeof(token), "own-1-%u", i);
        assert_int_equal(ask(token), ACCESS_ALLOWED);
        pass(1000 / ACCESS_PER_SECOND);
    }
    pass(ACCESS_ALLOWED_MS);
    for (unsigned i = 0; i < ACCESS_RETURN_PER_SECOND + 10; i++) {
        (void) snprintf(token, sizeof(token), "own-1-%u", i);
        ask_from(1, token, &seen);
    }
    answer_all();
    assert_int_equal(seen.n, ACCESS_RETURN_PER_SECOND);
    pass(1000);
    answer_all();
    assert_int_equal(seen.n, ACCESS_RETURN_PER_SECOND + 10);
    assert_int_equal(seen.verdict, ACCESS_ALLOWED);
}

/* It is as one that was never allowed then. */
static void the_oldest_verdict_makes_room(void **state) {
    struct seen oldest = {0}, next = {0};
    char token[TOKEN_SIZE];

    (void) state;
    for (unsigned i = 0; i <= ACCESS_ALLOWED_MAX; i++) {
        (void) snprintf(token, sizeof(token), "own-%u", i);
        assert_int_equal(ask(token), ACCESS_ALLOWED);
        pass(1000 / ACCESS_PER_SECOND);
    }
    flood(50, 50);
    ask_from(2, "own-1", &next);
    ask_from(2, "own-0", &oldest);
    answer_all();
    assert_int_equal(next.verdict, ACCESS_ALLOWED);
    assert_int_equal(next.n, 1);
    assert_int_equal(oldest.verdict, ACCESS_BUSY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(audiences, setup, teardown),
        cmocka_unit_test_setup_teardown(one_review_for_both_audiences, setup_audience, teardown),
        cmocka_unit_test_setup_teardown(a_token_of_the_agent_that_names_no_audience, setup_audience,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_review_for_the_tokens_of_an_account, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_address_has_room_for_one_more, setup_audience,
                                        teardown),
        cmocka_unit_test_setup_teardown(reviews_that_have_begun_give_no_way, setup_audience,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_token_that_was_allowed_is_new_after_a_time,
                                        setup_audience, teardown),
        cmocka_unit_test_setup_teardown(tokens_that_return_have_a_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(a_token_that_is_too_long_is_not_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(verdicts_are_kept_for_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_right_that_is_taken_away_ends_with_the_minute, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(while_the_api_server_is_away, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_that_may_not_ask, setup, teardown),
        cmocka_unit_test_setup_teardown(one_review_for_one_token, setup, teardown),
        cmocka_unit_test_setup_teardown(all_are_answered_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flood_does_not_reach_the_api_server, setup_audience,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_flood_from_one_address_does_not_hold_others_up, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_flood_from_everywhere_leaves_what_was_allowed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_oldest_verdict_makes_room, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
