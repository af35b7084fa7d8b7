/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/figures/agents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/server_time.h"
#include "base/text.h"
#include "kube/api/token_file.h"
#include "kube/objects/agent_certificate.h"
#include "wire/http_get.h"
#include "wire/tls.h"

#define AGENTS_MAX 16384u
#define AT_ONCE 64u /* questions in flight, of all agents */
#define PAGE_MAX ((size_t) 2 << 20)
#define TICK_MS 100
#define QUESTION_MS (AGENTS_TIMEOUT_MS + 500)
/* Ages of the earlier answer that a counter is compared with. */
#define BEFORE_MIN_MS 10000
#define BEFORE_MAX_MS 120000
#define ADDRESS_MAX 64

struct question {
    struct question *prev, *next;
    size_t pending;               /* agents that have not answered */
    void (*done)(void *userdata); /* NULL: it has been called */
    void *userdata;
    uint64_t end_ms;
};

struct wait {
    struct wait *next;
    struct question *question;
};

struct reading {
    uint64_t at_ms; /* 0: none */
    int64_t when;
    struct pod_use *uses;
    size_t n;
};

struct agent {
    UT_hash_handle hh;
    struct agents *agents;
    char uid[KUBE_UID_MAX];
    char address[ADDRESS_MAX];
    bool listed, failing, tls;
    struct http_get *get; /* the question in flight */
    struct agent *queue_prev, *queue_next;
    bool queued;
    struct wait *waits;
    uint64_t asked_ms; /* when it last answered or failed; 0: never */
    struct reading now, before;
    char node[];
};

struct agents {
    struct agents_options options;
    struct agent *nodes; /* uthash by node */
    struct agent *queue;
    struct question *questions;
    unsigned in_flight;
    uv_timer_t timer;
    struct token_file token;
};

static uint64_t now_ms(void) {
    return uv_hrtime() / 1000000;
}

static void reading_done(struct reading *r) {
    free(r->uses);
    *r = (struct reading){0};
}

/* ---- questions ---- */

static void finish(struct question *q) {
    void (*done)(void *userdata) = q->done;
    q->done = NULL;
    if (done)
        done(q->userdata);
}

static void answered(struct agents *a, struct question *q) {
    if (--q->pending > 0)
        return;
    DL_DELETE(a->questions, q);
    finish(q);
    free(q);
}

static void start_queued(struct agents *a);

/* The agent has answered, failed, or is gone. */
static void complete(struct agent *agent) {
    struct agents *a = agent->agents;
    struct wait *waits = agent->waits;
    agent->waits = NULL;
    while (waits) {
        struct wait *next = waits->next;
        answered(a, waits->question);
        free(waits);
        waits = next;
    }
}

static void on_tick(uv_timer_t *timer) {
    struct agents *a = timer->data;
    struct question *q, *next;
    uint64_t at = now_ms();
    DL_FOREACH_SAFE(a->questions, q, next)
        if (q->done && at >= q->end_ms)
            finish(q);
    if (!a->questions)
        uv_timer_stop(timer);
}

/* ---- answers ---- */

static void keep(struct agent *agent, struct pod_use *uses, size_t n) {
    uint64_t at = now_ms();
    if (agent->now.at_ms &&
        (!agent->before.at_ms || at - agent->before.at_ms >= UINT64_C(2) * BEFORE_MIN_MS)) {
        reading_done(&agent->before);
        agent->before = agent->now;
    } else {
        reading_done(&agent->now);
    }
    agent->now = (struct reading){at, server_time(), uses, n};
}

static void note(struct agent *agent, const char *trouble) {
    bool failing = *trouble != '\0';
    if (failing && !agent->failing)
        log_warn("the agent of node %s gives no figures: %s", agent->node, trouble);
    else if (!failing && agent->failing)
        log_info("the agent of node %s gives figures again", agent->node);
    agent->failing = failing;
}

