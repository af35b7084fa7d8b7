/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/api/field.h"
#include "kube/api/names.h"
#include "kube/api/object_write.h"
#include "wire/http_get.h"
#include "wire/json_write.h"

#define TIMEOUT_MS 3000
#define ANSWER_MAX 1024 /* any answer will do, and there is none in HTTP */
#define BODY_MAX 4096
#define PEERS_MAX 64u
#define PATH_LEN 1024

struct peer {
    UT_hash_handle hh;
    struct peers *peers;
    char node[KUBE_NAME_MAX], address[64];
    bool ready, listed;
    bool answered;          /* any probe, at this address */
    struct http_get *probe; /* under way */
    uint64_t probed_ms;     /* when the last one began */
    bool asking;            /* for the Lease, or writing */
    bool gone;              /* and the answer is still to come */
    uint64_t since_ms;      /* when it became silent, after an answer; 0: it is not */
    char renewed[64];       /* its node's Lease */
    uint64_t renewed_ms;    /* when that was seen first while it is silent; 0: not yet */
    char name[];
};

struct peers {
    struct peers_options options;
    struct peer *all; /* uthash by name */
    uint64_t now_ms;
};

static void peer_free(struct peer *peer) {
    http_get_cancel(peer->probe);
    peer->probe = NULL;
    if (peer->asking)
        peer->gone = true;
    else
        free(peer);
}

/* ---- out of the endpoints ---- */

static void on_written(const struct kube_response *response, void *userdata) {
    struct peer *peer = userdata;
    peer->asking = false;
    if (response->status < 200 || response->status >= 300)
        log_warn("replica %s cannot be taken out of the endpoints: %s", peer->name, response->text);
    if (peer->gone)
        free(peer);
}

static void take_out(struct peer *peer) {
    struct peers *p = peer->peers;
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w = {.out = &body};
    char path[PATH_LEN], now[OBJECT_TIME_SIZE];
    struct err err;
    object_now(now);
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s/status",
                    p->options.name_space, peer->name);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "status");
    json_array_begin(&w, "conditions");
    object_put_condition(&w, "Ready", false, "NodeSilent",
                         "the node has not renewed its Lease, and the replica does not answer "
                         "another one of aliquot-scheduler",
                         now, NULL);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    log_warn("replica %s and its node %s are silent: it is taken out of the endpoints", peer->name,
             peer->node);
    peer->asking = true;
    peer->since_ms = p->now_ms; /* again only after as long */
    if (p->options.api.request(p->options.api.context, "PATCH", path, KUBE_STRATEGIC_PATCH,
                               body.data, body.len, TIMEOUT_MS, on_written, peer, &err) < 0)
        peer->asking = false;
}

/* ---- the Lease of its node ---- */

static void on_lease(const struct kube_response *response, void *userdata) {
    struct peer *peer = userdata;
    struct peers *p = peer->peers;
    const char *renewed = response->status == 404
                              ? "none"
                              : json_string(JSON_PATH(response->body, "spec", "renewTime"));
    bool known = renewed && (response->status == 200 || response->status == 404);
    peer->asking = false;
    if (peer->gone) {
        free(peer);
        return;
    }
    if (!known || !peer->since_ms)
        return;
    if (!peer->renewed_ms || strncmp(peer->renewed, renewed, sizeof(peer->renewed) - 1) != 0) {
        text_copy(peer->renewed, sizeof(peer->renewed), renewed);
        peer->renewed_ms = p->now_ms;
        return;
    }
    if (peer->ready && p->now_ms - peer->since_ms >= PEERS_SILENT_MS &&
        p->now_ms - peer->renewed_ms >= PEERS_LEASE_MS) {
        take_out(peer);
    }
}

