/* SPDX-License-Identifier: Apache-2.0 */

/* Replicas, an API server and a clock in one process: whatever is late, lost, killed or paused, at
 * most one replica acts, and nothing that another one began is decided after it has begun to. */

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
#include "scheduler/cluster/lease.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define REPLICAS 3
#define QUEUE 64
#define STEP_MS 50
#define LOOK_AND_WRITE_MS (6 * STEP_MS) /* a GET and a PUT, each sent, executed and answered */

struct cluster;

struct replica {
    struct cluster *cluster;
    struct lease lease;
    char identity[16];
    bool able, dead, released, own;
    uint64_t paused_until;
    unsigned open;          /* what open_requests() says */
    uint64_t decided_until; /* when the last thing it began is decided */
    unsigned acquired, lost;
};

/* A request on its way. It reaches the server at `arrives`, the answer comes at `answered`. */
struct message {
    bool used, executed, deaf; /* deaf: the sender is dead or has given up */
    struct replica *from;
    char method[8];
    bool of_kube_scheduler; /* it is about that one's Lease */
    struct buf body;
    uint64_t arrives, answered, gives_up;
    int status;
    struct buf answer;
    kube_response_cb callback;
    void *userdata;
};

struct cluster {
    uint64_t now;
    uint32_t chance;
    unsigned late_ms, lost_percent;
    struct replica replicas[REPLICAS];
    size_t nreplicas;
    struct message messages[QUEUE];
    bool exists;
    unsigned version, writes;
    char holder[64], renewed[64], note[64], cluster_note[64];
    uint64_t transitions;
    const char *kube_scheduler; /* what holds its Lease; NULL: there is none */
    int kube_scheduler_status;  /* instead of 200 or 404; 0: these */
};

static uint32_t dice(struct cluster *c, uint32_t n) {
    c->chance = c->chance * 1664525u + 1013904223u;
    return (c->chance >> 8) % n;
}

/* ---- the API server ---- */

static void copy(char out[static 64], struct json value) {
    const char *text = json_string(value);
    (void) snprintf(out, 64, "%s", text ? text : "");
}

static void write_notes(struct cluster *c, struct json body) {
    struct json notes = JSON_PATH(body, "metadata", "annotations");
    copy(c->note, json_get(notes, "elasticgpu.io/wanted-by"));
    copy(c->cluster_note, json_get(notes, "elasticgpu.io/asked-by-cluster"));
}

static void write_lease(struct cluster *c, struct json body) {
    copy(c->holder, JSON_PATH(body, "spec", "holderIdentity"));
    copy(c->renewed, JSON_PATH(body, "spec", "renewTime"));
    write_notes(c, body);
    (void) json_u64(JSON_PATH(body, "spec", "leaseTransitions"), &c->transitions);
    /* The text of a time has a resolution that the model's clock does not move. */
    (void) snprintf(c->renewed, sizeof(c->renewed), "%u", ++c->writes);
    c->version++;
    c->exists = true;
}

static int execute(struct cluster *c, const struct message *m, struct json body) {
    char version[64];
    if (m->of_kube_scheduler && c->kube_scheduler_status)
        return c->kube_scheduler_status;
    if (m->of_kube_scheduler)
        return c->kube_scheduler ? 200 : 404;
    if (strcmp(m->method, "GET") == 0)
        return c->exists ? 200 : 404;
    if (strcmp(m->method, "POST") == 0) {
        if (c->exists)
            return 409;
        write_lease(c, body);
        return 201;
    }
    if (!c->exists)
        return 404;
    if (strcmp(m->method, "PATCH") == 0) {
        write_notes(c, body);
        c->version++;
        return 200;
    }
    copy(version, JSON_PATH(body, "metadata", "resourceVersion"));
    if (strtoul(version, NULL, 10) != c->version)
        return 409;
    write_lease(c, body);
    return 200;
}

static void put_kube_scheduler_lease(const struct cluster *c, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "spec");
    json_put_string(&w, "holderIdentity", c->kube_scheduler ? c->kube_scheduler : "");
    json_object_end(&w);
    json_object_end(&w);
}