static void on_answer(int status, struct buf *body, const char *why, void *userdata) {
    struct agent *agent = userdata;
    struct agents *a = agent->agents;
    struct pod_use *uses = NULL;
    struct err err = {0};
    size_t n = 0;
    agent->get = NULL;
    agent->asked_ms = now_ms();
    a->in_flight--;
    int r = status == 200 ? usage_page_read(buf_str(body), body->len, &uses, &n, &err)
            : status > 0  ? err_set(&err, EREMOTEIO, "/usage is answered by %d", status)
                          : err_set(&err, -status, "%s", why);
    note(agent, r < 0 ? err.text : "");
    if (r == 0)
        keep(agent, uses, n);
    complete(agent);
    start_queued(a);
}

/* NULL: there is none. */
static const char *token_of(struct agents *a) {
    (void) token_file_refresh(&a->token, NULL);
    return token_file_token(&a->token);
}

static int start(struct agent *agent) {
    struct agents *a = agent->agents;
    char host[KUBE_NAME_MAX + sizeof(AGENT_SERVER_NAME)];
    struct tls_client_options tls = {.host = host};
    const struct http_get_options options = {.address = agent->address,
                                             .port = a->options.port,
                                             .path = "/usage",
                                             .tls = agent->tls ? &tls : NULL,
                                             .bearer = agent->tls ? NULL : token_of(a),
                                             .max = PAGE_MAX,
                                             .timeout_ms = AGENTS_TIMEOUT_MS};
    struct err err;
    int r = 0;
    (void) snprintf(host, sizeof(host), "%s." AGENT_SERVER_NAME, agent->node);
    if (agent->tls &&
        !(a->options.credentials && a->options.credentials(a->options.userdata, &tls)))
        r = err_set(&err, EAGAIN,
                    "it speaks TLS, and there is no certificate to show it "
                    "(--agent-tls)");
    if (r == 0)
        r = http_get_start(a->options.loop, &options, on_answer, agent, &agent->get, &err);
    if (r == 0) {
        a->in_flight++;
    } else {
        agent->asked_ms = now_ms();
        note(agent, err.text);
    }
    return r;
}

/* Whether a question still waits for the agent. */
static bool is_wanted(const struct agent *agent) {
    for (const struct wait *w = agent->waits; w; w = w->next)
        if (w->question->done)
            return true;
    return false;
}

static void unqueue(struct agents *a, struct agent *agent) {
    if (agent->queued)
        DL_DELETE2(a->queue, agent, queue_prev, queue_next);
    agent->queued = false;
}

static void start_queued(struct agents *a) {
    while (a->queue && a->in_flight < AT_ONCE) {
        struct agent *agent = a->queue;
        unqueue(a, agent);
        if (!is_wanted(agent) || start(agent) < 0)
            complete(agent);
    }
}

/* ---- asking ---- */

static int add_wait(struct agents *a, struct question *q, const char *node) {
    struct agent *agent;
    HASH_FIND_STR(a->nodes, node, agent);
    if (!agent || !agent->address[0] ||
        (agent->asked_ms && now_ms() - agent->asked_ms < AGENTS_FRESH_MS))
        return 0;
    /* Of several pods of a node; its own wait would be the newest. */
    if (agent->waits && agent->waits->question == q)
        return 0;
    struct wait *w = malloc(sizeof(*w));
    if (!w)
        return -ENOMEM;
    *w = (struct wait){agent->waits, q};
    agent->waits = w;
    q->pending++;
    if (!agent->get && !agent->queued) {
        agent->queued = true;
        DL_APPEND2(a->queue, agent, queue_prev, queue_next);
    }
    return 0;
}

int agents_ask(struct agents *a, const char *const *nodes, size_t n, void (*done)(void *userdata),
               void *userdata) {
    struct question *q = calloc(1, sizeof(*q));
    int r = 0;
    if (!q)
        return -ENOMEM;
    *q = (struct question){.pending = 1, /* this call */
                           .done = done,
                           .userdata = userdata,
                           .end_ms = now_ms() + QUESTION_MS};
    DL_APPEND(a->questions, q);
    for (size_t i = 0; i < n && r == 0; i++)
        r = add_wait(a, q, nodes[i]);
    if (r < 0)
        q->done = NULL;
    if (!uv_is_active((uv_handle_t *) &a->timer))
        (void) uv_timer_start(&a->timer, on_tick, TICK_MS, TICK_MS);
    start_queued(a);
    answered(a, q);
    return r;
}

