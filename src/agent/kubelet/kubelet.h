/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kubelet's plugin directory: all our plugins in it, kept registered through restarts of kubelet,
 * lost sockets, and the directory's own removal. */

#include <uv.h>

#include "agent/kubelet/plugin.h"

struct checkpoint_entry;
struct err;
struct gpu_snapshot;
struct kubelet;

#define KUBELET_PLUGINS_MAX 64 /* MIG has some ten profiles for each model of card */

struct kubelet_handlers {
    /* The devices of the node now. Never NULL; valid until the next turn of the loop. */
    const struct gpu_snapshot *(*devices)(void *userdata);
    void (*on_prestart)(struct grpc_call *call, const struct resource *resource,
                        const char *const *ids, size_t nids, void *userdata);
    /* How many percent of the entry's IDs are of shares of devices that take no pods, 0 to 100;
     * NULL: none is. */
    uint32_t (*unhealthy_percent)(const struct checkpoint_entry *entry, void *userdata);
    /* Whether the entry's container has ended for good: kubelet takes its IDs back when it gives
     * devices to the next one. NULL: none has. */
    bool (*has_ended)(const struct checkpoint_entry *entry, void *userdata);
    void (*on_allocated)(const char *const *ids, size_t nids, void *userdata); /* may be NULL */
    void (*on_checkpoint)(void *userdata); /* the checkpoint was written */
    void (*on_state)(const struct resource *r, bool registered, const char *why, void *userdata);
    /* The directory was deleted behind a mount: what is at its path now cannot be seen from here
     * any more. */
    void (*on_detached)(void *userdata);
};

struct kubelet_options {
    const char *dir;   /* "/var/lib/kubelet" */
    const char *guard; /* the file of cdi_guard.h; NULL or "": none */
    const struct kubelet_handlers *handlers;
    void *userdata;
};

int kubelet_start(uv_loop_t *loop, const struct kubelet_options *options, struct kubelet **ret,
                  struct err *err);

/* Closes all plugins and frees, then calls on_closed. The loop must run. */
void kubelet_close(struct kubelet *k, void (*on_closed)(void *userdata), void *userdata);

/* Serves one more resource than those of the table, from the next kubelet_update() on and for the
 * life of `k`; the row lives as long. While its back end lists no IDs, kubelet is not offered it.
 * -EINVAL: the row is not whole; -EEXIST: another one has its name or socket; -ENOSPC, -ENOMEM. */
int kubelet_add(struct kubelet *k, const struct resource *r);

/* The `data` of rows or the settings of back ends have changed: the next kubelet_update() calls
 * `list`, `id` and `health` of all rows, also with the same devices. */
void kubelet_rows_changed(struct kubelet *k);

/* What `unhealthy_percent` or `has_ended` answer has changed: taken up by the next
 * kubelet_update(). */
void kubelet_held_changed(struct kubelet *k);

/* The devices can have changed. `known`: the driver has told their health, otherwise all count as
 * healthy. To be called at each poll, also with the same figures: what kubelet could not be told
 * for lack of memory is tried again. */
void kubelet_update(struct kubelet *k, bool known);

/* CPU time of the loop's thread between two times at which kubelet's calls are read: by the loop,
 * and at the ends of steps (base/step.h). A call can have waited that long. */
const struct prom_histogram *kubelet_waits(const struct kubelet *k);

/* As the option. */
const struct gpu_snapshot *kubelet_devices(const struct kubelet *k);

const char *kubelet_checkpoint_path(const struct kubelet *k);

/* Whether kubelet has taken all plugins that offer something, at least one, and reads their lists.
 */
bool kubelet_is_served(const struct kubelet *k);

/* Whether kubelet's socket is there. */
bool kubelet_is_there(const struct kubelet *k);

/* One for each row: those of the table, in its order, then those of kubelet_add(); NULL after the
 * last one. */
const struct plugin *kubelet_plugin(const struct kubelet *k, size_t i);

/* Where the plugin of that resource is in this order; where there is none, behind the last one. */
size_t kubelet_find(const struct kubelet *k, const char *resource);
