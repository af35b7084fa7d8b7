/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/node_cpus.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/text.h"

bool node_cpus_known(const struct node_cpus *cpus) {
    for (size_t i = 0; i < NODE_CPUS_NUMA_NODES; i++)
        if (cpus->all[i] > 0)
            return true;
    return false;
}

uint32_t node_cpus_taken(const struct node_cpus *cpus) {
    uint32_t n = 0;
    for (size_t i = 0; i < NODE_CPUS_NUMA_NODES; i++)
        n += (uint32_t) (cpus->all[i] - cpus->free[i]);
    return n;
}

/* The number before `end`, behind which *at is then. */
static bool read_number(char **at, char end, uint64_t max, uint64_t *ret) {
    char *number = *at, *stop = strchr(number, end);
    if (!stop)
        return false;
    *at = stop + (end != '\0');
    *stop = '\0';
    return num_parse_u64(number, max, ret) == 0;
}

static bool read_item(const char *item, size_t len, struct node_cpus *ret) {
    char text[sizeof("63=4096/4096")], *at = text;
    uint64_t numa, free, all;
    if (len >= sizeof(text))
        return false;
    text_copy(text, len + 1, item);
    if (!read_number(&at, '=', NODE_CPUS_NUMA_NODES - 1, &numa) ||
        !read_number(&at, '/', NODE_CPUS_MAX, &free) ||
        !read_number(&at, '\0', NODE_CPUS_MAX, &all) || free > all)
        return false;
    ret->all[numa] = (uint16_t) all;
    ret->free[numa] = (uint16_t) free;
    return true;
}

void node_cpus_read(const char *text, struct node_cpus *ret) {
    struct node_cpus cpus = {0};
    const char *item;
    size_t len;
    while (text_item(&text, &item, &len))
        if (!read_item(item, len, &cpus)) {
            cpus = (struct node_cpus){0};
            break;
        }
    *ret = cpus;
}

void node_cpus_write(const struct node_cpus *cpus, char ret[static NODE_CPUS_TEXT_MAX]) {
    size_t len = 0;
    ret[0] = '\0';
    for (unsigned i = 0; i < NODE_CPUS_NUMA_NODES; i++)
        if (cpus->all[i] > 0)
            len += (size_t) snprintf(ret + len, NODE_CPUS_TEXT_MAX - len, "%s%u=%u/%u",
                                     len > 0 ? "," : "", i, cpus->free[i], cpus->all[i]);
}
