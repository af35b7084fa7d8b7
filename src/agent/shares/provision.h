/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Fills the slot of a container with the share that the scheduler has signed for it, or with whole
 * devices or replicas that kubelet has chosen, and writes the CDI specification by which the
 * container runtime puts them into the container. Independent of the interface by which kubelet
 * names the slot. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/shares/grant.h"

struct assigned_device;
struct err;
struct pod_entry;
struct shares;

struct provision {
    const char *nonce; /* of the slot */
    const char *pod_uid;
    const char *container;
    bool companion; /* another slot of the container carries its share; not of whole devices */
    uint64_t began; /* loop time of the request */
    bool *polled;   /* for this request the cards have been read once more */
};

/* VERDICT_GRANT: the slot is filled and the container can start. VERDICT_WAIT: not yet; `why` has
 * the condition. VERDICT_DENY and VERDICT_FORGED: `why` has the reason. May be called again for the
 * same slot: a restarted container keeps its grant. */
enum verdict provision(struct shares *s, const struct provision *p, struct err *why);

/* The same with devices that the container gets whole, without limits: kubelet or a claim has
 * chosen them, no assignment has to name them. VERDICT_WAIT also while processes of another pod
 * have one; of other pods with replicas if this is a `replica`, too. */
enum verdict provision_whole(struct shares *s, const struct provision *p, const char *const *uuids,
                             size_t n, bool replica, struct err *why);

/* A share of a ResourceClaim, as its status says. Borrowed during the call. */
struct claim_share {
    const char *uid, *namespace, *name; /* of the claim */
    const struct pod_entry *pod;        /* one that uses it */
    const struct assigned_device *devices;
    size_t ndevices;
    struct slot_terms terms;
};

/* Fills the slot of a claim (nonce_of_claim), which all containers that use the claim have
 * together. To be called again for each pod that uses it: what runs keeps its share as it is.
 * `polled` as above. */
enum verdict provision_claim(struct shares *s, const struct claim_share *c, bool *polled,
                             struct err *why);

/* The same with replicas that are parts of cards, with limits, which kubelet has chosen. */
enum verdict provision_parts(struct shares *s, const struct provision *p,
                             const struct assigned_device *parts, size_t n, struct err *why);
