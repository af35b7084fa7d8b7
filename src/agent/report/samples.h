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

/* SET(id, of): the samples of one kind are struct id_sample, one for each `of`. */
#define AGENT_SETS(SET)                                                                            \
    SET(card, "GPU of the node")                                                                   \
    SET(instance, "MIG instance of the node")                                                      \
    SET(dcgm, "GPU or MIG instance of the node")                                                   \
    SET(state, "GPU or MIG instance of the node, and state")                                       \
    SET(xid, "GPU or MIG instance of the node, and XID that it has had")                           \
    SET(reset, "GPU of the node, and result of a reset")                                           \
    SET(container, "GPU or MIG instance of a container's share")                                   \
    SET(policy, "GPU or MIG instance of a container's share")                                      \
    SET(cpus, "GPU or MIG instance of a container that has CPUs for itself")                       \
    SET(plugin, "extended resource")                                                               \
    SET(prestart, "result of PreStartContainer")                                                   \
    SET(agent, "agent")                                                                            \
    SET(version, "agent")

enum agent_set {
#define SAMPLES_ID(id, of) SAMPLES_##id,
    AGENT_SETS(SAMPLES_ID)
#undef SAMPLES_ID
        AGENT_SETS_COUNT
};

struct card_sample {
    const char *node, *driver_version;
    const char *uuid, *model, *pci;
    char device[24]; /* "nvidia0" */
    uint32_t index;
    bool healthy;
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
    const char *uuid, *model, *pci; /* of the card */
    const char *profile;            /* of an instance; NULL: a card */
    char device[24];                /* "nvidia0" */
    uint32_t index;                 /* of the card */
    uint32_t gi;                    /* id of a GPU instance; METRIC_UNKNOWN_32: a card */
    struct gpu_sample gpu;          /* as in struct card_sample */
    struct gpu_errors errors;       /* of a card */
    uint64_t reserved;              /* memory that the driver keeps for itself */
    uint32_t last_xid;              /* 0: none; kept until the machine is booted */
    uint32_t licensed;              /* 0 or 1; of a vGPU */
};

/* A container on one GPU or MIG instance. */
struct container_identity {
    const char *node, *namespace, *pod, *pod_uid, *container, *uuid;
    const char *profile; /* of an instance; NULL: a GPU */
    uint32_t index;      /* of the GPU */
    uint32_t gi;         /* id of a GPU instance; METRIC_UNKNOWN_32: a GPU */
};

struct container_sample {
    struct container_identity of;
    uint64_t limit, physical, overhead, charged;
    uint32_t core;
    /* By its ledger. */
    uint64_t booked, refused;
    bool ledger_damaged;
    /* By the driver. */
    uint64_t driver_memory, driver_time;
    uint32_t driver_percent, processes, unlimited_processes;
    uint32_t over_memory, over_time; /* 0 or 1 */
    /* By its account of GPU time. */
    uint64_t time_charged, time_waited, launches;
    uint32_t taken, entitled;
    double share_error; /* a ratio */
    uint32_t wanted;    /* 0 or 1 */
    bool account_damaged;
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
};

struct version_sample {
    const char *version;
    bool one;
};

struct agent_samples {
    struct metric_samples sets[AGENT_SETS_COUNT]; /* of the members below */
    struct card_sample cards[GPU_MAX];
    struct buf instances, dcgm, states, xids, resets, containers, policies,
        cpus; /* arrays of the samples */
    struct plugin_sample plugins[KUBELET_PLUGINS_MAX];
    struct prestart_sample prestarts[2];
    struct agent_sample agent;
    struct version_sample version;
};

/* Reads everything once. The samples point into the report's objects: they are valid until the next
 * turn of the loop. -ENOMEM; call agent_samples_done() in any case. */
int agent_samples_collect(struct report *report, struct agent_samples *ret);
void agent_samples_done(struct agent_samples *s);
