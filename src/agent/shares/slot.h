/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Agent slots: the shares of this node, each named by the nonce of its Allocate call. A slot is
 * kept in <state>/shares/<nonce>/ (share_dir.h): `limits`, `ledger`, `grants` and `compute` (which
 * the container gets) and `record.json` (which it does not): the agent's own record of the grant,
 * which a restarted agent reads. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/shares/nonce.h"
#include "agent/verdicts/audit_compute.h"
#include "agent/verdicts/audit_memory.h"
#include "agent/verdicts/overhead.h"
#include "base/hash.h"
#include "kube/objects/assignment.h"
#include "kube/objects/pod.h"
#include "share/orphaned.h"

struct arbiter_member;
struct buf;
struct err;
struct gpu_snapshot;
struct ledger;
struct share_limits;

struct slot_device {
    uint32_t index;
    uint32_t core;     /* percent of a card, of this container */
    uint32_t of_core;  /* percent of a card that the device has; 0: all of it */
    uint32_t pod_core; /* of its whole pod on this card, as the scheduler counts it */
    uint64_t memory;   /* bytes of this container */
    uint64_t pod_memory;
    uint64_t physical; /* bytes of `memory` that may be on the card at once; never more */
    uint64_t pod_physical;
    uint64_t context; /* what a CUDA context costs there, 0: not known; not in the record */
    char uuid[GPU_UUID_MAX];
    /* The last figures of NVML for the container's processes; not in the record. */
    uint64_t driver_memory;
    uint32_t driver_percent;
    uint32_t driver_processes;
    uint64_t driver_time; /* ns of the card that the driver saw them take, summed up by gputime.c */
    struct audit_compute compute_audit;
    /* What audit.c makes of it; not in the record. */
    uint64_t living;    /* of driver_memory, what processes hold that are not ending */
    uint32_t bypassing; /* processes that have not mapped the ledger */
    uint32_t worst_pid; /* a process to begin with: one that bypasses the library, or the largest */
    uint64_t worst_bytes; /* what it holds */
    /* What its ledger has orphaned (orphans.c): of the device's account, and of its card account.
     */
    struct orphaned orphaned[2];
    uint64_t orphaned_operation; /* the ledger's, when this poll began; UINT64_MAX: not known */
    uint64_t claimed;     /* its own by the driver's list or its ledger, without orphaned memory */
    uint64_t unexplained; /* in use on the card beyond its processes and the others' `claimed` */
    uint64_t charged;     /* of `living`, what no listed process holds (card_audit.h) */
    struct overhead overhead;
    struct audit_memory memory_audit;
};

/* The part of the device's compute that the share is, in percent of the device; 100: all of it, 0:
 * none. */
uint32_t slot_device_percent(const struct slot_device *d);

/* How a container shares the time of its cards, and how much of its memory it may use for now: what
 * can change while it runs. */
struct slot_terms {
    uint8_t policy;        /* enum share_policy */
    uint8_t ceiling;       /* percent of the card; 0: all of it */
    uint16_t weight;       /* 0: as its share */
    uint64_t memory_limit; /* bytes on each card, within the share; 0: the whole share */
    bool slices;           /* the driver is asked for time-slices by share, too */
};

/* A device that a container has without limits and ledger: a MIG instance, a card, or a replica. */
struct slot_whole {
    char uuid[GPU_UUID_MAX];
};

/* The ResourceClaim that a share is of: all containers that use the claim have it together. */
struct slot_claim {
    char uid[KUBE_UID_MAX];
    char name[KUBE_NAME_MAX];
    uint8_t allocator; /* enum dra_allocator: who has allocated it; DRA_NONE: not known */
    uint32_t npods;
    char (*pods)[KUBE_UID_MAX]; /* that have used it: a process of each may still run */
};

#define SLOT_CLAIM_PODS_MAX 256 /* as many as Kubernetes lets reserve a claim at one time */

/* What a slot is for. The pod and container of a claim's share are those that use it first. */
struct slot_grant {
    struct slot_claim *claim; /* NULL: it is one container's */
    char pod_uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char pod[KUBE_NAME_MAX];
    char container[KUBE_LABEL_MAX];
    uint32_t ndevices; /* with a share of it; 0: whole devices, or another slot of the same
                        * container carries the share */
    struct slot_device *devices;
    uint32_t nwhole;
    struct slot_whole *whole;
    bool replica;            /* kubelet has chosen it; other pods have the devices, too */
    bool newer;              /* its record is of a newer agent: what it holds counts, and its files
                              * are neither read nor written until the slot is filled again */
    uint8_t exported;        /* enum export_kind: the variables that the container gets */
    uint8_t driver;          /* of enum driver_capability: what it uses of the driver */
    struct slot_terms terms; /* not in the record: the limits file keeps them */
};

