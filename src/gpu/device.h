/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The device model: what is known about the cards of this machine. Plain data, filled by
 * gpu/nvml/monitor.h from what the NVML child reports, read by all others. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/dialect.h"
#include "model/dra.h"
#include "model/gpu_model.h"

#define GPU_CARDS_MAX 64      /* cards of one machine */
#define GPU_MAX 128           /* devices of one machine: 16 cards and 7 MIG instances of each */
#define GPU_PROCESSES_MAX 512 /* maximum of processes of one card */
#define GPU_REASON_MAX 160
#define GPU_PROFILE_MAX 32
#define GPU_MIG_IDS 64 /* ids of GPU instances, and of compute instances in one, are below */

struct gpu_process {
    uint32_t pid;        /* in the PID namespace of the agent */
    uint32_t sm_percent; /* of the last second; 0: not reported by the driver */
    uint64_t memory;     /* bytes */
};

/* A figure of struct gpu_sample that the driver does not report: all bits set. */
#define GPU_NOT_TOLD UINT32_MAX

/* Between two readings; of struct gpu_sample. */
struct gpu_rate_figures {
    /* Parts of the time in parts per million, or GPU_NOT_TOLD: something computed, the tensor cores
     * did, the memory interface moved data. */
    uint32_t graphics_ppm, tensor_ppm, dram_ppm;
    uint64_t pcie_tx, pcie_rx; /* bytes a second; this and the next: or all bits set */
    uint64_t nvlink;           /* bytes a second in both directions, of all links */
};

/* Figures that change all the time. They are valid for a healthy card only: the snapshot of an
 * unhealthy one has 0, and the metrics omit it. The NVML child sends this struct as it is, in a
 * packet of gpu/nvml/worker_protocol.h with status 0. Integers only: the agent does not check the
 * members, so that every pattern of bits has to be a value. */
struct gpu_sample {
    uint64_t memory_used;
    uint64_t memory_reserved; /* of memory_used: what the driver keeps for itself */
    uint64_t memory_free;
    /* In use, without the driver's reserve if it reports that: the lower of the figures before and
     * after the list of processes. */
    uint64_t memory_allocated;
    uint64_t memory_most;   /* the higher of the two; memory_used if not reported */
    uint32_t attributable;  /* not 0: reported for each process */
    uint32_t loads_untold;  /* 1: the card is busy, and of no process its load is reported */
    uint32_t memory_untold; /* 1: of a process it is not reported what it holds */
    uint32_t gpu_percent;   /* this and all below: or GPU_NOT_TOLD */
    uint32_t memory_percent;
    uint32_t temperature; /* degrees Celsius */
    uint32_t sm_clock;    /* MHz */
    uint32_t memory_clock;
    uint32_t power_mw;
    uint32_t encoder_percent;
    uint32_t decoder_percent;
    uint32_t memory_temperature; /* degrees Celsius */
    uint32_t pcie_replays;       /* since the driver was loaded */
    uint64_t energy_mj;          /* as pcie_replays; or all bits set */
    struct gpu_rate_figures rates;
};

#define GPU_LEVEL_UNKNOWN 255

/* How a card is connected to the others, by their indexes. */
struct gpu_connections {
    uint32_t known;               /* so many others are known of; 0: nothing is */
    int32_t numa;                 /* the NUMA node it is attached to; -1: not known */
    uint8_t level[GPU_CARDS_MAX]; /* nvmlGpuTopologyLevel_t, or GPU_LEVEL_UNKNOWN */
    uint8_t nvlinks[GPU_CARDS_MAX];
};

enum gpu_kind {
    GPU_CARD, /* a whole card */
    GPU_MIG_INSTANCE,
    GPU_VGPU,
    GPU_REMOTE, /* on another node */
    GPU_KINDS,
};

/* A MIG instance as NVML's device handle of one: a compute instance (CI) in a GPU instance (GI).
 * Integers are 0 where the driver does not report them. */
struct gpu_mig {
    uint32_t gi, ci; /* NVML's ids: of the GI in the card, of the CI in the GI */
    char
        profile[GPU_PROFILE_MAX]; /* as NVML prints it: "1g.10gb", "1g.24gb+me.all", "1c.3g.40gb" */
    uint32_t profile_id;          /* of the GI, as nvmlDeviceCreateGpuInstance() takes it */
    uint32_t start, size;         /* placement of the GI, in memory slices of the card */
    uint32_t gi_slices, ci_slices; /* compute slices of the GI, and the CI's part of them */
    uint32_t card_slices;          /* compute slices of the whole card */
    uint32_t multiprocessors;      /* of the CI */
    uint32_t copy_engines, decoders, encoders, jpegs, ofas; /* of the GI, shared by its CIs */
};

/* An XID that the driver has reported. */
struct gpu_xid {
    const char *uuid; /* of the card; "": it has not been listed yet */
    uint32_t index;   /* of the card */
    uint32_t gi, ci;  /* ids of the instances that it is limited to; GPU_NOT_TOLD: to none */
    uint32_t xid;
};

