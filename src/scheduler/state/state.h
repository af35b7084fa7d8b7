/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The scheduler's model of the cluster: cards, allocations of bound pods, and assumed
 * allocations. Pure: events of the watches and the time are inputs, and there is no I/O, so that
 * tests can try every order of events. The pods are authoritative: a bound pod has the allocation
 * of its signed assignment from its first watch event until it has finished or is gone, also while
 * it is being deleted. A pod bound without a valid signature has none, because the agent grants it
 * nothing. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
/* Short chains: each link is a cache miss, and filter looks up thousands of nodes. */
#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 5U

#include "kube/objects/assignment.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota_object.h"
#include "model/selection.h"
#include "place/place.h"

/* How far a pod is. Everything between PENDING and BOUND is kept in memory only. */
enum pod_stage {
    POD_PENDING,  /* holds nothing */
    POD_ASSUMED,  /* the likely winner of filter or prioritize; runs out */
    POD_BINDING,  /* the Binding is on its way */
    POD_IN_DOUBT, /* the Binding got no answer: it may have been done, or be done yet */
    POD_AWAITED,  /* the API server has bound it, the watch has not shown it */
    POD_BOUND,    /* the watch shows it on a node */
    POD_STAGES,
};

/* "pending", "assumed", "binding", "in-doubt", "awaited", "bound". */
const char *state_stage_name(enum pod_stage stage);

/* The allocation of one container on one card. */
struct state_allocation {
    char container[KUBE_LABEL_MAX];
    enum container_phase phase;
    struct assigned_device device;
};

struct state_node;

/* The reserved capacity that a container draws on; container "": all that have no row of their
 * own. */
struct state_draw {
    struct state_draw *next;
    char container[KUBE_LABEL_MAX];
    char id[];
};

/* Reserved capacity: a share that is kept for pods that may not exist yet. */
struct state_reserved {
    UT_hash_handle hh;
    struct state_reserved *prev, *next; /* among those of the node */
    struct state_node *node;
    uint32_t ndevices;
    struct assigned_device *devices;
    char *keeper;              /* for people, what it is held for; NULL: by its id */
    struct state_claim *claim; /* whose it is, while pods use that; NULL: nothing uses it */
    char *within;              /* id of the reserved capacity that it is a part of; NULL: none */
    /* The pods that use it, by UID: it becomes free when all have ended. 0: it is kept without. */
    uint32_t nusers;
    char (*users)[KUBE_UID_MAX];
    struct state_pod *sharer; /* preemption/sharers.h */
    char id[];
};

struct state_claim_user {
    char pod[KUBE_NAME_MAX];
    char container[KUBE_LABEL_MAX]; /* "": it is not known which of the pod's */
};

#define STATE_CLAIM_USERS_MAX 64 /* are named */

/* A ResourceClaim that pods use, all of which have its share together. */
struct state_claim {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    uint32_t nusers; /* at least 1 */
    struct state_claim_user users[];
};

/* Members of state_pod that the state only keeps. Each belongs to the directory that it names. */

/* preemption */
struct pod_preemption {
    uint64_t verb_ms; /* when kube-scheduler last called the preempt verb for the pod; 0: never */
    uint64_t refused_ms;           /* not a victim before then, because its eviction was refused */
    struct state_pod *next_sharer; /* preemption/sharers.h */
    struct state_pod *lead;        /* the same */
    size_t amounts;                /* of a lead, while victims on its node are described */
};

/* extender, which writes what filter answered last; daemon/requeue.c, which reads it and clears
 * `refused` and `gated` when it has kube-scheduler retry the pod; pages, which count `reason`. */
struct pod_requeue {
    const char *reason; /* one word, a constant; NULL: filter was not called for the pod */
    uint64_t version;   /* of the state when the pod was refused */
    uint64_t round;     /* in which requeue.c evaluated the pod last */
    bool refused;       /* no node fits */
    bool gated;         /* a gate was closed */
    bool shortened;     /* only the best of the nodes that fit were named */
};

/* daemon/foreign_pods.c */
struct pod_foreign {
    char *scheduler; /* that the pod names and that does not ask here; NULL: none, or not known */
    bool told;       /* by an Event */
};

