/* SPDX-License-Identifier: Apache-2.0 */

/* Provisioners that a class may name and no agent serves. MIG: cards in MIG mode are left to
 * NVIDIA's plugin, and the agent makes no instances. MPS: an administrator turns it on
 * for a whole node; the agent makes no server for a claim. */

#include <errno.h>

#include "base/err.h"
#include "claims/provisioner.h"

static int refuse(const struct egpu_class *class, const char *what, struct err *why) {
    return err_set(why, EOPNOTSUPP,
                   "class %s: %s by the agents of this cluster: not available on any node; "
                   "name a class with the provisioner elasticgpu.io/qgpu",
                   class->meta.name, what);
}

static int refuse_removal(const struct egpu *e, const char *maker, struct err *why) {
    return err_set(why, EOPNOTSUPP,
                   "%s was made by %s, which is not available here: remove it on its node, then "
                   "delete the object",
                   e->meta.name, maker);
}

static void put_source(struct json_writer *w, const struct claims_room *room) {
    json_object_begin(w, "gpuShare");
    json_put_string(w, "gpuName", room->cards[0]);
    json_object_end(w);
}

static int admit_mig(const struct egpu_class *class, const struct claim_amount *want,
                     struct err *why) {
    (void) want;
    return refuse(class, "MIG instances are not made", why);
}

static int remove_mig(const struct egpu *e, struct err *why) {
    return refuse_removal(e, "MIG", why);
}

static int admit_mps(const struct egpu_class *class, const struct claim_amount *want,
                     struct err *why) {
    (void) want;
    return refuse(class, "MPS shares are not made for claims", why);
}

static int remove_mps(const struct egpu *e, struct err *why) {
    return refuse_removal(e, "MPS", why);
}

static const char *const mig_names[] = {"elasticgpu.io/mig", NULL};
static const char *const mps_names[] = {"elasticgpu.io/mps", NULL};

const struct provisioner provisioner_mig = {mig_names, admit_mig, put_source, remove_mig};
const struct provisioner provisioner_mps = {mps_names, admit_mps, put_source, remove_mps};
