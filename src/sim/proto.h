/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The protocol between the simulated driver's daemon and its two libraries. This header is the
 * whole interface and needs nothing but libc, because the libraries are mounted into containers
 * with old and new systems.
 *
 * DIR/nvidiactl and DIR/nvidia<minor> are SOCK_SEQPACKET sockets. A client sends HELLO on the first
 * and gets a token, then ATTACHes with it on every device socket that it can reach: a device
 * without a socket does not exist for the client, as with device nodes. All further requests go to
 * nvidiactl, one answer each. Closing the connection releases everything. A malformed request ends
 * the connection.
 *
 * DIR/nvidia-caps/nvidia-cap<number> are sockets, too: the capabilities of MIG. A client ATTACHes
 * on one in the same way and has the capability while the connection is open. A request that needs
 * a capability is answered with -EACCES and the capability's number in `a`; the client attaches it
 * and sends the request again. Administrators need none.
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
/* Behind it a number: what an exported descriptor of memory is an open end of. */
#define SIM_EXPORT_PREFIX SIM_CTL_NAME "."
#define SIM_CAPS_DIR "nvidia-caps"
#define SIM_CAP_NAME SIM_CAPS_DIR "/nvidia-cap"

/* The driver that the simulator passes for where no machine file says otherwise. */
#define SIM_DRIVER_VERSION "570.124.06"
#define SIM_CUDA_VERSION 12080

#define SIM_PROTO 3u
#define SIM_MAGIC 0x51414c41u
#define SIM_MAX_GPUS 64u
#define SIM_MAX_UNITS 256u /* cards, then the instances that they are divided into */

enum sim_op {
    SIM_HELLO = 1,   /* a = SIM_PROTO; answer: a = GPUs, token, the fd of the machine's page */
    SIM_ATTACH,      /* on the socket of a device or capability, token; answer of a device: the fd
                      * of its page */
    SIM_QUEUE,       /* answer carries the fds of the ring and of its doorbell */
    SIM_CTX_CREATE,  /* minor, a = 1: as a client of MPS; charges the context's overhead; answer:
                      * a = bytes charged */
    SIM_CTX_DESTROY, /* minor */
    SIM_ALLOC,       /* minor, a = bytes; token[0] = SIM_MANAGED for managed memory */
    SIM_FREE,        /* minor, a = bytes; token[0] likewise */
    SIM_PROCESSES,   /* minor; answer: count x sim_process */
    SIM_SAMPLES,     /* minor, a = microseconds since the epoch; answer: count x sim_sample */
    SIM_UTILIZATION, /* minor; answer: a = percent of the last period, b = percent of memory */
    SIM_HISTORY,     /* minor, a = microseconds since the epoch; answer: count x sim_sample */
    SIM_FAULT,      /* a = slot << 32 | generation; answer: a = enum sim_fault_action, b = status */
    SIM_SHARE,      /* minor, a = bytes; other processes may hold them, too;
                     * answer: token = name of the share, fd of as much memory */
    SIM_SHARE_OPEN, /* token; answer: a = bytes, b = minor, fd of the memory */
    SIM_SHARE_CLOSE,  /* token; once for SHARE, OPEN and IMPORT each */
    SIM_SHARE_EXPORT, /* token; answer: a descriptor that keeps the share and can be imported */
    SIM_SHARE_IMPORT, /* carries such a descriptor; answer as OPEN, and token */
    SIM_EVENT_SHARE,  /* answer: token = name, a = slot for SIGNAL and AWAIT, fd of its page */
    SIM_EVENT_OPEN,   /* token; answer: a = slot, fd of its page */
    SIM_EVENT_CLOSE,  /* a = slot */
    SIM_SUSPEND,      /* minor; the process's memory leaves the card, for a checkpoint */
    SIM_RESUME,       /* minor; it comes back, all of it or nothing */
    SIM_SET,          /* minor, a = enum sim_setting << 32 | value; of administrators */
    SIM_ACCOUNTS,     /* minor; answer: count x sim_account */
    SIM_MIG,          /* minor, a = enum sim_mig, token: its arguments; answer: a or a list */
    SIM_LIMITS,       /* minor, a = enum sim_limits, for SET token = soft, hard; all but MINE carry
                       * a control group's directory; answer: a = hard, b = soft, token[0] = used */
    SIM_OPEN,         /* minor; the process uses this card, which cannot be reset meanwhile */
    SIM_OP_END,
};