struct state_pod {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    enum pod_stage stage;
    uint64_t since_ms;             /* when the stage began */
    uint64_t turn;                 /* another in each stage, also of a pod that was forgotten */
    uint64_t audited_ms;           /* when the API server was last asked about it */
    struct state_node *node;       /* NULL while PENDING */
    struct state_pod *prev, *next; /* among the pods of the node */
    uint64_t came;                 /* to the node: a later one has a higher number */
    enum request_problem problem;
    struct dialect_pair mixed; /* of REQUEST_MIXED_DIALECTS */
    /* It asks by ResourceClaims: `containers` are set by state_pod_want(), and what it gets is
     * reserved capacity with users. */
    bool resource_claims;
    uint32_t ncontainers;
    struct container_request *containers;
    struct cpu_memory room;                    /* its requests of CPU and memory */
    bool counted;                              /* by the model, as one that holds cards */
    struct state_draw *draws;                  /* NULL: what it takes is taken of what is free */
    struct gpu_selection *selection;           /* NULL: any card will do, placed as usual */
    struct pod_gang *gang;                     /* NULL: none */
    struct state_space *space;                 /* of its namespace */
    struct state_pod *space_prev, *space_next; /* among the pods of that */
    struct quota_use used;                     /* what it adds to the usage of its namespace */
    uint64_t keep_until_ms; /* its assumed allocation expires no earlier; 0: as usual */
    /* Of the class of its claims; NULL: none. */
    const struct place_policy *class_policy;
    size_t annotation_bytes;
    int32_t priority;
    bool never_preempts;
    bool deleting;   /* its containers still run, for their grace period */
    char *nominated; /* the node where room is being made for it, or NULL */
    int64_t created; /* seconds since 1970, or 0 */
    char *labels;    /* "key=value," for each, or NULL */
    struct pod_preemption preemption;
    uint32_t nallocations;
    struct state_allocation *allocations; /* in the order of `containers` */
    uint64_t assignment_hash;             /* of what `allocations` was read from */
    bool newer;      /* its assignment is of a newer scheduler: counted, never written anew */
    uint64_t signer; /* id of the key that its assignment is signed by; 0: none */
    bool recheck;    /* a key was added by which its assignment may be signed */
    bool listed;     /* shown since the last sync began */
    bool shown;      /* by the watch, which will show its end, too */
    struct pod_requeue requeue;
    struct pod_foreign foreign;
    struct state_pod *open_prev, *open_next; /* among state.open */
    UT_hash_handle hh;
};

/* The order that a card is to be under MPS. */
struct state_order {
    char version[32]; /* of the GPU object that it was read from */
    uint64_t serial;
    bool malformed;         /* it cannot be read, and is to be written anew */
    bool ordered;           /* as the API server has it */
    bool wanted;            /* as it is to be */
    bool ill;               /* the card is not healthy, and not for MPS */
    uint64_t writing_until; /* `wanted` is being written; 0: it is not */
    uint64_t since;         /* it is wanted for claims and none is on the card; 0: it is not so */
    uint64_t shunned_until; /* the card did not come to be under MPS: no new orders */
};

