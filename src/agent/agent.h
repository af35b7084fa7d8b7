/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent: the state of its directories together. One thread, one libuv loop; what takes long is
 * done in steps (base/step.h). */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/audit/audit_internal.h"
#include "agent/backends/whole_rows.h"
#include "agent/config.h"
#include "agent/config/config_file.h"
#include "agent/dra/prepare.h"
#include "agent/health/cards.h"
#include "agent/kubelet/cross_check.h"
#include "agent/kubelet/prestart.h"
#include "agent/mps/mps.h"
#include "agent/report/report.h"
#include "agent/shares/shares.h"

struct card_mig;
struct dra_plugin;
struct dra_slices;
struct dynamic_card;
struct gpu_manager;
struct kmsg;
struct mig_card;
struct mig_place;

/* Why claims get nothing. */
struct claims_trouble {
    char slices[512];  /* none are published; "": they are */
    char kubelet[128]; /* what it says of a driver that it has not registered */
    uint64_t since;    /* loop time since which it has not; 0: it has */
};

struct agent {
    uv_loop_t *loop;
    struct config config;
    char nvml_library[512];
    struct shares shares;
    struct audit audit;
    struct whole_rows whole_rows;
    struct health_cards health;
    struct mig_executor *mig;
    struct card_mig *division;    /* NULL: not started */
    struct dynamic_card *dynamic; /* cards that are divided by order */
    bool dynamic_known;           /* which ones are */
    struct kmsg *kmsg;            /* NULL: the kernel's log is not read */
    struct kubelet *kubelet;
    struct prestarts prestarts;
    struct cross_check cross_check;
    struct dra_prepares claims;
    struct dra_plugin *dra; /* this and the next: NULL without --resource-claims */
    struct dra_slices *slices;
    uint64_t claims_health; /* hash of what kubelet was told */
    struct claims_trouble claims_trouble;
    struct kube_client *client;
    struct gpu_manager *gpu_manager;
    struct config_map *config_map;   /* NULL: the node has none */
    struct config_file *config_file; /* NULL: the node has none */
    struct node_config *node_config; /* what applies; never NULL */
    uint32_t gpu_manager_scaling;    /* of its ConfigMap, as gpu_manager_scaling(); 0: not read */
    bool gpu_manager_known;          /* its ConfigMap was read, or there is none */
    struct report report;

    struct mps_card mps_cards[GPU_CARDS_MAX]; /* that are to be under MPS */
    size_t nmps_cards;

    struct reset *reset;     /* that runs; NULL: none */
    uint64_t persistence_at; /* loop time before which no persistence mode is restored again */

    uv_timer_t leave_timer;
    uint64_t leave_since, leave_quiet; /* loop time */
    void (*on_left)(struct agent *a);
    void (*on_configured)(struct agent *a); /* the configuration is another one */
    /* Directories of kubelet were deleted behind a mount. */
    void (*on_detached)(struct agent *a, const char *what);

    unsigned closing; /* parts that have not closed yet; 0: it runs */
    bool failed;      /* it ends to be started again */
};

/* ---- reconfigure.c: the configuration of the node ---- */

/* Reads the configuration, before the other parts start, and follows its file. */
int reconfigure_start(struct agent *a, struct err *err);
/* Follows the ConfigMap, if there is one. To be called when there is a client. */
int reconfigure_follow(struct agent *a, struct err *err);
void reconfigure_see_node(struct agent *a, struct json node);
void reconfigure_stop(struct agent *a, void (*on_closed)(void *userdata));
/* Whether the configuration is known. Until the ConfigMap was read once, the defaults apply, and
 * the agent writes no capacity, changes no card's mode and starts no container. */
bool reconfigure_is_known(const struct agent *a);
/* The factor of oversubscription, or whether it is known, can have changed. */
void reconfigure_scaling(struct agent *a);

/* ---- card_offer.c: how the cards are given out ---- */

/* Sets `offer` and `scaling` of a device by the configuration. While containers have the card in
 * another way, it is given out as before. True then, and while a pod has it from another device
 * plugin, with the reason why it takes no other containers. For each device before its health is
 * evaluated. */
bool card_offer_judge(struct agent *a, struct gpu_device *d, char ret_why[static GPU_REASON_MAX]);

/* ---- card_allocator.c: who allocates the cards to ResourceClaims ---- */

/* Sets `allocator` of a device by the configuration. While shares are held that it does not know
 * of, or that another one has allocated, the device keeps its allocator. True then, with the reason
 * why it takes no other containers. For each device before its health is evaluated. */
bool card_allocator_judge(const struct agent *a, struct gpu_device *d,
                          char ret_why[static GPU_REASON_MAX]);

/* Whether kube-scheduler allocates a card in MIG mode, or its instance, and neither kubelet gives
 * it out nor is it in shares: one claim gets all of an instance. */
bool card_allocator_gives_instance(const struct agent *a, const struct gpu_snapshot *s,
                                   const struct gpu_device *d);

/* ---- card_mps.c: MPS of the cards ---- */

/* Finds what a former agent has left. */
int card_mps_start(struct agent *a, struct err *err);

/* Whether containers that have the card are clients of MPS. By order that is so only from the
 * moment at which MPS is ready, until it has ended: spec and status of a GPU object are two writes,
 * and no claim is made of a card that is shown to be under MPS and still to be healthy. */
bool card_mps_has(const struct agent *a, const struct gpu_snapshot *s, const struct gpu_device *d);