/* What a program can expect of a card; 0 where the driver does not report it. The NVML child sends
 * this struct as it is. */
struct gpu_traits {
    uint32_t cuda_version;                 /* of the driver: 12040 for 12.4 */
    uint32_t compute_major, compute_minor; /* CUDA compute capability */
    uint32_t mig_capable;                  /* not 0: it can be in MIG mode */
    uint32_t vgpu;                         /* not 0: it is a vGPU of a guest */
    uint32_t unlicensed;                   /* not 0: a vGPU without a licence, which slows down */
    /* Not 0: it belongs to an NVLink domain over several machines, of that number in the cluster of
     * that UUID (as 16 bytes). */
    uint32_t fabric_attached, fabric_clique;
    uint32_t fabric_cluster[4];
};

/* What the driver reports of a card's memory errors and of its links, from counters and from the
 * card's non-volatile memory. Each is GPU_NOT_TOLD, or UINT64_MAX, where the driver does not report
 * it: models before Ampere retire pages of memory, those from Ampere on remap rows, and remapped
 * rows of a card with MIG instances are not reported. The NVML child sends this struct as it is. */
struct gpu_errors {
    uint64_t corrected, uncorrected;             /* ECC errors since the last reset */
    uint64_t corrected_total, uncorrected_total; /* in the card's life */
    /* Pages retired because of single-bit and of double-bit errors; not 0: some of them are retired
     * by the next reset only. */
    uint32_t retired_single, retired_double, retirement_pending;
    /* Rows remapped because of errors that could be corrected, or could not; not 0: some of them
     * are remapped by the next reset only; not 0: a row could not be remapped. */
    uint32_t remapped_correctable, remapped_uncorrectable, remap_pending, remap_failed;
    /* Banks of the memory by their spare rows: all, most, some, few and none of them are left. */
    uint32_t banks_max, banks_high, banks_partial, banks_low, banks_none;
    uint32_t
        sram_exceeded; /* not 0: more errors of SRAM than NVIDIA's threshold for a replacement */
    uint32_t nvlinks;  /* that are active; GPU_NOT_TOLD: the model has none */
};

/* What a healthy device is used for, by the agent's verdict. */
enum gpu_service {
    GPU_SERVES,         /* new pods, too */
    GPU_SERVES_HOLDERS, /* only containers of pods that have a share of it */
    GPU_SERVES_NONE,
};

/* How a device is given to containers, by the configuration of the node. */
enum gpu_offer {
    GPU_OFFER_DEFAULT, /* a card in shares, a MIG instance whole */
    GPU_OFFER_SHARES,  /* by percent and byte: aliquot-scheduler chooses it */
    GPU_OFFER_WHOLE,   /* itself, or replicas of it without limits: kubelet chooses it */
    GPU_OFFER_PARTS,   /* replicas with limits: kubelet chooses it */
};

struct gpu_device {
    /* Its identity, to `links`: what gpu_copy_identity() takes. */
    enum gpu_kind kind; /* the NVML child reports cards and their MIG instances */
    bool divided;       /* a card in MIG mode: it is given out in its instances */
    uint32_t index;     /* NVML's, dense; of a part: its number in the parent */
    int32_t minor;      /* the N of /dev/nvidiaN; of an instance: its card's */
    char uuid[GPU_UUID_MAX];
    char parent[GPU_UUID_MAX]; /* UUID of the device that it is a part of; "": none */
    char model[96];
    char pci[32]; /* "00000000:3B:00.0" */
    uint64_t memory;
    uint64_t context_bytes; /* what a CUDA context costs; 0: not known */
    struct gpu_mig mig;     /* of a MIG instance; else 0 */
    struct gpu_traits traits;
    struct gpu_connections links;
    /* NVML's recovery action of the card: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and
     * reset; GPU_NOT_TOLD: drivers before 570 have no such field. */
    uint32_t recovery_action;
    struct gpu_errors errors; /* of a card; all bits set for others and where its calls fail */
    uint64_t read_at;         /* when the figures came: loop time of the monitor, ms */
    bool late;    /* the figures are not of the last poll: they fit no figures taken at that time */
    bool healthy; /* NVML's calls on it succeed */
    bool saved;   /* not read yet, since the start of the agent or since it was released */
    bool needs_reset;         /* they fail until it is reset */
    bool released;            /* the monitor has closed the card: nothing is known of it now */
    bool stale;               /* the driver has not answered for any device of late */
    enum gpu_service service; /* this and the next six: written by the monitor's option `judge` */
    enum gpu_offer offer;
    enum dra_allocator allocator;
    bool whole_only;               /* in shares: only as all of it */
    bool under_mps;                /* its containers are clients of MPS */
    bool mps_on_demand;            /* it is put under MPS for claims */
    struct card_replicas replicas; /* that aliquot-scheduler gives out */
    uint32_t scaling; /* oversubscription of its memory, in thousandths; 0: as the node does */
    /* Why it is not healthy, or does not serve all, for a person; else "". */
    char reason[GPU_REASON_MAX];
    struct gpu_sample sample;
    struct gpu_process *processes; /* sorted by pid */
    size_t nprocesses;
};