static void ask_for_lease(struct peer *peer) {
    struct peers *p = peer->peers;
    char path[PATH_LEN];
    struct err err;
    if (peer->asking || !field_is_name(peer->node))
        return;
    (void) snprintf(path, sizeof(path),
                    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/%s",
                    peer->node);
    peer->asking = true;
    if (p->options.api.request(p->options.api.context, "GET", path, NULL, NULL, 0, TIMEOUT_MS,
                               on_lease, peer, &err) < 0)
        peer->asking = false;
}

/* ---- probes ---- */

/* The port speaks TLS and answers a line of HTTP by an alert: any answer is one, also a refusal. */
static void on_probed(int status, struct buf *body, const char *why, void *userdata) {
    struct peer *peer = userdata;
    (void) why, (void) body;
    peer->probe = NULL;
    bool silent = status == -ETIMEDOUT || status == -EHOSTUNREACH || status == -ENETUNREACH;
    if (!silent) {
        if (!peer->answered)
            log_info("replica %s answers: it is watched from now on", peer->name);
        peer->answered = true;
        peer->since_ms = 0;
    } else if (peer->answered && !peer->since_ms) {
        peer->since_ms = peer->probed_ms;
    }
}

static void probe(struct peer *peer) {
    struct peers *p = peer->peers;
    const struct http_get_options options = {.address = peer->address,
                                             .port = p->options.port,
                                             .path = "/",
                                             .max = ANSWER_MAX,
                                             .timeout_ms = PEERS_PROBE_MS};
    struct err err;
    if (http_get_start(p->options.loop, &options, on_probed, peer, &peer->probe, &err) < 0)
        peer->probe = NULL;
}

void peers_tick(struct peers *p, uint64_t now_ms) {
    struct peer *peer, *next;
    p->now_ms = now_ms;
    HASH_ITER(hh, p->all, peer, next) {
        if (!peer->ready || !peer->address[0]) {
            peer->since_ms = peer->renewed_ms = 0;
            continue;
        }
        if (peer->since_ms)
            ask_for_lease(peer);
        else
            peer->renewed_ms = 0;
        if (!peer->probe && now_ms - peer->probed_ms >= PEERS_PROBE_MS) {
            peer->probed_ms = now_ms;
            probe(peer);
        }
    }
}

/* ---- the replicas ---- */

int peers_see(struct peers *p, const char *name, const char *node, const char *address,
              bool ready) {
    struct peer *peer;
    size_t len = strlen(name);
    if (strcmp(name, p->options.own) == 0 || !field_is_name(name))
        return 0;
    HASH_FIND_STR(p->all, name, peer);
    if (!peer) {
        if (HASH_COUNT(p->all) >= PEERS_MAX)
            return 0;
        if (!(peer = calloc(1, sizeof(*peer) + len + 1)))
            return -ENOMEM;
        peer->peers = p;
        memcpy(peer->name, name, len + 1);
        HASH_ADD_STR(p->all, name, peer);
        if (!hash_added_or_freed(peer))
            return -ENOMEM;
    }
    peer->listed = true;
    peer->ready = ready;
    if (strcmp(peer->address, address) != 0) {
        http_get_cancel(peer->probe);
        peer->probe = NULL;
        peer->answered = false;
        peer->since_ms = peer->renewed_ms = 0;
    }
    text_copy(peer->node, sizeof(peer->node), node);
    text_copy(peer->address, sizeof(peer->address), address);
    return 0;
}

static void remove_peer(struct peers *p, struct peer *peer) {
    HASH_DEL(p->all, peer);
    peer_free(peer);
}

void peers_gone(struct peers *p, const char *name) {
    hash_drop_named(p, p->all, name, remove_peer);
}

HASH_SYNC(peers, peers, all, remove_peer)

struct peers *peers_new(const struct peers_options *options) {
    struct peers *p = calloc(1, sizeof(*p));
    if (p)
        p->options = *options;
    return p;
}

void peers_close(struct peers *p) {
    struct peer *peer, *next;
    if (!p)
        return;
    HASH_ITER(hh, p->all, peer, next) {
        peer->asking = false; /* no answer comes */
        remove_peer(p, peer);
    }
    free(p);
}
