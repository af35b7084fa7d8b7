/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The device plugin of one resource: a gRPC server in kubelet's plugin directory (service
 * v1beta1.DevicePlugin), and its registration there. Allocate is answered from memory alone: a name
 * made up for that call, which PreStartContainer later finds in kubelet's checkpoint and fills. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/backends/resource.h"
#include "wire/prom.h"

struct buf;
struct gpu_snapshot;
struct grpc_call;
struct plugin;

struct plugin_options {
    const struct resource *resource;
    const char *dir;   /* kubelet's plugin directory */
    const char *guard; /* the file of cdi_guard.h; NULL or "": none */
    /* The devices of the node now. Never NULL. */
    const struct gpu_snapshot *(*devices)(void *userdata);
    /* kubelet is about to start a container with these IDs (sorted, valid during the call). The
     * callee ends `call`: grpc_call_reply with an empty message, or grpc_call_finish. */
    void (*on_prestart)(struct grpc_call *call, const struct resource *resource,
                        const char *const *ids, size_t nids, void *userdata);
    /* kubelet is told that these are one container's. May be NULL. */
    void (*on_allocated)(const char *const *ids, size_t nids, void *userdata);
    /* Registered, or no longer registered (`why` is the reason). */
    void (*on_state)(struct plugin *p, bool registered, const char *why, void *userdata);
    /* An event outside of plugin_check() makes another call of plugin_check() necessary. Not to be
     * called from this callback. */
    void (*on_due)(struct plugin *p, void *userdata);
    void *userdata;
};

int plugin_new(uv_loop_t *loop, const struct plugin_options *options, struct plugin **ret);

/* Answers what kubelet asks now, without the loop. Callbacks are `devices`, `on_allocated`,
 * `on_prestart` and `on_due`. */
void plugin_serve(struct plugin *p);

/* Closes the server and frees the plugin, then calls on_closed. The loop must run. */
void plugin_close(struct plugin *p, void (*on_closed)(void *userdata), void *userdata);

/* The IDs to offer, as message_list() has written them. Sends the list when it changed. With 0 IDs
 * nothing is registered. 0, or -ENOMEM: kubelet has still the list before; a later call with the
 * same list sends it. */
int plugin_set_list(struct plugin *p, uint32_t count, const struct buf *list);

/* Takes notice of the end of kubelet's stream, which may have come between the steps of other work.
 * Call it on every event, also when kubelet's directory is not there. */
void plugin_note_stream(struct plugin *p);

/* Compares server, stream and registration with what they should be, and repairs one: starts the
 * server, starts it again under a new name when its socket or kubelet's stream is lost, or
 * registers. `kubelet` identifies kubelet's socket (0: not there). Call it on every event and once
 * a second. Returns after how many ms it wants to be called again (0: no need). */
unsigned plugin_check(struct plugin *p, uint64_t kubelet);

struct plugin_stats {
    bool registered;
    uint32_t ids; /* that are offered; 0: it need not be registered */
    uint64_t registrations, allocations, prestarts, lost_streams;
    uint64_t
        register_ns; /* of the last registration: from kubelet's socket seen to kubelet's yes */
    struct prom_histogram allocate;
};
/* Whether kubelet has registered it and reads the list of its IDs. */
bool plugin_is_served(const struct plugin *p);

void plugin_stats(const struct plugin *p, struct plugin_stats *ret);
const struct resource *plugin_resource(const struct plugin *p);
