/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent: the state of its directories together. One thread, one libuv loop. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/audit/audit_internal.h"
#include "agent/backends/mig_rows.h"
#include "agent/config.h"
#include "agent/config/config_file.h"
#include "agent/health/cards.h"
#include "agent/kubelet/prestart.h"
#include "agent/mps/mps.h"
#include "agent/report/report.h"
#include "agent/shares/shares.h"

struct gpu_manager;
struct kmsg;

struct agent {
    uv_loop_t *loop;
    struct config config;
    char nvml_library[512];
    struct shares shares;
    struct audit audit;
    struct mig_rows mig_rows;
    struct health_cards health;
    struct kmsg *kmsg; /* NULL: the kernel's log is not read */
    struct kubelet *kubelet;
    struct prestarts prestarts;
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

    uv_timer_t leave_timer;
    uint64_t leave_since, leave_quiet; /* loop time */
    void (*on_left)(struct agent *a);
    void (*on_configured)(struct agent *a); /* the configuration is another one */

    unsigned closing; /* parts that have not closed yet; 0: it runs */
    bool failed;      /* it ends to be started again */
};

/* ---- reconfigure.c: the configuration of the node ---- */

/* Reads the configuration, before the other parts start, and follows its file. */
int reconfigure_start(struct agent *a, struct err *err);
/* Follows the ConfigMap, if there is one. To be called when there is a client. */
int reconfigure_follow(struct agent *a, struct err *err);
void reconfigure_stop(struct agent *a, void (*on_closed)(void *userdata));
/* Whether the configuration is known. Until the ConfigMap was read once, the defaults apply, and
 * the agent writes no capacity, changes no card's mode and starts no container. */
bool reconfigure_is_known(const struct agent *a);
/* The factor of oversubscription, or whether it is known, can have changed. */
void reconfigure_scaling(struct agent *a);

/* ---- card_mps.c: MPS of the cards ---- */

/* Finds what a former agent has left. */
int card_mps_start(struct agent *a, struct err *err);

/* Whether the device is to be under MPS: by the list of --mps-cards, or without one ("") by the
 * first entry of aliquot.cards in the configuration that names the card and has a mode. */
bool card_mps_is_wanted(const char *list, const struct node_config *c, const struct gpu_device *d);

/* At every snapshot, and for each device before its health is evaluated. */
void card_mps_update(struct agent *a);
const char *card_mps_judge(struct agent *a, const struct gpu_device *d);

/* Ends what no container uses; then calls on_closed. */
void card_mps_stop(struct agent *a, void (*on_closed)(void *userdata));

/* ---- card_health.c: the health of the cards, connected with the rest ---- */

/* Before the monitor is started; then its options `judge` and `on_xid`, with the agent as userdata.
 */
void card_health_start(struct agent *a);
void card_health_judge(struct gpu_device *d, void *userdata);
void card_health_xid(const struct gpu_xid *x, void *userdata);
/* The monitor's option `on_probe`. */
void card_health_probed(const char *uuid, const char *error, void *userdata);
/* After each snapshot: follows orders, saves the states and begins their work. */
void card_health_work(struct agent *a);
/* Calls on_closed once. */
void card_health_stop(struct agent *a, void (*on_closed)(void *userdata));

/* ---- leave.c: the end ---- */

/* Calls on_left when no pod is sent here any more and those that were are admitted; soon in every
 * case. Call it once. */
void leave_begin(struct agent *a, void (*on_left)(struct agent *a));
