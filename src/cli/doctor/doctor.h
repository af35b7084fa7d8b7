/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `aliquot doctor`: what is read of the cluster once, and the checks of it. */

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/cluster/port_forward.h"
#include "wire/json.h"

/* A document that kubectl printed; where it could not, `err` says why and `root` is invalid. */
struct doctor_doc {
    struct json_parser *parser;
    struct json root;
    struct err err;
};

struct doctor_evidence {
    const char *system; /* the namespace of Aliquot */
    struct doctor_doc version, nodes, pods, daemonsets, leases, events;
    struct doctor_doc status;  /* of a scheduler */
    struct doctor_doc share;   /* a pod with a share, as admission would have it; nothing is made */
    struct doctor_doc refused; /* a pod that admission has to refuse */
};

enum doctor_level { DOCTOR_OK, DOCTOR_UNSURE, DOCTOR_WRONG };

struct doctor_finding {
    enum doctor_level level;
    const char *check;
    char *text;         /* owned */
    const char *remedy; /* NULL: none */
};

struct doctor {
    struct doctor_evidence evidence;
    const char *check; /* the one that runs */
    size_t n;
    struct doctor_finding *list;
    bool out_of_memory;
};

/* Reads what can be read; what cannot is a matter of the checks. */
void doctor_read(struct doctor_evidence *e, const struct port_forward *scheduler);
void doctor_evidence_done(struct doctor_evidence *e);

/* Appends a finding of the check that runs. `remedy` may be NULL. */
void doctor_find(struct doctor *d, enum doctor_level level, const char *remedy, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

/* Of a document that the user may not read, which is no problem of the cluster. */
void doctor_find_unread(struct doctor *d, const struct doctor_doc *doc);

void doctor_done(struct doctor *d);

/* The checks; each finds at least one thing. */
void doctor_check_api_server(struct doctor *d);
void doctor_check_admission(struct doctor *d);
void doctor_check_scheduler(struct doctor *d);
void doctor_check_placing(struct doctor *d);
void doctor_check_pods(struct doctor *d);
void doctor_check_agents(struct doctor *d);
void doctor_check_nodes(struct doctor *d);
void doctor_check_plugins(struct doctor *d);
void doctor_check_clocks(struct doctor *d);