struct state_card {
    char name[KUBE_NAME_MAX]; /* of the GPU object */
    uint32_t index;
    char uuid[GPU_UUID_MAX];
    char parent[GPU_UUID_MAX];          /* of a MIG instance: its card; "": a card */
    char profile[GPU_PROFILE_TEXT_MAX]; /* of a MIG instance, with its place */
    uint32_t start;                     /* memory slice of the card */
    uint32_t core;                      /* see struct place_card */
    char model[96];
    uint32_t model_id; /* 0: not known */
    uint32_t tflops;   /* by the model table; 0: not known */
    int8_t numa;       /* -1: not known */
    uint32_t nlinks;   /* see struct gpu_object */
    uint8_t links[GPU_LINKS_MAX];
    struct state_node *node;
    /* No share of it is given out: it is among node->apart, and placement does not see it. */
    bool apart;
    struct state_card *prev, *next; /* among node->apart */
    uint64_t memory;                /* bytes: the capacity that the node offers */
    uint64_t physical;              /* bytes that are there */
    uint64_t unattributed;          /* of `physical`: unattributed memory, not allocated */
    bool healthy;
    bool whole_only;    /* no share of it is given out, only all of it */
    bool leaving;       /* a MIG instance that is to be destroyed: it takes no pods */
    bool under_mps;     /* its containers are clients of MPS */
    bool mps_on_demand; /* it is put under MPS for claims, by order */
    struct state_order order;
    struct card_replicas replicas;
    bool unknown;   /* status.state is "Unknown": nothing reports its health */
    bool duplicate; /* another object of the node has the same UUID and counts instead */
    bool overcommitted;
    char *observed;        /* allocatable and allocated as the API server has them; NULL while the
                              agent has not written a status */
    bool projecting;       /* a patch is under way */
    uint64_t projected_ms; /* when the last one was sent, and of what */
    uint64_t projected_hash;
    bool unwritten; /* what should be there is too long, which the log has said */
    bool listed;
    UT_hash_handle hh;
};

/* What was found out for one shape of request about a node, as long as that does not change, or
 * about its equivalence class. */
struct state_verdict {
    uint64_t shape;   /* 0: unused */
    uint64_t version; /* of the node; of a class, which never changes: 0 */
    struct place_worth worth;
    enum place_reason reason;
};
/* A set-associative cache: pods of many shapes in turn must not evict each other's verdicts, and a
 * lookup searches one set. */
#define STATE_VERDICTS 16
#define STATE_VERDICT_SET 4
struct state_verdicts {
    struct state_verdict of[STATE_VERDICTS];
    uint32_t next; /* the one to be replaced next */
};

/* An equivalence class: nodes with equal cards and free amounts. */
struct state_equivalence {
    UT_hash_handle hh;
    uint32_t nodes; /* how many they are */
    struct state_verdicts verdicts;
    size_t len;
    unsigned char key[]; /* all that placement reads except the node's rank */
};

#define STATE_SELECTORS_MAX 8
#define STATE_MODELS_MAX 64
#define STATE_NODE_IDS 16384
#define STATE_NAMES 16384
#define CACHE_LINE ((size_t) 64)
#define STATE_HEAD_NAME 41
#define STATE_HEADS 128 /* in one block of memory */
#define STATE_ENDED_MAX 1024

/* The fields of a node that every filter reads. The heads of all nodes are in one array, so that
 * thousands of them take little cache. */
struct state_head {
    struct state_node *node;               /* NULL: unused */
    struct state_equivalence *equivalence; /* as of state_refresh(); NULL: in none */
    uint32_t rank;                         /* in the order of all names */
    uint8_t absence;                       /* enum place_reason: why its agent cannot serve a pod */
    bool dirty; /* `place` must be recomputed, see state_refresh(); then in state.dirty */
    uint8_t name_len;
    char name[STATE_HEAD_NAME]; /* the start of it, without an end */
};

struct state_node {
    struct state_head *head;
    uint64_t version; /* of the state, when `place` or its rank changed last */
    bool exists;      /* there is a Node object */
    bool listed;
    bool unprojected; /* allocated may have changed since the GPU objects were last compared; in
                         state.unprojected then */
    char name[KUBE_NAME_MAX];
    UT_hash_handle hh;
    struct state *state; /* that it is a part of */
    struct state_node *dirty_prev, *dirty_next;
    struct state_node *behind_prev, *behind_next; /* among state.unprojected */
    struct state_verdicts verdicts; /* for pods for which the class of the node is not valid */
    uint32_t unsettled;             /* pods whose Binding is not certain, as of state_refresh() */
    uint32_t ncards;
    struct state_card *cards[PLACE_CARDS_MAX]; /* by index, then name */
    struct place_card
        place[PLACE_CARDS_MAX];      /* the same cards and what is free after all holders */
    struct state_card *apart;        /* cards and instances that give no shares */
    enum place_reason apart_absence; /* see state_node_apart_absence() */
    struct {
        char uid[KUBE_UID_MAX]; /* "": none was seen */
        bool runs, listed;
    } agent;                  /* see state_agent_pod_seen() */
    struct state_pod *pods;   /* pods with an allocation here */
    struct state_load *loads; /* the others on it */
    uint64_t arrivals;        /* of both, so far */
    struct state_reserved *reserved;
    struct cpu_memory room, used;    /* what it can give, and what all its pods ask of that */
    struct node_cpus cpus;           /* as the agent has reported them */
    struct place_topology *topology; /* of cards[]; NULL: not known */
    bool relinked;                   /* it must be rebuilt */
    uint32_t id; /* small and its own while it is there; see place_model_node() */
    bool numbered;
};

