/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `aliquot doctor`: what is read of the cluster once, and the checks of it. */

#include <stdbool.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/cluster/port_forward.h"
#include "wire/json.h"

/* An answer of the API server; where there is none, `err` says why and `root` is invalid. */
struct doctor_doc {
    struct json_parser *parser;
    struct json root;
    struct err err;
};

struct doctor_evidence {
    const char *system; /* the namespace of Aliquot */
    struct doctor_doc version, nodes, pods, daemonsets, leases, events, gpus;
    struct doctor_doc own_leases; /* of Aliquot */
    struct doctor_doc pending;    /* pods of all namespaces of which no container has started */
    struct doctor_doc secret;     /* metadata of the signing key's */
    struct doctor_doc public_key;
    struct doctor_doc status;  /* of a scheduler */
    struct doctor_doc share;   /* a pod with a share, as admission would have it; nothing is made */
    struct doctor_doc refused; /* a pod that admission has to refuse */
    struct doctor_doc webhook; /* its Service, where API servers do not reach it */
    struct doctor_doc apis;    /* APIServices */
    struct doctor_doc issued;  /* Events of agents that have got a certificate */
    struct doctor_doc classes, slices, claims; /* of resource.k8s.io; slices of our driver */
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
int doctor_read(struct doctor_evidence *e, const struct port_forward *scheduler, struct err *err);

/* Whether the API server does not reach the webhook. */
bool doctor_webhook_fails(const struct doctor_evidence *e);

void doctor_evidence_done(struct doctor_evidence *e);

/* Appends a finding of the check that runs. `remedy` may be NULL. */
void doctor_find(struct doctor *d, enum doctor_level level, const char *remedy, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

/* Of a document that the user may not read, which is no problem of the cluster. */
void doctor_find_unread(struct doctor *d, const struct doctor_doc *doc);

void doctor_done(struct doctor *d);

/* ---- what several checks read ---- */

const char *doctor_name(struct json object);

/* The image in the spec of the pod's container of that name; "": there is none. */
const char *doctor_image(struct json pod, const char *container);

/* What follows `begin` in the last argument of the pod's container that begins so; NULL: none does.
 */
const char *doctor_argument(struct json pod, const char *container, const char *begin);

/* Whether the label app.kubernetes.io/name is that. */
bool doctor_is_of(struct json pod, const char *name);

/* The Lease of aliquot-scheduler; invalid where there is none. */
struct json doctor_own_lease(const struct doctor *d);

/* Whether a pod of aliquot-scheduler has a kube-scheduler of its own. */
bool doctor_has_pair(const struct doctor *d);

/* The API server's version; false: it names none. */
bool doctor_server_version(const struct doctor *d, unsigned *ret_major, unsigned *ret_minor);

/* Whether a pod that waits has waited for so long that there is a reason to worry. */
bool doctor_is_old(const struct doctor *d, struct json pod);

/* The API server's clock, by what it would have made. */
bool doctor_server_time(const struct doctor *d, time_t *ret);
bool doctor_read_time(struct json v, time_t *ret);

/* When the object was written last, by the API server's clock. */
bool doctor_written_at(struct json object, time_t *ret);

/* Whether it says that the API server has no such object. */
bool doctor_is_missing(const struct err *err);

/* Each check finds at least one thing. */
#define CHECK(text, name) void doctor_check_##name(struct doctor *d);
#include "cli/doctor/checks.def"
#undef CHECK
