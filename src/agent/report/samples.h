/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The figures of one scrape of the agent, without names: metrics.h has these. Memory is in bytes,
 * time in nanoseconds, power in milliwatts, parts of a card's time in parts per million. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/kubelet/kubelet.h"
#include "base/buf.h"
#include "gpu/device.h"
#include "share/arbiter.h"
#include "wire/metrics.h"

struct report;

/* SET(id, of, sample): the samples of one kind are struct sample_sample, one for each `of`. Sets of
 * the same samples differ in the labels that a vocabulary gives them. */
#define AGENT_SETS(SET)                                                                            \
    SET(card, "GPU of the node", card)                                                             \
    SET(instance, "MIG instance of the node", instance)                                            \
    SET(dcgm, "GPU or MIG instance of the node", dcgm)                                             \
    SET(state, "GPU or MIG instance of the node, and state", state)                                \
    SET(xid, "GPU or MIG instance of the node, and XID that it has had", xid)                      \
    SET(reset, "GPU of the node, and result of a reset", reset)                                    \
    SET(container, "GPU or MIG instance of a container's share", container)                        \
    SET(policy, "GPU or MIG instance of a container's share", policy)                              \
    SET(claim_user, "container that uses a ResourceClaim", claim_user)                             \
    SET(cpus, "GPU or MIG instance of a container that has CPUs for itself", cpus)                 \
    SET(hami_host, "GPU of the node", hami_card)                                                   \
    SET(hami_bare, "GPU of the node", hami_card)                                                   \
    SET(hami_card, "GPU of the node", hami_card)                                                   \
    SET(hami_cores, "GPU of the node", hami_card)                                                  \
    SET(hami_overview, "GPU of the node", hami_card)                                               \
    SET(hami_container, "GPU or MIG instance of a container's share, of pods that have not ended", \
        container)                                                                                 \
    SET(manager_core, "GPU of a container's shares, and all of them together", manager)            \
    SET(manager_memory, "GPU of a container's shares, and all of them together", manager)          \
    SET(manager_core_request, "container with shares", manager)                                    \
    SET(manager_memory_request, "container with shares", manager)                                  \
    SET(plugin, "extended resource", plugin)                                                       \
    SET(prestart, "result of PreStartContainer", prestart)                                         \
    SET(agent, "agent", agent)                                                                     \
    SET(version, "agent", version)

enum agent_set { AGENT_SETS(METRIC_SET_ID) AGENT_SETS_COUNT };
_Static_assert(AGENT_SETS_COUNT <= 32, "sets as bits");

AGENT_SETS(METRIC_SET_TYPE)

struct card_sample {
    const char *node, *driver_version;
    const char *uuid, *model, *pci;
    char device[24]; /* "nvidia0" */
    uint32_t index;
    bool healthy, hangs;
    uint64_t memory;
    struct gpu_sample gpu; /* all bits are set (not known) while the card is unhealthy */
    uint32_t nvlinks;      /* that are active */
    uint64_t granted, physical, capacity;
    uint32_t core;
    uint64_t outside, unattributed;
    uint32_t mps_ready; /* 0 or 1 */
    uint64_t mps_restarts;
};

struct instance_sample {
    const char *node, *uuid, *parent, *profile;
    uint32_t index;  /* of the card */
    uint32_t gi, ci; /* ids */
    bool healthy;
    uint64_t memory;
    struct gpu_sample gpu; /* as in struct card_sample */
};

/* A card or an instance, as dcgm-exporter lists them: figures of memory and utilisation of a card
 * in MIG mode are those of its instances, and figures of the chip are the card's. */
struct dcgm_sample {
    const char *node, *driver_version;
    const char *uuid, *model, *pci;          /* of the card */
    const char *profile;                     /* of an instance; NULL: a card */
    const char *namespace, *pod, *container; /* that has it whole; NULL: none, or several */
    char device[24];                         /* "nvidia0" */
    uint32_t index;                          /* of the card */
    uint32_t gi;                             /* id of a GPU instance; METRIC_UNKNOWN_32: a card */
    struct gpu_sample gpu;                   /* as in struct card_sample */
    struct gpu_errors errors;                /* of a card */
    uint64_t reserved;                       /* memory that the driver keeps for itself */
    uint32_t last_xid;                       /* 0: none; kept until the machine is booted */
    uint32_t licensed;                       /* 0 or 1; of a vGPU */
};