static void put_lease(const struct cluster *c, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_stringf(&w, "resourceVersion", "%u", c->version);
    json_object_begin(&w, "annotations");
    if (c->note[0])
        json_put_string(&w, "elasticgpu.io/wanted-by", c->note);
    if (c->cluster_note[0])
        json_put_string(&w, "elasticgpu.io/asked-by-cluster", c->cluster_note);
    json_object_end(&w);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_put_string(&w, "holderIdentity", c->holder);
    json_put_string(&w, "renewTime", c->renewed);
    json_put_u64(&w, "leaseDurationSeconds", LEASE_DURATION_MS / 1000);
    json_put_u64(&w, "leaseTransitions", c->transitions);
    json_object_end(&w);
    json_object_end(&w);
}

static void arrive(struct cluster *c, struct message *m) {
    struct json_parser *parser = json_parser_new();
    struct json body = {0};
    if (m->body.len > 0)
        assert_int_equal(json_parse(parser, m->body.data, m->body.len, &body, NULL), 0);
    m->status = execute(c, m, body);
    if (m->of_kube_scheduler)
        put_kube_scheduler_lease(c, &m->answer);
    else
        put_lease(c, &m->answer);
    m->executed = true;
    json_parser_free(parser);
}

static void finish(struct message *m) {
    buf_done(&m->body);
    buf_done(&m->answer);
    m->used = false;
}

static void answer(struct message *m, bool timed_out) {
    struct json_parser *parser = json_parser_new();
    struct kube_response response = {
        .status = timed_out ? 0 : m->status, .maybe_applied = timed_out, .text = "", .reason = ""};
    if (!timed_out)
        assert_int_equal(json_parse(parser, m->answer.data, m->answer.len, &response.body, NULL),
                         0);
    m->deaf = true;
    m->callback(&response, m->userdata);
    json_parser_free(parser);
}

static void deliver(struct cluster *c) {
    for (size_t i = 0; i < QUEUE; i++) {
        struct message *m = &c->messages[i];
        if (m->used && !m->executed && c->now >= m->arrives)
            arrive(c, m);
        bool hears = m->used && !m->deaf && c->now >= m->from->paused_until;
        if (hears && m->executed && c->now >= m->answered)
            answer(m, false);
        else if (hears && c->now >= m->gives_up)
            answer(m, true);
        if (m->used && m->executed && m->deaf)
            finish(m);
    }
}

/* ---- what a lease is given ---- */

static int request(void *context, const char *method, const char *path, const char *type,
                   const char *body, size_t size, unsigned timeout_ms, kube_response_cb callback,
                   void *userdata, struct err *err) {
    struct replica *r = context;
    struct cluster *c = r->cluster;
    size_t i = 0;
    (void) type, (void) err;
    assert_non_null(strstr(path, "/namespaces/system/leases"));
    assert_non_null(strstr(path, "?timeout=2s"));
    while (i < QUEUE && c->messages[i].used)
        i++;
    assert_true(i < QUEUE);
    struct message *m = &c->messages[i];
    bool lost = dice(c, 100) < c->lost_percent;
    *m = (struct message){.used = true, .from = r, .callback = callback, .userdata = userdata};
    (void) snprintf(m->method, sizeof(m->method), "%s", method);
    m->of_kube_scheduler = strstr(path, "/leases/" LEASE_OF_KUBE_SCHEDULER "?");
    assert_true(!m->of_kube_scheduler || strcmp(method, "GET") == 0);
    buf_append(&m->body, body ? body : "", size);
    m->arrives = c->now + (c->late_ms ? dice(c, c->late_ms) : 0);
    m->answered = lost ? UINT64_MAX : m->arrives + (c->late_ms ? dice(c, c->late_ms) : 0);
    m->gives_up = c->now + timeout_ms;
    return 0;
}

static uint64_t clock_now(void *userdata) {
    return ((struct replica *) userdata)->cluster->now;
}

static bool is_able(void *userdata) {
    return ((struct replica *) userdata)->able;
}

static unsigned open_requests(void *userdata) {
    return ((struct replica *) userdata)->open;
}

/* Here a replica reads what the others did: all of it must be decided. */
static void on_acquired(void *userdata) {
    struct replica *r = userdata;
    r->acquired++;
    for (size_t i = 0; i < r->cluster->nreplicas; i++)
        assert_in_range(r->cluster->replicas[i].decided_until, 0, r->cluster->now);
}

static void on_lost(void *userdata) {
    ((struct replica *) userdata)->lost++;
}

static const struct lease_handlers lease_handlers = {is_able, open_requests, on_acquired, on_lost};

