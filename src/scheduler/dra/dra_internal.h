/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside the directory, each file using those before it: dra_devices.c (classes, slices and nodes),
 * dra_hold.c (reserved capacity), dra_requests.c (requests in names of templates), dra_templates.c
 * (those templates), dra_objects.c (claims and pods), dra_templates_run.c (the writes of
 * templates), dra_cards.c (which cards a search may take), dra_choose.c (where the claims of a pod
 * go, with the files of dra_search.h), dra_self.c (pods as the state knows them), dra_gang.c
 * (members of gangs), dra_encode.c (the writes as JSON), dra.c (the writes in their order). */

#include "kube/objects/pod_devices.h"
#include "kube/objects/resource_claim.h"
#include "kube/objects/resource_slice.h"
#include "model/scaling.h"
#include "scheduler/dra/dra.h"
#include "scheduler/extender/gate.h"

#define DRA_KEY_MAX (KUBE_LABEL_MAX + KUBE_NAME_MAX) /* "namespace/name" */
#define DRA_ID_MAX (KUBE_UID_MAX + 16)
#define DRA_TERMS_MAX 256
#define DRA_TEMPLATE_WHY_MAX 256
#define DRA_SHUNNED_MAX 16 /* nodes of a pod */
/* The slices offer what is on the card, also where the node offers more of it by resource names. */
#define DRA_SCALING SCALING_ONE

/* A share that was chosen for a claim and is being written. */
struct dra_part {
    char request[DEVICE_REQUEST_MAX]; /* as a result names it */
    char class[KUBE_NAME_MAX];
    char pool[KUBE_NAME_MAX];
    char device[DEVICE_NAME_MAX];
    bool shared; /* a share of the device, else all of it */
    struct assigned_device share;
};

struct dra_plan {
    char node[KUBE_NAME_MAX];
    char pod_uid[KUBE_UID_MAX];
    char pod_name[KUBE_NAME_MAX];
    uint32_t nparts;
    char terms[DRA_TERMS_MAX]; /* a ShareConfig of the pod's annotations; "": none */
    struct dra_part parts[];
};

enum dra_stage {
    DRA_IDLE,     /* nothing is being written */
    DRA_PLANNED,  /* the next write is to be sent */
    DRA_WRITING,  /* one is in flight */
    DRA_IN_DOUBT, /* it got no answer, and may have been done, or be done yet */
};

struct dra_claim {
    UT_hash_handle hh;
    bool listed;
    struct resource_claim object;
    struct dra_plan *plan; /* NULL: none */
    enum dra_stage stage;
    uint64_t since_ms;     /* of the stage */
    uint64_t taken;        /* of `struct dra`, when the object was shown */
    const char *waits_for; /* see dra_waiting_each(); NULL: a pod's search has found a place, or
                              none was made */
    char key[DRA_KEY_MAX];
};

struct dra_class {
    UT_hash_handle hh;
    bool listed;
    struct device_class object;
};

struct dra_slice {
    UT_hash_handle hh;
    bool listed;
    struct resource_slice object;
};

struct dra_device_key {
    char text[SLICE_TEXT_MAX + KUBE_NAME_MAX]; /* "UUID/node" */
};

struct dra_device {
    UT_hash_handle hh;
    const struct resource_slice *slice;
    const struct slice_device *at; /* of the slice */
    struct dra_device_key key;
};

/* A node where the pod's allocation was taken back. */
struct dra_shunned {
    char node[KUBE_NAME_MAX];
    uint64_t until_ms;
    unsigned times;
};

struct dra_pod {
    UT_hash_handle hh;
    bool listed;
    struct pod_devices object;
    bool opening;      /* the removal of its gate is in flight */
    bool arriving;     /* it is counted in `arriving` of a node */
    uint64_t retry_ms; /* not before then */
    unsigned failures; /* of writes, in a row */
    uint64_t again_ms; /* the search may end in another way by then */
    uint64_t later_ms; /* since when an object is not there; 0: all are */
    uint32_t round;    /* of the last search */
    bool foreign_told; /* an Event has said that a template is not ours */
    char *why;         /* what the last search ended with, as its Event says; NULL: a place */
    uint64_t known;    /* `known_of` its claims when the state was shown what it wants */
    uint64_t refused;  /* `seen_of` the state when there was no room for it; 0: it was not tried */
    uint32_t nshunned;
    struct dra_shunned shunned[DRA_SHUNNED_MAX];
};

