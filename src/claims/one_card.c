/* SPDX-License-Identifier: Apache-2.0 */

/* What provisioners of a share of one card have in common. */

#include <errno.h>

#include "base/err.h"
#include "claims/provisioner.h"

int provisioner_admit_share(const struct provisioner *p, const struct egpu_class *class,
                            const struct claim_amount *want, struct err *why) {
    (void) class;
    if (!want->whole && want->cards == 1 && !want->profile[0])
        return 0;
    return err_set(why, EINVAL, "%s", p->refusal);
}

void provisioner_put_card(const struct provisioner *p, struct json_writer *w,
                          const struct claims_room *room) {
    json_object_begin(w, p->source);
    json_put_string(w, "gpuName", room->cards[0]);
    json_object_end(w);
}
