/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Agents at addresses of the loopback network, each with a page /usage of the test's own. */

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/http.h"

#define FAKE_AGENTS 3

struct fake_agent {
    struct http_server *server;
    struct http_exchange *hanging;
    char address[16];
    const char *page;               /* what it answers with */
    bool hangs;                     /* it does not answer */
    const char *bearer;             /* what it wants; NULL: any request is answered */
    unsigned asked, together, most; /* requests: all, now, most at the same time */
};

struct fake_agents {
    struct fake_agent of[FAKE_AGENTS];
    unsigned port;
};

static void on_fake_usage(struct http_exchange *x, void *userdata) {
    struct fake_agent *agent = userdata;
    const char *token = http_header(x, "Authorization");
    struct buf page = BUF_INIT(0);
    agent->asked++;
    if (agent->hangs) {
        agent->hanging = x;
        agent->most = ++agent->together > agent->most ? agent->together : agent->most;
        return;
    }
    if (agent->bearer && (!token || strcmp(token, agent->bearer) != 0)) {
        http_reply_text(x, 401, "no\n");
        return;
    }
    buf_puts(&page, agent->page);
    http_reply(x, 200, "application/json", &page);
}

static const struct http_route fake_agent_routes[] = {{"GET", "/usage", on_fake_usage},
                                                      HTTP_ROUTE_END};

/* 0, or -EADDRINUSE: another program has the port at one of the addresses. */
static int fake_agents_listen(struct fake_agents *agents, uv_loop_t *loop) {
    agents->port = 0;
    for (unsigned i = 0; i < FAKE_AGENTS; i++) {
        struct fake_agent *agent = &agents->of[i];
        char listen[32];
        struct err err;
        (void) snprintf(agent->address, sizeof(agent->address), "127.0.0.%u", i + 2);
        (void) snprintf(listen, sizeof(listen), "%s:%u", agent->address, agents->port);
        const struct http_options options = {
            .listen = listen, .routes = fake_agent_routes, .userdata = agent};
        int r = http_server_start(loop, &options, &agent->server, &err);
        if (r == -EADDRINUSE) {
            while (i > 0)
                http_server_close(agents->of[--i].server);
            return r;
        }
        assert_int_equal(r, 0);
        agents->port = http_server_port(agent->server);
        agent->page = "{\"gpus\":[]}";
    }
    return 0;
}

#define PORTS_TRIED 16

static void fake_agents_start(struct fake_agents *agents, uv_loop_t *loop) {
    int r = -EADDRINUSE;
    for (unsigned i = 0; r < 0 && i < PORTS_TRIED; i++)
        r = fake_agents_listen(agents, loop);
    assert_int_equal(r, 0);
}

static void fake_agents_stop(struct fake_agents *agents) {
    for (unsigned i = 0; i < FAKE_AGENTS; i++)
        http_server_close(agents->of[i].server);
}

#define HOLDER(uid, core, taken, booked, driver, limit, throttled)                                 \
    "{\"namespace\":\"n\",\"pod\":\"p\",\"podUID\":\"" uid                                         \
    "\",\"container\":\"c\",\"core\":" #core ",\"memory\":1,\"memoryLimit\":" #limit               \
    ",\"memoryUsed\":" #booked ",\"memoryDriver\":" #driver ",\"throttledNs\":" #throttled         \
    ",\"gpuTakenPpm\":" #taken ",\"accountDamaged\":false,\"ending\":false}"
#define PAGE(holders) "{\"node\":\"x\",\"gpus\":[{\"index\":0,\"holders\":[" holders "]}]}"
