/* SPDX-License-Identifier: Apache-2.0 */
#include "claims/provisioner.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

#define PROVISIONERS(row) row(share) row(whole) row(mig) row(mps)

#define DECLARE(name) extern const struct provisioner provisioner_##name;
PROVISIONERS(DECLARE)

#define ADDRESS(name) &provisioner_##name,
static const struct provisioner *const provisioners[] = {PROVISIONERS(ADDRESS)};

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

const struct provisioner *provisioner_find(const char *name) {
    for (size_t i = 0; i < sizeof(provisioners) / sizeof(provisioners[0]); i++)
        for (const char *const *known = provisioners[i]->names; *known; known++)
            if (strcmp(*known, name) == 0)
                return provisioners[i];
    return NULL;
}
