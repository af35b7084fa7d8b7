/* SPDX-License-Identifier: Apache-2.0 */

/* Whole cards. */

#include <errno.h>

#include "base/err.h"
#include "claims/provisioner.h"

static int admit(const struct provisioner *p, const struct egpu_class *class,
                 const struct claim_amount *want, struct err *why) {
    (void) class;
    return want->whole ? 0 : err_set(why, EINVAL, "%s", p->refusal);
}

static void put_source(const struct provisioner *p, struct json_writer *w,
                       const struct claims_room *room) {
    json_object_begin(w, p->source);
    json_array_begin(w, "gpuNames");
    for (uint32_t i = 0; i < room->ncards; i++)
        json_put_string(w, NULL, room->cards[i]);
    json_array_end(w);
    json_object_end(w);
}

static const char *const names[] = {"elasticgpu.io/physical-gpu", "elasticgpu.io/pgpu",
                                    "nvidia.com/gpu", NULL};

const struct provisioner provisioner_whole = {
    .names = names,
    .admit = admit,
    .put_source = put_source,
    .source = "physicalGPU",
    .refusal = "the class gives whole cards: ask for gpu-core in multiples of 100, or name a"
               " class with the provisioner elasticgpu.io/qgpu",
};
