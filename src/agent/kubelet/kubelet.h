/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kubelet's plugin directory: all our plugins in it, kept registered through restarts of kubelet,
 * lost sockets, and the directory's own removal. */

#include <uv.h>

#include "agent/kubelet/plugin.h"

struct err;
struct gpu_snapshot;
struct kubelet;

struct kubelet_options {
    const char *dir; /* "/var/lib/kubelet" */
    void (*on_prestart)(struct grpc_call *call, const struct resource *resource,
                        const char *const *ids, size_t nids, void *userdata);
    void (*on_checkpoint)(void *userdata); /* the checkpoint was written */
    void (*on_state)(const struct resource *r, bool registered, const char *why, void *userdata);
    /* The directory was deleted behind a mount: what is at its path now cannot be seen from here
     * any more. */
    void (*on_detached)(void *userdata);
    void *userdata;
};

int kubelet_start(uv_loop_t *loop, const struct kubelet_options *options, struct kubelet **ret,
                  struct err *err);

/* Closes all plugins and frees, then calls on_closed. The loop must run. */
void kubelet_close(struct kubelet *k, void (*on_closed)(void *userdata), void *userdata);

/* The devices of the node; `known`: the driver has told their health, otherwise all count as
 * healthy. To be called at each poll, also with the same figures: what kubelet could not be told
 * for lack of memory is tried again. */
void kubelet_set_devices(struct kubelet *k, const struct gpu_snapshot *s, bool known);

const char *kubelet_checkpoint_path(const struct kubelet *k);

/* Whether kubelet has taken all plugins and reads their lists. */
bool kubelet_is_served(const struct kubelet *k);

/* Whether kubelet's socket is there. */
bool kubelet_is_there(const struct kubelet *k);

/* One for each row of the table of resources, in its order. */
const struct plugin *kubelet_plugin(const struct kubelet *k, size_t i);
