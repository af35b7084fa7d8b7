/* SPDX-License-Identifier: Apache-2.0 */

/* Interception (what vCUDA and qGPU are elsewhere): a share of one card, held to by the library in
 * the container. There is nothing to make on the card. */

#include "claims/provisioner.h"

static const char *const names[] = {"elasticgpu.io/qgpu", "elasticgpu.io/vcuda",
                                    "elasticgpu.io/gpushare", "gpushare.provisioner.elasticgpu.io",
                                    NULL};

const struct provisioner provisioner_share = {
    .names = names,
    .admit = provisioner_admit_share,
    .put_source = provisioner_put_card,
    .source = "qGPU",
    .refusal = "the class gives a share of one card: ask for less than 100 gpu-core, or name"
               " a class with the provisioner elasticgpu.io/physical-gpu",
};
