/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent: what its parts share. One thread, one libuv loop; every part gets the whole. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/audit/card_audit.h"
#include "agent/audit/container_stop.h"
#include "agent/audit/mapped.h"
#include "agent/cluster/pod_events.h"
#include "agent/cluster/pods.h"
#include "agent/config.h"
#include "agent/kubelet/kubelet.h"
#include "agent/os/procfs.h"
#include "agent/shares/driver_limit.h"
#include "agent/shares/library.h"
#include "agent/shares/slot.h"
#include "gpu/driver/driver.h"
#include "gpu/nvml/monitor.h"

struct event_writer;
struct grpc_call;
struct http_server;
struct keys;
struct kube_client;
struct prestart;
struct publisher;
struct waiting;

#define KNOWN_PROCESSES 2048
#define KNOWN_WINDOW 32 /* entries that a PID can be in */
#define INTRUDERS_MAX 32

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
    struct gpu_manager *gpu_manager;
    bool capacity_known; /* how much of its cards the node sells: the ConfigMap was asked for */
    struct http_server *http;
    struct waiting *waiting; /* HTTP answers that wait for the driver's figures */

    struct prestart *prestarts; /* waiting PreStartContainer calls */
    uv_idle_t wake;             /* looks at all of them once, at the end of this turn of the loop */
    uint64_t prestart_granted, prestart_refused;

    uv_timer_t release_timer;
    struct process_walk release_walk;
    uint64_t release_since; /* when the latest release began */

    uv_timer_t sweep_timer;
    uint64_t
        outside[GPU_MAX]; /* bytes of each card (by position) held by no container with a share */
    uint64_t reclaimed;   /* ledger slots given back for dead processes */

    uv_timer_t look_timer; /* asks the driver again, to confirm what audit.c suspects */
    uint64_t looked_polls; /* of the monitor's status, at the last look */
    bool initial_pids;     /* the agent lives in the machine's own PID namespace */
    uint64_t overuse_found, overuse_stopped;
    struct container_stops stops;
    struct card_audit audits[GPU_MAX]; /* by position in the snapshot */
    struct holder_scan *holder_scan;   /* under way, or NULL */
    struct intruder {
        uint32_t pid;      /* 0: unused */
        uint64_t since_ms; /* the first look at it */
        uint64_t seen_ms;  /* the last one */
        bool told;
    } intruders[INTRUDERS_MAX]; /* processes of pods on cards of which they have no share */

    struct walls walls;
    struct known_process {
        uint32_t pid;                         /* 0: unused */
        const struct slot *slot;              /* for comparison only: it may be gone */
        uint64_t life;                        /* another one after each exec */
        uint64_t since_ms, seen_ms, until_ms; /* loop time; `until_ms`: the verdict stands */
        bool judged, stranger;
        struct mapped_ask *ask;
    } known[KNOWN_PROCESSES]; /* processes that were looked for in their ledgers */
    bool mapped_pending;      /* of some there is no answer yet */

    struct arbitration *arbitration;
    uint64_t gputime_sampled;    /* uv_hrtime of the last look at the driver's figures */
    struct event_writer *events; /* of pod_events.c */

    uv_timer_t leave_timer;
    bool leaving;                      /* it is about to end, see leave.c */
    uint64_t leave_since, leave_quiet; /* loop time */
    void (*on_left)(struct agent *a);

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

/* ---- slot_gc.c: slots of pods that are gone ---- */

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
/* The slot with the share of the container that the process belongs to, or NULL. */
struct slot *usage_slot_of(struct agent *a, uint32_t pid);
/* The same for a process of that control group. */
struct slot *usage_slot_of_group(struct agent *a, const struct cgroup_id *id);
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

/* ---- audit.c: does what the containers say agree with what the driver says? ---- */

/* The driver is going to be asked. */
void oversee_begin(struct agent *a);
/* A process of the container holds `bytes` on the device; d->driver_memory counts it already. */
void oversee_process(struct agent *a, struct slot *slot, struct slot_device *d, uint32_t pid,
                     uint64_t bytes);
/* Sets up what a policy needs. */
void oversee_start(struct agent *a);
/* A process of no container with a share of the card is on it. */
void oversee_intruder(struct agent *a, const struct gpu_device *card, uint32_t pid);
/* All processes of a new answer were named. */
void oversee_end(struct agent *a);
/* Bytes that the container may have on the n-th card of its share at once; 0: no limit. */
uint64_t oversee_limit(const struct slot *slot, uint32_t at);
/* The account of its ledger that counts what it has on that card. */
uint32_t oversee_account(const struct slot *slot, uint32_t at);
/* Whether the process owns a living slot of its container's ledger. */
bool oversee_knows(struct agent *a, struct slot *slot, uint32_t pid);
/* Whether the driver's PIDs of that card are certainly the agent's. */
bool oversee_pids_fit(const struct agent *a, const struct gpu_device *card);
/* What keeps it from being certain; "" when nothing does. */
const char *oversee_trouble(const struct agent *a);

/* ---- publish.c: GPU objects and node capacity ---- */

int publisher_start(struct agent *a, struct publisher **ret, struct err *err);
void publisher_update(struct publisher *p); /* the snapshot has changed */
void publisher_stop(struct publisher *p, void (*on_closed)(void *userdata), void *userdata);
/* The GPU object of the card with that UUID; false while there is none. */
bool publisher_object(const struct publisher *p, const char *uuid,
                      char ret_name[static KUBE_NAME_MAX], char ret_uid[static KUBE_UID_MAX]);
/* What keeps the API server's copy from being true; "" when nothing does. */
const char *publisher_trouble(const struct publisher *p);

/* Has the node's condition say that the agent stops, and nothing else be written from now on. */
void publisher_leave(struct publisher *p);
/* Whether it says so, or need not: no pod can be bound to the node for its cards. */
bool publisher_has_left(const struct publisher *p);

/* ---- leave.c: the end ---- */

/* Calls on_left when no pod is sent here any more and those that were are admitted; soon in every
 * case. Call it once. */
void leave_begin(struct agent *a, void (*on_left)(struct agent *a));

/* ---- http.c: /metrics, /healthz, /usage ---- */

int web_start(struct agent *a, struct err *err);
void web_update(struct agent *a); /* the snapshot has changed */
void web_stop(struct agent *a);
