/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The health of the devices of this node: a struct health for each, fed from NVML's snapshots,
 * NVML's events and the kernel's log, and kept in a file over a restart of the agent. The verdict
 * is written into the snapshot (struct gpu_device.service), where kubelet, grants and reports read
 * it. One thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/health/reset.h"
#include "agent/verdicts/health.h"
#include "gpu/device.h"

struct err;
struct kmsg_xid;
struct slot;

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

/* The text of an annotation each of whose new texts is an order. */
struct health_order_text {
    bool known; /* it was read */
    char text[HEALTH_ORDER_TEXT_MAX];
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
    bool repair_pending;                         /* of its memory, by the next reset */
    bool banks_exhausted, sram_exceeded;         /* see struct gpu_errors */
    bool unlicensed;                             /* a vGPU that has no licence */
    uint32_t shown_xid;                          /* health.last_xid as others see it, */
    uint64_t shown_at;                           /* from that time on; 0: it was none */
    struct health_order_text set_healthy, reset; /* the last ones that were followed */
    uint64_t read_at;                            /* of the device, as it was evaluated last */
    uint64_t judged;                             /* of health_cards, when it was the last time */
    bool working;                                /* its work has begun, in this process */
    char probed[GPU_UUID_MAX]; /* of a card in MIG mode: the instance with the probe */
    bool persistent; /* its persistence mode was turned off for a reset and is to be restored */
    uint64_t resets[RESET_RESULTS]; /* since the agent started */
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
    /* Something about a card that leaves its state as it is: the reason of an Event and its text,
     * which goes on after the name of the card. */
    void (*on_notice)(const struct health_card *card, const char *reason, const char *text,
                      void *userdata);
    void *userdata;
};

struct health_cards {
    struct health_cards_options options;
    struct health_card cards[GPU_MAX];
    uint32_t ncards;
    uint64_t judged; /* devices so far */
    /* Devices of which no agent of this boot has left a state are unknown: users may have ordered
     * something of them, which is not read yet. */
    bool awaits_orders;
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

/* Follows the text of the annotation for HEALTH_ORDER_SET_HEALTHY or HEALTH_ORDER_RESET of a
 * device, "": it has none: each new one is the order, the first also for the instances of a card.
 * The first text that is read is taken for an old one. Returns whether a state has changed. */
bool health_cards_order(struct health_cards *c, const char *uuid, enum health_order order,
                        const char *text);

/* Has the card reset when it is idle, as HEALTH_ORDER_RESET does; what is told of the order that a
 * user has given is left. Returns whether a state has changed. */
bool health_cards_reset(struct health_cards *c, const char *uuid);

/* Whether a reset is ordered, runs, or is being proved. */
bool health_card_is_to_be_reset(const struct health_card *card);

/* Has the card in the state of HEALTH_ORDER_UNCORDON, _CORDON, _DRAIN or _RELEASE from now on.
 * `origin`: see health_take_order(). Returns whether a state has changed. */
bool health_cards_maintain(struct health_cards *c, const char *uuid, enum health_order level,
                           const char *origin);

/* Whether no process of the agent may have the card open: it is released, or being reset. */
bool health_card_is_closed(const struct health_card *card);

/* A device whose health_work() is `work` and has not begun, NULL: none. */
const struct health_card *health_cards_waiting(const struct health_cards *c, enum health_work work);

/* The work of the device has begun; it has ended, `error`: why it failed, or NULL. A device that
 * has gone meanwhile is ignored. */
void health_cards_begin(struct health_cards *c, const char *uuid);
void health_cards_end(struct health_cards *c, const char *uuid, enum health_work work,
                      const char *error);

/* The persistence mode of the card is turned off, or restored; saved at once. */
void health_cards_set_persistent(struct health_cards *c, const char *uuid, bool off);

/* A reset has failed. Successes, and resets without an effect, are counted by the probe. */
void health_cards_count_reset(struct health_cards *c, const char *uuid, enum reset_result result);

/* The instance of the card with which the probe goes on, "": none. */
void health_cards_set_probed(struct health_cards *c, const char *uuid, const char *instance);

/* What the figures of a device do not show (HEALTH_MPS, HEALTH_OFFER); NULL: no longer. Ignored for
 * a device that has not been judged yet. */
void health_cards_set_problem(struct health_cards *c, const char *uuid, enum health_cause cause,
                              const char *text);

/* A device, and the instances on it, as containers name them. A card with its instances is asked
 * for once for all containers: on a node of 8 cards with 7 instances each and 112 containers, every
 * poll asks for each device. */
struct health_places {
    const char *uuids[GPU_MAX + 1]; /* valid until the next device is judged */
    uint32_t n;
};

/* `uuid` outlives the places. */
void health_cards_places(const struct health_cards *c, const char *uuid, struct health_places *ret);

/* Whether the container has a share of one of them, or has it whole. */
bool health_places_hold(const struct health_places *places, const struct slot *slot);

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
