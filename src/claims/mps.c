/* SPDX-License-Identifier: Apache-2.0 */

/* MPS: a share of one card behind NVIDIA's MPS server. An administrator turns MPS on for a whole
 * node; the agent makes no server for a claim. */

#include <errno.h>

#include "base/err.h"
#include "claims/provisioner.h"

static int admit(const struct egpu_class *class, const struct claim_amount *want, struct err *why) {
    (void) want;
    return err_set(why, EOPNOTSUPP,
                   "class %s: MPS shares are not made for claims by the agents of this cluster: "
                   "not available on any node; "
                   "name a class with the provisioner elasticgpu.io/qgpu",
                   class->meta.name);
}

static void put_source(struct json_writer *w, const struct claims_room *room) {
    json_object_begin(w, "gpuShare");
    json_put_string(w, "gpuName", room->cards[0]);
    json_object_end(w);
}

static int take_back(const struct egpu *e, struct err *why) {
    return err_set(why, EOPNOTSUPP,
                   "%s was made by MPS, which is not available here: remove it on its node, then "
                   "delete the object",
                   e->meta.name);
}

static const char *const names[] = {"elasticgpu.io/mps", NULL};

const struct provisioner provisioner_mps = {names, admit, put_source, take_back};
