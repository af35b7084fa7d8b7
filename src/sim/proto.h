/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the simulated driver's daemon and its two libraries say to each other. This header is the
 * whole of the interface and needs nothing but libc, because the libraries are mounted into
 * containers of every age.
 *
 * DIR/nvidiactl and DIR/nvidia<minor> are SOCK_SEQPACKET sockets. A client says HELLO on the first
 * and gets a token, then ATTACHes with it on every device socket that it can reach: a device whose
 * socket is not there does not exist for it, as with device nodes. All further requests go to
 * nvidiactl, one answer each. Hanging up releases everything. A request that makes no sense ends
 * the connection.
 *
 * GPU work takes no round trip: it is written into a ring in shared memory, and the daemon, which
 * owns the GPU's time, publishes what is complete in the same memory. */

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define SIM_DIR_DEFAULT "/run/aliquot-sim"
#define SIM_DIR_ENV "ALIQUOT_SIM_DIR"
#define SIM_CTL_NAME "nvidiactl"
#define SIM_DEVICE_NAME "nvidia"

/* The driver that the simulator passes for. PIDs are those of the reader's namespace, as with
 * real drivers from 545 on. */
#define SIM_DRIVER_VERSION "570.124.06"
#define SIM_NVML_VERSION "12.570.124.06"
#define SIM_CUDA_VERSION 12080

#define SIM_PROTO 1u
#define SIM_MAGIC 0x51414c41u
#define SIM_MAX_GPUS 64u

enum sim_op {
    SIM_HELLO = 1,   /* a = SIM_PROTO; answer: a = GPUs of the machine, token */
    SIM_ATTACH,      /* on a device socket, token; answer carries the fd of the device's page */
    SIM_QUEUE,       /* answer carries the fds of the ring and of its doorbell */
    SIM_CTX_CREATE,  /* minor; charges the context's overhead; answer: a = bytes charged */
    SIM_CTX_DESTROY, /* minor */
    SIM_ALLOC,       /* minor, a = bytes */
    SIM_FREE,        /* minor, a = bytes */
    SIM_PROCESSES,   /* minor; answer: count x sim_process */
    SIM_SAMPLES,     /* minor, a = microseconds since the epoch; answer: count x sim_sample */
    SIM_UTILIZATION, /* minor; answer: a = percent of the last second, b = percent of memory */
    SIM_OP_END,
};

struct sim_request {
    uint32_t magic;
    uint32_t op;
    uint32_t minor;
    uint32_t zero;
    uint64_t a;
    uint64_t token[2];
};
static_assert(sizeof(struct sim_request) == 40, "wire format");

struct sim_reply {
    int32_t status; /* 0 or a negative errno */
    uint32_t count; /* entries that follow */
    uint64_t a;
    uint64_t b;
    uint64_t token[2];
};
static_assert(sizeof(struct sim_reply) == 40, "wire format");

struct sim_process {
    uint32_t pid; /* in the reader's namespace */
    uint32_t zero;
    uint64_t bytes;
};
static_assert(sizeof(struct sim_process) == 16, "wire format");

struct sim_sample {
    uint32_t pid;
    uint32_t sm; /* percent */
    uint32_t memory;
    uint32_t zero;
    uint64_t time_us; /* since the epoch */
};
static_assert(sizeof(struct sim_sample) == 24, "wire format");

#define SIM_LIST_MAX 2048u
#define SIM_REPLY_MAX (sizeof(struct sim_reply) + SIM_LIST_MAX * sizeof(struct sim_sample))

/* One page a device, mapped read-only by its clients: what it is, and its counters. */
struct sim_page {
    uint32_t magic;
    uint32_t minor;
    char name[96];
    char uuid[48]; /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
    uint8_t uuid_bytes[16];
    char serial[32];
    uint64_t memory_total;
    uint64_t memory_reserved; /* what the driver keeps for itself */
    uint64_t context_bytes;   /* what a context costs */
    uint32_t cc_major;
    uint32_t cc_minor;
    uint32_t sm_count;
    uint32_t cores; /* CUDA cores of the whole card */
    uint32_t sm_clock_mhz;
    uint32_t memory_clock_mhz;
    uint32_t bus_bits;
    uint32_t l2_bytes;
    uint32_t shared_per_sm;
    uint32_t power_limit_mw;
    uint32_t power_idle_mw;
    uint32_t memory_mbps; /* megabytes a second */
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t pci_id; /* device << 16 | vendor */
    uint32_t pci_subsystem;
    uint32_t architecture; /* NVML's number */
    uint32_t brand;        /* NVML's number */
    uint32_t pcie_gen;
    uint32_t pcie_width;
    uint32_t ecc;
    uint32_t passive; /* no fan of its own */
    /* the counters */
    _Atomic uint64_t clock_ns;    /* the device's clock when it last did something */
    _Atomic uint64_t memory_used; /* of all processes */
    _Atomic uint64_t busy_ns;     /* since the daemon started */
    _Atomic uint32_t clients;     /* processes with a context */
};
static_assert(sizeof(struct sim_page) <= 4096, "one page");

/* The ring. The daemon trusts nothing in it: what it needs it keeps for itself. */
#define SIM_RING_SIZE 4096u
#define SIM_QUEUES 1024u
#define SIM_MARKS 16384u

enum sim_work {
    SIM_KERNEL = 1, /* a = nanoseconds of the GPU */
    SIM_MARK,       /* writes the time into marks[slot] */
    SIM_WAIT,       /* until queue `slot` has completed `a` entries */
    SIM_HOLD,       /* until queue[].released has counted one more */
};

struct sim_entry {
    uint8_t kind;
    uint8_t minor;
    uint16_t queue;
    uint32_t slot;
    uint64_t a;
    uint64_t time; /* CLOCK_MONOTONIC nanoseconds of the call */
};
static_assert(sizeof(struct sim_entry) == 24, "shared memory format");

struct sim_ring {
    _Atomic uint32_t tail; /* client: entries written, free-running */
    uint32_t pad0[15];
    _Atomic uint32_t head;        /* daemon: entries taken, free-running; a futex */
    _Atomic uint32_t need_bell;   /* daemon: asleep, ring the doorbell */
    _Atomic uint32_t room_wanted; /* client: somebody waits for head to move */
    _Atomic uint32_t lost;        /* daemon: gone, nothing will complete any more */
    uint32_t pad1[12];
    struct {
        _Atomic uint64_t done;     /* daemon: entries completed; the low half is a futex */
        _Atomic uint32_t waiters;  /* client: somebody waits for done to move */
        _Atomic uint32_t released; /* client: entries SIM_HOLD that may go on, free-running */
    } queue[SIM_QUEUES];
    _Atomic uint64_t marks[SIM_MARKS]; /* daemon: nanoseconds */
    struct sim_entry entries[SIM_RING_SIZE];
};
static_assert(sizeof(struct sim_ring) == 128 + 16 * 1024 + 8 * 16384 + 24 * 4096,
              "shared memory format");