static void start_process(struct replica *r) {
    r->dead = r->released = false;
    r->able = true;
    r->open = 0;
    r->lease = (struct lease){.api = {request, r},
                              .name_space = "system",
                              .identity = r->identity,
                              .own = r->own,
                              .now = clock_now,
                              .handlers = &lease_handlers,
                              .userdata = r};
    lease_init(&r->lease);
}

static struct cluster *begin(size_t n, uint32_t seed) {
    struct cluster *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    c->now = 1000000;
    c->chance = seed;
    c->nreplicas = n;
    for (size_t i = 0; i < n; i++) {
        c->replicas[i].cluster = c;
        (void) snprintf(c->replicas[i].identity, sizeof(c->replicas[i].identity), "replica-%zu", i);
        start_process(&c->replicas[i]);
    }
    return c;
}

static void end(struct cluster *c) {
    for (size_t i = 0; i < QUEUE; i++)
        if (c->messages[i].used)
            finish(&c->messages[i]);
    free(c);
}

static void step(struct cluster *c) {
    unsigned leaders = 0;
    c->now += STEP_MS;
    deliver(c);
    for (size_t i = 0; i < c->nreplicas; i++) {
        struct replica *r = &c->replicas[i];
        if (!r->dead && c->now >= r->paused_until)
            lease_run(&r->lease);
        leaders += !r->dead && lease_leads(&r->lease);
    }
    assert_in_range(leaders, 0, 1);
}

static void run_for(struct cluster *c, uint64_t ms) {
    for (uint64_t until = c->now + ms; c->now < until;)
        step(c);
}

static struct replica *leader(struct cluster *c) {
    for (size_t i = 0; i < c->nreplicas; i++)
        if (!c->replicas[i].dead && lease_leads(&c->replicas[i].lease))
            return &c->replicas[i];
    return NULL;
}

static void kill_replica(struct replica *r) {
    struct cluster *c = r->cluster;
    r->dead = true;
    for (size_t i = 0; i < QUEUE; i++)
        if (c->messages[i].used && c->messages[i].from == r)
            c->messages[i].deaf = true;
    /* Connections are reset: only the API server may still be at it. */
    if (r->decided_until > c->now + LEASE_SERVER_S * 1000)
        r->decided_until = c->now + LEASE_SERVER_S * 1000;
}

/* ---- tests ---- */

static void test_one_leads_and_another_takes_over(void **state) {
    struct cluster *c = begin(2, 1);
    (void) state;
    run_for(c, 2000);
    struct replica *first = leader(c);
    assert_non_null(first);
    run_for(c, 60000);
    assert_ptr_equal(leader(c), first);
    kill_replica(first);
    run_for(c, LEASE_DURATION_MS - 2 * LEASE_RENEW_MS);
    assert_null(leader(c));
    run_for(c, 2 * LEASE_RENEW_MS + 2 * LEASE_POLL_MS);
    assert_non_null(leader(c));
    assert_ptr_not_equal(leader(c), first);
    end(c);
}

/* A leader ends just after a renewal, which the other one sees sooner or later within a poll. The
 * Lease ends so much later for that one, but no further poll later. */
static void test_looks_when_the_lease_ends(void **state) {
    (void) state;
    for (unsigned renewals = 1; renewals <= LEASE_POLL_MS / STEP_MS; renewals++) {
        struct cluster *c = begin(2, 1);
        run_for(c, LEASE_RENEW_MS);
        for (unsigned until = c->writes + renewals; c->writes < until;)
            step(c);
        kill_replica(leader(c));
        run_for(c, LEASE_DURATION_MS + LEASE_POLL_MS + LOOK_AND_WRITE_MS);
        assert_non_null(leader(c));
        end(c);
    }
}

/* The next process of the same pod knows that the one before is dead. */
static void test_restarted_holder(void **state) {
    struct cluster *c = begin(2, 2);
    (void) state;
    run_for(c, 2000);
    struct replica *first = leader(c), *other = &c->replicas[first == &c->replicas[0]];
    kill_replica(first);
    first->decided_until = c->now + LEASE_SERVER_S * 1000;
    start_process(first);
    run_for(c, LEASE_SETTLE_DEAD_MS - STEP_MS);
    assert_null(leader(c));
    run_for(c, 1000);
    assert_ptr_equal(leader(c), first);
    /* The other one has the port meanwhile, so the restarted one gives the Lease up at once. */
    kill_replica(first);
    start_process(first);
    first->able = false;
    run_for(c, LEASE_SETTLE_DEAD_MS + 2 * LEASE_POLL_MS);
    assert_ptr_equal(leader(c), other);
    end(c);
}