/* At every snapshot, and for each device before its health is evaluated. */
void card_mps_update(struct agent *a);
const char *card_mps_judge(struct agent *a, const struct gpu_device *d);

/* Ends what no container uses; then calls on_closed. */
void card_mps_stop(struct agent *a, void (*on_closed)(void *userdata));

/* ---- card_mig.c: the division of cards ---- */

int card_mig_start(struct agent *a, struct err *err);
/* To be called when there is a client. */
int card_mig_follow(struct agent *a, struct err *err);
void card_mig_see_node(struct agent *a, struct json node);
/* Whether the device takes no pods because cards are divided. */
bool card_mig_waits(const struct agent *a, const struct gpu_device *d,
                    char ret_why[static GPU_REASON_MAX]);
/* After each snapshot; when pods may have ended; and after each Allocate. */
void card_mig_update(struct agent *a);
void card_mig_retry(struct agent *a);
void card_mig_allocated(const char *const *ids, size_t n, void *userdata);
/* Kills what divides a card now; then calls on_closed. */
void card_mig_stop(struct agent *a, void (*on_closed)(void *userdata));

/* ---- card_dynamic.c: the orders of cards, MIG instances on demand ---- */

/* After each snapshot of all devices. */
void card_dynamic_update(struct agent *a);
/* A GPU object of this node was read; the agent is the userdata. */
void card_dynamic_object(struct json object, void *userdata);
/* Whether it is known what to report of the card, *ret; NULL: it is not divided by order. False
 * after a start, until the configuration and the card have been read. */
bool card_dynamic_report(const char *uuid, void *userdata, const struct mig_report **ret);
/* Whether the card is ordered to be under MPS: 0 or 1. -EAGAIN: that could not be read
 * yet. */
int card_dynamic_mps(const struct agent *a, const char *uuid);
/* What the card can be divided into for claims that kube-scheduler allocates, without profiles
 * until it has been read in MIG mode; NULL: it is not divided for them. */
const struct mig_card *card_dynamic_for_claims(const struct agent *a, const char *uuid);
/* Whether all cards that are divided on demand have been read, or could not be. */
bool card_dynamic_is_settled(const struct agent *a);
/* A claim waits for an instance of such a card: it is made, in the place of idle ones. To be
 * repeated until the instance is in the snapshot. -EAGAIN, with the reason. */
int card_dynamic_want(struct agent *a, const char *uuid, const struct mig_place *place,
                      struct err *why);
/* When the executor has closed. */
void card_dynamic_done(struct agent *a);

/* ---- card_health.c: the health of the cards, connected with the rest ---- */

/* Before the monitor is started; then its options `judge` and `on_xid`, with the agent as userdata.
 */
void card_health_start(struct agent *a);
void card_health_judge(struct gpu_device *d, void *userdata);
void card_health_xid(const struct gpu_xid *x, void *userdata);
/* As kubelet_handlers.unhealthy_percent. */
uint32_t card_health_unhealthy_percent(const struct checkpoint_entry *entry, void *userdata);

/* As kubelet_handlers.has_ended: the pod has ended or is gone, and so is its share. */
bool card_health_has_ended(const struct checkpoint_entry *entry, void *userdata);
/* The monitor's option `on_probe`. */
void card_health_probed(const char *uuid, const char *error, void *userdata);
/* After each snapshot, and once a second: follows orders, saves the states and begins their work.
 */
void card_health_work(struct agent *a);
/* Calls on_closed once. */
void card_health_stop(struct agent *a, void (*on_closed)(void *userdata));

/* ---- card_orders.c: what users and the GPU operator order of cards ---- */

/* Return whether the state of the device, or of any, has changed. */
bool card_orders_of(struct agent *a, const struct gpu_device *d);
bool card_orders_follow(struct agent *a);

/* After a boot no card takes pods before its orders were read, or for the time in which they are
 * expected: to be called when they were read, and once a second. */
void card_orders_await(struct agent *a);

/* ---- card_close.c: cards that are closed ---- */

/* Closes the card. Returns whether no process of the agent has it open any more; to be called again
 * until then. */
bool card_close(struct agent *a, const char *uuid);
/* Opens the card again, unless it is released, being reset, or its MIG mode changes: closes it
 * then.
 */
void card_open(struct agent *a, const char *uuid);

/* ---- card_reset.c: resets of cards ---- */

/* Closes the cards that are to be closed, and opens the others; begins the next reset.
 * After the start of the monitor, so that it opens none of them, and whenever a state can have
 * changed. */
void card_reset_work(struct agent *a);
/* The monitor's option `on_ended`. */
void card_reset_poke(void *userdata);

/* ---- resource_claims.c: the DRA driver ---- */

/* Whether it matters which pods use claims: they have shares here, or can get some. */
bool resource_claims_are_read(const struct agent *a);
/* When there is a client and a monitor. */
int resource_claims_start(struct agent *a, struct err *err);
/* After each snapshot of all devices. */
void resource_claims_update(struct agent *a);
/* A pod is new or different. */
void resource_claims_pod(struct agent *a, const struct pod_entry *e);
void resource_claims_see_node(struct agent *a, struct json node);
/* Calls on_closed as often as is returned. */
unsigned resource_claims_stop(struct agent *a, void (*on_closed)(void *userdata));

/* ---- leave.c: the end ---- */

/* Calls on_left when no pod is sent here any more and those that were are admitted; soon in every
 * case. Call it once. */
void leave_begin(struct agent *a, void (*on_left)(struct agent *a));