/* A pod without GPU request on a node. */
struct state_load {
    UT_hash_handle hh;
    struct state_load *prev, *next; /* among those of the node */
    struct state_node *node;
    uint64_t came; /* see struct state_pod */
    struct cpu_memory room;
    int64_t created;
    bool listed;
    char uid[];
};

/* A namespace with placement policies of its own. */
struct state_namespace {
    UT_hash_handle hh;
    char name[KUBE_LABEL_MAX];
    char node_policy[POLICY_NAME_MAX], card_policy[POLICY_NAME_MAX];
    bool listed;
};

/* Narrows the cards that a pod may take. All selectors of the table are asked in its order. */
struct state_selector {
    const char *name;
    enum place_reason reason; /* why a node is out on which it leaves too few cards */
    void *self;
    /* Equal for pods of equal requests, and another as soon as any answer changes; 0 for a pod
     * that the selector does not restrict. A selector that begins to allow more also calls
     * state_touch(). */
    uint64_t (*key)(void *self, const struct state_pod *pod);
    /* By container: bit i is node->cards[i]; bits are only cleared. False: the whole node is
     * excluded. */
    bool (*allow)(void *self, const struct state_pod *pod, const struct state_node *node,
                  uint64_t allowed[static GPU_CONTAINERS_MAX]);
};

/* Where a name was found. */
struct state_name {
    uint64_t hash;
    struct state_head *head; /* NULL: unused */
};

_Static_assert(sizeof(struct state_head) == CACHE_LINE, "no more than that for each node");

struct state_heads {
    _Alignas(CACHE_LINE) struct state_head of[STATE_HEADS];
    uint32_t used;
    struct state_heads *next;
};

/* 0 when `signature` is ours for exactly these, with the id of the key in *ret_signer (0 before the
 * call); negative errno otherwise. */
typedef int (*state_verify)(const char *pod_uid, const char *node, const char *text,
                            const char *signature, uint64_t *ret_signer, void *userdata);

struct state {
    struct state_node *nodes;       /* uthash by name */
    struct state_node *dirty;       /* those that state_refresh_all() must recompute */
    struct state_node *unprojected; /* those whose GPU.status may be outdated, oldest first */
    size_t nunprojected;
    struct state_equivalence *equivalences; /* uthash by what they are */
    struct state_reserved *reserved;        /* uthash by id */
    struct state_card *cards;               /* uthash by GPU object name */
    struct state_pod *pods;                 /* uthash by UID */
    struct state_pod *open;                 /* those of them that are not POD_BOUND */
    bool keeps_resource_claims;             /* pods that ask by ResourceClaims are among them */
    /* Generation of the set of pods: changes when a pod is added, removed, marked for deletion or
     * changes its gang. */
    uint64_t pods_generation;
    struct state_space *spaces;   /* uthash by namespace */
    struct state_charge *charges; /* uthash by id */
    uint64_t uses;                /* counts the changes of what they hold */
    state_verify verify;
    void *userdata;
    const struct place_policy *policy; /* of pods that name none */
    struct place_model *model;         /* what policies have learned; NULL: nothing */
    int64_t model_since;               /* pods created until then have been learned from before */
    int64_t arrived_until;             /* and those created until then by now */
    uint64_t arrived;                  /* pods that were learned from since the start */
    char models[STATE_MODELS_MAX][96]; /* names of cards' models, by dense id; [0]: not known */
    uint32_t nmodels;
    uint64_t node_ids[STATE_NODE_IDS / 64]; /* bit set: taken */
    struct state_load *loads;               /* uthash by UID */
    struct state_namespace *namespaces;     /* uthash by name: those with policies of their own */
    struct state_selector selectors[STATE_SELECTORS_MAX];
    size_t nselectors;
    struct state_name names[STATE_NAMES]; /* see state_node_find() */
    struct state_heads *heads;            /* those of all nodes, and unused ones */
    bool ranks_dirty;
    bool left_nodes;  /* nodes that pods or reserved capacity have left may be without use */
    uint64_t version; /* counts the changes of nodes */
    uint64_t turns;   /* counts the changes of stages of pods */
    uint64_t ended[STATE_ENDED_MAX]; /* hashes of the UIDs that ended last, in a ring */
    uint32_t nended;                 /* ever */
    uint64_t forged;                 /* bound pods whose assignment did not verify, ever */
};

