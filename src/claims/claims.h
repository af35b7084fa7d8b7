/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The claims controller, without I/O: its inputs are watch events, its outputs are writes. Every
 * pass evaluates all objects and requests at most one write per object, conditional on the object's
 * resourceVersion; the next step follows when the watch shows the effect. So it can stop between
 * any two writes, and two controllers cannot give the same ElasticGPU away twice. A binding is
 * written in two halves, as for volumes: first the claimRef (with the claim's uid) on the
 * ElasticGPU, then elasticGPUName on the claim, then both status. */

#include "claims/object.h"
#include "claims/provisioner.h"

struct buf;
struct claims;

/* One request to the API server. */
struct claims_write {
    const char *method;       /* POST, PATCH (merge), DELETE, GET */
    const char *path;         /* from the root */
    const char *content_type; /* NULL: JSON */
    const char *body;         /* NULL: none */
    size_t size;
    const char *key; /* for claims_written() */
};

/* An Event. */
struct claims_note {
    const char *api_version, *kind, *namespace, *name, *uid;
    bool warning;
    const char *reason, *message;
};

/* What the model needs of its caller. */
struct claims_world {
    void *self;
    /* Finds room for a claim, on `node` or, with "", on any. -EALREADY: what an earlier call found
     * may still become an object; another negative errno and a sentence: none. */
    int (*find)(void *self, const struct egpu_claim *claim, const struct claim_amount *want,
                const char *node, struct claims_room *ret, struct err *why);
    /* The node on which its cards are; "": they are not all there. */
    const char *(*node)(void *self, const struct egpu *e);
    /* Whether what an ElasticGPU made by an admin describes is there and free; then it is kept
     * until the object has another version. */
    int (*check)(void *self, const struct egpu *e, struct err *why);
    /* The same for making it that large, the rest of it being held already. */
    int (*grow)(void *self, const struct egpu *e, const struct claim_amount *want, struct err *why);
    /* Whether the quotas of the namespace let the claim have `want` beside what is used there.
     * -EDQUOT and a sentence: not now. `find`, `check` and `grow` answer the same, where what they
     * found is more than that. */
    int (*admit)(void *self, const struct egpu_claim *claim, const struct claim_amount *want,
                 struct err *why);
    /* The same for all of an ElasticGPU, which counts for the namespace from then on: the write
     * that gives it to the claim follows. */
    int (*take)(void *self, const struct egpu *e, const struct egpu_claim *claim, struct err *why);
    /* Brings the pods that use it to its capacity; whether they are. */
    bool (*settle)(void *self, const struct egpu *e);
    /* Whether a pod may be on a node by now, though no watch has shown it there. */
    bool (*begun)(void *self, const char *pod_uid);
    /* An ElasticGPU began to hold, or holds something else, or is gone. */
    void (*hold)(void *self, const struct egpu *e);
    void (*drop)(void *self, const char *name);
    void (*write)(void *self, const struct claims_write *write);
    void (*note)(void *self, const struct claims_note *note);
};

struct claims *claims_new(const struct claims_world *world); /* NULL: out of memory */
struct claims *claims_free(struct claims *c);                /* takes NULL, returns NULL */

/* ---- watch events ---- */

enum claims_kind { CLAIMS_EGPUS, CLAIMS_CLAIMS, CLAIMS_CLASSES, CLAIMS_PODS, CLAIMS_KINDS };

/* Around a full list: what was not shown in between is gone. */
void claims_sync_begin(struct claims *c, enum claims_kind kind);
void claims_sync_end(struct claims *c, enum claims_kind kind);

/* Each reads one object (of a list or an event); negative errno as the readers in object.h. A pod
 * that names no claim is not kept; one that has ended counts as gone. */
int claims_seen(struct claims *c, enum claims_kind kind, struct json object, struct err *err);
int claims_pod_seen(struct claims *c, const struct pod *pod);
/* `name` is "namespace/name" of a claim, the uid of a pod, else the name. */
void claims_gone(struct claims *c, enum claims_kind kind, const char *name);

/* ---- the work ---- */

/* Whether something was shown or answered since the last pass; without that, only time brings
 * something to do: what was refused is tried again. */
bool claims_has_news(const struct claims *c);

/* One pass. `now_ms` only goes forward; `stamp` is the time as API objects write it. */
void claims_plan(struct claims *c, uint64_t now_ms, const char *stamp);

/* The response to a write. `status` 0: no response; `why` is the message of a status other than
 * 2xx, or NULL. For a GET, `uid` is that of the object found, or NULL. */
void claims_written(struct claims *c, const char *key, int status, const char *uid, const char *why,
                    uint64_t now_ms);

/* ---- questions ---- */

const struct egpu_claim *claims_find(const struct claims *c, const char *namespace,
                                     const char *name);
const struct egpu *claims_egpu(const struct claims *c, const char *name);
const struct egpu_class *claims_class(const struct claims *c, const char *name);

/* NULL: it has none, or there is none of that name. */
const struct egpu_class *claims_class_of(const struct claims *c, const struct egpu_claim *claim);

/* How many pods may use the claim at a time, each an equal part of it. */
uint32_t claims_pods_of(const struct claims *c, const struct egpu_claim *claim);

/* What a container that uses a claim is to get. */
struct claims_use {
    const struct egpu_claim *claim;
    const struct egpu *egpu; /* NULL: the claim waits for its first pod */
    /* Of this container. While the claim waits, the first container that names it, in the order of
     * struct pod, represents all of them: it requests the whole claim, and the others nothing (no
     * cards). */
    struct claim_amount amount;
};

/* What the `i`th claim of the pod gives. -ENOENT: the pod has no more. -EAGAIN: not yet, or not at
 * all, with a sentence. */
int claims_use(const struct claims *c, const char *pod_uid, uint32_t i, const char **ret_container,
               struct claims_use *ret, struct err *why);

/* Calls `each` for every living pod that uses the claim, until it returns false. */
void claims_users(const struct claims *c, const struct egpu_claim *claim,
                  bool (*each)(const char *uid, const char *name, void *userdata), void *userdata);

/* Calls `each` for every ElasticGPU, and for every pod that names claims. */
void claims_each_egpu(const struct claims *c, void (*each)(const struct egpu *e, void *userdata),
                      void *userdata);
void claims_each_pod(const struct claims *c, void (*each)(const char *uid, void *userdata),
                     void *userdata);

/* Calls `each` for every claim for which an ElasticGPU is to be made by a class of ours, also where
 * it waits for its first pod. One for which `each` returns true is tried again in the next pass. */
void claims_each_unmade(struct claims *c,
                        bool (*each)(const struct egpu_claim *claim, void *userdata),
                        void *userdata);

/* A merge patch that writes the selected node on a claim, on condition of its version. */
void claims_select(const struct egpu_claim *claim, const char *node, struct buf *path,
                   struct buf *body);
