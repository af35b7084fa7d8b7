/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The protocol between the agent and its NVML child: fixed structures over a SOCK_SEQPACKET pair,
 * one per packet. The agent sends a POLL; the child answers with one of each that applies, in this
 * order: DRIVER, then for each device DEVICE, LINKS (of a card) and any number of PROCESSES, then
 * END. The parts of a card follow it; header.index is their number in it. READING precedes calls
 * that concern one card. A POLL that comes before END ends the answer to the one before.
 * When the driver cannot be opened it sends FAILED instead and exits. CONTEXT and EVENT come at any
 * time. A struct gpu_message_limit of the agent is answered with one, after READING for its card.
 *
 * The child runs code of the driver in its address space, so the agent validates every message with
 * gpu_message_check(). */

#include <stddef.h>
#include <stdint.h>

#include "gpu/device.h"

#define GPU_MESSAGE_MAGIC 0x414c5147u /* "ALQG" */
#define GPU_PACKET_PROCESSES 64       /* processes in one packet */

enum gpu_message_type {
    GPU_MESSAGE_POLL = 1,
    GPU_MESSAGE_DRIVER,
    GPU_MESSAGE_DEVICE,
    GPU_MESSAGE_PROCESSES,
    GPU_MESSAGE_END,
    GPU_MESSAGE_FAILED,
    GPU_MESSAGE_CONTEXT,
    GPU_MESSAGE_EVENT,
    GPU_MESSAGE_LIMIT,
    GPU_MESSAGE_LINKS,
    GPU_MESSAGE_READING,
};

struct gpu_message_header {
    uint32_t magic;
    uint32_t type;
    uint32_t sequence; /* of the poll that is answered */
    uint32_t index;    /* of the device, for DEVICE, LINKS, PROCESSES, READING and LIMIT */
};

struct gpu_message_poll {
    struct gpu_message_header header;
    uint64_t left_out;     /* cards (bits, by index) for which no call may be made */
    uint32_t drops_limits; /* not 0: LIMIT requests that precede it are not carried out any more */
    uint32_t reserved;
};

struct gpu_message_text { /* DRIVER: its version; FAILED: why, for a person */
    struct gpu_message_header header;
    char text[160];
};

/* Calls are isolated from each other: what failed says so, the rest is valid. */
struct gpu_message_device {
    struct gpu_message_header header;
    int32_t status;   /* nvmlReturn_t of the first call that must work; 0: healthy */
    int32_t minor;    /* -1 where identity is unknown (a card that is lost) */
    uint32_t kind;    /* enum gpu_kind */
    uint32_t divided; /* not 0: a card in MIG mode */
    char error[160];
    char uuid[GPU_UUID_MAX];
    char parent[GPU_UUID_MAX]; /* UUID of the device that it is a part of; "": none */
    char model[96];
    char pci[32];
    uint64_t memory;
    struct gpu_errors errors; /* see struct gpu_device */
    struct gpu_mig mig;       /* of a MIG instance */
    uint32_t recovery_action; /* see struct gpu_device */
    uint32_t unused;          /* 0, in the place of padding */
    struct gpu_traits traits;
    struct gpu_sample sample;
};

/* How the card is connected: see struct gpu_connections. */
struct gpu_message_links {
    struct gpu_message_header header;
    struct gpu_connections links;
};

struct gpu_message_process {
    uint32_t pid;
    uint32_t sm_percent;
    uint64_t memory;
};

struct gpu_message_processes {
    struct gpu_message_header header;
    uint32_t count;
    uint32_t reserved;
    struct gpu_message_process processes[GPU_PACKET_PROCESSES];
};

/* What a context costs on the card with that UUID. */
struct gpu_message_context {
    struct gpu_message_header header;
    char uuid[GPU_UUID_MAX];
    uint64_t bytes;
};

/* Request: limit a control group to `bytes` of the card, if the card of header.index
 * has the UUID. Answer: the driver's result. */
struct gpu_message_limit {
    struct gpu_message_header header;
    int32_t status; /* nvmlReturn_t */
    uint32_t reserved;
    uint64_t bytes;  /* UINT64_MAX: no limit */
    uint64_t before; /* answer: the previous limit, or `bytes` if not reported */
    char uuid[GPU_UUID_MAX];
    char cgroup[512]; /* its directory, in the agent's view */
    char error[160];  /* status in words */
};

/* An XID on the card of header.index: the last poll may be outdated. */
struct gpu_message_event {
    struct gpu_message_header header;
    uint32_t xid;
    uint32_t gi, ci; /* see struct gpu_xid */
    uint32_t reserved;
};

/* END and READING are a bare header. */
union gpu_message {
    struct gpu_message_header header;
    struct gpu_message_poll poll;
    struct gpu_message_text text;
    struct gpu_message_device device;
    struct gpu_message_processes processes;
    struct gpu_message_context context;
    struct gpu_message_event event;
    struct gpu_message_limit limit;
    struct gpu_message_links links;
};

/* Checks a packet of `len` bytes: magic, type, exact size, indices and counts in range, texts
 * terminated. Returns its type, or -EBADMSG. `message` must be aligned as the union is. */
int gpu_message_check(const union gpu_message *message, size_t len);
