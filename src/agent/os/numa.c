/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/os/numa.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/num.h"
#include "base/text.h"

#define LIST_MAX 65536

static bool read_number(const char **at, uint64_t *ret) {
    size_t len = strspn(*at, "0123456789");
    char digits[8];

    if (len == 0 || len >= sizeof(digits))
        return false;
    text_copy(digits, len + 1, *at);
    *at += len;
    return num_parse_u64(digits, NUMA_CPUS_MAX - 1, ret) == 0;
}

void numa_add_list(struct numa_cpus *cpus, int8_t node, const char *list) {
    uint64_t first, last;

    while (read_number(&list, &first)) {
        last = first;
        if (*list == '-') {
            list++;
            if (!read_number(&list, &last))
                return;
        }
        for (uint64_t cpu = first; cpu <= last; cpu++)
            cpus->node[cpu] = node;
        if (*list != ',')
            return;
        list++;
    }
}

void numa_read(const char *sys_dir, struct numa_cpus *ret) {
    memset(ret, -1, sizeof(*ret));
    for (int node = 0; node < NUMA_NODES_MAX; node++) {
        _cleanup_buf_ struct buf text = BUF_INIT(LIST_MAX);
        char path[512];

        (void) snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist", sys_dir, node);
        if (file_read(path, LIST_MAX - 1, &text, NULL) == 0)
            numa_add_list(ret, (int8_t) node, buf_str(&text));
    }
}

unsigned numa_count(const struct numa_cpus *cpus) {
    uint64_t seen = 0;

    for (size_t i = 0; i < NUMA_CPUS_MAX; i++)
        if (cpus->node[i] >= 0)
            seen |= UINT64_C(1) << cpus->node[i];
    return (unsigned) __builtin_popcountll(seen);
}

int numa_of_cpu(const struct numa_cpus *cpus, int64_t cpu) {
    return cpu >= 0 && cpu < NUMA_CPUS_MAX ? cpus->node[cpu] : -1;
}
