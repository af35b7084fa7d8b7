/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include "cli/web/groups.h"

/* The test is the worker, and says what came of each token. */
static enum worker_outcome outcome;
static const char *used; /* the token that is read with; NULL: none */
static bool is_strict;
static unsigned given; /* tokens, by now */

int worker_start(const struct worker_source *source, struct journal *journal,
                 void (*news)(void *userdata), void *userdata, struct worker **ret,
                 struct err *err) {
    static int worker;
    (void) source, (void) journal, (void) news, (void) userdata, (void) err;
    *ret = (struct worker *) (void *) &worker;
    return 0;
}

void worker_read_as(struct worker *worker, const char *token, bool strict) {
    (void) worker;
    used = token;
    is_strict = strict;
    given++;
    outcome = WORKER_READS;
}

void worker_go_on(struct worker *worker) {
    (void) worker;
    outcome = WORKER_READS;
}

enum worker_outcome worker_outcome(struct worker *worker) {
    (void) worker;
    return outcome;
}

void worker_end(struct worker *worker) {
    (void) worker;
}

bool worker_has_ended(struct worker *worker) {
    (void) worker;
    return true;
}

void worker_stop(struct worker *worker) {
    (void) worker;
}

void worker_viewers(struct worker *worker, unsigned n) {
    (void) worker, (void) n;
}

/* ---- members ---- */

static struct groups *groups;
static struct member members[3];

static void on_member(void *userdata, struct member *member) {
    (void) userdata, (void) member;
}

static void on_wake(void *userdata) {
    (void) userdata;
}

static void enter(size_t which) {
    static const struct group_key key = {.is_shared = true, .rights = 1};
    struct err err;

    assert_int_equal(groups_join(groups, &members[which], &key, &err), 0);
    group_watch(&members[which], 1);
}

/* What came of the reading. */
static void tell(enum worker_outcome came) {
    outcome = came;
    groups_look(groups);
}

static int setup(void **state) {
    static const struct api_login cluster = {"https://127.0.0.1:1", "ca", NULL};
    static const char *const tokens[] = {"a", "b", "c"};
    const struct groups_options options = {.source = {.system = "x", .cluster = &cluster},
                                           .max = 4,
                                           .wake = on_wake,
                                           .news = on_member,
                                           .refused = on_member,
                                           .doubt = on_member};
    (void) state;
    if (!groups) /* it is as long as the process */
        groups = groups_new(&options);
    for (size_t i = 0; i < 3; i++)
        members[i] = (struct member){.token = tokens[i]};
    return groups ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    for (size_t i = 0; i < 3; i++)
        groups_leave(&members[i]);
    groups_look(groups);
    return 0;
}

static void test_the_next_one_acts_where_one_is_slow(void **state) {
    (void) state;
    enter(0), enter(1), enter(2);
    assert_string_equal(used, "a");
    tell(WORKER_SLOW);
    assert_string_equal(used, "b");
    group_watch(&members[2], 0);
    tell(WORKER_SLOW);
    assert_string_equal(used, "a");
}

/* It goes on with what it has: connections, and the token for agents. */
static void test_one_that_is_alone_is_given_no_token_again(void **state) {
    (void) state;
    enter(0);
    const unsigned before = given;
    tell(WORKER_SLOW);
    assert_int_equal(outcome, WORKER_READS);
    assert_int_equal(given, before);
    assert_string_equal(used, "a");
}

/* One that was refused what its rights allow has proved them again; what it is refused would be
 * missing for all. */
static void test_one_that_was_refused_acts_last(void **state) {
    (void) state;
    enter(0), enter(1);
    tell(WORKER_DENIED);
    assert_string_equal(used, "b");
    group_trust(&members[0]);
    assert_string_equal(used, "b");
    tell(WORKER_SLOW); /* no other can read all */
    assert_string_equal(used, "b");
    enter(2);
    group_watch(&members[1], 0);
    assert_string_equal(used, "c");
    assert_true(is_strict);
    groups_leave(&members[2]);
    assert_string_equal(used, "a");
    assert_false(is_strict);
}

static void test_one_that_can_read_all_takes_over(void **state) {
    (void) state;
    enter(0);
    tell(WORKER_DENIED);
    assert_null(used);
    group_trust(&members[0]);
    assert_string_equal(used, "a");
    assert_false(is_strict);
    enter(1);
    assert_string_equal(used, "b");
    assert_true(is_strict);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_the_next_one_acts_where_one_is_slow),
        T(test_one_that_is_alone_is_given_no_token_again),
        T(test_one_that_was_refused_acts_last),
        T(test_one_that_can_read_all_takes_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
