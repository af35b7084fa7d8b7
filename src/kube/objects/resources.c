/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/resources.h"

#include <string.h>

#include "model/quantity.h"

/* More than any node has, and few enough that sums of all containers stay within 64 bits. */
#define AMOUNT_MAX (UINT64_C(1) << 52)
#define EXCLUSIVE_MAX 4096 /* CPUs of a container */

static uint64_t bounded(uint64_t value) {
    return value < AMOUNT_MAX ? value : AMOUNT_MAX;
}

/* 0 for what is missing or no quantity. */
static uint64_t read_one(const char *text, int (*parse)(const char *, size_t, uint64_t *)) {
    uint64_t value;
    return text && parse(text, strlen(text), &value) == 0 ? bounded(value) : 0;
}

struct cpu_memory resources_read(struct json list) {
    return (struct cpu_memory){
        .cpu = read_one(json_string(json_get(list, "cpu")), quantity_parse_milli),
        .memory = read_one(json_string(json_get(list, "memory")), quantity_parse)};
}

static struct cpu_memory sum(struct cpu_memory a, struct cpu_memory b) {
    return (struct cpu_memory){.cpu = bounded(a.cpu + b.cpu),
                               .memory = bounded(a.memory + b.memory)};
}

static struct cpu_memory larger(struct cpu_memory a, struct cpu_memory b) {
    return (struct cpu_memory){.cpu = a.cpu > b.cpu ? a.cpu : b.cpu,
                               .memory = a.memory > b.memory ? a.memory : b.memory};
}

static struct cpu_memory of_container(struct json container) {
    return resources_read(JSON_PATH(container, "resources", "requests"));
}

static bool is_sidecar(struct json container) {
    return json_is_string(json_get(container, "restartPolicy"), "Always");
}

struct cpu_memory resources_of_pod(struct json spec) {
    struct cpu_memory sidecars = {0}, peak = {0}, apps = {0};
    struct json_iter it = json_iter(json_get(spec, "initContainers"));
    struct json container;
    while (json_next(&it, NULL, &container)) {
        if (is_sidecar(container))
            sidecars = sum(sidecars, of_container(container));
        else
            peak = larger(peak, sum(sidecars, of_container(container)));
    }
    it = json_iter(json_get(spec, "containers"));
    while (json_next(&it, NULL, &container))
        apps = sum(apps, of_container(container));
    return sum(larger(peak, sum(sidecars, apps)), resources_read(json_get(spec, "overhead")));
}

bool resources_guaranteed(struct json pod) {
    return json_is_string(JSON_PATH(pod, "status", "qosClass"), "Guaranteed");
}

/* kubelet gives whole CPUs only. */
uint32_t resources_exclusive(struct json container) {
    uint64_t cpu = of_container(container).cpu;
    return cpu % 1000 == 0 && cpu / 1000 <= EXCLUSIVE_MAX ? (uint32_t) (cpu / 1000) : 0;
}

/* What an init container has goes to the containers after it. */
uint32_t resources_exclusive_of_pod(struct json spec) {
    struct json_iter it = json_iter(json_get(spec, "initContainers"));
    struct json container;
    uint32_t n = 0;
    while (json_next(&it, NULL, &container))
        n += is_sidecar(container) ? resources_exclusive(container) : 0;
    it = json_iter(json_get(spec, "containers"));
    while (json_next(&it, NULL, &container))
        n += resources_exclusive(container);
    return n;
}
