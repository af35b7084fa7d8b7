/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/resources.h"

#include <string.h>

#include "kube/quantity.h"

/* More than any node has, and few enough that sums of all containers stay within 64 bits. */
#define AMOUNT_MAX (UINT64_C(1) << 52)

static uint64_t bounded(int r, uint64_t value) {
    return r < 0 ? 0 : value < AMOUNT_MAX ? value : AMOUNT_MAX;
}

struct cpu_memory resources_read(struct json list) {
    const char *cpu = json_string(json_get(list, "cpu"));
    const char *memory = json_string(json_get(list, "memory"));
    struct cpu_memory amount = {0};
    uint64_t value = 0;
    if (cpu)
        amount.cpu = bounded(quantity_parse_milli(cpu, strlen(cpu), &value), value);
    value = 0;
    if (memory)
        amount.memory = bounded(quantity_parse(memory, strlen(memory), &value), value);
    return amount;
}

static struct cpu_memory sum(struct cpu_memory a, struct cpu_memory b) {
    return (struct cpu_memory){bounded(0, a.cpu + b.cpu), bounded(0, a.memory + b.memory)};
}

static struct cpu_memory larger(struct cpu_memory a, struct cpu_memory b) {
    return (struct cpu_memory){a.cpu > b.cpu ? a.cpu : b.cpu,
                               a.memory > b.memory ? a.memory : b.memory};
}

static struct cpu_memory of_container(struct json container) {
    return resources_read(JSON_PATH(container, "resources", "requests"));
}

struct cpu_memory resources_of_pod(struct json spec) {
    struct cpu_memory sidecars = {0}, peak = {0}, apps = {0};
    struct json_iter it = json_iter(json_get(spec, "initContainers"));
    struct json container;
    while (json_next(&it, NULL, &container)) {
        const char *policy = json_string(json_get(container, "restartPolicy"));
        if (policy && strcmp(policy, "Always") == 0)
            sidecars = sum(sidecars, of_container(container));
        else
            peak = larger(peak, sum(sidecars, of_container(container)));
    }
    it = json_iter(json_get(spec, "containers"));
    while (json_next(&it, NULL, &container))
        apps = sum(apps, of_container(container));
    return sum(larger(peak, sum(sidecars, apps)), resources_read(json_get(spec, "overhead")));
}
