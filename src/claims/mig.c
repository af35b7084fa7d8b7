/* SPDX-License-Identifier: Apache-2.0 */

/* Whole MIG instances that the scheduler gives out: those in mode `share`. */

#include <errno.h>

#include "base/err.h"
#include "claims/provisioner.h"

/* A claim that waits for its first consumer needs a node for it first, by its amount; what an
 * instance has is known only when it is found. */
static int admit(const struct provisioner *p, const struct egpu_class *class,
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

static void put_source(const struct provisioner *p, struct json_writer *w,
                       const struct claims_room *room) {
    json_object_begin(w, p->source);
    json_put_string(w, "gpuName", room->cards[0]);
    json_put_string(w, "profile", room->amount.profile);
    json_object_end(w);
}

static const char *const names[] = {"elasticgpu.io/mig", NULL};

const struct provisioner provisioner_mig = {
    .names = names,
    .admit = admit,
    .put_source = put_source,
    .source = "mig",
    .refusal = "the class gives MIG instances: request one, such as nvidia.com/mig-1g.10gb: "
               "1, or name a class with the provisioner elasticgpu.io/qgpu",
};
