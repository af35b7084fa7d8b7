/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside the controller: what it keeps, and the writes it can make. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "claims/claims.h"

#define CLAIMS_KEY_MAX 384
#define OVER_QUOTA "QuotaExceeded" /* the reason */

/* An object is left alone from a write until the watch shows another version of it, or until the
 * write has failed or seems to have changed nothing. */
struct claims_hand {
    char version[32]; /* that was acted on */
    uint64_t until_ms;
    uint64_t told_ms; /* that it waits for quota is not described anew before */
};

/* The amounts in that description change with every pod of the namespace: each change would be a
 * write and an Event. `told` is the reason as the API server has it. */
bool claims_may_tell(const struct claims *c, struct claims_hand *hand, const char *told);

struct egpu_item {
    UT_hash_handle hh;
    char key[CLAIMS_KEY_MAX]; /* name */
    struct egpu o;
    struct claims_hand hand;
    bool calm; /* nothing to do until an event of it or its claim */
    /* The uid in claimRef that the API server was asked about and did not have. */
    char absent[KUBE_UID_MAX];
    bool listed;
};

struct claim_item {
    UT_hash_handle hh;
    char key[CLAIMS_KEY_MAX]; /* namespace/name */
    struct egpu_claim o;
    struct claims_hand hand;
    bool calm;        /* nothing to do until an event of it, its ElasticGPU or a class */
    uint64_t make_ms; /* no attempt to make an ElasticGPU for it before */
    unsigned tries;   /* that found no room */
    bool listed;
};

struct class_item {
    UT_hash_handle hh;
    char key[CLAIMS_KEY_MAX]; /* name */
    struct egpu_class o;
    bool listed;
};

struct pod_item {
    UT_hash_handle hh;
    char key[CLAIMS_KEY_MAX]; /* uid */
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    struct pod_claims claims;
    uint64_t make_ms; /* no claim is made of a template before */
    unsigned tries;   /* that were refused */
    bool calm;        /* all its templates have become claims */
    bool scheduled;   /* is on a node: only then a claim is in use */
    bool deleting;
    bool listed;
    bool reported; /* that a template's name is taken */
};

struct claims {
    struct claims_world world;
    struct egpu_item *egpus;
    struct claim_item *claims;
    struct class_item *classes;
    struct pod_item *pods;
    struct claims_room room; /* scratch of one call */
    uint64_t now_ms;
    const char *stamp;
    unsigned searches; /* for room, left in this pass */
    bool news;
    bool wrote;      /* since that was last set to false */
    uint64_t all_ms; /* the next pass over everything, calm or not */
};

/* Whether no write of it is under way. */
static inline bool claims_is_still(const struct claims *c, const struct claims_hand *hand,
                                   const struct claim_meta *m) {
    return strcmp(hand->version, m->version) != 0 || c->now_ms >= hand->until_ms;
}

/* The object of that key; NULL: none. */
#define CLAIMS_FIND(kind, table)                                                                   \
    static inline struct kind##_item *claims_##kind##_find(const struct claims *c,                 \
                                                           const char *key) {                      \
        struct kind##_item *item;                                                                  \
        HASH_FIND_STR(c->table, key, item);                                                        \
        return item;                                                                               \
    }
CLAIMS_FIND(egpu, egpus)
CLAIMS_FIND(claim, claims)
CLAIMS_FIND(class, classes)
CLAIMS_FIND(pod, pods)

static inline struct claim_item *claims_claim_item(const struct claims *c, const char *namespace,
                                                   const char *name) {
    char key[CLAIMS_KEY_MAX];
    if (snprintf(key, sizeof(key), "%s/%s", namespace, name) >= (int) sizeof(key))
        return NULL;
    return claims_claim_find(c, key);
}

/* lookup.c */
const struct egpu_class *claims_default_class(const struct claims *c);
/* Whether the provisioner of the class, if it is ours, can make such a claim at all. */
int claims_may_make(const struct egpu_class *class, const struct egpu_claim *claim,
                    struct err *why);
bool claims_in_use(const struct claims *c, const struct egpu_claim *claim);

/* One pass over one object. */
void claims_sync_claim(struct claims *c, struct claim_item *item);
void claims_sync_egpu(struct claims *c, struct egpu_item *item);

/* Whether a claim has it: each of the two names the other. */
bool claims_has(const struct claims *c, const struct egpu *e);

/* Whether the two belong together by uid, from the side of the ElasticGPU. */
bool egpu_is_of(const struct egpu *e, const struct egpu_claim *claim);

/* ---- writes; each leaves its object alone afterwards ---- */

void write_finalizer(struct claims *c, const struct claim_meta *m, struct claims_hand *hand,
                     const char *finalizer, bool present);
void write_claim_class(struct claims *c, struct claim_item *item, const char *class);
void write_claim_egpu(struct claims *c, struct claim_item *item, const char *egpu);
/* Requests it from an external provisioner. */
void write_claim_provisioner(struct claims *c, struct claim_item *item, const char *provisioner);
void write_claim_unselect(struct claims *c, struct claim_item *item);
/* Writes the status where it is not like this yet. */
void write_claim_status(struct claims *c, struct claim_item *item, enum claim_phase phase,
                        const struct claim_amount *granted, const char *reason,
                        const char *message);
void write_claim_resize(struct claims *c, struct claim_item *item, const char *reason,
                        const char *message);
void write_claim_of_pod(struct claims *c, struct pod_item *pod, const struct pod_claim *use);
void write_egpu_new(struct claims *c, struct claim_item *item, const struct egpu_class *class,
                    const struct provisioner *p);
void write_egpu_ref(struct claims *c, struct egpu_item *item, const struct egpu_claim *claim);
/* Takes the claimRef away, or only its uid. */
void write_egpu_unref(struct claims *c, struct egpu_item *item, bool keep_name);
void write_egpu_capacity(struct claims *c, struct egpu_item *item,
                         const struct claim_amount *amount);
void write_egpu_status(struct claims *c, struct egpu_item *item, enum egpu_phase phase,
                       const char *reason, const char *message);
void write_egpu_delete(struct claims *c, struct egpu_item *item);
/* Asks the API server for the claim that the claimRef names. */
void write_egpu_get(struct claims *c, struct egpu_item *item);
void note_claim(struct claims *c, const struct egpu_claim *claim, bool warning, const char *reason,
                const char *message);