/* CPU time for one sweep of a ledger: its container can slow it down with many locks. */
#define SLOT_SWEEP_MAX_NS 5000000u

struct slot {
    char nonce[NONCE_LEN + 1];
    struct slot_grant grant;
    bool releasing;         /* its pod is gone; its processes may not be */
    bool revoked;           /* the CDI file is gone: no container can start with it any more */
    uint64_t release_after; /* loop time (ms) before which a start may still be under way */
    uint64_t unused_until;  /* loop time (ms) at which the share of a claim that no pod uses ends;
                             * 0: one does */
    int clean_scans;        /* consecutive scans that found no process of its pod; -1: restart */
    struct ledger *ledger;  /* NULL while it cannot be read */
    int limits_fd; /* the limits file, open for writing: no lease can be taken then; 0: it is not */
    bool limits_late;               /* its content is older than the grant */
    struct arbiter_member *compute; /* NULL: the arbiter does not have it */
    bool account_damaged;           /* because the container has destroyed its account */
    uint8_t doubts;         /* lists of kubelet in a row that contradict it: cross_check.c */
    bool far_cpus_reported; /* that CPUs of the container are far from its card */
    uint64_t sweep_after;   /* uv_hrtime before which its ledger is left alone */
    UT_hash_handle hh;
};

struct slot_store {
    char dir[256];       /* <state>/shares */
    bool bounded;        /* what containers write gets a file system of its own (share_dir.h) */
    const char *selinux; /* share_dir_make; NULL: nothing is labelled */
    struct slot *slots;
};

/* Reads all records below <state>/shares. A record that cannot be read is reported to `on_bad`, and
 * its slot is removed from the disk; one of a newer agent is kept (slot_grant.newer). -ENOMEM,
 * -EMFILE, -ENFILE and -EIO end the reading: a record that cannot be read now is not bad. */
int slot_store_load(struct slot_store *s, const char *state_dir,
                    void (*on_bad)(const char *nonce, const char *why, void *userdata),
                    void *userdata, struct err *err);
void slot_store_done(struct slot_store *s);

struct slot *slot_find(struct slot_store *s, const char *nonce);

/* Whether the container has a share of the device, or has it whole. */
bool slot_has_device(const struct slot *slot, const char *uuid);

/* Makes the slot's files, or brings them up to date, and remembers it. Takes the grant over (also
 * when it fails). Doing it again with the same grant changes nothing. -EEXIST: the slot was given
 * to another container. */
int slot_fill(struct slot_store *s, const char *nonce, struct slot_grant *grant, struct slot **ret,
              struct err *err);

/* Whose share it is, by UID: what one owner has of a card counts once. */
const char *slot_owner_uid(const struct slot_grant *g);

/* Whether processes of the pod can use the share. */
bool slot_is_of_pod(const struct slot_grant *g, const char *pod_uid);

/* One more pod uses the claim of the slot, which its record is to say. Doing it again changes
 * nothing. -ENOSPC: there are too many. */
int slot_add_pod(struct slot_store *s, struct slot *slot, const char *pod_uid, struct err *err);

/* The same, in the place of the n-th pod. */
int slot_replace_pod(struct slot_store *s, struct slot *slot, uint32_t n, const char *pod_uid,
                     struct err *err);

/* Whether `want` names the same devices, of none less and of one more. An older assignment, which
 * is signed as well, is thus never more. */
bool slot_is_more(const struct slot_grant *have, const struct slot_grant *want);

/* Gives a container that runs the amounts of `more`, which names the same devices: record and
 * limits file. On an error all is as it was, but for the record. */
int slot_grow(struct slot_store *s, struct slot *slot, const struct slot_grant *more,
              struct err *err);

/* Brings what a context costs on each card into a grant; returns whether that changed it. */
bool slot_grant_contexts(struct slot_grant *g, const struct gpu_snapshot *snapshot);

/* The same for all slots, and their limits in place; limits that cannot be written now are tried
 * again at the next call. */
