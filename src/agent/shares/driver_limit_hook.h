/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The container runtime's hook, by which the driver's limits are set before the first instruction
 * of a container and the driver's libraries enter its cache of the dynamic linker. */

struct err;
struct gpu_edits;
struct shares;

/* Takes up again what an earlier agent has set, and listens for hooks; with DRIVER_LIMIT_OFF takes
 * those limits away. A missing hook program or directory for it is logged and is no error. */
int driver_limit_start(struct shares *s, struct err *err);
void driver_limit_stop(struct shares *s);

/* The hook for a container of the slot. -ENODEV with the reason where the policy requires limits
 * that cannot be had. */
int driver_limit_edits(const struct shares *s, struct gpu_edits *edits, struct err *err);

/* Puts the hook's program where the host may execute it; a log line when there is no such place. */
void driver_limit_hook_install(struct shares *s);

/* The hook that enters the driver's libraries into the container's cache of the dynamic linker,
 * where the program has a place; -ENOSPC. */
int ldcache_edits(const struct shares *s, struct gpu_edits *edits);

int driver_limit_hook_start(struct shares *s, struct err *err);
void driver_limit_hook_stop(struct shares *s);
