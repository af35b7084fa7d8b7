/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/node_config.h"
#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_(node_config_freep) struct node_config *c = NULL;
    struct err err = {0};

    if (node_config_parse((const char *) data, size, "node-1", &c, &err) < 0) {
        if (c || !err.text[0])
            abort();
        return 0;
    }
    for (size_t i = 0; i < c->nreplicas; i++)
        if (c->replicas[i].replicas < 2 || strncmp(c->replicas[i].rename, "nvidia.com/", 11) != 0 ||
            !memchr(c->replicas[i].rename, 0, CONFIG_NAME_MAX))
            abort();
    if (c->health.interval_ms == 0 || c->health.deadline_ms < c->health.interval_ms)
        abort();
    return 0;
}