static void test_hand_over_to_whom_is_asked(void **state) {
    struct cluster *c = begin(2, 3);
    (void) state;
    run_for(c, 2000);
    struct replica *first = leader(c), *other = &c->replicas[first == &c->replicas[0]];
    /* Not while the holder is asked itself. */
    lease_note_asked(&other->lease);
    lease_note_asked(&first->lease);
    for (unsigned i = 0; i < 8; i++) {
        run_for(c, 1000);
        assert_ptr_equal(leader(c), first);
        lease_note_asked(&first->lease);
    }
    run_for(c, 2 * LEASE_ASKED_MS);
    assert_ptr_equal(leader(c), first);
    lease_note_asked(&other->lease);
    first->open = 1; /* a Binding is under way */
    run_for(c, 4000);
    assert_null(leader(c));
    first->open = 0;
    lease_note_asked(&other->lease);
    run_for(c, 1000 + LEASE_POLL_MS);
    assert_ptr_equal(leader(c), other);
    assert_int_equal(first->lost, 1);
    run_for(c, 30000);
    assert_ptr_equal(leader(c), other);
    end(c);
}

/* Both modes at once: replica 0 is asked by the cluster's kube-scheduler, replica 1 by its own. */
static struct cluster *begin_both_modes(uint32_t seed) {
    struct cluster *c = begin(2, seed);
    c->replicas[1].own = true;
    start_process(&c->replicas[1]);
    return c;
}

static void ask_for(struct cluster *c, uint64_t ms, bool cluster_asks) {
    for (uint64_t until = c->now + ms; c->now < until; run_for(c, 1000)) {
        if (cluster_asks)
            lease_note_asked(&c->replicas[0].lease);
        lease_note_asked(&c->replicas[1].lease);
    }
}

static void test_own_stands_back(void **state) {
    struct cluster *c = begin_both_modes(6);
    struct lease *own = &c->replicas[1].lease;
    (void) state;
    assert_true(lease_stands_back(own)); /* nothing is known yet */
    ask_for(c, 30000, true);
    assert_ptr_equal(leader(c), &c->replicas[0]);
    assert_true(lease_stands_back(own));
    assert_string_equal(lease_cluster_asks(own), "replica-0");
    /* Not where the leader dies, either: the kube-scheduler that asks is still there. */
    kill_replica(&c->replicas[0]);
    ask_for(c, LEASE_DURATION_MS + 5000, false);
    assert_null(leader(c));
    start_process(&c->replicas[0]);
    ask_for(c, 10000, true);
    assert_ptr_equal(leader(c), &c->replicas[0]);
    assert_int_equal(c->replicas[1].acquired, 0);
    /* When it asks no more, the own one begins. */
    ask_for(c, LEASE_CLUSTER_MS + 10000, false);
    assert_ptr_equal(leader(c), &c->replicas[1]);
    assert_string_equal(lease_cluster_asks(own), "");
    assert_false(lease_stands_back(&c->replicas[0].lease));
    end(c);
}

/* The leader with a kube-scheduler of its own stops as soon as the other is asked. */
static void test_own_gives_way(void **state) {
    struct cluster *c = begin_both_modes(7);
    (void) state;
    c->replicas[0].able = false;
    ask_for(c, 5000, false);
    assert_ptr_equal(leader(c), &c->replicas[1]);
    c->replicas[0].able = true;
    c->replicas[1].open = 1; /* what it has begun is decided before */
    ask_for(c, 5000, true);
    assert_null(leader(c));
    assert_true(lease_stands_back(&c->replicas[1].lease));
    c->replicas[1].open = 0;
    ask_for(c, 5000, true);
    assert_ptr_equal(leader(c), &c->replicas[0]);
    ask_for(c, 60000, true);
    assert_ptr_equal(leader(c), &c->replicas[0]);
    end(c);
}

/* All doors at once: the cluster's kube-scheduler asks replica 0, a kube-scheduler of its own asks
 * replica 1, and none asks replica 2. Claims are placed by whichever leads, so there is one soon.
 */
static struct cluster *begin_all_doors(uint32_t seed) {
    struct cluster *c = begin(3, seed);
    c->replicas[1].own = true;
    start_process(&c->replicas[1]);
    ask_for(c, 30000, true);
    assert_ptr_equal(leader(c), &c->replicas[0]);
    return c;
}

