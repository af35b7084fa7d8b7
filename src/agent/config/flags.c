/* SPDX-License-Identifier: Apache-2.0 */

/* Sections `flags` and `imex` of NVIDIA's file. */

#include <string.h>

#include "agent/config/sections.h"
#include "base/err.h"

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
    {"gdrcopyEnabled", yaml_bool, offsetof(struct node_config, gdrcopy), NULL, false},
    {"gdsEnabled", yaml_bool, offsetof(struct node_config, gds), NULL, false},
    {"mofedEnabled", yaml_bool, offsetof(struct node_config, mofed), NULL, false},
    UNSERVED("useNodeFeatureAPI", LABELS),
    UNSERVED("deviceDiscoveryStrategy", "cards are found by NVML"),
    {"plugin", config_section, 0, plugin, false},
    {"gfd", config_section, 0, gfd, false},
    YAML_FIELD_END,
};

/* As NVIDIA's plugin: none, or channel 0, which is every node's. */
static int read_channels(const struct yaml *v, void *target, const void *arg, struct err *err) {
    bool *ret = target;

    (void) arg;
    if (v->type == YAML_LIST && v->size == 0)
        return 0;
    if (v->type != YAML_LIST || v->size != 1 || !v->first->text || strcmp(v->first->text, "0") != 0)
        return yaml_error(v, err, "expected [] or [0]: there is no other channel");
    *ret = true;
    return 0;
}

const struct yaml_field config_imex[] = {
    {"channelIDs", read_channels, offsetof(struct node_config, imex), NULL, false},
    {"required", yaml_bool, offsetof(struct node_config, imex_required), NULL, false},
    YAML_FIELD_END,
};

static const char *reason_in(const struct yaml_field *fields, const char *key) {
    for (; fields->key; fields++)
        if (strcmp(fields->key, key) == 0)
            return fields->arg;
    return NULL;
}

const char *config_unserved_reason(const char *key) {
    const char *reason = reason_in(config_flags, key);

    reason = reason ? reason : reason_in(plugin, key);
    return reason ? reason : reason_in(gfd, key);
}
