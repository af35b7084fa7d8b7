/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/proc_stat.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/proc.h"

struct proc_stat proc_stat_of(uint32_t pid) {
    _cleanup_close_ int fd = -1;
    char path[64], text[1024];
    unsigned int parent = 0;
    const char *at;
    ssize_t n;

    (void) snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    /* The name is in parentheses and may contain any character. */
    at = strrchr(text, ')');
    if (at)
        (void) sscanf(at, ") %*c %u", &parent);
    return (struct proc_stat){parent, proc_stat_is_ending(text)};
}

#define GENERATIONS_MAX 1024

bool proc_descends(uint32_t pid) {
    uint32_t self = (uint32_t) getpid();

    for (int i = 0; pid > 1 && i < GENERATIONS_MAX; i++) {
        pid = proc_stat_of(pid).parent;
        if (pid == self)
            return true;
    }
    return false;
}