#define TAKE_OVER_MS (LEASE_DURATION_MS + LEASE_POLL_MS + LOOK_AND_WRITE_MS)

static void test_the_asked_one_ends_then_the_unasked(void **state) {
    struct cluster *c = begin_all_doors(8);
    (void) state;
    /* The cluster's kube-scheduler finds no replica at its address. The one that none asks takes
     * the Lease, and with it goes the mark that another one is asked. */
    kill_replica(&c->replicas[0]);
    run_for(c, TAKE_OVER_MS);
    assert_ptr_equal(leader(c), &c->replicas[2]);
    run_for(c, LEASE_CLUSTER_MS);
    assert_ptr_equal(leader(c), &c->replicas[2]);
    /* As soon as the own kube-scheduler asks, its replica has it. */
    ask_for(c, 5000, false);
    assert_ptr_equal(leader(c), &c->replicas[1]);
    kill_replica(&c->replicas[1]);
    run_for(c, TAKE_OVER_MS);
    assert_ptr_equal(leader(c), &c->replicas[2]);
    kill_replica(&c->replicas[2]);
    start_process(&c->replicas[1]);
    run_for(c, TAKE_OVER_MS);
    assert_ptr_equal(leader(c), &c->replicas[1]);
    start_process(&c->replicas[0]);
    ask_for(c, 10000, true);
    assert_ptr_equal(leader(c), &c->replicas[0]);
    end(c);
}

/* Pods that use claims ask no replica. When the one that was asked is gone for good, one with a
 * kube-scheduler of its own that none asks begins, too, as late as one that is asked. */
static void test_begins_without_being_asked(void **state) {
    struct cluster *c = begin_all_doors(9);
    (void) state;
    kill_replica(&c->replicas[0]);
    kill_replica(&c->replicas[2]);
    run_for(c, LEASE_CLUSTER_MS - 2 * LEASE_RENEW_MS);
    assert_null(leader(c));
    run_for(c, 2 * LEASE_RENEW_MS + 2 * LEASE_POLL_MS);
    assert_ptr_equal(leader(c), &c->replicas[1]);
    run_for(c, 600000);
    assert_ptr_equal(leader(c), &c->replicas[1]);
    assert_int_equal(c->replicas[1].lost, 0);
    end(c);
}

static void on_released(void *userdata) {
    ((struct replica *) userdata)->released = true;
}

static void test_given_back_at_the_end(void **state) {
    struct cluster *c = begin(2, 4);
    (void) state;
    run_for(c, 2000);
    struct replica *first = leader(c);
    first->open = 1;
    lease_release(&first->lease, on_released);
    run_for(c, 1000);
    assert_false(first->released);
    assert_null(leader(c));
    first->open = 0;
    run_for(c, 100);
    assert_true(first->released);
    kill_replica(first);
    run_for(c, LEASE_POLL_MS + 200);
    assert_non_null(leader(c));
    /* Who holds nothing has nothing to wait for. */
    start_process(first);
    lease_release(&first->lease, on_released);
    assert_true(first->released);
    end(c);
}

/* Two replicas with kube-schedulers of their own, of which replica 1 is the one that is asked. */
static struct cluster *begin_own(const char *kube_scheduler, int status) {
    struct cluster *c = begin(2, 6);
    c->kube_scheduler = kube_scheduler;
    c->kube_scheduler_status = status;
    for (size_t i = 0; i < 2; i++) {
        c->replicas[i].own = true;
        start_process(&c->replicas[i]);
    }
    return c;
}

static void test_own_follows_its_kube_scheduler(void **state) {
    struct cluster *c = begin_own("replica-1_b5c2", 0);
    (void) state;
    run_for(c, 2000);
    assert_ptr_equal(leader(c), &c->replicas[1]);
    /* It gives the Lease back and its kube-scheduler does, too: the other one waits for its own. */
    c->kube_scheduler = "";
    lease_release(&c->replicas[1].lease, on_released);
    run_for(c, 2000);
    kill_replica(&c->replicas[1]);
    assert_null(leader(c));
    c->kube_scheduler = "replica-0_17ad";
    run_for(c, LEASE_POLL_MS + LOOK_AND_WRITE_MS);
    assert_ptr_equal(leader(c), &c->replicas[0]);
    end(c);
}

