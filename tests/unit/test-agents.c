/* SPDX-License-Identifier: Apache-2.0 */

/* Figures of agents that are there, hang, refuse and come back, with a clock of the test's own. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "fake-agents.h"
#include "scheduler/figures/agents.h"

static uint64_t ahead_ns; /* of the real clock */

uint64_t __real_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void) {
    return __real_uv_hrtime() + ahead_ns;
}

static void pass(uint64_t ms) {
    ahead_ns += ms * 1000000;
}

struct world {
    uv_loop_t loop;
    struct fake_agents fakes;
    struct agents *agents;
    unsigned done;
    char token[64];
};

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    char node[8];
    assert_int_equal(uv_loop_init(&w->loop), 0);
    fake_agents_start(&w->fakes, &w->loop);
    (void) snprintf(w->token, sizeof(w->token), "/tmp/aliquot-token-%d", (int) getpid());
    const struct agents_options options = {
        .loop = &w->loop, .port = w->fakes.port, .token_file = w->token};
    w->agents = agents_new(&options);
    for (unsigned i = 0; i < FAKE_AGENTS; i++) {
        (void) snprintf(node, sizeof(node), "n%u", i);
        assert_int_equal(agents_see(w->agents, node, node, w->fakes.of[i].address, false), 0);
    }
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    agents_close(w->agents);
    fake_agents_stop(&w->fakes);
    (void) uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    (void) unlink(w->token);
    free(w);
    return 0;
}

static void on_done(void *userdata) {
    struct world *w = userdata;
    w->done++;
}

static void wait_for(struct world *w, unsigned done) {
    while (w->done < done)
        (void) uv_run(&w->loop, UV_RUN_ONCE);
    assert_int_equal(w->done, done);
}

static const char *const all[] = {"n0", "n1", "n2", "nowhere"};

static void ask(struct world *w, size_t n) {
    assert_int_equal(agents_ask(w->agents, all, n, on_done, w), 0);
}

static const struct pod_use *find(struct world *w, const char *node, const char *uid) {
    static struct agents_figures figures;
    return agents_find(w->agents, node, uid, &figures) ? figures.use : NULL;
}

/* Sums over containers and cards; the larger figure of memory; a card without a part is whole. */
static void test_figures(void **state) {
    struct world *w = *state;
    w->fakes.of[0].page = PAGE(HOLDER("b", 30, 150000, 5, 7, 10, 1) "," HOLDER(
        "a", 0, 500000, 3, 2, 0, 1) "," HOLDER("b", 20, 100000, 1, 0, 10, 1));
    ask(w, 4);
    wait_for(w, 1);
    const struct pod_use *b = find(w, "n0", "b");
    assert_int_equal(b->core, 50);
    assert_int_equal(b->taken, 250000);
    assert_int_equal(b->memory, 8);
    assert_int_equal(b->memory_limit, 20);
    assert_int_equal(find(w, "n0", "a")->core, 100);
    assert_int_equal(find(w, "n0", "a")->memory, 3);
    assert_null(find(w, "n1", "a")); /* an agent speaks of its own node only */
    assert_null(find(w, "n0", "c"));
}

static void test_remembers_for_a_second(void **state) {
    struct world *w = *state;
    pass(5000);
    (void) uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_int_equal(w->fakes.of[0].asked, 0); /* without a question */
    ask(w, 1);
    wait_for(w, 1);
    ask(w, 1);
    assert_int_equal(w->done, 2); /* at once */
    assert_int_equal(w->fakes.of[0].asked, 1);
    pass(AGENTS_FRESH_MS);
    ask(w, 1);
    wait_for(w, 3);
    assert_int_equal(w->fakes.of[0].asked, 2);
    assert_int_equal(w->fakes.of[1].asked, 0);
}

static void test_one_question_in_flight(void **state) {
    struct world *w = *state;
    w->fakes.of[0].hangs = true;
    for (unsigned i = 0; i < 20; i++)
        ask(w, 1);
    while (!w->fakes.of[0].hanging)
        (void) uv_run(&w->loop, UV_RUN_ONCE);
    assert_int_equal(w->done, 0);
    http_reply_text(w->fakes.of[0].hanging, 200, "{\"gpus\":[]}");
    wait_for(w, 20);
    assert_int_equal(w->fakes.of[0].asked, 1);
    assert_int_equal(w->fakes.of[0].most, 1);
}

/* Its own pods only, and its deadline: real time. */
static void test_one_hangs(void **state) {
    struct world *w = *state;
    uint64_t begin = uv_hrtime();
    w->fakes.of[0].hangs = true;
    w->fakes.of[1].page = PAGE(HOLDER("a", 50, 100000, 1, 1, 1, 0));
    ask(w, 3);
    wait_for(w, 1);
    uint64_t took = (uv_hrtime() - begin) / 1000000;
    assert_in_range(took, AGENTS_TIMEOUT_MS - 10, AGENTS_TIMEOUT_MS + 2000);
    assert_null(find(w, "n0", "a"));
    assert_non_null(find(w, "n1", "a"));
    ask(w, 1); /* a failure is remembered, too */
    assert_int_equal(w->done, 2);
    w->fakes.of[0].hangs = false;
    w->fakes.of[0].page = PAGE(HOLDER("z", 50, 100000, 1, 1, 1, 0));
    pass(AGENTS_FRESH_MS);
    ask(w, 1);
    wait_for(w, 3);
    assert_non_null(find(w, "n0", "z"));
}

static void test_old_figures_are_none(void **state) {
    struct world *w = *state;
    w->fakes.of[0].page = PAGE(HOLDER("a", 50, 100000, 1, 1, 1, 0));
    ask(w, 1);
    wait_for(w, 1);
    w->fakes.of[0].page = "not JSON";
    pass(AGENTS_OLD_MS - 5000);
    ask(w, 1);
    wait_for(w, 2);
    assert_non_null(find(w, "n0", "a")); /* the last good answer */
    pass(5001);
    assert_null(find(w, "n0", "a"));
}