struct dra_node {
    UT_hash_handle hh;
    bool listed;
    bool unschedulable;
    uint32_t unresolved;        /* allocated claims with devices whose cards are not known */
    struct cpu_memory arriving; /* of pods that are not bound and whose claims are on it */
    char *labels;               /* "key=value,"; NULL: none */
    char *taints;               /* JSON; NULL: none */
    char name[KUBE_NAME_MAX];
};

#define DRA_NAMESPACE_TEMPLATES 256 /* its pods name different amounts */

/* A namespace with templates. */
struct dra_namespace {
    UT_hash_handle hh;
    uint32_t ntemplates; /* which are kept */
    char name[KUBE_LABEL_MAX];
};

/* A template that pods wait for, or that was made for such pods. */
struct dra_template {
    UT_hash_handle hh;
    struct dra_namespace *namespace;
    bool listed;
    bool there;         /* as the watch shows */
    bool writing;       /* its creation or deletion is in flight */
    bool wanted;        /* a pod waits for it */
    uint32_t users;     /* pods that name it */
    uint64_t unused_ms; /* since when it has none; 0: it has some */
    uint64_t retry_ms;  /* no write before then */
    unsigned failures;  /* in a row */
    char uid[KUBE_UID_MAX];
    char name[REQUEST_CODE_MAX];
    char why[DRA_TEMPLATE_WHY_MAX]; /* why it is not there; "": it is, or soon will be */
    char key[DRA_KEY_MAX];
};

/* How a search ended. */
enum dra_found {
    DRA_FOUND,    /* the claims have their plans, and hold them */
    DRA_NOT_OURS, /* nothing of it is ours to allocate */
    DRA_LATER,    /* an object is not there yet; `why` says which */
    DRA_NO_ROOM,  /* `why` says so */
    DRA_HELD,     /* a gate is closed; `why` says why */
    DRA_REFUSED,  /* as long as the objects are as they are; `why` says why */
};

/* ---- dra_devices.c ---- */

int dra_see_class(struct dra *d, struct json object, bool gone, struct err *err);
int dra_see_slice(struct dra *d, struct json object, bool gone, struct err *err);
int dra_see_node(struct dra *d, struct json object, bool gone, struct err *err);
void dra_class_free(struct dra *d, struct dra_class *class);
void dra_slice_free(struct dra *d, struct dra_slice *slice);
void dra_node_free(struct dra *d, struct dra_node *node);

struct dra_class *dra_class_find(const struct dra *d, const char *name);
struct dra_node *dra_node_find(const struct dra *d, const char *name);

/* The device of a result; NULL: it is in no slice. */
const struct slice_device *dra_device_of(const struct dra *d, const char *pool, const char *device);

/* Whether all slices of the newest generation of the pool are there, and the device is in none. */
bool dra_device_is_gone(const struct dra *d, const char *pool, const char *device);

/* The device of a card of the node in the newest generation of its pool; NULL: it is not known. */
const struct dra_device *dra_device_find(const struct dra *d, const char *node, const char *uuid);

/* ---- dra_hold.c ---- */

/* Reserves what the claim has or is to have; nothing is reserved for one that has nothing. */
void dra_hold(struct dra *d, struct dra_claim *claim);
void dra_unhold(struct dra *d, const struct dra_claim *claim);

/* All of them, where a card was not known; from time to time in any case. */
void dra_hold_all(struct dra *d, uint64_t now_ms);

/* The name of the reserved capacity. */
void dra_id(const struct resource_claim *claim, char ret[static DRA_ID_MAX]);

/* What devices count for in the quotas of their namespace. */
struct quota_use dra_use_of(const struct dra_plan *plan);

/* ---- dra_objects.c ---- */

struct dra_claim *dra_claim_find(const struct dra *d, const char *namespace, const char *name);

/* The claim behind the pod's i-th name; NULL: it is not there. */
struct dra_claim *dra_claim_of(const struct dra *d, const struct pod_devices *pod, uint32_t i);

/* Takes over a claim that the API server has answered or the watch has shown; an older one than the
 * one that is known has no effect. 0 or -ENOMEM. */
int dra_claim_take(struct dra *d, struct resource_claim *object);
void dra_plan_drop(struct dra *d, struct dra_claim *claim);

/* The node where it is allocated or is to be; "": none. */
const char *dra_claim_node(const struct dra_claim *claim);