/* The part of the time between two answers in which launches waited. */
static bool throttled_of(const struct agent *agent, const struct pod_use *use, double *ret) {
    const struct reading *before = &agent->before;
    uint64_t ms = agent->now.at_ms - before->at_ms;
    const struct pod_use *was =
        before->at_ms && ms <= BEFORE_MAX_MS ? usage_find(before->uses, before->n, use->uid) : NULL;
    if (!was || !was->time_known || !use->time_known || ms == 0 ||
        was->throttled_ns > use->throttled_ns)
        return false;
    double part = (double) (use->throttled_ns - was->throttled_ns) / ((double) ms * 1e6);
    *ret = part < 1 ? part : 1;
    return true;
}

static struct agent *find_fresh(struct agents *a, const char *node) {
    struct agent *agent;
    HASH_FIND_STR(a->nodes, node, agent);
    bool fresh = agent && agent->now.at_ms && now_ms() - agent->now.at_ms <= AGENTS_OLD_MS;
    return fresh ? agent : NULL;
}

bool agents_know(struct agents *a, const char *node) {
    return find_fresh(a, node) != NULL;
}

bool agents_find(struct agents *a, const char *node, const char *uid, struct agents_figures *ret) {
    const struct agent *agent = find_fresh(a, node);
    if (!agent)
        return false;
    const struct pod_use *use = usage_find(agent->now.uses, agent->now.n, uid);
    if (!use)
        return false;
    *ret = (struct agents_figures){.use = use, .when = agent->now.when};
    ret->throttled_known = throttled_of(agent, use, &ret->throttled);
    return true;
}

/* ---- the agents ---- */

static void stop_asking(struct agent *agent) {
    struct agents *a = agent->agents;
    unqueue(a, agent);
    if (agent->get)
        a->in_flight--;
    http_get_cancel(agent->get);
    agent->get = NULL;
}

static void remove_agent(struct agents *a, struct agent *agent) {
    stop_asking(agent);
    HASH_DEL(a->nodes, agent);
    complete(agent);
    reading_done(&agent->now);
    reading_done(&agent->before);
    free(agent);
}

int agents_see(struct agents *a, const char *uid, const char *node, const char *address, bool tls) {
    struct agent *agent;
    HASH_FIND_STR(a->nodes, node, agent);
    if (!agent) {
        size_t len = strlen(node);
        if (HASH_COUNT(a->nodes) >= AGENTS_MAX)
            return -ENOSPC;
        if (!(agent = calloc(1, sizeof(*agent) + len + 1)))
            return -ENOMEM;
        memcpy(agent->node, node, len + 1);
        agent->agents = a;
        HASH_ADD_STR(a->nodes, node, agent);
        if (!hash_added_or_freed(agent))
            return -ENOMEM;
    }
    agent->listed = true;
    agent->tls = tls;
    text_copy(agent->uid, sizeof(agent->uid), uid);
    text_copy(agent->address, sizeof(agent->address), address);
    return 0;
}

void agents_gone(struct agents *a, const char *uid) {
    struct agent *agent, *next;
    HASH_ITER(hh, a->nodes, agent, next)
        if (strcmp(agent->uid, uid) == 0)
            remove_agent(a, agent);
}

HASH_SYNC(agents, agents, nodes, remove_agent)

/* ---- life ---- */

struct agents *agents_new(const struct agents_options *options) {
    struct agents *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    a->options = *options;
    a->token.path = options->token_file;
    (void) uv_timer_init(options->loop, &a->timer);
    a->timer.data = a;
    return a;
}

static void on_closed(uv_handle_t *handle) {
    free(handle->data);
}

void agents_close(struct agents *a) {
    struct question *q;
    if (!a)
        return;
    DL_FOREACH(a->questions, q)
        q->done = NULL;
    hash_drop_all(a, a->nodes, remove_agent);
    token_file_done(&a->token);
    uv_close((uv_handle_t *) &a->timer, on_closed);
}