#define SIM_MANAGED 1u

enum sim_limits { SIM_LIMITS_GET, SIM_LIMITS_SET, SIM_LIMITS_MINE };

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
    uint32_t pid;  /* in the reader's namespace */
    uint32_t part; /* SIM_PART | GPU instance << 8 | compute instance, or 0; | SIM_OF_MPS */
    uint64_t bytes;
};
static_assert(sizeof(struct sim_process) == 16, "wire format");

#define SIM_PART 0x10000u
#define SIM_OF_MPS 0x20000u

struct sim_sample {
    uint32_t pid;
    uint32_t sm; /* percent */
    uint32_t memory;
    uint32_t zero;
    uint64_t time_us; /* since the epoch */
};
static_assert(sizeof(struct sim_sample) == 24, "wire format");

/* Operations of SIM_MIG and their two arguments. MODE is for administrators; those that create and
 * destroy need SIM_CAP_CONFIG. */
enum sim_mig {
    SIM_MIG_LIST = 1,        /* capability that is needed, or 0; answer: count x sim_mig_entry */
    SIM_MIG_ATTACH,          /* unit, SIM_CAP_MONITOR (to read only) or 0: its own capabilities;
                              * answer carries the fd of its page */
    SIM_MIG_MODE,            /* 0 or 1 */
    SIM_MIG_CREATE,          /* profile id, start or -1; answer: a = id */
    SIM_MIG_DESTROY,         /* id */
    SIM_MIG_CREATE_COMPUTE,  /* id, slices; answer: a = id of the compute instance */
    SIM_MIG_DESTROY_COMPUTE, /* id, id of the compute instance */
};

#define SIM_GPU_INSTANCES_MAX 8u /* ids 0 to 7 */

/* Numbers of capabilities, as NVIDIA's kernel driver counts them: for each card 15 GPU instances,
 * for each of them itself and 8 compute instances. */
#define SIM_CAP_CONFIG 1u  /* create and destroy instances */
#define SIM_CAP_MONITOR 2u /* read the figures of all instances */
#define SIM_CAP_FIRST 3u
#define SIM_CAP_GPU_INSTANCES 15u
#define SIM_CAP_COMPUTE_INSTANCES 8u

/* Of a GPU instance (ci is UINT32_MAX), or of one of its compute instances. */
static inline uint32_t sim_cap_number(uint32_t gpu, uint32_t gi, uint32_t ci) {
    return SIM_CAP_FIRST + (gpu * SIM_CAP_GPU_INSTANCES + gi) * (SIM_CAP_COMPUTE_INSTANCES + 1u) +
           (ci + 1u);
}

/* A GPU instance (ci is UINT32_MAX), or a compute instance of it. */
struct sim_mig_entry {
    uint32_t gi, ci;
    uint32_t profile;     /* of the GPU instance */
    uint32_t start, size; /* in slices: of memory, or of compute */
    uint32_t unit;        /* its minor, for a compute instance */
};
static_assert(sizeof(struct sim_mig_entry) == 24, "wire format");

/* A process that used, or uses, a card while accounting is on. */
struct sim_account {
    uint32_t pid;
    uint32_t running;
    uint32_t gpu; /* percent of its life */
    uint32_t zero;
    uint64_t peak; /* bytes */
    uint64_t time_ms;
    uint64_t start_us; /* since the epoch */
};
static_assert(sizeof(struct sim_account) == 40, "wire format");

#define SIM_LIST_MAX 2048u
#define SIM_ACCOUNTS_MAX 1024u /* of processes that have ended, the last so many */

#define SIM_MAX_LINKS 18u
#define SIM_LINK_SWITCH 0x80u

/* What can be set on a card. */
enum sim_setting {
    SIM_SETTING_PERSISTENCE,
    SIM_SETTING_COMPUTE_MODE, /* NVML's number */
    SIM_SETTING_ACCOUNTING,   /* setting it, even to the same value, clears the records */
    SIM_SETTING_POWER_LIMIT,  /* milliwatts */
    SIM_SETTING_ECC_COUNTS, /* to 0: those since the reset, or with value 1 those of the card's life
                             */
    SIM_SETTINGS,
};

/* Of a vGPU in a guest. */
enum sim_licence {
    SIM_LICENSED,
    SIM_UNLICENSED,      /* was never licensed */
    SIM_LICENCE_EXPIRED, /* was not renewed */
    SIM_LICENCES,
};

