/* SPDX-License-Identifier: Apache-2.0 */

/* Entries of a node in the lists of gpu-manager and HAMi. */

#include <stdlib.h>
#include <string.h>

#include "agent/config/sections.h"
#include "base/err.h"
#include "model/scaling.h"

#define UNSERVED(key, reason)                                                                      \
    { key, config_unserved, 0, reason, false }
#define DETECTED "it is detected"

/* Below 1, too: what is left stays free. */
static int read_factor(const struct yaml *v, void *target, const void *arg, struct err *err) {
    uint32_t *ret = target;
    double factor = v->type == YAML_NUMBER ? strtod(v->text, NULL) : 0;

    (void) arg;
    if (!(factor * SCALING_ONE >= 1) || factor * SCALING_ONE > SCALING_MAX)
        return yaml_error(v, err, "expected a number above 0, up to %u, not '%.40s'",
                          SCALING_MAX / SCALING_ONE, v->text ? v->text : yaml_type_name(v));
    *ret = (uint32_t) (factor * SCALING_ONE + 0.5);
    return 0;
}

static int read_operating_mode(const struct yaml *v, void *target, const void *arg,
                               struct err *err) {
    static const char *const words[] = {"hami-core", "mps", "mig", NULL};
    static const int modes[] = {CONFIG_MODE_SHARE, CONFIG_MODE_MPS, CONFIG_MODE_MIG};
    int *ret = target, word = 0, r = yaml_word(v, &word, words, err);

    (void) arg;
    if (r == 0)
        *ret = modes[word];
    return r;
}

const struct yaml_field config_gpu_manager[] = {
    {"name", NULL, 0, NULL, true},
    {"deviceMemoryScaling", read_factor, offsetof(struct node_config, memory_scaling), NULL, false},
    UNSERVED("cgroupDriver", DETECTED),
    UNSERVED("containerRuntimeEndpoint", DETECTED),
    YAML_FIELD_END,
};

const struct yaml_field config_hami[] = {
    {"name", NULL, 0, NULL, true},
    {"operatingmode", read_operating_mode, offsetof(struct node_config, mode), NULL, false},
    {"devicememoryscaling", read_factor, offsetof(struct node_config, memory_scaling), NULL, false},
    {"migstrategy", yaml_word, offsetof(struct node_config, mig_strategy), config_mig_strategies,
     false},
    UNSERVED("devicesplitcount", "the number of shares of a card is not limited by a setting"),
    UNSERVED("devicecorescaling", "compute is never oversubscribed, use a compute policy"),
    UNSERVED("preconfigureddevicememory", "the driver reports the memory of a card"),
    UNSERVED("enablenumatopology", "annotation elasticgpu.io/topology selects it by pod"),
    UNSERVED("enablegetpreferredallocation", "aliquot-scheduler chooses the cards"),
    UNSERVED("filterdevices", "all cards are served; section aliquot.cards sets what each is"),
    YAML_FIELD_END,
};
