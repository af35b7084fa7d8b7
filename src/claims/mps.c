/* SPDX-License-Identifier: Apache-2.0 */

/* A share of one card whose containers are clients of MPS, which holds them to the share's memory
 * and processors beside the library. The agent runs the daemon of the card, for as long as the
 * configuration of its node says so: there is nothing to make on the card. */

#include <errno.h>

#include "base/err.h"
#include "claims/provisioner.h"

static int admit(const struct egpu_class *class, const struct claim_amount *want, struct err *why) {
    (void) class;
    if (!want->whole && want->cards == 1 && !want->profile[0])
        return 0;
    return err_set(why, EINVAL,
                   "the class gives a share of one card under MPS: request less than 100 gpu-core, "
                   "or name a class with the provisioner elasticgpu.io/physical-gpu");
}

static void put_source(struct json_writer *w, const struct claims_room *room) {
    json_object_begin(w, "gpuShare");
    json_put_string(w, "gpuName", room->cards[0]);
    json_object_end(w);
}

static const char *const names[] = {"elasticgpu.io/mps", NULL};

const struct provisioner provisioner_mps = {names, true, admit, put_source};
