/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent: what its parts share. One thread, one libuv loop; every part gets the whole. */

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/config.h"
#include "agent/kubelet.h"
#include "agent/library.h"
#include "agent/pods.h"
#include "agent/slot.h"
#include "gpu/driver.h"
#include "gpu/monitor.h"

struct grpc_call;
struct http_server;
struct keys;
struct kube_client;
struct prestart;
struct publisher;
struct waiting;

struct agent {
    uv_loop_t *loop;
    struct config config;
    struct gpu_driver_places places;
    struct gpu_monitor *monitor;
    const struct gpu_driver *driver; /* as found last; NULL: none */
    char nvml_library[512];
    struct library library;
    struct slot_store slots;
    struct kubelet *kubelet;
    struct kube_client *client;
    struct keys *keys;
    struct pods *pods;
    struct publisher *publisher;
    struct http_server *http;
    struct waiting *waiting; /* HTTP answers that wait for the driver's figures */

    struct prestart *prestarts; /* waiting PreStartContainer calls */
    uv_idle_t wake;             /* looks at all of them once, at the end of this turn of the loop */
    uint64_t prestart_granted, prestart_refused;

    uv_timer_t release_timer;
    DIR *proc;              /* the scan of /proc under way, or NULL */
    uint64_t release_since; /* when the latest release began */

    uv_timer_t sweep_timer;
    uint64_t
        outside[GPU_MAX]; /* bytes of each card (by position) held by no container with a share */
    uint64_t reclaimed;   /* ledger slots given back for dead processes */

    char api_trouble[256]; /* last problem with the API server; "" when a watch is up */
    uint64_t started;      /* uv_now */
    unsigned closing;      /* parts that have not closed yet; 0: it runs */
    bool failed;           /* it ends to be started again */
};

/* ---- prestart.c: PreStartContainer ---- */

/* Takes the call over. */
void prestart_begin(struct agent *a, struct grpc_call *call, const struct resource *resource,
                    const char *const *ids, size_t nids);
/* Something happened that a waiting call may have waited for. */
void prestart_wake(struct agent *a);
/* Ends all waiting calls. */
void prestart_stop(struct agent *a);
size_t prestart_waiting(const struct agent *a);

/* ---- release.c: slots of pods that are gone ---- */

/* Every slot of the pod: no container starts with it from now on; when its processes have ended it
 * is removed. `stopped`: kubelet has confirmed that all its containers ended, so none is just being
 * started. */
void release_pod(struct agent *a, const char *pod_uid, bool stopped);
/* The pod is there after all (the API server's copy was old): its slots are its own again. */
void release_cancel(struct agent *a, const char *pod_uid);
/* After the first whole list of pods: what belongs to no pod of it, and files that belong to no
 * slot. */
void release_orphans(struct agent *a);

/* ---- usage.c: who uses what ---- */

/* Attributes the processes of the monitor's snapshot to slots. */
void usage_update(struct agent *a);
/* Gives back in all ledgers what dead processes held; starts and stops its own timer. */
void usage_sweep(struct agent *a);
/* The same for one slot, unless its ledger rests. Returns how many slots of it were given back. */
unsigned usage_sweep_slot(struct slot *slot);

/* Memory that the containers of a slot have booked on its n-th device; 0 when the ledger is
 * unreadable. */
struct slot_usage {
    uint64_t booked[GPU_MAX];
    uint64_t refused[GPU_MAX];
    bool damaged;
};
void usage_of_slot(struct slot *slot, struct slot_usage *ret);

/* ---- publish.c: GPU objects and node capacity ---- */

int publisher_start(struct agent *a, struct publisher **ret, struct err *err);
void publisher_update(struct publisher *p); /* the snapshot has changed */
void publisher_stop(struct publisher *p, void (*on_closed)(void *userdata), void *userdata);
/* What keeps the API server's copy from being true; "" when nothing does. */
const char *publisher_trouble(const struct publisher *p);

/* ---- web.c: /metrics, /healthz, /usage ---- */

int web_start(struct agent *a, struct err *err);
void web_update(struct agent *a); /* the snapshot has changed */
void web_stop(struct agent *a);
