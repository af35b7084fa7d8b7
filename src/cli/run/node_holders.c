/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/node_holders.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "cli/run/proc_stat.h"

#define NODES "/dev/nvidia"

static bool is_listed(const struct card_use *use, uint32_t pid) {
    for (size_t i = 0; i < use->npids; i++)
        if (use->pids[i] == pid)
            return true;
    return false;
}

static bool has_node_open(uint32_t pid) {
    const char *simulated = getenv("ALIQUOT_SIM_DIR");
    _cleanup_closedir_ DIR *dir = NULL;
    const struct dirent *e;
    char path[64], target[256];

    (void) snprintf(path, sizeof(path), "/proc/%u/fd", pid);
    dir = opendir(path);
    while (dir && (e = readdir(dir))) {
        ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);

        target[n > 0 ? n : 0] = '\0';
        if (strncmp(target, NODES, strlen(NODES)) == 0 ||
            (simulated && *simulated && strncmp(target, simulated, strlen(simulated)) == 0))
            return true;
    }
    return false;
}

bool node_holders_any(const struct card_use *use) {
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    const struct dirent *e;
    uint64_t pid;

    while (proc && (e = readdir(proc)))
        if (num_parse_u64(e->d_name, INT32_MAX, &pid) == 0 && !is_listed(use, (uint32_t) pid) &&
            proc_descends((uint32_t) pid) && !proc_stat_of((uint32_t) pid).ending &&
            has_node_open((uint32_t) pid))
            return true;
    return false;
}
