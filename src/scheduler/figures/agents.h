/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What pods use, as the agents of their nodes say. An agent is asked when its figures are wanted
 * and were not asked for within the last second: without a question nothing is polled. Each agent
 * has one question in flight at most. One that is away or hangs delays an answer by its deadline
 * and costs the figures of its own node. One thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "scheduler/figures/usage_page.h"

#define AGENTS_PORT 9400
#define AGENTS_FRESH_MS 1000   /* an answer, or a failure, is remembered for that long */
#define AGENTS_TIMEOUT_MS 2000 /* of one agent; all of a question together have a little more */
#define AGENTS_OLD_MS 30000    /* older figures are none */

struct agents;
struct tls_client_options;

struct agents_options {
    uv_loop_t *loop;
    unsigned port;          /* of every agent */
    const char *token_file; /* sent as a bearer token over plain HTTP, where it exists; read again
                               as it changes */
    /* Whom to trust of the agents that speak TLS, and the certificate to show them; false: there is
     * none yet. NULL: no agent speaks it. */
    bool (*credentials)(void *userdata, struct tls_client_options *ret);
    void *userdata;
};

/* The text must outlive it. NULL: out of memory. */
struct agents *agents_new(const struct agents_options *options);
/* Ends all questions without their callbacks. The loop must run once more. NULL is fine. */
void agents_close(struct agents *a);

/* The agent's pods, as the watch shows them. Of several on a node the one shown last counts. 0 or
 * -ENOMEM, -ENOSPC. `address` may be "": not known yet. `tls`: it is asked over TLS only,
 * and has to show a certificate for its node. */
int agents_see(struct agents *a, const char *uid, const char *node, const char *address, bool tls);
void agents_gone(struct agents *a, const char *uid);
/* Around a full list: what was not shown is gone. */
void agents_sync_begin(struct agents *a);
void agents_sync_end(struct agents *a);

/* Asks the agents of these nodes and calls `done` once, when all have answered or are late; also
 * inside this call. A node without an agent is answered. 0, or -ENOMEM: `done` is not called. */
int agents_ask(struct agents *a, const char *const *nodes, size_t n, void (*done)(void *userdata),
               void *userdata);

struct agents_figures {
    const struct pod_use *use; /* until the loop runs again */
    int64_t when;              /* Unix time at which they came */
    bool throttled_known;
    double
        throttled; /* part of the time since an earlier answer in which launches waited: 0 to 1 */
};

/* Whether the agent of that node has answered within the last AGENTS_OLD_MS. */
bool agents_know(struct agents *a, const char *node);

/* False: none of that pod, or they are too old. */
bool agents_find(struct agents *a, const char *node, const char *uid, struct agents_figures *ret);
