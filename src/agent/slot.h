/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Slots: the shares that were given out on this node, each named by the nonce of the Allocate call
 * it belongs to. A slot is kept in <state>/shares/<nonce>/: `limits` and `ledger` (which the
 * container gets) and `record.json` (which it does not): the agent's own word on who holds what, so
 * that a restarted agent knows it without asking anybody. */

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "agent/checkpoint.h"
#include "kube/assignment.h"
#include "kube/pod.h"

struct buf;
struct err;
struct gpu_snapshot;
struct ledger;

struct slot_device {
    uint32_t index;
    uint32_t core;     /* percent of this container */
    uint32_t pod_core; /* of its whole pod on this card, as the scheduler counts it */
    uint64_t memory;   /* bytes of this container */
    uint64_t pod_memory;
    uint64_t context; /* what a CUDA context costs there, 0: not known; not in the record */
    char uuid[GPU_UUID_MAX];
    /* What the driver said last about the container's processes; not in the record. */
    uint64_t driver_memory;
    uint32_t driver_percent;
    uint32_t driver_processes;
};

/* What a slot is for. */
struct slot_grant {
    char pod_uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char pod[KUBE_NAME_MAX];
    char container[KUBE_LABEL_MAX];
    uint32_t ndevices; /* 0: another slot of the same container carries the share */
    struct slot_device *devices;
};

struct slot {
    char nonce[NONCE_LEN + 1];
    struct slot_grant grant;
    bool releasing;         /* its pod is gone; its processes may not be */
    bool revoked;           /* the CDI file is gone: no container can start with it any more */
    uint64_t release_after; /* loop time (ms) before which a start may still be under way */
    int clean_scans;        /* scans of all processes that found none of its pod; -1: begin anew */
    struct ledger *ledger;  /* NULL while it cannot be read */
    uint64_t sweep_after;   /* uv_hrtime before which its ledger is left alone */
    UT_hash_handle hh;
};

struct slot_store {
    char dir[256]; /* <state>/shares */
    struct slot *slots;
};

/* Reads all records below <state>/shares. A record that cannot be read is reported to `on_bad` and
 * its slot is left as it is on disk. */
int slot_store_load(struct slot_store *s, const char *state_dir,
                    void (*on_bad)(const char *nonce, const char *why, void *userdata),
                    void *userdata, struct err *err);
void slot_store_done(struct slot_store *s);

struct slot *slot_find(struct slot_store *s, const char *nonce);

/* Makes the slot's files, or brings them up to date, and remembers it. Takes the grant over (also
 * when it fails). Doing it again with the same grant changes nothing. -EEXIST: the slot was given
 * to another container. */
int slot_fill(struct slot_store *s, const char *nonce, struct slot_grant *grant, struct slot **ret,
              struct err *err);

/* Brings what a context costs on each card into a grant; returns whether that changed it. */
bool slot_grant_contexts(struct slot_grant *g, const struct gpu_snapshot *snapshot);

/* The same for all slots, and their limits in place; limits that cannot be written now are tried
 * again at the next call. */
void slot_set_contexts(struct slot_store *s, const struct gpu_snapshot *snapshot);

/* Opens the ledgers that could not be opened before. */
void slot_open_ledgers(struct slot_store *s);

/* Forgets the slot and removes its files. */
int slot_remove(struct slot_store *s, struct slot *slot, struct err *err);

/* Path of a file of a slot: "limits", "ledger". */
void slot_path(const struct slot_store *s, const char *nonce, const char *file,
               char ret[static 384]);

/* What pods other than `pod_uid` hold of a card: the sum of their totals. `ret_holder` (may be
 * NULL) receives one of them, preferring one that is being released. */
void slot_card_use(const struct slot_store *s, const char *uuid, const char *pod_uid,
                   uint64_t *ret_memory, uint32_t *ret_core, const struct slot **ret_holder);

/* Builds the grant of one container from what the scheduler decided. -ENOENT: the assignment has no
 * part for it. */
int slot_grant_make(const struct pod *pod, const struct assignment *a, const char *container,
                    struct slot_grant *ret, struct err *err);
void slot_grant_done(struct slot_grant *g);

/* The record as text and back, for tests and fuzzing. */
void slot_record_encode(const struct slot_grant *g, struct buf *out);
int slot_record_decode(const char *text, size_t len, struct slot_grant *ret, struct err *err);
