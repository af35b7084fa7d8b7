/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/audit/audit_internal.h"
#include "agent/config/config_choice.h"
#include "agent/config/node_config.h"
#include "agent/report/labeler.h"
#include "agent/shares/shares.h"
#include "model/dra.h"

struct err;

/* All texts borrow from argv or the environment. */
struct config {
    struct share_options shares;
    struct audit_options audit;
    struct labeler_options labels;
    const char *kmsg;        /* the kernel's log; "" or "off": it is not read */
    const char *listen;      /* "" or "off": no HTTP */
    uint32_t metric_names;   /* metric_names_parse() */
    bool tls;                /* of `listen` */
    bool usage_asks_token;   /* /usage and /history */
    bool metrics_asks_token; /* /metrics */
    const char *health;      /* directory for base/health.h; NULL: no marks */
    bool clean;              /* remove what agents have left on the node, and nothing else */
    const char *probe;       /* not NULL: only check that mark, and nothing else */
    const char *driver_root; /* NULL: to be found */
    const char *dev_root;    /* NULL: to be found */
    const char *sim_dir;
    const char *kubelet_dir;
    /* Of cards of which the configuration does not say otherwise; DRA_NONE: the agent is no DRA
     * driver. */
    enum dra_allocator allocator;
    const char *library;
    const char *namespace;  /* of our own objects */
    const char *api_server; /* NULL: as a pod finds it */
    const char *token_file;
    const char *ca_file;
    const char *served_elsewhere; /* for dialect_leave() */
    const char *config_file;      /* of the node; NULL: none */
    const char *config_map;       /* instead of it: a ConfigMap of `namespace`; NULL: none */
    const char *config_label;     /* of the node, which chooses an entry */
    struct config_choice config_choice;
    struct config_overrides overrides;
    const char *mig_config_file; /* mig-parted's; "": what the cards can have */
    const char *mig_config_map;  /* instead of it: ConfigMaps, as mig_source_options; NULL: none */
    const char *mig_hooks_file;  /* mig-parted's; "": none */
    const char *mig_label;       /* of the node, which names its division; "off": not read */
};

/* Fills *ret from the command line and the environment and checks it. -ECANCELED after --help or
 * --version, and after --check-config with a valid file; -ENOEXEC with the text for an invalid one;
 * -EINVAL with a text that names what is wrong and what to do. */
int config_parse(int argc, char **argv, struct config *ret, struct err *err);
