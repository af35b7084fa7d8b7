/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the reports read, and their state. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/audit/audit_internal.h"
#include "agent/backends/whole_rows.h"
#include "agent/kubelet/cross_check.h"
#include "agent/kubelet/kubelet.h"
#include "agent/kubelet/prestart.h"
#include "agent/mig/manager.h"
#include "agent/report/history.h"
#include "agent/report/labeler.h"
#include "agent/shares/shares.h"

struct access;
struct agent_certificate;
struct health_cards;
struct http_server;
struct kube_client;
struct mig_report;
struct publisher;
struct waiting;

struct report {
    const char *listen;      /* "" or "off": no HTTP */
    uint32_t metric_names;   /* vocabularies of /metrics, see metric_names_parse() */
    bool usage_asks_token;   /* /usage and /history are for clients with a token only */
    bool metrics_asks_token; /* the same of /metrics */
    struct agent_certificate *certificate; /* of HTTP; NULL: plain HTTP */
    struct access *access;                 /* of those clients; NULL: not yet, or none needs one */
    const char *kubelet_dir;
    const char *signing_namespace; /* of ConfigMap aliquot-signing */
    struct labeler_options labels;
    struct shares *shares;
    struct audit *audit;
    const struct health_cards *health;
    const struct prestarts *prestarts;
    const struct cross_check *cross_check;
    const struct kubelet *kubelet;
    const struct whole_rows *whole_rows;
    struct kube_client *client;
    struct publisher *publisher;
    struct http_server *http;
    struct history history;
    uv_timer_t recorder;     /* of `history` */
    struct waiting *waiting; /* HTTP answers that wait for the driver's figures */
    uint64_t scrape_polled;  /* when /metrics has last asked the driver, loop time; 0: never */
    void (*on_node)(struct json node, void *userdata); /* it was read; NULL: not called */
    void (*on_gpu)(struct json gpu, void *userdata);   /* a GPU object of this node; the same */
    void (*on_orders)(void *userdata); /* the Node and all its GPU objects were read; the same */
    /* Whether it is known what can be made by order of the card with that UUID, *ret; NULL: the
     * card is not divided by order. May be NULL: no card is. */
    bool (*mig_report)(const char *uuid, void *userdata, const struct mig_report **ret);
    void *userdata;
    bool capacity_known; /* the factor of oversubscription: all its sources were read */
    bool leaving;        /* the agent is about to end, see leave.c */
    uint64_t started;    /* uv_now */
    char mig_trouble[MIG_PROBLEM_MAX]; /* of the MIG configuration, see mig_status_problem() */
    char mig_file_trouble[512];        /* why the ConfigMaps of MIG configurations cannot be used */
    char config_trouble[512]; /* why the file of the configuration cannot be used; "": it can */
    char claims_trouble[512]; /* why no claim is served; "": they are, or need not be */
    char api_trouble[256];    /* last problem with the API server; "" when a watch is up */
};