/* A container on one GPU or MIG instance. */
struct container_identity {
    const char *node, *namespace, *pod, *pod_uid, *container, *uuid;
    const char *claim;   /* ResourceClaim whose share it is; NULL: the container's own */
    const char *profile; /* of an instance; NULL: a GPU */
    uint32_t index;      /* of the GPU */
    uint32_t gi;         /* id of a GPU instance; METRIC_UNKNOWN_32: a GPU */
};

struct container_sample {
    struct container_identity of;
    uint32_t at; /* its number among the container's devices */
    uint64_t granted, limit, physical, overhead, charged;
    uint32_t core;
    /* By its ledger. */
    uint64_t booked, peak, refused;
    bool ledger_damaged;
    /* By the driver. */
    uint64_t driver_memory, driver_time;
    uint32_t driver_percent, processes, unlimited_processes;
    uint32_t over_memory, over_time; /* 0 or 1 */
    /* By its account of GPU time. */
    uint64_t time_charged, time_waited, launches;
    uint64_t launched, since_launch; /* Unix time of the last launch, and how long ago that was */
    uint32_t taken, entitled;
    double share_error; /* a ratio */
    uint32_t wanted;    /* 0 or 1 */
    bool account_damaged;
};

/* A card as HAMi counts it. What is allocated of a divided card is allocated of its instances; a
 * device that a container has whole is allocated whole. */
struct hami_card_sample {
    const char *node, *uuid;
    char host_type[104], type[104]; /* the model by its monitor, and by its scheduler */
    uint32_t index;
    struct gpu_sample gpu;     /* as in struct card_sample */
    uint64_t limit, limit_mib; /* memory that pods can have of it together */
    uint64_t allocated;
    double allocated_ratio;
    uint32_t core_limit, core, containers;
};

/* A container on one card, or on all of its cards together, as gpu-manager counts it. */
struct manager_sample {
    struct container_identity of;
    char card[16];            /* "gpu0", "total" */
    uint64_t percent, memory; /* by the driver */
    uint64_t memory_request;  /* of all cards together */
    double core_request;      /* likewise, in cards */
};

/* Of a device and each state: whether it is that of the device. */
struct state_sample {
    const char *node, *uuid, *state;
    uint32_t index;
    bool is;
};

struct xid_sample {
    const char *node, *uuid;
    uint32_t index, xid;
    uint64_t count;
};

struct reset_sample {
    const char *node, *uuid, *result;
    uint32_t index;
    uint64_t count;
};

struct policy_sample {
    struct container_identity of;
    const char *policy;
    bool one;
};

struct claim_user_sample {
    const char *node, *namespace, *claim, *claim_uid, *pod, *pod_uid, *container;
    bool one;
};

struct cpus_sample {
    struct container_identity of;
    uint32_t exclusive, elsewhere;
};

struct plugin_sample {
    const char *resource;
    bool registered;
    uint64_t registrations;
    uint64_t register_ns;
    struct prom_histogram allocate;
};

struct prestart_sample {
    const char *result;
    uint64_t count;
};

struct agent_sample {
    bool answering, synced;
    uint64_t restarts, hangs;
    uint32_t slots, prestart_waiting;
    uint64_t reclaimed, overuse, overuse_stopped, driver_limits_left;
    uint32_t differences;
    uint32_t others;
    uint64_t lists_failed;
    uint64_t events_written, events_failed, events_dropped;
    uint64_t resident;
    uint64_t arbiter_ns, arbiter_steps;
    struct prom_histogram kubelet_wait;
};

struct version_sample {
    const char *version;
    bool one;
};

struct agent_samples {
    struct metric_samples sets[AGENT_SETS_COUNT]; /* of the members below */
    struct card_sample cards[GPU_MAX];
    struct buf instances, dcgm, states, xids, resets, containers, policies, claim_users, cpus,
        hami_cards, managers; /* arrays of the samples */
    struct plugin_sample plugins[KUBELET_PLUGINS_MAX];
    struct prestart_sample prestarts[2];
    struct agent_sample agent;
    struct version_sample version;
};

/* Reads everything once, but those of other projects' names (hami_..., manager_...) only if the set
 * is in `wanted`, 1 << SAMPLES_set for each. The samples point into the report's objects: they are
 * valid until the next turn of the loop. -ENOMEM; call agent_samples_done() in any case. */
int agent_samples_collect(struct report *report, uint32_t wanted, struct agent_samples *ret);
void agent_samples_done(struct agent_samples *s);
