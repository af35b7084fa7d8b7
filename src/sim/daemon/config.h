/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Description of the simulated machine: from a machine file, or from a number of GPUs and models.
 *
 * A machine file is text: sections in brackets, `key = value` lines, `#` comments.
 *
 *     [machine]                     at most once, first
 *     driver = 570.124.06
 *     pids = namespace              host | namespace (default: by the driver's version)
 *     [gpu 0-3]                     each GPU once, without gaps from 0
 *     model = A100
 *     numa = 0
 *     [nvlink]                      behind the GPUs
 *     0-1 = 4                       four links between two GPUs
 *     switches = 6                  or: all links of all GPUs to this many NVSwitches
 *
 * docs/simulator.md lists the keys. Pure functions, no I/O. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sim/daemon/machine.h"
#include "sim/model.h"
#include "sim/proto.h"

struct sim_gpu_config {
    const struct sim_model *model; /* NULL: not described */
    uint64_t memory;               /* bytes */
    uint64_t context;              /* bytes of a context */
    char uuid[41];                 /* "GPU-...", empty: from the seed */
    char serial[32];
    uint32_t pci_domain, pci_bus, pci_device;
    bool has_pci;
    uint32_t numa;
    uint32_t root;   /* PCIe host bridge, of the machine */
    uint32_t bridge; /* PCIe switch below it */
    bool ecc;
    char mig[128]; /* "1g.10gb,3g.40gb": divided from the start; "-": MIG mode without any; "": off
                    */
    enum sim_licence licence;
    bool has_licence;
    uint8_t fabric_state; /* NVML's number */
    uint32_t clique;
    uint8_t cluster[16];
};

struct sim_config {
    char driver[32];
    uint32_t cuda; /* 12080 */
    bool host_pids;
    enum sim_memory_accounting limits;
    bool timing_only;
    bool accounting;
    bool fork_closes;     /* a forked child closes its parent's descriptors */
    bool mig_needs_reset; /* MIG mode changes by a reset only */
    bool lists_dead;      /* process lists name processes that have ended, too */
    bool vgpu;            /* a guest with vGPUs */
    char host_driver[11]; /* of its host; empty: the same as `driver` */
    char host_branch[11];
    bool stepped; /* the clock stops; SIM_DO_ADVANCE moves it */
    uint64_t slice_ns;
    uint64_t switch_ns; /* cost of a context switch between processes */
    uint64_t sample_ns;
    uint32_t numa_nodes;
    uint32_t cpus_per_node;
    uint32_t nvswitches;
    uint32_t ngpus;
    struct sim_gpu_config gpu[SIM_MAX_GPUS];
    uint8_t links[SIM_MAX_GPUS][SIM_MAX_GPUS]; /* direct NVLinks between two GPUs */
};

/* A machine without GPUs, with the defaults of all other settings. */
void config_init(struct sim_config *ret);

/* Adds a GPU with a model's figures. -ENOSPC when there is no room. */
int config_add_gpu(struct sim_config *c, const struct sim_model *model);

/* "166ms", with a unit of ns, us, ms or s: between `min` and `max` nanoseconds. */
int config_parse_duration(const char *value, uint64_t min, uint64_t max, uint64_t *ret,
                          struct err *err);

/* "licensed", "unlicensed" or "expired". */
const char *config_licence_name(enum sim_licence licence);
int config_parse_licence(const char *value, enum sim_licence *ret, struct err *err);

/* Reads a machine file of `len` bytes. `name` is for messages: "NAME:LINE: what is wrong". On
 * failure `ret` is untouched. */
int config_parse(const char *name, const char *text, size_t len, struct sim_config *ret,
                 struct err *err);

/* Writes the configuration into the shared pages, which are zeroed. UUIDs and serial numbers that
 * the file does not give derive from `seed`. */
void config_describe_host(const struct sim_config *c, struct sim_host *ret);
void config_describe_gpu(const struct sim_config *c, uint32_t minor, const char *seed,
                         struct sim_page *ret);
