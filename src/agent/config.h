/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/shares/driver_limit.h"
#include "agent/verdicts/audit_memory.h"
#include "share/limits_core.h"

struct err;

/* All texts borrow from argv or the environment. */
struct config {
    const char *node_name;
    const char *listen;      /* "" or "off": no HTTP */
    const char *health;      /* directory for base/health.h; NULL: no marks */
    const char *probe;       /* not NULL: only look at that mark; nothing else is checked then */
    const char *host_root;   /* "" for / */
    const char *driver_root; /* "" for / */
    const char *sim_dir;
    const char *kubelet_dir;
    const char *state_dir;
    const char *cdi_dir;
    const char *library;
    const char *hook;     /* the program aliquot-hook, and where it is put on the host */
    const char *hook_dir; /* "": only state_dir */
    enum wall_policy driver_limits;
    enum share_policy compute_policy; /* of containers whose pod asks for none */
    uint32_t pod_policies;            /* bit 1 << policy: what a pod may ask for */
    bool hardware_slices;
    const char *namespace;  /* of our own objects */
    const char *api_server; /* NULL: as a pod finds it */
    const char *token_file;
    const char *ca_file;
    enum overuse_policy on_overuse, on_escape;
    const char *overuse_rules;    /* NULL: none */
    uint32_t memory_scaling;      /* in thousandths, 1000 and more; 0: not said */
    const char *mps_dir;          /* "": MPS is not used */
    const char *served_elsewhere; /* for dialect_leave() */
};

/* Fills *ret from the command line and the environment and checks it. -ECANCELED after --help or
 * --version; -EINVAL with a text that names what is wrong and what to do. */
int config_parse(int argc, char **argv, struct config *ret, struct err *err);
