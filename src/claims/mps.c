/* SPDX-License-Identifier: Apache-2.0 */

/* A share of one card whose containers are clients of MPS, which holds them to the share's memory
 * and processors beside the library. The agent runs the daemon of the card, for as long as the
 * configuration of its node says so: there is nothing to make on the card. */

#include "claims/provisioner.h"

static const char *const names[] = {"elasticgpu.io/mps", NULL};

const struct provisioner provisioner_mps = {
    .names = names,
    .under_mps = true,
    .admit = provisioner_admit_share,
    .put_source = provisioner_put_card,
    .source = "gpuShare",
    .refusal = "the class gives a share of one card under MPS: request less than 100 "
               "gpu-core, or name a class with the provisioner elasticgpu.io/physical-gpu",
};
