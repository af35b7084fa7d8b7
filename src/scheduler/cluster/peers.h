/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Takes a replica out of the endpoints whose node has gone silent. While packets to one endpoint of
 * an APIService are lost, no namespace of the cluster can be deleted, and Kubernetes itself notices
 * only after 40 to 50 s, when the node's Lease has not been renewed for as long. Here another
 * replica does, where all are so: the replica's port has answered this one earlier (otherwise a
 * firewall may be between them), it has not answered at all for PEERS_SILENT_MS, and its node's
 * Lease has not been renewed for PEERS_LEASE_MS. It writes the condition Ready of the pod, as
 * Kubernetes would. A kubelet that is alive after all writes it anew. One thread.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "scheduler/cluster/api.h"

#define PEERS_PROBE_MS 1000 /* for an answer, and until the next probe */
#define PEERS_SILENT_MS 11000
#define PEERS_LEASE_MS 13000 /* kubelet renews it every 10 s; watched since the port is silent */

struct peers;

struct peers_options {
    uv_loop_t *loop;
    struct api api;
    const char *name_space, *own; /* of the replicas' pods; name of this one */
    unsigned port;                /* of a server of each replica */
};

/* The texts must outlive it. NULL: out of memory. */
struct peers *peers_new(const struct peers_options *options);
/* No answer of the API server may come afterwards. The loop must run once more. NULL is fine. */
void peers_close(struct peers *p);

/* A replica's pod as the watch shows it. `ready`: by its condition, and it is not being deleted.
 * 0 or -ENOMEM. */
int peers_see(struct peers *p, const char *name, const char *node, const char *address, bool ready);
void peers_gone(struct peers *p, const char *name);
void peers_sync_begin(struct peers *p);
void peers_sync_end(struct peers *p);

/* To be called about once a second, while this replica knows the cluster. */
void peers_tick(struct peers *p, uint64_t now_ms);
