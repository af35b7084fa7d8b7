/* SPDX-License-Identifier: Apache-2.0 */

/* Sections `flags` and `imex` of NVIDIA's file. */

#include "agent/config/sections.h"

#define LABELS "labels are written by the agent as the node changes"
#define BY_CDI "devices are given to containers by CDI"
#define UNSERVED(key, reason)                                                                      \
    { key, config_unserved, 0, reason, false }

static const struct yaml_field plugin[] = {
    UNSERVED("passDeviceSpecs", BY_CDI),
    UNSERVED("deviceListStrategy", BY_CDI),
    UNSERVED("deviceIDStrategy", BY_CDI),
    UNSERVED("cdiAnnotationPrefix", BY_CDI),
    UNSERVED("cdiFeatureFlags", BY_CDI),
    UNSERVED("nvidiaCTKPath", "NVIDIA's toolkit is not needed"),
    UNSERVED("nvidiaCDIHookPath", "NVIDIA's toolkit is not needed"),
    UNSERVED("containerDriverRoot", "option --host-root is where the host's / is mounted"),
    {"sharedDevicesAllocationPolicy", yaml_word, offsetof(struct node_config, allocation_policy),
     config_allocations, false},
    YAML_FIELD_END,
};

static const struct yaml_field gfd[] = {
    UNSERVED("oneshot", LABELS),         UNSERVED("noTimestamp", LABELS),
    UNSERVED("sleepInterval", LABELS),   UNSERVED("outputFile", LABELS),
    UNSERVED("machineTypeFile", LABELS), YAML_FIELD_END,
};

const struct yaml_field config_flags[] = {
    {"migStrategy", yaml_word, offsetof(struct node_config, mig_strategy), config_mig_strategies,
     false},
    UNSERVED("failOnInitError", "the agent waits for a driver and reports that it has none"),
    UNSERVED("restartOnDeviceUnhealthy", "cards return without a restart"),
    UNSERVED("mpsRoot", CONFIG_MPS_ROOT),
    {"nvidiaDriverRoot", config_path, offsetof(struct node_config, driver_root), NULL, false},
    {"nvidiaDevRoot", config_path, offsetof(struct node_config, dev_root), NULL, false},
    UNSERVED("gdrcopyEnabled", "GDRCopy is not given to containers"),
    UNSERVED("gdsEnabled", "GPUDirect Storage is not given to containers"),
    UNSERVED("mofedEnabled", "Mellanox OFED is not given to containers"),
    UNSERVED("useNodeFeatureAPI", LABELS),
    UNSERVED("deviceDiscoveryStrategy", "cards are found by NVML"),
    {"plugin", config_section, 0, plugin, false},
    {"gfd", config_section, 0, gfd, false},
    YAML_FIELD_END,
};

const struct yaml_field config_imex[] = {
    UNSERVED("channelIDs", "IMEX channels are not given to containers"),
    UNSERVED("required", "IMEX channels are not given to containers"),
    YAML_FIELD_END,
};
