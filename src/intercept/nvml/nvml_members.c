/* SPDX-License-Identifier: Apache-2.0 */

/* The processes of the container: those with a slot in the ledger. A slot has the PID of its
 * process in the PID namespace of that process, which need not be that of the caller. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "intercept/nvml/nvml.h"
#include "intercept/resolve/driver.h"
#include "share/io_core.h"

/* -- PID namespaces ---------------------------------------------------------------------------- */

/* The kernel's number of the first PID namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO). */
#define FIRST_PIDNS 0xeffffffcU

static unsigned int driver_branch(void) {
    char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = "";
    unsigned int branch = 0;

    if (driver.nvmlSystemGetDriverVersion(version, sizeof(version)) != NVML_SUCCESS)
        return UINT32_MAX - 1;
    for (const char *c = version; *c >= '0' && *c <= '9' && branch < 100000; c++)
        branch = 10 * branch + (unsigned int) (*c - '0');
    return branch;
}

/* The driver itself gives PIDs in the caller's namespace, and leaves out the processes that the
 * caller cannot see: in its lists from 545 on, in its samples from 570 on. Before, and in its
 * records as far as is known, it gives the host's PIDs, which have no meaning outside of the host's
 * namespace. */
bool nvml_pids_are_ours(enum nvml_pids kind) {
    static const unsigned int since[] = {
        [PIDS_OF_LISTS] = 545, [PIDS_OF_SAMPLES] = 570, [PIDS_OF_RECORDS] = UINT32_MAX};

    return ledger_pidns() == FIRST_PIDNS || driver_branch() >= since[kind];
}

/* As the kernel writes directory entries (getdents64). */
struct kernel_dirent {
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

/* All digits: the number. 0: anything else. */
static uint32_t number_of(const char *text) {
    uint32_t n = 0;

    for (; *text >= '0' && *text <= '9'; text++)
        n = 10 * n + (uint32_t) (*text - '0');
    return *text ? 0 : n;
}

/* Writes "PID/name". */
static void path_of(char ret[48], const char *pid, const char *name) {
    size_t len = strlen(pid), name_len = strlen(name);

    if (len + name_len + 2 > 48)
        len = name_len = 0;
    memcpy(ret, pid, len);
    ret[len] = '/';
    memcpy(ret + len + 1, name, name_len);
    ret[len + 1 + name_len] = '\0';
}

/* The PID namespace of a process; 0: we may not know. */
static uint32_t pidns_of(int proc, const char *pid) {
    char path[48], link[32];
    uint32_t number = 0;
    ssize_t n;

    path_of(path, pid, "ns/pid");
    n = readlinkat(proc, path, link, sizeof(link));
    for (ssize_t i = 0; i < n; i++)
        if (link[i] >= '0' && link[i] <= '9')
            number = 10 * number + (uint32_t) (link[i] - '0');
    return number;
}

/* The PID of a process in its own namespace: the last of its "NSpid:" line. 0: in ours. */
static uint32_t innermost_pid(int proc, const char *pid) {
    char path[48], text[4096];
    unsigned int numbers = 0;
    uint32_t last = 0;
    const char *c;
    ssize_t n;
    int fd;

    path_of(path, pid, "status");
    fd = io_openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = io_read(fd, text, sizeof(text) - 1);
    io_close(fd);
    text[n > 0 ? n : 0] = '\0';
    c = strstr(text, "\nNSpid:");
    if (!c)
        return 0;
    for (c += 7; *c == '\t'; numbers++) {
        last = 0;
        for (c++; *c >= '0' && *c <= '9'; c++)
            last = 10 * last + (uint32_t) (*c - '0');
    }
    return numbers > 1 ? last : 0;
}

static bool is_process(int proc, const char *name, uint32_t pid, uint32_t pidns) {
    uint32_t theirs;

    if (innermost_pid(proc, name) != pid)
        return false;
    theirs = pidns_of(proc, name);
    return theirs == 0 || theirs == pidns;
}

/* The PID that a process of another namespace has in ours; 0: it cannot be seen from here. */
static uint32_t pid_here(uint32_t pid, uint32_t pidns) {
    int proc = io_open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t buffer[512];
    uint32_t found = 0;
    long n;

    if (proc < 0)
        return 0;
    while (!found && (n = syscall(SYS_getdents64, proc, buffer, sizeof(buffer))) > 0)
        for (long at = 0; !found && at < n;) {
            const struct kernel_dirent *entry =
                (const struct kernel_dirent *) (const void *) ((const char *) buffer + at);
            uint32_t number = number_of(entry->name);

            if (number && is_process(proc, entry->name, pid, pidns))
                found = number;
            at += entry->size;
        }
    io_close(proc);
    return found;
}

/* -- members ----------------------------------------------------------------------------------- */

static uint64_t booked_in(const struct ledger_slot *slot, uint64_t devices) {
    uint64_t booked = 0;

    for (int i = part_next(&devices); i >= 0; i = part_next(&devices))
        booked += __atomic_load_n(&slot->cell[i].booked.lo, __ATOMIC_RELAXED);
    return booked;
}

const struct member *members_find(const struct members *members, unsigned int pid) {
    for (unsigned int i = 0; i < members->n; i++)
        if (members->one[i].pid == pid)
            return &members->one[i];
    return NULL;
}

/* A process has a slot for each copy of this library in it, and one for what it has given away. */
static void add(struct members *members, uint32_t pid, uint64_t booked) {
    struct member *member = (struct member *) (uintptr_t) members_find(members, pid);

    if (!member) {
        member = &members->one[members->n++];
        *member = (struct member){.pid = pid};
    }
    member->booked += booked;
}

/* A forked child keeps its parent's slot, and the memory, but no process has that PID. */
static bool has_ended(uint32_t pid) {
    return kill((pid_t) pid, 0) < 0 && errno == ESRCH;
}

static void fill(const struct part *part, const struct ledger_file *ledger,
                 struct members *members) {
    uint32_t slot[MEMBERS_MAX], pidns = ledger_pidns();
    size_t n = ledger_living(ledger, share_ledger_path(), slot, MEMBERS_MAX);

    for (size_t i = 0; i < n; i++) {
        const struct ledger_slot *s = &ledger->slot[slot[i]];
        uint32_t pid = __atomic_load_n(&s->pid, __ATOMIC_RELAXED);
        uint32_t theirs = __atomic_load_n(&s->pidns, __ATOMIC_RELAXED);

        if (pidns && theirs && pidns != theirs)
            pid = pid_here(pid, theirs);
        else if (has_ended(pid))
            pid = 0;
        if (pid)
            add(members, pid, booked_in(s, part->devices));
    }
}

struct members *members_new(const struct part *part) {
    struct members *members = calloc(1, sizeof(*members));
    const struct ledger_file *ledger = members ? share_ledger(part->share) : NULL;
    int saved = errno;

    if (ledger)
        fill(part, ledger, members);
    errno = saved;
    return members;
}