struct state *state_new(state_verify verify, void *userdata); /* NULL: out of memory */
struct state *state_free(struct state *s);                    /* takes NULL, returns NULL */

/* ---- watch events ---- */

enum state_kind { STATE_PODS, STATE_NODES, STATE_GPUS, STATE_NAMESPACES, STATE_KINDS };

/* Begin and end of a full list: objects that were not in it are gone. Pods at POD_AWAITED are
 * exempt, because a list may be older than their Binding. */
void state_sync_begin(struct state *s, enum state_kind kind);
void state_sync_end(struct state *s, enum state_kind kind);

/* Each returns 0 or -ENOMEM. `observed` is status.{allocatable,allocated} in compact form, or NULL
 * when there is no status; it is copied. */
int state_pod_seen(struct state *s, const struct pod *pod, uint64_t now_ms);
void state_pod_gone(struct state *s, const char *uid);

/* The same where it is certain that the pod will not be there again, see state_pod_asked(). */
void state_pod_ended(struct state *s, const char *uid);

/* After keys were added: bound pods whose assignment did not verify are verified again at their
 * next event. Returns their number. */
unsigned state_recheck(struct state *s);

int state_node_seen(struct state *s, const char *name);
int state_node_room(struct state *s, const char *name, struct cpu_memory allocatable);

/* CPUs of the node that containers can have for themselves, as the agent has read them. */
int state_node_cpus(struct state *s, const char *name, const struct node_cpus *cpus);

/* PLACE_NODE_UNREADY, PLACE_NO_AGENT, PLACE_AGENT_STOPS, or PLACE_OK as at the start. Returns 1
 * when that is a change, else as the others. */
int state_node_absence(struct state *s, const char *name, enum place_reason absence);

/* The same for a node that offers no shares: why its agent cannot give out whole devices. */
int state_node_apart_absence(struct state *s, const char *name, enum place_reason absence);

/* The pod of the agent on the node, and whether it runs: where the Node does not show whether there
 * is an agent, because nothing was ever offered to pods. A pod that runs, or that has run, counts;
 * another one beside it does not until it runs. */
int state_agent_pod_seen(struct state *s, const char *node_name, const char *uid, bool runs);
void state_node_gone(struct state *s, const char *name);
int state_gpu_seen(struct state *s, const struct gpu_object *gpu, const char *observed);
void state_gpu_gone(struct state *s, const char *name);

/* ---- questions ---- */

/* FNV-1a of a text, never 0; chained by passing an earlier result (0 to begin). */
uint64_t state_hash(uint64_t hash, const char *text);

struct state_node *state_node_find(struct state *s, const char *name);

/* The same in three steps for many nodes: the first two prefetch the memory that the next one
 * reads. The first returns a hash for the others. */
uint64_t state_name_soon(struct state *s, const char *name, size_t len);
void state_head_soon(struct state *s, uint64_t hash);
struct state_head *state_head_at(struct state *s, const char *name, size_t len, uint64_t hash);

/* Prefetches the memory that an evaluation of the node reads. */
void state_judge_soon(const struct state_head *head, const struct place_plan *plan);

struct state_pod *state_pod_find(struct state *s, const char *uid);
/* The MIG instance of that card (name of its GPU object) whose shares are given out, and its index
 * in the node's cards; NULL: there is none. */
struct state_card *state_instance_find(struct state *s, const char *gpu, const char *profile,
                                       uint32_t start, uint32_t *ret_at);
