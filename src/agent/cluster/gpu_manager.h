/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The entry of this node in the ConfigMap kube-system/gpu-manager-config, which clusters with
 * gpu-manager's fork have. Only deviceMemoryScaling has an effect; the runtime's endpoint and the
 * cgroup driver are detected. Read once, when the agent starts. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct gpu_manager;
struct kube_client;

struct gpu_manager_config {
    bool found;           /* it has an entry for the node */
    uint32_t scaling;     /* thousandths of the cards' memory to offer; 0: not set */
    const char *cgroup;   /* "": not set; valid as long as the text */
    const char *endpoint; /* the same */
};

/* Reads the text of its key config.json. -EINVAL for what is no such configuration. The texts in
 * *ret are copied to `strings`. */
int gpu_manager_parse(const char *text, size_t len, const char *node, char strings[static 512],
                      struct gpu_manager_config *ret, struct err *err);

/* Memory to offer, in thousandths of the cards' memory: `option` of the agent (0: not given), else
 * that of the ConfigMap, else 1,000. */
uint32_t gpu_manager_scaling(uint32_t option, const struct gpu_manager_config *config);

/* Asks the API server until it answers, then calls `on_read` once, with an entry that is not found
 * where there is none, or none that can be used. */
int gpu_manager_start(struct kube_client *client, const char *node,
                      void (*on_read)(const struct gpu_manager_config *config, void *userdata),
                      void *userdata, struct gpu_manager **ret, struct err *err);
void gpu_manager_stop(struct gpu_manager *m, void (*on_closed)(void *userdata), void *userdata);