struct dra_pod *dra_pod_find(const struct dra *d, const char *uid);

/* Whether the pod has to do without the node for now. */
bool dra_is_shunned(const struct dra_pod *pod, const char *node, uint64_t now_ms);

/* Keeps how a search for the pod ended. */
void dra_note(struct dra *d, struct dra_pod *pod, enum dra_found found, const char *why);

/* ---- dra_cards.c ---- */

int dra_selector_add(struct dra *d);

/* ---- dra_requests.c ---- */

/* What the pod names the claim by, where the name of the template is the request in place of the
 * claim's spec, as the template gives it to the claim; NULL: the spec is. */
const struct pod_device_claim *dra_request_of(const struct dra_pod *pod,
                                              const struct dra_claim *claim);

/* The ShareConfig of that claim by the pod's annotations. `offline`: as the request has it. */
void dra_terms_of(const struct dra_pod *pod, const struct pod_device_claim *of,
                  const struct container_request *request, char ret[static DRA_TERMS_MAX]);

/* The template of a request. */
void dra_encode_template(const struct dra_template *template,
                         const struct container_request *request, struct buf *out);

/* ---- dra_templates.c ---- */

void dra_key(const char *namespace, const char *name, char ret[static DRA_KEY_MAX]);

int dra_see_template(struct dra *d, struct json object, bool gone, struct err *err);
void dra_template_forget(struct dra *d, struct dra_template *template);
void dra_template_drop(struct dra *d, struct dra_template *template);

/* Drops one that is not there and that nothing needs any more. */
void dra_template_release(struct dra *d, struct dra_template *template);

/* No pod's need counts on a replica that does not lead. */
void dra_templates_lost(struct dra *d);

/* The template that the pod names; NULL: it names none, or there is none. One that the pod waits
 * for, by a name that is a request, is kept from now on, as far as there is memory and the
 * namespace has fewer than it may. */
struct dra_template *dra_template_of(struct dra *d, const struct dra_pod *pod,
                                     const struct pod_device_claim *of);

/* Why the claim of that pod is not made of its template; NULL: nothing is known. `*ret_refused`:
 * it never will be. */
const char *dra_template_why(const struct dra *d, const struct dra_pod *pod,
                             const struct pod_device_claim *of, bool *ret_refused);

/* ---- dra_templates_run.c ---- */

/* Makes templates that pods wait for, and deletes those that no pod names any more. */
void dra_run_templates(struct dra *d, uint64_t now_ms);

/* ---- dra_choose.c ---- */

#define DRA_WHY_MAX 1024

/* Counts the CPU and memory of the pods on their way to their nodes; to be called before searches.
 */
void dra_count_arriving(struct dra *d);

/* Finds places for all claims of the pod that wait for us. `gates`: those that are asked first;
 * NULL: they have been asked, and no room is made. */
enum dra_found dra_choose(struct dra *d, struct dra_pod *pod, uint64_t now_ms,
                          const struct gates *gates, struct buf *why);

/* Has the state know what the claims of the pod want, as far as they are there. */
void dra_show_wants(struct dra *d, struct dra_pod *pod);

/* Whether a claim is ours to allocate: all its requests are of classes of ours. `*ret_mixed`: some
 * are. False, too, where a class is not known. */
bool dra_is_ours(const struct dra *d, const struct resource_claim *claim, bool *ret_mixed);

/* Whether it is not allocated, and no other scheduler will do so. */
bool dra_waits_for_us(const struct dra *d, const struct dra_claim *claim);

/* ---- dra_self.c ---- */

/* NULL: the state does not know it, or it asks by resource names, too. */
struct state_pod *dra_self(const struct dra *d, const struct dra_pod *pod);

/* Has the state know whether the claims of the pod have a place. */
void dra_settle(struct dra *d, const struct dra_pod *pod);
void dra_settle_all(struct dra *d);

/* ---- dra_encode.c ---- */

void dra_encode_finalizer(const struct dra_claim *claim, struct buf *out); /* strategic patch */

/* The number of configs of the allocation. */
uint32_t dra_configs_of(const struct dra *d, const struct dra_claim *claim,
                        const struct dra_plan *plan);

/* A merge patch of the status. `now`: as the API server writes times. */
void dra_encode_allocation(const struct dra *d, const struct dra_claim *claim, const char *now,
                           struct buf *out);
void dra_encode_gate(const struct dra_pod *pod, struct buf *out); /* strategic patch */
