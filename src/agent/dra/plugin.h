/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent as a DRA driver of kubelet: a socket in kubelet's registration directory, by which
 * kubelet finds the plugin, and one with the plugin's services. Both are kept through restarts of
 * kubelet, lost sockets and the removal of their directories. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct buf;
struct dra_claim_ids;
struct dra_plugin;
struct err;
struct grpc_call;

#define DRA_HEALTH_REPEAT_MS 10000 /* kubelet forgets what it was not told for 30 s */

struct dra_plugin_options {
    const char *kubelet_dir; /* "/var/lib/kubelet" */
    /* kubelet wants these claims prepared, or unprepared. The callee ends the call; `claims` is
     * valid until it returns. */
    void (*on_prepare)(struct grpc_call *call, const struct dra_claim_ids *claims, void *userdata);
    void (*on_unprepare)(struct grpc_call *call, const struct dra_claim_ids *claims,
                         void *userdata);
    /* Appends the health of all devices (dra_message_health). */
    void (*health)(struct buf *out, void *userdata);
    /* kubelet has taken the plugin, or does not have it (`why` is the reason). */
    void (*on_state)(bool registered, const char *why, void *userdata);
    /* A directory was deleted behind a mount: what is at its path now cannot be seen from here. */
    void (*on_detached)(void *userdata);
    void *userdata;
};

int dra_plugin_start(uv_loop_t *loop, const struct dra_plugin_options *options,
                     struct dra_plugin **ret, struct err *err);

/* What `health` appends has changed: kubelet is told now, and without a change every
 * DRA_HEALTH_REPEAT_MS. */
void dra_plugin_health_changed(struct dra_plugin *p);

/* Whether kubelet has taken the plugin and its sockets are there. */
bool dra_plugin_is_registered(const struct dra_plugin *p);

/* Closes the sockets and frees, then calls on_closed. The loop must run. */
void dra_plugin_close(struct dra_plugin *p, void (*on_closed)(void *userdata), void *userdata);