static void test_throttled(void **state) {
    struct world *w = *state;
    struct agents_figures figures;
    w->fakes.of[0].page = PAGE(HOLDER("a", 50, 100000, 1, 1, 1, 1000000000));
    ask(w, 1);
    wait_for(w, 1);
    assert_true(agents_find(w->agents, "n0", "a", &figures));
    assert_false(figures.throttled_known); /* one answer says nothing */
    w->fakes.of[0].page = PAGE(HOLDER("a", 50, 100000, 1, 1, 1, 6000000000));
    pass(20000);
    ask(w, 1);
    wait_for(w, 2);
    assert_true(agents_find(w->agents, "n0", "a", &figures));
    assert_true(figures.throttled_known);
    assert_true(figures.throttled > 0.24 && figures.throttled < 0.2501);
    w->fakes.of[0].page = PAGE(HOLDER("a", 50, 100000, 1, 1, 1, 5)); /* another container */
    pass(20000);
    ask(w, 1);
    wait_for(w, 3);
    assert_true(agents_find(w->agents, "n0", "a", &figures));
    assert_false(figures.throttled_known);
}

static void write_token(const struct world *w, const char *text) {
    assert_int_equal(file_replace(w->token, text, strlen(text), 0600, NULL), 0);
}

static void test_token(void **state) {
    struct world *w = *state;
    w->fakes.of[0].page = PAGE(HOLDER("a", 50, 100000, 1, 1, 1, 0));
    w->fakes.of[0].bearer = "Bearer first";
    ask(w, 1);
    wait_for(w, 1);
    assert_null(find(w, "n0", "a")); /* there is none */
    write_token(w, "first\n");
    pass(AGENTS_FRESH_MS);
    ask(w, 1);
    wait_for(w, 2);
    assert_non_null(find(w, "n0", "a"));
    w->fakes.of[0].bearer = "Bearer second"; /* kubelet has replaced it */
    w->fakes.of[0].page = PAGE(HOLDER("b", 50, 100000, 1, 1, 1, 0));
    write_token(w, "second");
    pass(AGENTS_FRESH_MS);
    ask(w, 1);
    wait_for(w, 3);
    assert_non_null(find(w, "n0", "b"));
}

static void test_an_agent_goes_while_it_is_asked(void **state) {
    struct world *w = *state;
    w->fakes.of[0].hangs = true;
    ask(w, 1);
    agents_gone(w->agents, "n0");
    assert_int_equal(w->done, 1);
    ask(w, 1);
    assert_int_equal(w->done, 2); /* no agent, no figures */
    agents_sync_begin(w->agents);
    assert_int_equal(agents_see(w->agents, "new", "n0", w->fakes.of[0].address, false), 0);
    agents_sync_end(w->agents); /* the others are gone */
    w->fakes.of[0].hangs = false;
    ask(w, 3);
    wait_for(w, 3);
    assert_int_equal(w->fakes.of[1].asked, 0);
}

static void test_hostile_pages(void **state) {
    struct world *w = *state;
    static const char *const pages[] = {
        "",
        "[]",
        "{}",
        "{\"gpus\":{}}",
        "{\"gpus\":[1,null,{\"holders\":7}]}",
        "{\"gpus\":[{\"holders\":[{\"core\":\"x\",\"podUID\":5}]}]}",
        "{\"gpus\":[{\"holders\":[{\"core\":-1,\"podUID\":\"a\",\"memoryUsed\":1e300}]}]}",
    };
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        w->fakes.of[0].page = pages[i];
        pass(AGENTS_FRESH_MS);
        ask(w, 1);
        wait_for(w, (unsigned) i + 1);
    }
    assert_int_equal(find(w, "n0", "a")->memory, 0);
    assert_false(find(w, "n0", "a")->time_known);
}

/* 20,000 pods: pages of as many pods as a node may have, twice. */
static void test_memory(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf page = BUF_INIT(0);
    buf_puts(&page, "{\"gpus\":[{\"holders\":[");
    for (unsigned i = 0; i < USAGE_PODS_MAX + 10; i++)
        buf_printf(&page,
                   "%s{\"podUID\":\"00000000-0000-0000-0000-%012u\",\"core\":1,\"gpuTakenPpm\":1}",
                   i ? "," : "", i);
    buf_puts(&page, "]}]}");
    w->fakes.of[0].page = buf_str(&page);
    size_t before = mallinfo2().uordblks;
    for (unsigned node = 0; node < 20; node++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "big%u", node);
        const char *const one[] = {name};
        assert_int_equal(agents_see(w->agents, name, name, w->fakes.of[0].address, false), 0);
        for (unsigned twice = 0; twice < 2; twice++) {
            pass(AGENTS_FRESH_MS);
            assert_int_equal(agents_ask(w->agents, one, 1, on_done, w), 0);
            wait_for(w, 2 * node + twice + 1);
        }
        assert_non_null(find(w, name, "00000000-0000-0000-0000-000000001023"));
        assert_null(find(w, name, "00000000-0000-0000-0000-000000001024"));
    }
    assert_in_range(mallinfo2().uordblks - before, 0, (size_t) 8 << 20);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_figures),
        TEST(test_remembers_for_a_second),
        TEST(test_one_question_in_flight),
        TEST(test_one_hangs),
        TEST(test_old_figures_are_none),
        TEST(test_throttled),
        TEST(test_token),
        TEST(test_an_agent_goes_while_it_is_asked),
        TEST(test_hostile_pages),
        TEST(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
