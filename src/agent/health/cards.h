/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The health of the devices of this node: a struct health for each, fed from NVML's snapshots,
 * NVML's events and the kernel's log, and kept in a file over a restart of the agent. The verdict
 * is written into the snapshot (struct gpu_device.service), where kubelet, grants and reports read
 * it. One thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/verdicts/health.h"
#include "gpu/device.h"

struct err;
struct kmsg_xid;

#define HEALTH_ORDER_TEXT_MAX 64
#define HEALTH_SHOW_XID_MS                                                                         \
    60000                  /* at least, between two XIDs that are shown without a new state        \
                            */
#define HEALTH_XIDS_MAX 32 /* different XIDs of one device that are counted */

/* NVML and the log report the same XID; which of them reports more is right. */
struct xid_count {
    uint32_t xid;
    uint64_t by_nvml, by_log;
};

struct health_card {
    char uuid[GPU_UUID_MAX];
    char parent[GPU_UUID_MAX]; /* of an instance: its card; "": none */
    char pci[32];
    enum gpu_kind kind;
    uint32_t index;
    struct gpu_mig mig;
    struct health health;
    int64_t since; /* of the state, Unix time in seconds */
    struct xid_count xids[HEALTH_XIDS_MAX];
    uint32_t nxids;
    uint32_t shown_xid;                /* health.last_xid as others see it, */
    uint64_t shown_at;                 /* from that time on; 0: it was none */
    bool has_order;                    /* `order` was read */
    char order[HEALTH_ORDER_TEXT_MAX]; /* the last one that was followed, "": none */
    uint64_t read_at;                  /* of the device, as it was evaluated last */
    uint64_t judged;                   /* of health_cards, when it was the last time */
    bool working;                      /* its work has begun, in this process */
};

/* What is known of a device to those that do not decide: the state of its card where that is worse
 * than its own. */
struct health_view {
    enum health_state state;
    const char *reason; /* "" when healthy */
    int64_t since;
    /* 0: none. A tenant can cause any number of XIDs, so that it follows the last one at most once
     * a minute, and with each new state. */
    uint32_t last_xid;
};

struct health_cards_options {
    const struct health_options *rules; /* may change between calls */
    const char *state_dir;              /* the file is health.json in it */
    /* Shares of the device. */
    uint32_t (*holders)(const char *uuid, void *userdata);
    /* The state of a device has changed, or the reason of one that is not healthy. */
    void (*on_change)(const struct health_card *card, enum health_state before, void *userdata);
    void *userdata;
};

struct health_cards {
    struct health_cards_options options;
    struct health_card cards[GPU_MAX];
    uint32_t ncards;
    uint64_t judged;       /* devices so far */
    uint64_t log_sequence; /* of the last record of the kernel's log that was evaluated */
    bool unsaved;
};

/* Reads what a former agent has left. What cannot be read is ignored with a line in the log. */
void health_cards_start(struct health_cards *c, const struct health_cards_options *options);

/* Evaluates one device of a new snapshot and writes the verdict into it. A card comes before its
 * parts. A device that has not been read yet (`saved`) keeps the state of the file. */
void health_cards_judge(struct health_cards *c, struct gpu_device *d);

/* Both return whether the state of a device has changed, so that the snapshot has to be evaluated
 * again. */
bool health_cards_xid(struct health_cards *c, const struct gpu_xid *x);
bool health_cards_log(struct health_cards *c, const struct kmsg_xid *x);

/* Follows the text of the annotation GPU_SET_HEALTHY of a card, "": it has none: each new one is
 * the order to set the card and its instances healthy. The first one that is read is taken for an
 * old one. Returns whether a state has changed. */
bool health_cards_order(struct health_cards *c, const char *uuid, const char *text);

/* A device whose health_work() is `work` and has not begun, NULL: none. */
const struct health_card *health_cards_waiting(const struct health_cards *c, enum health_work work);

/* The work of the device has begun; it has ended, `error`: why it failed, or NULL. A device that
 * has gone meanwhile is ignored. */
void health_cards_begin(struct health_cards *c, const char *uuid);
void health_cards_end(struct health_cards *c, const char *uuid, enum health_work work,
                      const char *error);

/* What the figures of a device do not show (HEALTH_MPS ...); NULL: no longer. Ignored for a device
 * that has not been judged yet. */
void health_cards_set_problem(struct health_cards *c, const char *uuid, enum health_cause cause,
                              const char *text);

/* NULL: not known. */
const struct health_card *health_cards_find(const struct health_cards *c, const char *uuid);

/* HEALTH_UNKNOWN of a device that is not known. */
struct health_view health_cards_view(const struct health_cards *c, const char *uuid);

/* Writes the file, if anything has changed. Before any work is begun, so that a restarted agent
 * knows of it. */
void health_cards_save(struct health_cards *c);

/* The file as text and back, for tests. */
struct buf;
void health_cards_encode(const struct health_cards *c, struct buf *out);
int health_cards_decode(const char *text, size_t len, struct health_cards *ret, struct err *err);
