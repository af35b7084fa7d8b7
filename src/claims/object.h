/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ElasticGPU, ElasticGPUClaim and ElasticGPUClass (elasticgpu.io/v1alpha1) as values, and the
 * spellings under which their fields are found in the wild. What they mean to each other is in
 * claims.h. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/labels.h"
#include "kube/api/strings.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/pod.h"
#include "mig/name.h"
#include "wire/json.h"

struct err;

#define EGPUS_PATH "/apis/elasticgpu.io/v1alpha1/elasticgpus"
#define EGPU_CLAIMS_PATH "/apis/elasticgpu.io/v1alpha1/elasticgpuclaims"
#define EGPU_CLASSES_PATH "/apis/elasticgpu.io/v1alpha1/elasticgpuclasses"

#define CLAIM_FINALIZER "elasticgpu.io/claim-protection"
#define EGPU_FINALIZER "elasticgpu.io/gpu-protection"
#define NOTE_DEFAULT_CLASS "elasticgpu.io/is-default-class"
#define NOTE_SELECTED_NODE "elasticgpu.io/selected-node"
#define NOTE_BIND_COMPLETED "elasticgpu.io/bind-completed"
#define NOTE_BOUND_BY_US "elasticgpu.io/bound-by-controller"
#define NOTE_PROVISIONER "elasticgpu.io/provisioner" /* on claims: the provisioner */
#define NOTE_PROVISIONED_BY "elasticgpu.io/provisioned-by"
#define PARAMETER_POLICY "placementPolicy"

#define CLAIM_CARDS_MAX 64
#define CLAIM_REASON_MAX 64
#define CLAIM_MESSAGE_MAX 384

/* An amount of a number of cards: whole ones, or a share of each. */
struct claim_amount {
    uint32_t cards;  /* 0: nothing readable */
    bool whole;      /* then core is 100 and memory is not compared */
    uint32_t core;   /* percent of each */
    uint64_t memory; /* bytes of each; 0: by core */
    /* The card is a MIG instance of this profile, and all of it. A request has no amounts then. */
    char profile[MIG_PROFILE_NAME_MAX];
};

/* Whether `have` covers the request `want`; which of two is smaller. */
bool claim_amount_covers(const struct claim_amount *have, const struct claim_amount *want);
int claim_amount_compare(const struct claim_amount *a, const struct claim_amount *b);

/* Reads a list of resources in any dialect, and the spellings of Elastic GPU's own examples.
 * Memory with a suffix is bytes under every name. -EINVAL with a sentence in `why`. */
int claim_amount_read(struct json list, struct claim_amount *ret, struct err *why);

/* The same as a request for the placement; container and phase stay. */
void claim_amount_request(const struct claim_amount *a, struct container_request *req);

enum egpu_phase { EGPU_PENDING, EGPU_AVAILABLE, EGPU_BOUND, EGPU_RELEASED, EGPU_FAILED };
const char *egpu_phase_name(enum egpu_phase phase);

enum claim_phase { CLAIM_NONE, CLAIM_PENDING, CLAIM_BOUND, CLAIM_LOST };
const char *claim_phase_name(enum claim_phase phase);

/* What every object has. */
struct claim_meta {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX]; /* "" of cluster objects */
    char name[KUBE_NAME_MAX];
    char version[32]; /* resourceVersion */
    char created[32];
    bool deleting;
    struct strings finalizers;
    char *labels; /* "key=value," for each, or NULL */
};
void claim_meta_done(struct claim_meta *m);

/* The text of the status. */
struct claim_word {
    char reason[CLAIM_REASON_MAX];
    char message[CLAIM_MESSAGE_MAX];
};

struct egpu {
    struct claim_meta meta;
    char class[KUBE_NAME_MAX]; /* "": none */
    struct claim_amount capacity;
    bool native;        /* the capacity has no other names than gpu-core and gpu-memory of ours */
    const char *source; /* "qGPU", "physicalGPU", "gpuShare", "mig"; NULL: none or several */
    uint32_t ncards;
    char (*cards)[KUBE_NAME_MAX]; /* names of GPU objects, or UUIDs */
    char node[KUBE_NAME_MAX];     /* that its nodeAffinity names, for people; "": none */
    struct node_selector affinity;
    bool reserved; /* has a claimRef */
    char claim_namespace[KUBE_LABEL_MAX];
    char claim_name[KUBE_NAME_MAX];
    char claim_uid[KUBE_UID_MAX]; /* "" of a claimRef: kept for the claim of that name */
    bool delete_after;            /* reclaim policy Delete */
    char provisioned_by[128];     /* "" when an admin made it */
    bool bound_by_us;             /* the claimRef is the controller's, not an admin's */
    enum egpu_phase phase;
    bool has_phase;
    struct claim_word word;
};

struct egpu_claim {
    struct claim_meta meta;
    struct claim_amount request;
    char problem[CLAIM_MESSAGE_MAX]; /* why `request` cannot be read; "" */
    struct claim_amount granted;     /* status.capacity; cards 0: none */
    char egpu[KUBE_NAME_MAX];        /* spec.elasticGPUName */
    bool has_class;                  /* false: the default class */
    char class[KUBE_NAME_MAX];       /* "" with has_class: none at all */
    struct label_terms selector;     /* what its ElasticGPU must have for labels */
    char selected_node[KUBE_NAME_MAX];
    char provisioner[128]; /* that is asked to make it; "": none yet, or ours */
    bool bind_completed;
    bool bound_by_us;
    char owner_pod[KUBE_UID_MAX]; /* controller ownerReference to a Pod */
    enum claim_phase phase;
    struct claim_word word; /* of the condition Bound */
    struct claim_word resize;
};

struct egpu_class {
    struct claim_meta meta;
    char provisioner[128];
    bool retain;        /* reclaim policy Retain; Delete otherwise */
    bool wait_consumer; /* WaitForFirstConsumer; Immediate otherwise */
    bool expansion;     /* claims may grow */
    uint32_t pods;      /* that may use one claim at a time, each 1/pods of it; at least 1 */
    bool is_default;
    struct strings parameters;       /* "key=value" */
    struct node_selector topologies; /* where claims of it are made */
};

/* The value of a parameter, or NULL. */
const char *egpu_class_parameter(const struct egpu_class *class, const char *key);

/* Whether it has its share: what an admin describes has it once it was found to be free, what was
 * made for a claim always. */
bool egpu_holds(const struct egpu *e);

/* Each reads one object; -EINVAL when it is none, -ENOMEM. What is only odd, such as a request
 * that cannot be read, is kept as such. Free with the _done function. */
int egpu_parse(struct json object, struct egpu *ret, struct err *err);
int egpu_claim_parse(struct json object, struct egpu_claim *ret, struct err *err);
int egpu_class_parse(struct json object, struct egpu_class *ret, struct err *err);
void egpu_done(struct egpu *e);
void egpu_claim_done(struct egpu_claim *c);
void egpu_class_done(struct egpu_class *c);
