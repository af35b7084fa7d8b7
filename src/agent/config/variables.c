/* SPDX-License-Identifier: Apache-2.0 */

/* Variables by which NVIDIA's device plugin, GPU feature discovery and config-manager are
 * configured, beside those that an option of the agent has for its default. */

#include <string.h>

#include "agent/config/sections.h"
#include "base/err.h"

#define NODE_CONFIG(member) offsetof(struct node_config, member)
#define FLAG(name, member)                                                                         \
    { name, NULL, NULL, read_flag, NODE_CONFIG(member) }
#define UNSERVED(name, key)                                                                        \
    { name, key, NULL, NULL, 0 }
#define OWN(name, reason)                                                                          \
    { name, NULL, reason, NULL, 0 }
#define BY_API "the ConfigMap is read through the API server"

/* As Go's strconv.ParseBool. */
static int read_flag(const char *value, void *target) {
    static const char *const words[] = {"1", "t", "T", "true",  "TRUE",  "True",
                                        "0", "f", "F", "false", "FALSE", "False"};
    bool *ret = target;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(value, words[i]) != 0)
            continue;
        *ret = i < 6;
        return 0;
    }
    return -EINVAL;
}

static int read_channels(const char *value, void *target) {
    bool *ret = target;

    *ret = strcmp(value, "0") == 0;
    return *ret ? 0 : -EINVAL;
}

static const struct {
    const char *name;
    const char *key; /* of the file, which has no effect: its reason is the variable's; or NULL */
    const char *reason; /* why it has no effect; or NULL */
    int (*read)(const char *value, void *target);
    size_t offset;
} variables[] = {
    FLAG("GDS_ENABLED", gds),
    FLAG("MOFED_ENABLED", mofed),
    FLAG("GDRCOPY_ENABLED", gdrcopy),
    FLAG("IMEX_REQUIRED", imex_required),
    {"IMEX_CHANNEL_IDS", NULL, NULL, read_channels, NODE_CONFIG(imex)},
    UNSERVED("FAIL_ON_INIT_ERROR", "failOnInitError"),
    UNSERVED("RESTART_ON_DEVICE_UNHEALTHY", "restartOnDeviceUnhealthy"),
    UNSERVED("MPS_ROOT", "mpsRoot"),
    UNSERVED("PASS_DEVICE_SPECS", "passDeviceSpecs"),
    UNSERVED("DEVICE_LIST_STRATEGY", "deviceListStrategy"),
    UNSERVED("DEVICE_ID_STRATEGY", "deviceIDStrategy"),
    UNSERVED("CDI_ANNOTATION_PREFIX", "cdiAnnotationPrefix"),
    UNSERVED("CDI_FEATURE_FLAGS", "cdiFeatureFlags"),
    UNSERVED("NVIDIA_CTK_PATH", "nvidiaCTKPath"),
    UNSERVED("NVIDIA_CDI_HOOK_PATH", "nvidiaCDIHookPath"),
    UNSERVED("CONTAINER_DRIVER_ROOT", "containerDriverRoot"),
    UNSERVED("DRIVER_ROOT_CTR_PATH", "containerDriverRoot"),
    UNSERVED("DEVICE_DISCOVERY_STRATEGY", "deviceDiscoveryStrategy"),
    UNSERVED("USE_NODE_FEATURE_API", "useNodeFeatureAPI"),
    UNSERVED("GFD_USE_NODE_FEATURE_API", "useNodeFeatureAPI"),
    UNSERVED("GFD_FAIL_ON_INIT_ERROR", "failOnInitError"),
    UNSERVED("GFD_ONESHOT", "oneshot"),
    UNSERVED("GFD_NO_TIMESTAMP", "noTimestamp"),
    UNSERVED("GFD_SLEEP_INTERVAL", "sleepInterval"),
    UNSERVED("GFD_MACHINE_TYPE_FILE", "machineTypeFile"),
    OWN("KUBELET_SOCKET", "option --kubelet-dir is kubelet's directory"),
    OWN("CONFIG_FILE_SRCDIR", BY_API),
    OWN("CONFIG_FILE_DST", BY_API),
    OWN("SEND_SIGNAL", BY_API),
    OWN("PROCESS_TO_SIGNAL", BY_API),
};
_Static_assert(sizeof(variables) / sizeof(variables[0]) == CONFIG_VARIABLES, "number of rows");

const char *config_variable_name(size_t i) {
    return variables[i].name;
}

int config_variables_apply(struct node_config *c, const char *const *values, struct err *err) {
    for (size_t i = 0; i < CONFIG_VARIABLES; i++) {
        const char *name = variables[i].name;

        if (!values[i])
            continue;
        if (!variables[i].read)
            buf_printf(&c->notes, "$%s has no effect here: %s\n", name,
                       variables[i].reason ? variables[i].reason
                                           : config_unserved_reason(variables[i].key));
        else if (variables[i].read(values[i], (char *) c + variables[i].offset) < 0)
            return err_set(err, EINVAL, "$%s is not '%.64s': expected %s", name, values[i],
                           variables[i].read == read_flag ? "true or false"
                                                          : "0, the only channel");
    }
    return 0;
}
