/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The protocol between the agent and the child that divides cards: fixed structures over a
 * SOCK_SEQPACKET pair, one per packet. The agent sends one ORDER. The child sends BEGIN before the
 * steps of a plan and waits for HELD; STEP before each change; CARD for each card, and END last.
 * The agent checks what comes with gpu_mig_message_check(). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/device.h"
#include "gpu/mig/apply.h"
#include "mig/edit.h"
#include "mig/file.h"

#define GPU_MIG_MAGIC 0x414c514du /* "ALQM" */
#define GPU_MIG_HELD_MAX ((size_t) 2 * GPU_MAX)
#define GPU_MIG_ENDED_MAX (MIG_CARD_INSTANCES_MAX * MIG_COMPUTE_MAX + 1)
#define GPU_MIG_HOLDER_MAX 128
#define GPU_MIG_PATH_MAX 512

enum gpu_mig_message_type {
    GPU_MIG_ORDER = 1,
    GPU_MIG_HELD,
    GPU_MIG_BEGIN,
    GPU_MIG_STEP,
    GPU_MIG_CARD,
    GPU_MIG_END,
};

struct gpu_mig_header {
    uint32_t magic;
    uint32_t type;
};

/* Why a job ends without its next change. */
enum gpu_mig_stop {
    GPU_MIG_GO,
    GPU_MIG_STOP_CANCELED, /* another division is wanted */
    GPU_MIG_STOP_FULL,     /* the agent has no room for what is held or withdrawn */
};

/* Devices that are in use beside what the driver and kubelet's checkpoint say. */
struct gpu_mig_held {
    struct gpu_mig_header header;
    uint32_t stop; /* enum gpu_mig_stop; but GPU_MIG_GO: no further change */
    uint32_t n;
    struct {
        char uuid[GPU_UUID_MAX];
        char by[GPU_MIG_HOLDER_MAX]; /* "pod namespace/name" */
    } list[GPU_MIG_HELD_MAX];
};

enum gpu_mig_kind {
    GPU_MIG_READ,   /* one card */
    GPU_MIG_EDIT,   /* one card, by single instances */
    GPU_MIG_CONFIG, /* all cards, as a configuration says */
};

struct gpu_mig_order {
    uint32_t kind;
    uint32_t mode_only;          /* CONFIG: instances stay as they are */
    uint64_t left_out;           /* CONFIG: cards (bits, by index) for which no call may be made */
    char card[GPU_UUID_MAX];     /* READ, EDIT */
    char file[GPU_MIG_PATH_MAX]; /* CONFIG: mig-parted's file; "": what the cards can have */
    char config[MIG_CONFIG_NAME_MAX]; /* CONFIG: one of its names */
    char hooks[GPU_MIG_PATH_MAX];     /* CONFIG: mig-parted's hooks file; "": none */
    char hook_root[GPU_MIG_PATH_MAX]; /* CONFIG: where the hooks find the host; "": here */
    struct mig_edit edit;             /* EDIT */
    char lock[GPU_MIG_PATH_MAX];
    char kubelet_dir[GPU_MIG_PATH_MAX]; /* in the child's view */
    char pod_logs[GPU_MIG_PATH_MAX];
};

struct gpu_mig_message_order {
    struct gpu_mig_header header;
    struct gpu_mig_order order;
    struct gpu_mig_held held;
};

/* What a plan ends: MIG devices that are idle, and the card itself before its mode changes. */
struct gpu_mig_begin {
    struct gpu_mig_header header;
    uint32_t mode; /* not 0: the MIG mode changes */
    uint32_t n;
    char card[GPU_UUID_MAX];
    char ended[GPU_MIG_ENDED_MAX][GPU_UUID_MAX];
};

struct gpu_mig_text { /* STEP */
    struct gpu_mig_header header;
    char text[256];
};

/* A card after its part of the order. */
struct gpu_mig_card {
    struct gpu_mig_header header;
    uint32_t index;
    int32_t status; /* 0 or a negative errno; READ: of the reading */
    char uuid[GPU_UUID_MAX];
    char error[ERR_TEXT_MAX]; /* of a negative status */
    struct gpu_mig_result result;
    uint32_t known; /* not 0: `card` is what the driver says now */
    struct mig_card card;
};

struct gpu_mig_end {
    struct gpu_mig_header header;
    int32_t status;
    char error[ERR_TEXT_MAX];
};

union gpu_mig_message {
    struct gpu_mig_header header;
    struct gpu_mig_message_order order;
    struct gpu_mig_held held;
    struct gpu_mig_begin begin;
    struct gpu_mig_text step;
    struct gpu_mig_card card;
    struct gpu_mig_end end;
};

/* Checks a packet of `size` bytes: magic, type, exact size, counts in range, texts terminated.
 * Returns its type, or -EBADMSG. */
int gpu_mig_message_check(const void *message, size_t size);
