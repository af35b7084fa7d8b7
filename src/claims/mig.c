/* SPDX-License-Identifier: Apache-2.0 */

/* MIG: an instance of a card that the driver divides. The agent offers instances that an
 * administrator has made, as cards of their own, and makes none. */

#include <errno.h>

#include "base/err.h"
#include "claims/provisioner.h"

static int admit(const struct egpu_class *class, const struct claim_amount *want, struct err *why) {
    (void) want;
    return err_set(why, EOPNOTSUPP,
                   "class %s: MIG instances are not made by the agents of this cluster: not "
                   "available on any node; "
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
                   "%s was made by MIG, which is not available here: remove it on its node, then "
                   "delete the object",
                   e->meta.name);
}

static const char *const names[] = {"elasticgpu.io/mig", NULL};

const struct provisioner provisioner_mig = {names, admit, put_source, take_back};