/* Of which one leads no sign may come: then the first one takes it. */
static void test_own_does_not_wait_for_ever(void **state) {
    static const struct {
        const char *kube_scheduler;
        int status;
        unsigned after_ms;
    } cases[] = {{NULL, 0, LEASE_FOLLOW_MS},
                 {"replica-10_b5c2", 0, LEASE_FOLLOW_MS}, /* not replica-1 */
                 {"elsewhere_b5c2", 0, LEASE_FOLLOW_MS},
                 {NULL, 403, 0}};
    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cluster *c = begin_own(cases[i].kube_scheduler, cases[i].status);
        if (cases[i].after_ms)
            run_for(c, cases[i].after_ms);
        assert_null(leader(c));
        run_for(c, LEASE_POLL_MS + 2 * LOOK_AND_WRITE_MS);
        assert_non_null(leader(c));
        end(c);
    }
}

static void test_server_away(void **state) {
    struct cluster *c = begin(2, 5);
    (void) state;
    run_for(c, 2000);
    struct replica *first = leader(c);
    c->lost_percent = 100;
    run_for(c, LEASE_DURATION_MS - LEASE_SETTLE_MS);
    assert_null(leader(c)); /* long before any other may take it */
    run_for(c, 60000);
    assert_null(leader(c));
    c->lost_percent = 0;
    run_for(c, LEASE_DURATION_MS + 5000);
    assert_non_null(leader(c));
    (void) first;
    end(c);
}

/* Something happens to a replica: it is killed and started again, paused, asked, or cannot act. */
static void upset(struct cluster *c, struct replica *r) {
    switch (dice(c, 6)) {
    case 0:
        if (!r->dead)
            kill_replica(r);
        break;
    case 1:
        if (r->dead)
            start_process(r);
        break;
    case 2:
        r->paused_until = c->now + dice(c, 40000);
        break;
    case 3:
        r->able = !r->able;
        break;
    case 4:
        c->lost_percent = dice(c, 4) ? dice(c, 30) : 100;
        c->late_ms = dice(c, 3000);
        break;
    default:
        break;
    }
    if (!r->dead && dice(c, 2))
        lease_note_asked(&r->lease);
}

/* Begins something that takes as long as anything can. */
static void act(struct cluster *c, struct replica *r) {
    if (r->dead || c->now < r->paused_until || !lease_leads(&r->lease))
        return;
    uint64_t decided = c->now + dice(c, LEASE_SETTLE_MS);
    if (decided > r->decided_until)
        r->decided_until = decided;
}

static void test_any_order(void **state) {
    unsigned acquired = 0;
    (void) state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        struct cluster *c = begin(REPLICAS, seed);
        for (size_t i = 0; i < REPLICAS; i++) { /* every mix of both modes */
            c->replicas[i].own = (seed >> i) % 2;
            start_process(&c->replicas[i]);
        }
        for (unsigned n = 0; n < 6000; n++) {
            step(c);
            for (size_t i = 0; i < c->nreplicas; i++) {
                struct replica *r = &c->replicas[i];
                r->open = c->now < r->decided_until;
                act(c, r);
                if (dice(c, 200) == 0)
                    upset(c, r);
            }
        }
        for (size_t i = 0; i < c->nreplicas; i++)
            acquired += c->replicas[i].acquired;
        /* Quiet: there is a leader again soon. */
        c->lost_percent = c->late_ms = 0;
        for (size_t i = 0; i < c->nreplicas; i++) {
            c->replicas[i].paused_until = 0;
            c->replicas[i].able = true;
            if (c->replicas[i].dead)
                start_process(&c->replicas[i]);
        }
        run_for(c, LEASE_CLUSTER_MS + LEASE_DURATION_MS + LEASE_SETTLE_MS + 10000);
        assert_non_null(leader(c));
        end(c);
    }
    assert_in_range(acquired, 100, 100000); /* the model does change hands */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_leads_and_another_takes_over),
        cmocka_unit_test(test_looks_when_the_lease_ends),
        cmocka_unit_test(test_restarted_holder),
        cmocka_unit_test(test_hand_over_to_whom_is_asked),
        cmocka_unit_test(test_own_stands_back),
        cmocka_unit_test(test_own_gives_way),
        cmocka_unit_test(test_the_asked_one_ends_then_the_unasked),
        cmocka_unit_test(test_begins_without_being_asked),
        cmocka_unit_test(test_given_back_at_the_end),
        cmocka_unit_test(test_own_follows_its_kube_scheduler),
        cmocka_unit_test(test_own_does_not_wait_for_ever),
        cmocka_unit_test(test_server_away),
        cmocka_unit_test(test_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
