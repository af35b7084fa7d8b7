/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Detects old public keys: not the signing key, and without a pod signed by them, for KEY_IDLE_MS
 * continuously. Nothing is stored: a new process or leader starts counting at 0, which only delays
 * the removal of a key. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/objects/signing.h"
#include "scheduler/cluster/lease.h"
#include "scheduler/state/state.h"

#define KEY_IDLE_MS 600000
_Static_assert(KEY_IDLE_MS >= 10 * LEASE_SETTLE_MS,
               "a Binding that an old key has signed is decided and seen long before");

struct key_age {
    uint64_t id;
    uint64_t idle_since_ms;
};

struct key_ages { /* zero: nothing is known */
    unsigned n;
    struct key_age idle[SIGNING_KEYS_MAX];
};

/* Updates which keys of `v` are idle at `now_ms`. `own` is the signing key. Pods count that are
 * bound or whose Binding was sent. */
void key_ages_note(struct key_ages *a, const struct signing_verifier *v, uint64_t own,
                   const struct state *state, uint64_t now_ms);

/* Whether the key has been idle for KEY_IDLE_MS, and was so at the last note. */
bool key_ages_is_old(const struct key_ages *a, uint64_t id, uint64_t now_ms);
