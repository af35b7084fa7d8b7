/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The pods that use a share: one, or those that have used its claim. */

#include <stdbool.h>
#include <stdint.h>

struct cgroup_id;
struct err;
struct pod_entry;
struct shares;
struct slot;

/* The texts belong to the slot or to the pod. */
struct slot_user {
    const struct pod_entry *entry; /* NULL: it is not known */
    const char *namespace, *pod, *uid;
    const char *container; /* the first one with the share */
};

/* One more pod uses the claim of the slot, which its record is to say. Where there are too many, it
 * takes the place of one that has ended. Doing it again changes nothing. -ENOSPC: none has. */
int slot_users_add(struct shares *s, struct slot *slot, const char *pod_uid, struct err *err);

/* The next of its pods that are known and have not finished, from *at == 0 on; where there is none,
 * the one that the slot was made for. False: there are no more. */
bool slot_users_next(const struct shares *s, const struct slot *slot, uint32_t *at,
                     struct slot_user *ret);

/* The pod and container of one of the slot's processes, or of its control group; where that is not
 * known (0: no process, NULL: no group), the first of slot_users_next(). */
void slot_user_of_group(const struct shares *s, const struct slot *slot, const struct cgroup_id *id,
                        struct slot_user *ret);
void slot_user_of_process(const struct shares *s, const struct slot *slot, uint32_t pid,
                          struct slot_user *ret);

/* An Event of each of its pods. */
void slot_users_event(struct shares *s, const struct slot *slot, const char *reason,
                      const char *text);
