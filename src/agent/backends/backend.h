/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What lies behind an extended resource: which IDs kubelet is offered, and what happens when a
 * container takes some of them. A resource is a row with its back end: of the table in resource.c,
 * or one that kubelet_add() takes at run time. All on the agent's loop; only `prepare` does I/O.
 *
 * IDs are numbered from 0 for one snapshot of the devices. An ID keeps its text as long as its
 * device is there: kubelet remembers by it what a container has. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/shares/nonce.h"
#include "agent/shares/provision.h"

struct gpu_snapshot;
struct resource;

#define BACKEND_ID_SIZE 72 /* a UUID and the number of a replica fit */
#define BACKEND_CDI_NAME_MAX (sizeof(CDI_PREFIX) + NONCE_LEN)

/* A choice among IDs of one resource; the texts are kubelet's. */
struct backend_choice {
    const struct resource *resource;
    const struct gpu_snapshot *devices; /* now */
    char *const *available;             /* those that no container has, those of `must` included */
    size_t navailable;
    char *const *must; /* are part of every answer */
    size_t nmust;
    size_t want; /* how many in all; at most navailable */
};

/* What containers have of a resource now. */
struct backend_held {
    uint32_t count;        /* of all IDs */
    const bool *ids;       /* [i]: a container has it */
    uint32_t of_unhealthy; /* how many of these are of shares of devices that take no pods */
};

/* What kubelet has chosen for one container. IDs can be of devices that are gone. */
struct backend_ids {
    const struct resource *resource;
    const struct gpu_snapshot *devices; /* now */
    const char *const *ids;
    size_t n;
};

/* No operation may be NULL. */
struct backend {
    /* How many IDs the resource has on the devices; at most as many as kubelet accepts. With none
     * kubelet is not offered the resource. */
    uint32_t (*list)(const struct resource *r, const struct gpu_snapshot *s);
    /* The text of the n-th ID. */
    void (*id)(const struct resource *r, const struct gpu_snapshot *s, uint32_t n,
               char ret[static BACKEND_ID_SIZE]);
    /* The reverse of `id`: UINT32_MAX, or any number from the count on, for what is not listed. */
    uint32_t (*number)(const struct resource *r, const struct gpu_snapshot *s, const char *id);
    /* Sets ret_sick[i] of each ID that is unhealthy; all are false. Called only while a device is
     * unhealthy. */
    void (*health)(const struct resource *r, const struct gpu_snapshot *s,
                   const struct backend_held *held, bool *ret_sick);
    /* The NUMA node of the device of a listed ID, for kubelet's Topology Manager; -1: not known, or
     * IDs are of no single device. */
    int64_t (*numa)(const struct resource *r, const struct gpu_snapshot *s, const char *id);
    /* GetPreferredAllocation. `ret` has room for want + nmust texts; returns how many there are. */
    size_t (*prefer)(const struct backend_choice *choice, char **ret);
    /* Allocate for one container: the CDI name of its devices, made by backend_slot_name(), and its
     * -EAGAIN. -ENODEV: a device is gone. -E2BIG: more IDs than a container may have. */
    int (*allocate)(const struct backend_ids *ids, char ret_name[static BACKEND_CDI_NAME_MAX]);
    /* PreStartContainer: fills the slot and writes its CDI specification, as provision(). */
    enum verdict (*prepare)(struct shares *s, const struct backend_ids *ids,
                            const struct provision *p, struct err *why);
};

/* The operations of a file that has all of them under their names. */
#define BACKEND_OF_THIS_FILE                                                                       \
    {                                                                                              \
        .list = list, .id = id, .number = number, .health = health, .numa = numa,                  \
        .prefer = prefer, .allocate = allocate, .prepare = prepare                                 \
    }

/* Whether the row has a name, a socket and a back end with all operations. */
bool backend_is_whole(const struct resource *r);

/* A CDI name that no call has had: of a new slot. -EAGAIN: the kernel gave no random numbers for
 * it. */
int backend_slot_name(char ret_name[static BACKEND_CDI_NAME_MAX]);

/* Shares of whole cards by percent and byte. IDs are fungible: the scheduler chooses the card. */
extern const struct backend backend_shares;

/* Whole cards and MIG instances, and replicas of them; its rows: whole_rows.h. IDs:
 * device_id.h. */
extern const struct backend backend_whole;