/* Counters of memory errors. The first two begin again with each reset, the others are of the
 * card's life. */
enum sim_ecc {
    SIM_ECC_CORRECTED,
    SIM_ECC_UNCORRECTED,
    SIM_ECC_CORRECTED_TOTAL,
    SIM_ECC_UNCORRECTED_TOTAL,
    SIM_ECC_COUNTERS,
};

/* What was done about them, in the card's non-volatile memory: rows are remapped (Ampere and
 * later), or pages retired (models before), because of errors that could be corrected, or could
 * not. */
enum sim_repair {
    SIM_REPAIR_CORRECTED,
    SIM_REPAIR_UNCORRECTED,
    SIM_REPAIR_PENDING,   /* some become active with the next reset */
    SIM_REPAIR_FAILED,    /* no row was left to take the place of one */
    SIM_REPAIR_EXHAUSTED, /* banks of the memory without a spare row */
    SIM_REPAIRS,
};

enum sim_state {
    SIM_HEALTHY,
    SIM_NEEDS_RESET, /* answers, but takes no work until it is reset */
    SIM_LOST,        /* fell off the bus */
};

/* Banks of the memory with spare rows of their own. */
#define SIM_BANKS 640

/* One page a device, mapped read-only by its clients: its properties and counters. */
struct sim_page {
    uint32_t magic;
    uint32_t minor; /* in requests, and in the order of the cards */
    char name[96];
    char uuid[48]; /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
    uint8_t uuid_bytes[16];
    char serial[32];
    uint64_t memory_total;
    uint64_t memory_reserved; /* by the driver */
    uint64_t context_bytes;   /* cost of a context */
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
    char vbios[16];
    uint32_t passive; /* no fan of its own */
    uint32_t numa;    /* nearest node */
    uint32_t nvlink_version;
    uint32_t nvlink_max;     /* of the model */
    uint32_t nvlinks;        /* that lead somewhere */
    _Atomic uint32_t number; /* of its device node, which a reset may change */
    uint32_t parent;         /* minor of the card that it is part of: its own, for a card */
    uint32_t gpu_instance, compute_instance; /* of a part */
    uint32_t gpu_slices, compute_slices;     /* of a part; 0 for a card */
    uint8_t engines[8];                      /* of a part: copy, decode, encode, JPEG, flow */
    _Atomic uint32_t mig;                    /* is divided */
    _Atomic uint32_t mig_pending;            /* MIG mode after a reset */
    uint8_t nvlink_peer[SIM_MAX_LINKS];      /* minor, or SIM_LINK_SWITCH | switch */
    /* the counters */
    _Atomic uint32_t state; /* enum sim_state */
    _Atomic uint32_t setting[SIM_SETTINGS];
    _Atomic uint64_t ecc_errors[SIM_ECC_COUNTERS];
    _Atomic uint32_t repair[SIM_REPAIRS];
    _Atomic uint32_t links_down;    /* bits, by link */
    _Atomic uint64_t clock_ns;      /* the device's clock when it last did something */
    _Atomic uint64_t memory_used;   /* of all processes */
    _Atomic uint64_t busy_ns;       /* since the daemon started */
    _Atomic uint32_t sram_exceeded; /* not 0: the threshold of SRAM errors, for good */
    _Atomic uint32_t temperature;   /* degrees Celsius; 0: as it follows from the load */
    _Atomic uint32_t clients;       /* processes with a context */
    _Atomic uint32_t licence;       /* enum sim_licence; only in a guest */
    uint32_t fabric_state;          /* NVML's number */
    uint32_t clique;
    uint8_t cluster[16];          /* UUID of the fabric's cluster; all 0: none */
    _Atomic uint64_t licence_end; /* seconds since the epoch; 0: there is none */
};
static_assert(sizeof(struct sim_page) <= 4096, "one page");

/* An event of a card. Clients wait at the futex `events`, without a round trip. */
#define SIM_EVENTS 256u

struct sim_event {
    uint32_t minor;
    uint32_t gpu_instance; /* UINT32_MAX: all of the card */
    uint32_t compute_instance;
    uint32_t type; /* NVML's bit */
    uint64_t data; /* the XID, for an XID */
    uint64_t time_us;
};
static_assert(sizeof(struct sim_event) == 32, "shared memory format");

/* Calls that are to fail or to hang, by name. The client only recognises the name; the daemon,
 * which counts for all processes, decides about this call. */
