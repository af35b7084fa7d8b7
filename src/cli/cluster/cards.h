/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cards of a cluster and their holders, from the GPU objects. */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kube/objects/pod.h"
#include "wire/json.h"

struct claim_user {
    const char *pod, *container; /* "": it is not known which of the pod's */
};

/* A container with a share, or a ResourceClaim, which all containers that use it have together.
 * Texts are borrowed from the document, and never NULL. */
struct holder {
    const char *namespace, *uid;
    const char *pod, *container; /* of a claim: the first that uses it */
    const char *claim;           /* its name; "": it is no claim */
    size_t nusers;               /* of the claim, by pod */
    struct claim_user *users;
    uint64_t core, memory; /* percent of the card, bytes */
};

/* Reserved capacity: of a claim, a reservation or a preempting pod. */
struct kept {
    const char *by;
    char namespace[KUBE_LABEL_MAX]; /* of the claim; "": it is none of a claim */
    uint64_t core, memory;
};

struct card {
    const char *name, *node, *model, *uuid;
    const char *parent, *profile; /* of a MIG instance; "" of a card */
    bool divided;                 /* a card in MIG mode */
    const char *state;       /* "Unavailable": healthy, but no share of it can be allocated now */
    const char *unavailable; /* why; "" otherwise */
    uint64_t index;
    /* Allocatable; 0 until the agent has reported it, and of a device that gives no shares. */
    uint64_t core, memory;
    uint64_t free_core, free_memory; /* of it, now */
    uint64_t unattributed;           /* bytes in use that belong to no container */
    size_t nholders;
    struct holder *holders; /* by namespace, pod and container */
    size_t nkept;
    struct kept *kept;
    /* The allocatable part that is not free; of an unavailable card, its allocations and reserved
     * capacity. */
    uint64_t taken_core, taken_memory;
    struct json object; /* the GPU object */
};

#define CARD_UNTOLD "-" /* the state of a card that the user may not read (own_pods.h) */

struct cards {
    size_t n;
    struct card *list; /* by node and index */
    bool of_pods;      /* read of the pods on them: own_pods.h */
    const char *more;  /* the API server's token for what follows on another page; "": nothing */
    struct json_parser *parser;
};

/* Whether the pod of that name has the share, of a claim with others. */
bool holder_has_pod(const struct holder *holder, const char *pod);

/* How many pods have it together. */
size_t holder_pods(const struct holder *holder);

/* Reads the GPU objects of the cluster. 0 or a negative errno. */
int cards_fetch(struct cards *ret, struct err *err);

/* The same a page at a time, for a large cluster: a page is freed when `each` returns, and a node
 * can be on several. `each` ends it with a negative errno, which is the result. */
int cards_fetch_pages(int (*each)(struct cards *page, void *userdata), void *userdata,
                      struct err *err);

/* Reads a list of GPU objects; skips items that are no GPU objects. */
int cards_read(const char *text, size_t len, struct cards *ret, struct err *err);
void cards_done(struct cards *cards);
void holder_done(struct holder *holder);
void card_done(struct card *card); /* frees a card that is removed from the list */

/* Keeps what belongs to pods and claims of the namespace (NULL: of any) on the card; whether there
 * is anything. */
bool card_keep_namespace(struct card *card, const char *namespace);

/* The same for all cards, and keeps those that have any. NULL: everything. */
void cards_keep_namespace(struct cards *cards, const char *namespace);
