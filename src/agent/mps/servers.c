/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mps/servers.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/num.h"

#define COMM "nvidia-cuda-mps\n" /* 15 characters of the name */
#define ENVIRON_MAX ((size_t) 1 << 20)

static bool has_name(int pid) {
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    char path[64];

    (void) snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    return file_read(path, 32, &text, NULL) >= 0 && strcmp(buf_str(&text), COMM) == 0;
}

static bool has_pipe(int pid, const char *pipe) {
    _cleanup_buf_ struct buf text = BUF_INIT(2 * ENVIRON_MAX);
    char path[64], want[PATH_MAX];

    (void) snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    (void) snprintf(want, sizeof(want), "CUDA_MPS_PIPE_DIRECTORY=%s", pipe);
    if (file_read(path, ENVIRON_MAX, &text, NULL) < 0)
        return false;
    for (size_t at = 0; at < text.len; at += strlen(text.data + at) + 1)
        if (strcmp(text.data + at, want) == 0)
            return true;
    return false;
}

/* The PID may have been reused: the process is checked again after the pidfd is open. */
static bool kill_server(int pid, const char *pipe) {
    _cleanup_close_ int fd = -1;

    if (!has_name(pid) || !has_pipe(pid, pipe))
        return false;
    fd = (int) syscall(SYS_pidfd_open, pid, 0);
    return fd >= 0 && has_pipe(pid, pipe) &&
           syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
}

unsigned mps_servers_kill(const char *pipe) {
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    unsigned count = 0;
    struct dirent *e;
    uint64_t pid;

    while (proc && (e = readdir(proc)))
        if (num_parse_u64(e->d_name, INT_MAX, &pid) == 0)
            count += kill_server((int) pid, pipe);
    return count;
}
