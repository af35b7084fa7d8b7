/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `aliquot uninstall`: the steps. Each can be repeated: one that finds nothing does nothing, so
 * that a command that was interrupted is simply run again. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/json.h"

/* Who calls. The chart has Jobs that do (charts/aliquot/templates/uninstall.yaml). */
enum removal_caller {
    REMOVAL_BY_USER,
    REMOVAL_BY_HELM, /* before helm removes what is in the release, with CRDs and the hook's rights
                      */
    REMOVAL_AFTERWARDS, /* for kubelet's zeros, until there are none; then this Job's rights go,
                         * and with them their dependents, the Job among them */
};

struct removal {
    enum removal_caller caller;
    const char *job;    /* for REMOVAL_BY_HELM: the Job REMOVAL_AFTERWARDS, as JSON; NULL: none */
    const char *system; /* the namespace of Aliquot; NULL until removal_locate() has found it */
    char found[64];     /* of system */
    bool force;         /* pods that hold shares are no reason to refuse */
    bool delete_crds;
    bool wait;         /* for the resources that kubelet still shows */
    uint32_t limit_s;  /* how long pods of Aliquot are waited for */
    const char *image; /* of the agent: in place of its DaemonSet's, or where that is gone; NULL:
                        * the DaemonSet's, and without one no nodes are cleaned */
};

/* Prints what a step has done: its name, then the text. */
void removal_say(const char *step, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Objects of a kind, by one of: a name; labels ("a=b,c=d") or fields ("spec.a=b"); none of these,
 * which is all of them. */
struct removal_objects {
    const char *kind;      /* as in kinds.c */
    const char *namespace; /* NULL: of all, or the kind has none */
    const char *name, *labels, *fields;
    const char *subresource; /* for removal_patch(): "status"; NULL: none */
};
#define OBJECTS(...) (&(const struct removal_objects){__VA_ARGS__})

/* A list or an object. What is not there, or is of a kind that the cluster does not have, is the
 * invalid view. */
int removal_get(const struct removal_objects *o, struct json_parser **ret_parser, struct json *ret,
                struct err *err);

/* Deletes what may be gone already, or is of a kind that the cluster does not have. Adds the number
 * of what was there. Waits for nothing. */
int removal_delete(const struct removal_objects *o, unsigned *count, struct err *err);

/* Changes one object by a patch of that type (kube/api/client.h). -ENOENT: it is gone. */
int removal_patch(const struct removal_objects *o, const char *type, const char *patch,
                  struct err *err);

/* The result where what is gone is no error. */
static inline int removal_if_there(int r) {
    return r == -ENOENT ? 0 : r;
}

/* Creates an object in the namespace; -EEXIST: it is there. */
int removal_create(const struct removal_objects *o, const char *object, struct err *err);

/* Until no pod of Aliquot with this name (its label) is left, or the time is over, which is said.
 */
int removal_await_pods(const struct removal *r, const char *step, const char *name,
                       struct err *err);

/* The object by which a later call finds the namespace: it goes after all that is in there. */
#define LOCATION_BINDING "aliquot-agent"
#define AGENT_LABEL "app.kubernetes.io/name=aliquot-agent"
#define AGENTS(r) OBJECTS(.kind = "daemonsets", .namespace = (r)->system, .labels = AGENT_LABEL)

/* The agent's container of a DaemonSet. */
static inline struct json removal_agent_of(struct json daemons) {
    return json_find(JSON_PATH(daemons, "spec", "template", "spec", "containers"), "name", "agent");
}

/* Before the first step, and without a change: the namespace, which must be that of --system where
 * both are known, and the names that the installation leaves to other plugins (dialect_leave()). */
int removal_locate(struct removal *r, struct err *err);

/* 1: Aliquot is installed (again): its agents' binding is there. */
int removal_is_installed(struct err *err);

/* Whether helm is about to remove a release. Templates that were applied by other means, also over
 * a release, have the Job of the hook among them, which must do nothing then; that is said. */
int removal_is_of_helm(const struct removal *r, bool *ret, struct err *err);

/* The steps, in their order. More than 0: something is left, which has been said, and the other
 * steps are still to be done. */
int removal_check_users(const struct removal *r, struct err *err);
int removal_of_release(const struct removal *r, struct err *err);
int removal_of_apis(const struct removal *r, struct err *err);
int removal_of_monitoring(const struct removal *r, struct err *err);
int removal_of_admission(const struct removal *r, struct err *err);
int removal_of_host_files(const struct removal *r, struct err *err);
int removal_of_workloads(const struct removal *r, struct err *err);
int removal_of_rights(const struct removal *r, struct err *err);
int removal_of_devices(const struct removal *r, struct err *err);
int removal_of_finalizers(const struct removal *r, struct err *err);
int removal_of_gpus(const struct removal *r, struct err *err);
int removal_of_state(const struct removal *r, struct err *err);
int removal_of_crds(const struct removal *r, struct err *err);
int removal_of_namespace(const struct removal *r, struct err *err);
int removal_of_location(const struct removal *r, struct err *err);
int removal_of_node_entries(const struct removal *r, struct err *err);
int removal_leave_job(const struct removal *r, struct err *err);

/* In place of that step, after an error: helm has made the rights of the Job already. What cannot
 * be removed is said. */
void removal_leave_nothing(const struct removal *r);
/* The last step of that Job. */
int removal_of_last_rights(const struct removal *r, struct err *err);