/* Whether it takes pods: see `leaving`. */
void state_instance_leave(struct state_card *card, bool leaving);

/* Whether it is given to claims of shares under MPS only: it is under MPS by order, is to be, or is
 * leaving it. Whether such claims can be made of it now, if it is healthy. */
static inline bool state_card_is_for_mps(const struct state_card *card) {
    return card->order.ordered || card->order.wanted || (card->mps_on_demand && card->under_mps);
}

static inline bool state_card_takes_mps(const struct state_card *card) {
    return card->under_mps &&
           (!state_card_is_for_mps(card) || (card->order.ordered && card->order.wanted));
}

void state_card_order(struct state_card *card, bool ordered, bool wanted);

/* Why no pod is to be bound to the node now: its absence, where it has a healthy card; else
 * PLACE_OK. */
enum place_reason state_node_absent(const struct state_node *node);

/* The same for a card, also for one that gives no shares. */
enum place_reason state_card_absent(const struct state_card *card);

/* The part of the card's capacity that is withheld for unattributed memory, in bytes. */
uint64_t state_card_unattributed(const struct state_card *card);

/* What is allocated to the pod of that card; false: nothing. */
bool state_pod_amount(const struct state_pod *pod, const struct state_card *card,
                      struct place_amount *ret);

/* The card as the placement takes it, with nothing free. */
struct place_card state_place_card(const struct state_card *card);

/* The grant of that card as an assignment names it. */
struct assigned_device state_device(const struct state_card *card, const struct place_grant *grant);

/* Brings node->place up to date; cheap when nothing changed. */
void state_refresh(struct state *s, struct state_node *node);

/* The same for all nodes. Call it before walking over them: the first refresh after a change may
 * put them in another order. */
void state_refresh_all(struct state *s);

/* What the pod wants, for state_place() and state_judge(): its request, selection and policy. Both
 * outputs are the caller's and go together. */
void state_plan(const struct state *s, const struct state_pod *pod, struct gpu_request *request,
                struct place_plan *plan);

/* Places the pod on this node, without its own assumed allocation. With `settled_only`, without
 * all assumed allocations. */
enum place_reason state_place(struct state *s, struct place_plan *plan, struct state_node *node,
                              const struct state_pod *self, bool settled_only,
                              struct place_result *ret);

/* As state_place() without the cards: whether the pod fits, and the score. Caches the result for
 * the pod's shape. */
enum place_reason state_judge(struct state *s, struct place_plan *plan, struct state_head *head,
                              const struct state_pod *self, int64_t *ret_score);

/* ---- restrictions on cards ---- */

/* The dense ids of the models that a selection (NULL: any) does not exclude, as bits. */
uint64_t state_models_of(const struct state *s, const struct gpu_selection *selection);

/* The dense id of a model of cards; 0 when there are too many. */
uint32_t state_model_id(struct state *s, const char *model);

/* Connects the workload model, which the caller owns: it gets the current state and all later
 * events, except arrivals of pods created at `since` or before. */
void state_learn_from(struct state *s, struct place_model *model, int64_t since);

/* Policies of pods in that namespace that name none; both NULL: as everywhere. 0 or -ENOMEM. */
int state_namespace_policy(struct state *s, const char *name, const char *node_policy,
                           const char *card_policy);

/* Adds a row to the table, which is copied. 0, or -ENOSPC: the table is full. */
int state_add_selector(struct state *s, const struct state_selector *selector);

/* ---- reserved capacity ---- */

/* Reserves a share of cards of a node under `id` for pods that draw on it: the larger of the share
 * and what those take is counted. The share may exceed what is free, which then is nothing.
 * Replaces an earlier one of the same id; 0 or -ENOMEM, which leaves none. */
int state_reserve(struct state *s, const char *id, const char *node,
                  const struct assigned_device *devices, uint32_t n);
void state_unreserve(struct state *s, const char *id);
struct state_reserved *state_reserved_find(const struct state *s, const char *id);

/* What is reserved on cards[card] of its node and no pod has taken yet; with `settled_only`, only
 * what is bound for certain counts as taken. */