#define SIM_FAULTS 16u

enum sim_fault_action {
    SIM_FAULT_NONE,
    SIM_FAULT_FAIL, /* the call returns `b` and does nothing */
    SIM_FAULT_HANG, /* the call waits until the slot's generation moves on */
};

struct sim_fault {
    _Atomic uint32_t generation; /* odd: armed; a futex */
    uint32_t zero;
    char names[96]; /* patterns separated by commas; a trailing * matches any end */
};
static_assert(sizeof(struct sim_fault) == 104, "shared memory format");

/* The bus address of a card, for clients that cannot open it. */
struct sim_position {
    uint32_t pci_domain, pci_bus, pci_device, pci_id;
};

/* Properties of the whole machine, mapped read-only by its clients. */
struct sim_host {
    uint32_t magic;
    uint32_t ngpus;
    char driver[32]; /* "570.124.06" */
    uint32_t cuda;   /* 12080 */
    uint32_t host_pids;
    uint32_t limits;      /* the driver enforces memory limits of control groups */
    uint32_t timing_only; /* foreign modules load, their kernels only cost time */
    uint32_t sample_us;   /* how often utilisation is measured */
    uint32_t numa_nodes;
    uint32_t cpus_per_node; /* 0: all CPUs are near to every card */
    uint32_t nvswitches;
    uint32_t vgpu;                             /* the machine is a guest with vGPUs */
    char host_driver[11], host_branch[11];     /* of its host */
    uint32_t fork_closes;                      /* a forked child closes its parent's descriptors */
    uint8_t level[SIM_MAX_GPUS][SIM_MAX_GPUS]; /* NVML's nvmlGpuTopologyLevel_t */
    struct sim_position position[SIM_MAX_GPUS];
    struct sim_fault fault[SIM_FAULTS];
    struct sim_event event[SIM_EVENTS]; /* number n is in [n % SIM_EVENTS] */
    _Atomic uint32_t faults;            /* how many are armed */
    _Atomic uint32_t events;            /* how many there have been, free-running; a futex */
};
#define SIM_HOST_BYTES 16384u
static_assert(sizeof(struct sim_host) <= SIM_HOST_BYTES, "shared memory format");

/* Shared by the holders of an event and the daemon. */
struct sim_shared_event_page {
    _Atomic uint64_t recorded; /* clients: records submitted */
    _Atomic uint64_t passed;   /* daemon: the last that the GPU has passed; low half is a futex */
    _Atomic uint32_t waiters;  /* clients: waiters for `passed` to move */
    uint32_t pad;
};
static_assert(sizeof(struct sim_shared_event_page) == 24, "shared memory format");

/* Shared events of one process. */
#define SIM_SHARED_EVENTS 256u

/* The ring. The daemon does not trust it: it keeps copies of what it needs. */
#define SIM_RING_SIZE 4096u
#define SIM_QUEUES 1024u
#define SIM_MARKS 16384u

enum sim_work {
    SIM_KERNEL = 1, /* a = nanoseconds of the GPU */
    SIM_MARK,       /* writes the time into marks[slot] */
    SIM_WAIT,       /* until queue `slot` has completed `a` entries */
    SIM_HOLD,       /* until queue[].released has counted one more */
    SIM_SIGNAL,     /* record number `a` of the shared event in `slot` is passed */
    SIM_AWAIT,      /* until record number `a` of the shared event in `slot` is passed */
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
    _Atomic uint32_t room_wanted; /* client: a thread waits for head to move */
    _Atomic uint32_t lost;        /* daemon: gone, nothing will complete any more */
    uint32_t pad1[12];
    struct {
        _Atomic uint64_t done;     /* daemon: entries completed; the low half is a futex */
        _Atomic uint32_t waiters;  /* client: threads that wait for done to move */
        _Atomic uint32_t released; /* client: entries SIM_HOLD that may go on, free-running */
    } queue[SIM_QUEUES];
    _Atomic uint64_t marks[SIM_MARKS]; /* daemon: nanoseconds */
    _Atomic uint32_t
        broken[SIM_MAX_UNITS]; /* daemon: CUresult that this process's contexts died of */
    struct sim_entry entries[SIM_RING_SIZE];
};
static_assert(sizeof(struct sim_ring) == 128 + 16 * 1024 + 8 * 16384 + 4 * 256 + 24 * 4096,
              "shared memory format");
