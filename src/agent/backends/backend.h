/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What lies behind an extended resource: which IDs kubelet is offered, and what happens when a
 * container takes some of them. A resource is a row of the table in resource.c, with its back end.
 * All on the agent's loop; only `prepare` does I/O. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/shares/nonce.h"
#include "agent/shares/provision.h"

struct gpu_snapshot;
struct resource;

#define BACKEND_CDI_NAME_MAX (sizeof(CDI_PREFIX) + NONCE_LEN)

/* A choice among IDs of one resource; the texts are kubelet's. */
struct backend_choice {
    char *const *available; /* those that no container has, those of `must` included */
    size_t navailable;
    char *const *must; /* are part of every answer */
    size_t nmust;
    size_t want; /* how many in all; at most navailable */
};

struct backend {
    /* How many IDs the resource has on the devices; at most as many as kubelet accepts. */
    uint32_t (*list)(const struct resource *r, const struct gpu_snapshot *s);
    /* Sets ret_sick[i] of each of the `count` IDs that is unhealthy; all are false. held[i]: a
     * container has it. Called only while a device is unhealthy. */
    void (*health)(const struct resource *r, const struct gpu_snapshot *s, uint32_t count,
                   const bool *held, bool *ret_sick);
    /* GetPreferredAllocation. `ret` has room for want + nmust texts; returns how many there are. */
    size_t (*prefer)(const struct backend_choice *choice, char **ret);
    /* Allocate for one container: the CDI name of its devices, which names a slot. -EAGAIN. */
    int (*allocate)(char ret_name[static BACKEND_CDI_NAME_MAX]);
    /* PreStartContainer: as provision(). */
    enum verdict (*prepare)(struct shares *s, const struct provision *p, struct err *why);
};

/* Shares of whole cards by percent and byte. IDs are fungible: the scheduler chooses the card. */
extern const struct backend backend_shares;
