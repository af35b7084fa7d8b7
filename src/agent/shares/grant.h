/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The decision whether a container gets a share, and which. No I/O, changes nothing. A pod gets
 * exactly what aliquot-scheduler has signed for it on this node, and only while no other pod
 * still has it. */

#include "agent/cluster/pods.h"
#include "agent/shares/slot.h"
#include "gpu/device.h"

struct err;
struct signing_verifier;

struct grant_world {
    const char *node;
    const struct pod_entry *pod;         /* the pod from the watch; NULL: not seen */
    const struct signing_verifier *keys; /* NULL: not read yet */
    const struct gpu_snapshot *snapshot;
    const struct slot_store *slots;
};

enum verdict {
    VERDICT_GRANT,
    VERDICT_WAIT,   /* not now: something has to happen first */
    VERDICT_FORGED, /* the signature does not fit the keys that we have */
    VERDICT_DENY,
};

/* Judges container `container` of the pod with `pod_uid`. With VERDICT_GRANT *ret is the grant
 * (owned by the caller), else `why` has the reason and a remedy. */
enum verdict grant_judge(const struct grant_world *w, const char *pod_uid, const char *container,
                         struct slot_grant *ret, struct err *why);

/* Whether the cards of a grant are there, work, and have room for it beside all other shares; the
 * part of grant_judge() that does not ask who allocated it. */
enum verdict grant_judge_devices(const struct grant_world *w, struct slot_grant *g,
                                 struct err *why);

/* Whether the pod has an assignment that aliquot-scheduler has signed for it and `node`, and that
 * names the device. `keys` NULL: none is known to be signed. */
bool grant_assigns(const struct signing_verifier *keys, const char *node, const struct pod *pod,
                   const char *uuid);