void slot_set_contexts(struct slot_store *s, const struct gpu_snapshot *snapshot);

/* Brings the slot's limits file in line with its grant, in place, for a container that runs, too.
 * Those of a newer agent stay as they are. */
int slot_write_limits(const struct slot_store *s, const struct slot *slot, struct err *err);

/* The terms on one of its devices: those of the share on what it has a part of. The devices of a
 * claim can differ: a whole one is not held back, and none of a device cannot be fixed. */
struct slot_terms slot_device_terms(const struct slot_grant *g, uint32_t device);

/* Its content then. */
void slot_limits(const struct slot_grant *g, struct share_limits *ret);

/* What of a device's memory may be on the card, as the limits file has it: 0 where that is all of
 * it, by the share, not by the limit in force. */
uint64_t slot_physical(const struct slot_device *d);

/* What the container may have of a device of its share now; bytes. */
uint64_t slot_memory_now(const struct slot_grant *g, uint32_t device);

/* Before a container is restarted: replaces a damaged ledger, truncates its files to their size,
 * and restores their owner and mode (share_dir_mend). No process may have the old ledger mapped. */
int slot_mend_ledger(struct slot_store *s, struct slot *slot, struct err *err);

/* The same for its account of GPU time, and for shares that an older agent made without one. */
int slot_mend_account(struct slot_store *s, struct slot *slot, struct err *err);

/* Opens the files that could not be opened before. */
void slot_open_files(struct slot_store *s);

/* Forgets the slot and removes its files. */
int slot_remove(struct slot_store *s, struct slot *slot, struct err *err);

/* The directory of a slot. */
void slot_dir(const struct slot_store *s, const char *nonce, char ret[static 384]);

/* Path of a file of a slot: "limits", "ledger", "grants", "compute". */
void slot_path(const struct slot_store *s, const char *nonce, const char *file,
               char ret[static 384]);

/* What pods hold of a card together. */
struct slot_total {
    uint64_t memory;
    uint64_t physical; /* what of it may be on the card at once */
    uint32_t core;
};

/* What of the n-th device's memory may be on the card at once now; bytes, 0: no limit. */
uint64_t slot_card_limit(const struct slot *slot, uint32_t n);

/* The account of the slot's ledger that counts what is on the card of the n-th device, which is
 * what the driver sees. */
uint32_t slot_card_account(const struct slot *slot, uint32_t n);

/* What owners other than `owner` (slot_owner_uid) hold of a card: the sum of their totals.
 * `ret_holder` (may be NULL) receives one of them, preferring one that is being released. */
void slot_card_use(const struct slot_store *s, const char *uuid, const char *owner,
                   struct slot_total *ret, const struct slot **ret_holder);

bool slot_has_whole(const struct slot *slot, const char *uuid);

#define SLOT_POD_TEXT 384

/* The pod of a grant in a text that pods of `namespace` get to read: those of others have no name
 * there. */
void slot_pod_text(const struct slot_grant *g, const char *namespace,
                   char ret[static SLOT_POD_TEXT]);

/* A slot of another owner that has the device whole, preferring one that is being released; NULL:
 * there is none. */
const struct slot *slot_whole_holder(const struct slot_store *s, const char *uuid,
                                     const char *owner);

/* The grant of whole devices to one container. -ENOMEM; -ENAMETOOLONG: a text is no UUID. */
int slot_grant_whole(const struct pod *pod, const char *container, const char *const *uuids,
                     size_t n, struct slot_grant *ret, struct err *err);

/* Builds the grant of one container from what the scheduler decided. -ENOENT: the assignment has no
 * part for it. */
int slot_grant_make(const struct pod *pod, const struct assignment *a, const char *container,
                    struct slot_grant *ret, struct err *err);
void slot_grant_done(struct slot_grant *g);

/* Makes the grant one of a claim. -ENOMEM. */
int slot_grant_claim(struct slot_grant *g, const char *uid, const char *name);
int slot_claim_add(struct slot_claim *claim, const char *pod_uid);

/* The record as text and back, for tests and fuzzing. Of a record of a newer agent, the grant has
 * the pod, the container, and the devices if they can be read. */
void slot_record_encode(const struct slot_grant *g, struct buf *out);
int slot_record_decode(const char *text, size_t len, struct slot_grant *ret, struct err *err);
