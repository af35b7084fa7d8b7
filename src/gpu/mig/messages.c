/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/messages.h"

#include <errno.h>
#include <string.h>

#define TERMINATED(text) (memchr(text, 0, sizeof(text)) != NULL)

static bool held_ok(const struct gpu_mig_held *h) {
    bool ok = h->n <= GPU_MIG_HELD_MAX;

    for (uint32_t i = 0; ok && i < h->n; i++)
        ok = TERMINATED(h->list[i].uuid) && TERMINATED(h->list[i].by);
    return ok;
}

static bool places_ok(const struct mig_place *places, uint32_t n) {
    bool ok = n <= MIG_EDIT_MAX;

    for (uint32_t i = 0; ok && i < n; i++)
        ok = TERMINATED(places[i].name.attributes) && places[i].start < MIG_SLICES_MAX;
    return ok;
}

static bool order_ok(const struct gpu_mig_order *o) {
    return o->kind <= GPU_MIG_CONFIG && TERMINATED(o->card) && TERMINATED(o->file) &&
           TERMINATED(o->config) && TERMINATED(o->hooks) && TERMINATED(o->hook_root) &&
           TERMINATED(o->lock) && TERMINATED(o->kubelet_dir) && TERMINATED(o->pod_logs) &&
           places_ok(o->edit.make, o->edit.nmake) && places_ok(o->edit.remove, o->edit.nremove);
}

static bool begin_ok(const struct gpu_mig_begin *b) {
    bool ok = b->n <= GPU_MIG_ENDED_MAX && TERMINATED(b->card);

    for (uint32_t i = 0; ok && i < b->n; i++)
        ok = TERMINATED(b->ended[i]);
    return ok;
}

/* ---- a card ---- */

static bool is_bool(const bool *b) {
    unsigned char byte;

    memcpy(&byte, b, 1);
    return byte <= 1;
}

static bool profile_ok(const struct mig_card_profile *p) {
    return TERMINATED(p->name.attributes) && p->size <= MIG_SLICES_MAX;
}

static bool instance_ok(const struct mig_card *card, const struct mig_instance *gi) {
    bool ok = gi->profile < card->nprofiles && gi->start < MIG_SLICES_MAX &&
              gi->ncompute <= MIG_COMPUTE_MAX && is_bool(&gi->in_use) && TERMINATED(gi->holders);

    for (uint32_t i = 0; ok && i < gi->ncompute; i++)
        ok = is_bool(&gi->compute[i].in_use);
    return ok;
}

static bool card_ok(const struct mig_card *card) {
    bool ok = is_bool(&card->capable) && is_bool(&card->enabled) && is_bool(&card->in_use) &&
              TERMINATED(card->holders) && card->nprofiles <= MIG_CARD_PROFILES_MAX &&
              card->ninstances <= MIG_CARD_INSTANCES_MAX;

    for (uint32_t i = 0; ok && i < card->nprofiles; i++)
        ok = profile_ok(&card->profiles[i]);
    for (uint32_t i = 0; ok && i < card->ninstances; i++)
        ok = instance_ok(card, &card->instances[i]);
    return ok;
}

static bool report_ok(const struct gpu_mig_card *c) {
    return c->status <= 0 && TERMINATED(c->uuid) && TERMINATED(c->error) &&
           is_bool(&c->result.pending) && is_bool(&c->result.needs_reset) &&
           TERMINATED(c->result.reason) && TERMINATED(c->result.lost) &&
           (!c->known || card_ok(&c->card));
}

int gpu_mig_message_check(const void *message, size_t size) {
    const union gpu_mig_message *m = message;
    bool ok = false;

    if (size < sizeof(m->header) || m->header.magic != GPU_MIG_MAGIC)
        return -EBADMSG;
    switch (m->header.type) {
    case GPU_MIG_ORDER:
        ok = size == sizeof(m->order) && order_ok(&m->order.order) && held_ok(&m->order.held);
        break;
    case GPU_MIG_HELD:
        ok = size == sizeof(m->held) && held_ok(&m->held);
        break;
    case GPU_MIG_BEGIN:
        ok = size == sizeof(m->begin) && begin_ok(&m->begin);
        break;
    case GPU_MIG_STEP:
        ok = size == sizeof(m->step) && TERMINATED(m->step.text);
        break;
    case GPU_MIG_CARD:
        ok = size == sizeof(m->card) && report_ok(&m->card);
        break;
    case GPU_MIG_END:
        ok = size == sizeof(m->end) && m->end.status <= 0 && TERMINATED(m->end.error);
        break;
    default:
        break;
    }
    return ok ? (int) m->header.type : -EBADMSG;
}
