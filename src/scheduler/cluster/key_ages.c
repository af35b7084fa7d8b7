/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/key_ages.h"

static const struct key_age *find_age(const struct key_ages *a, uint64_t id) {
    for (unsigned i = 0; i < a->n; i++)
        if (a->idle[i].id == id)
            return &a->idle[i];
    return NULL;
}

static void remove_id(struct key_ages *a, uint64_t id) {
    for (unsigned i = 0; i < a->n; i++)
        if (a->idle[i].id == id) {
            a->idle[i] = a->idle[--a->n];
            return;
        }
}

void key_ages_note(struct key_ages *a, const struct signing_verifier *v, uint64_t own,
                   const struct state *state, uint64_t now_ms) {
    struct key_ages now = {0};
    for (unsigned i = 0; i < signing_verifier_count(v); i++) {
        uint64_t id = signing_verifier_id(v, i);
        const struct key_age *before = find_age(a, id);
        if (id != own && !find_age(&now, id))
            now.idle[now.n++] = (struct key_age){id, before ? before->idle_since_ms : now_ms};
    }
    for (const struct state_pod *pod = state->pods; pod && now.n > 0; pod = pod->hh.next)
        if (pod->signer)
            remove_id(&now, pod->signer);
    *a = now;
}

bool key_ages_is_old(const struct key_ages *a, uint64_t id, uint64_t now_ms) {
    const struct key_age *age = find_age(a, id);
    return age && now_ms - age->idle_since_ms >= KEY_IDLE_MS;
}