/* A consistent snapshot of the machine. */
struct gpu_snapshot {
    char driver_version[80];
    uint32_t ndevices;
    struct gpu_device
        devices[GPU_MAX]; /* by index; a part after its parent. `index` may have holes */
};

/* The device with that UUID, or NULL. */
const struct gpu_device *gpu_find(const struct gpu_snapshot *s, const char *uuid);

/* The NUMA node of a device; of a part of a card, the card's. -1: not known, or `d` is NULL. */
int64_t gpu_numa(const struct gpu_snapshot *s, const struct gpu_device *d);

/* The kind in a text for a person: "GPU", "MIG instance" ... */
const char *gpu_kind_name(enum gpu_kind kind);

/* Whether the device is a part of another one, whose memory includes the part's. Sums over devices
 * exclude parts. */
static inline bool gpu_is_part(const struct gpu_device *d) {
    return d->parent[0] != 0;
}

/* Whether it takes new pods. */
static inline bool gpu_takes_pods(const struct gpu_device *d) {
    return d->healthy && d->service == GPU_SERVES;
}

/* Whether these can be of one device: an instance has a parent, a card has none, and only a card is
 * divided. */
bool gpu_kind_ok(uint32_t kind, const char *parent, bool divided);

/* Compute that the device has, in percent of a card: of an instance, its part of the compute slices
 * of its card, rounded down; 0: not known, or no card and no instance. */
static inline uint32_t gpu_core(const struct gpu_device *d) {
    if (d->kind == GPU_CARD)
        return 100;
    return d->kind == GPU_MIG_INSTANCE && d->mig.ci_slices <= d->mig.card_slices &&
                   d->mig.card_slices > 0
               ? 100 * d->mig.ci_slices / d->mig.card_slices
               : 0;
}

/* Whether containers have parts of the device with limits, whose use is audited. */
static inline bool gpu_has_limits(const struct gpu_device *d) {
    if (d->kind == GPU_MIG_INSTANCE)
        return d->offer == GPU_OFFER_SHARES && gpu_core(d) > 0;
    return d->kind == GPU_CARD && !d->divided && d->offer != GPU_OFFER_WHOLE;
}

/* Whether shares of the device by percent and byte are given out: of a card that is not divided,
 * unless kubelet gives it out, and of an instance where the configuration says so. */
static inline bool gpu_gives_shares(const struct gpu_device *d) {
    return gpu_has_limits(d) && d->offer != GPU_OFFER_PARTS;
}

/* Whether kubelet gives the device out, whole or in replicas. */
static inline bool gpu_is_given_whole(const struct gpu_device *d) {
    return d->kind == GPU_MIG_INSTANCE
               ? d->offer != GPU_OFFER_SHARES
               : !d->divided && (d->offer == GPU_OFFER_WHOLE || d->offer == GPU_OFFER_PARTS);
}

/* Whether the driver reports the load of the device's processes. Of MIG instances it does not. */
static inline bool gpu_tells_load(const struct gpu_device *d) {
    return !d->sample.loads_untold && (!gpu_is_part(d) || d->sample.gpu_percent != GPU_NOT_TOLD);
}

/* Whether what the driver says of it can be compared with the ledgers of its shares. */
static inline bool gpu_can_be_audited(const struct gpu_device *d) {
    return d->healthy && !d->late && gpu_has_limits(d);
}

/* The device with that UUID if gpu_has_limits(), or NULL. */
const struct gpu_device *gpu_find_card(const struct gpu_snapshot *s, const char *uuid);

/* Whether the ids are in range and the profile is a text. */
bool gpu_mig_ok(const struct gpu_mig *mig);

/* Takes what is known of the card (identity, not sample and processes) from one device to another.
 */
void gpu_copy_identity(struct gpu_device *to, const struct gpu_device *from);

/* Frees what the snapshot holds; the snapshot is empty afterwards. */
void gpu_snapshot_done(struct gpu_snapshot *s);

/* Frees what `to` holds and gives it what `from` holds, which is empty afterwards. */
void gpu_snapshot_move(struct gpu_snapshot *to, struct gpu_snapshot *from);

/* Identity of the devices as JSON and back: kept over a restart of the agent, so that kubelet gets
 * devices before the driver has answered. Devices that are read back are unhealthy ("not seen
 * yet"). */
struct buf;
struct err;
void gpu_snapshot_encode(const struct gpu_snapshot *s, struct buf *out);
int gpu_snapshot_decode(const char *text, size_t len, struct gpu_snapshot *ret, struct err *err);
