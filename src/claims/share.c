/* SPDX-License-Identifier: Apache-2.0 */

/* Interception (what vCUDA and qGPU are elsewhere): a share of one card, held to by the library in
 * the container. There is nothing to make on the card. */

#include "claims/provisioner.h"

static int admit(const struct egpu_class *class, const struct claim_amount *want, struct err *why) {
    (void) class;
    return provisioner_admit_share(
        want,
        "the class gives a share of one card: ask for less than 100 gpu-core, or name a "
        "class with the provisioner elasticgpu.io/physical-gpu",
        why);
}

static void put_source(struct json_writer *w, const struct claims_room *room) {
    provisioner_put_card(w, "qGPU", room);
}

static const char *const names[] = {"elasticgpu.io/qgpu", "elasticgpu.io/vcuda",
                                    "elasticgpu.io/gpushare", "gpushare.provisioner.elasticgpu.io",
                                    NULL};

const struct provisioner provisioner_share = {names, false, admit, put_source};