struct place_amount state_reserved_rest(const struct state_reserved *reserved, uint32_t card,
                                        bool settled_only);

/* The UIDs of the pods that use the capacity of that id; nothing where there is none. 0 or -ENOMEM,
 * which leaves none. */
int state_reserved_users(struct state *s, const char *id, char (*uids)[KUBE_UID_MAX], uint32_t n);

/* Counts the capacity of `id` as a part of that of `within` (NULL: no more): the larger one counts.
 * 0 or -ENOMEM, which leaves it as it was. */
int state_reserved_within(struct state *s, const char *id, const char *within);

/* Names what the capacity of that id is reserved for; nothing where there is none. */
void state_reserved_name(struct state *s, const char *id, const char *keeper);

/* What it is for: as it was named, or "pod NAMESPACE/NAME", or "reservation NAME". */
#define STATE_KEEPER_MAX (2 * KUBE_NAME_MAX + KUBE_LABEL_MAX + 64)
void state_reserved_keeper(const struct state_reserved *reserved,
                           char out[static STATE_KEEPER_MAX]);

/* Says that pods use the claim of which the capacity is (NULL: none does). Takes `claim` over,
 * which is from malloc(); nothing where there is no such capacity. */
void state_reserved_claim(struct state *s, const char *id, struct state_claim *claim);

/* Has a container of the pod (NULL: all without a row of their own, which draw on the pod's UID
 * otherwise) draw on `id` (NULL: no more), whether or not it is reserved yet. 0 or -ENOMEM.
 */
int state_draw(struct state_pod *pod, const char *container, const char *id);

/* What the node can give has changed for a reason that the state does not see. */
void state_touch(struct state_node *node);

/* GPU.status of the node's cards must be compared with the state. */
void state_unproject(struct state_node *node);
void state_projected(struct state_node *node); /* they have been */

/* ---- what the extender does ---- */

/* Finds the pod or makes a PENDING one out of what is shown of it; NULL: out of memory. */
struct state_pod *state_pod_learn(struct state *s, const struct pod *pod);

/* The same for a pod that may never arrive: policies learn nothing from it. */
struct state_pod *state_pod_suppose(struct state *s, const struct pod *pod);

/* The same for pods in kube-scheduler's requests, which may be older than the watch: no later event
 * would report the end of a pod that has already ended. NULL with *ret_why (may be NULL) for these,
 * and when out of memory. Deletions before the first list are not known, so a pod that is not
 * `shown` may be gone: it never causes evictions and is forgotten after a minute. */
struct state_pod *state_pod_asked(struct state *s, const struct pod *pod, const char **ret_why);

/* What a pod with ResourceClaims wants of cards, as its claims have it. 0 or -ENOMEM. */
int state_pod_want(struct state *s, struct state_pod *pod,
                   const struct container_request *containers, uint32_t n);

/* Counts a pod with ResourceClaims on the node that has what it wants, at stage POD_ASSUMED. It has
 * no allocations of its own. */
void state_pod_settle(struct state_pod *pod, struct state_node *node, uint64_t now_ms);

/* The pod's request as the placement takes it. */
void state_pod_request(const struct state_pod *pod, struct gpu_request *ret);

/* Allocates the granted cards to the pod, at stage POD_ASSUMED or POD_BINDING; replaces an
 * earlier allocation. -ENOMEM leaves it PENDING. */
int state_allocate(struct state *s, struct state_pod *pod, struct state_node *node,
                   const struct place_result *result, enum pod_stage stage, uint64_t now_ms);

/* Moves a pod that has its allocations to another stage. */
void state_pod_stage(struct state_pod *pod, enum pod_stage stage, uint64_t now_ms);

/* Takes everything from a pod that is not bound. */
void state_release(struct state *s, struct state_pod *pod);

/* Expires assumed allocations older than `ttl_ms` and returns their number. Forgets pods that no
 * watch has shown for a minute. */
unsigned state_expire(struct state *s, uint64_t now_ms, uint64_t ttl_ms);

/* Fills an assignment from the pod's allocations. Free with assignment_done(). */
int state_assignment(const struct state_pod *pod, struct assignment *ret);
