/* SPDX-License-Identifier: Apache-2.0 */
#include "claims/provisioner.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

/* ---- shares of one card ---- */

static int admit_share(const struct provisioner *p, const struct egpu_class *class,
                       const struct claim_amount *want, struct err *why) {
    (void) class;
    if (!want->whole && want->cards == 1 && !want->profile[0])
        return 0;
    return err_set(why, EINVAL, "%s", p->refusal);
}

static void put_card(const struct provisioner *p, struct json_writer *w,
                     const struct claims_room *room) {
    json_object_begin(w, p->source);
    json_put_string(w, "gpuName", room->cards[0]);
    json_object_end(w);
}

/* ---- whole cards ---- */

static int admit_whole(const struct provisioner *p, const struct egpu_class *class,
                       const struct claim_amount *want, struct err *why) {
    (void) class;
    return want->whole ? 0 : err_set(why, EINVAL, "%s", p->refusal);
}

static void put_cards(const struct provisioner *p, struct json_writer *w,
                      const struct claims_room *room) {
    json_object_begin(w, p->source);
    json_array_begin(w, "gpuNames");
    for (uint32_t i = 0; i < room->ncards; i++)
        json_put_string(w, NULL, room->cards[i]);
    json_array_end(w);
    json_object_end(w);
}

/* ---- whole MIG instances ---- */

/* A claim that waits for its first consumer needs a node for it first, by its amount; what an
 * instance has is known only when it is found. */
static int admit_instance(const struct provisioner *p, const struct egpu_class *class,
                          const struct claim_amount *want, struct err *why) {
    if (!want->profile[0])
        return err_set(why, EINVAL, "%s", p->refusal);
    if (class->wait_consumer)
        return err_set(
            why, EINVAL,
            "class %s: a MIG instance is chosen before its first consumer is placed: set "
            "bindingMode: Immediate",
            class->meta.name);
    return 0;
}

static void put_instance(const struct provisioner *p, struct json_writer *w,
                         const struct claims_room *room) {
    json_object_begin(w, p->source);
    json_put_string(w, "gpuName", room->cards[0]);
    json_put_string(w, "profile", room->amount.profile);
    json_object_end(w);
}

/* ---- the table ---- */

static const struct provisioner provisioners[] = {
    /* Interception (what vCUDA and qGPU are elsewhere): the library in the container enforces the
     * share. There is nothing to make on the card. */
    {
        .names = {"elasticgpu.io/qgpu", "elasticgpu.io/vcuda", "elasticgpu.io/gpushare",
                  "gpushare.provisioner.elasticgpu.io"},
        .admit = admit_share,
        .put_source = put_card,
        .source = "qGPU",
        .refusal = "the class gives a share of one card: ask for less than 100 gpu-core, or name"
                   " a class with the provisioner elasticgpu.io/physical-gpu",
    },
    {
        .names = {"elasticgpu.io/physical-gpu", "elasticgpu.io/pgpu", "nvidia.com/gpu"},
        .admit = admit_whole,
        .put_source = put_cards,
        .source = "physicalGPU",
        .refusal = "the class gives whole cards: ask for gpu-core in multiples of 100, or name a"
                   " class with the provisioner elasticgpu.io/qgpu",
    },
    /* Instances that the scheduler gives out: those in mode `share`. */
    {
        .names = {"elasticgpu.io/mig"},
        .admit = admit_instance,
        .put_source = put_instance,
        .source = "mig",
        .refusal = "the class gives MIG instances: request one, such as nvidia.com/mig-1g.10gb: "
                   "1, or name a class with the provisioner elasticgpu.io/qgpu",
    },
    /* The containers are clients of MPS, which holds them to the share's memory and processors
     * beside the library. The agent runs the daemon of the card, for as long as the configuration
     * of its node says so. */
    {
        .names = {"elasticgpu.io/mps"},
        .under_mps = true,
        .admit = admit_share,
        .put_source = put_card,
        .source = "gpuShare",
        .refusal = "the class gives a share of one card under MPS: request less than 100 "
                   "gpu-core, or name a class with the provisioner elasticgpu.io/physical-gpu",
    },
};

const struct provisioner *provisioner_find(const char *name) {
    for (size_t i = 0; i < sizeof(provisioners) / sizeof(provisioners[0]); i++)
        for (size_t n = 0; n < PROVISIONER_NAMES_MAX && provisioners[i].names[n]; n++)
            if (strcmp(provisioners[i].names[n], name) == 0)
                return &provisioners[i];
    return NULL;
}
