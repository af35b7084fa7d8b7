/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/orphans.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "abi/nvml.h"
#include "base/cleanup.h"
#include "share/orphaned.h"

/* Between two looks, which is what it takes to credit. */
#define LOOK_NS 100000000
/* After a driver that could not be asked. */
#define RETRY_S 1
#define PROCESSES_MAX 512

#define NVML_FN(symbol, params, args) typedef nvmlReturn_t symbol##_fn params;
#include "abi/hooks.def"

static struct {
    char path[96];
    struct share_limits share;
    uint32_t running;
    struct orphaned account[LEDGER_DEVICES];
} watch;

/* ---- the ledger ---- */

static bool any_orphaned(struct ledger *ledger, const struct share_limits *share) {
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < share->ndevices && i < LEDGER_DEVICES && bytes == 0; i++)
        (void) ledger_get_orphaned(ledger, i, &bytes);
    return bytes > 0;
}

static bool has_card_account(uint32_t device) {
    return ledger_has_card_account(watch.share.more[device].physical_bytes, watch.share.ndevices);
}

static bool begin_account(struct ledger *ledger, unsigned int account) {
    struct orphaned *o = &watch.account[account];
    uint64_t bytes = o->now;

    /* In motion: at least what there was, since only this thread takes from it. */
    (void) ledger_get_orphaned(ledger, account, &bytes);
    orphaned_begin(o, bytes);
    return o->now > 0;
}

static void end_account(struct ledger *ledger, unsigned int account, uint64_t rest, bool still) {
    uint64_t back = orphaned_end(&watch.account[account], rest, still);

    if (back > 0)
        (void) ledger_credit(ledger, account, back);
}

/* Whether nothing was booked since `before`. */
static bool stood_still(struct ledger *ledger, const struct ledger_usage *before, uint32_t device) {
    struct ledger_usage now;

    return ledger_snapshot(ledger, &now) == 0 && now.operation[device] == before->operation[device];
}

/* ---- the driver ---- */

/* A process that is ending, and one that cannot be asked, may have been counted already as having
 * left its memory behind. */
static bool is_ending(unsigned int pid) {
    _cleanup_close_ int fd = -1;
    char path[64], text[1024], state;
    unsigned int flags;
    const char *at;
    ssize_t n;

    (void) snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    at = strrchr(text, ')');
    return !at || sscanf(at, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2 || state == 'Z' ||
           (flags & 0x4) != 0; /* PF_EXITING */
}

#define LOOK_UP(library, symbol) symbol##_fn *symbol = (symbol##_fn *) dlsym(library, #symbol)

/* What a card has in use, less what the driver keeps for itself where it says so. */
static bool read_used(void *nvml, nvmlDevice_t device, uint64_t *ret) {
    LOOK_UP(nvml, nvmlDeviceGetMemoryInfo);
    LOOK_UP(nvml, nvmlDeviceGetMemoryInfo_v2);
    nvmlMemory_v2_t second = {.version = NVML_STRUCT_VERSION_OF(nvmlMemory_v2_t, 2)};
    nvmlMemory_t first;

    if (nvmlDeviceGetMemoryInfo_v2 && nvmlDeviceGetMemoryInfo_v2(device, &second) == NVML_SUCCESS)
        *ret = second.used;
    else if (nvmlDeviceGetMemoryInfo && nvmlDeviceGetMemoryInfo(device, &first) == NVML_SUCCESS)
        *ret = first.used;
    else
        return false;
    return true;
}

typedef nvmlReturn_t list_fn(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *);

static uint64_t used_by(list_fn *list, nvmlDevice_t device) {
    static nvmlProcessInfo_t process[PROCESSES_MAX];
    unsigned int n = PROCESSES_MAX;
    uint64_t sum = 0;

    if (!list || list(device, &n, process) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < n; i++)
        if (process[i].usedGpuMemory != NVML_VALUE_NOT_AVAILABLE_ULL && !is_ending(process[i].pid))
            sum += process[i].usedGpuMemory;
    return sum;
}

/* What a card has in use for no living process. */
static bool read_rest(void *nvml, const char *uuid, uint64_t *ret) {
    LOOK_UP(nvml, nvmlDeviceGetHandleByUUID);
    LOOK_UP(nvml, nvmlDeviceGetComputeRunningProcesses_v3);
    LOOK_UP(nvml, nvmlDeviceGetGraphicsRunningProcesses_v3);
    nvmlDevice_t device;
    uint64_t used, known, later;

    if (!nvmlDeviceGetHandleByUUID || nvmlDeviceGetHandleByUUID(uuid, &device) != NVML_SUCCESS ||
        !read_used(nvml, device, &used))
        return false;
    known = used_by(nvmlDeviceGetComputeRunningProcesses_v3, device) +
            used_by(nvmlDeviceGetGraphicsRunningProcesses_v3, device);
    /* Memory that came or went meanwhile is rather in the card's figure than in a process's. */
    if (!read_used(nvml, device, &later))
        return false;
    used = later > used ? later : used;
    *ret = used > known ? used - known : 0;
    return true;
}

/* ---- the thread ---- */

/* Returns whether anything is orphaned yet. */
static bool look(struct ledger *ledger, void *nvml) {
    bool any = false;

    for (uint32_t i = 0; i < watch.share.ndevices; i++) {
        bool orphaned = begin_account(ledger, i);
        struct ledger_usage before;
        bool readable = ledger_snapshot(ledger, &before) == 0, still;
        uint64_t rest;

        if (has_card_account(i))
            orphaned |= begin_account(ledger, ledger_card_account(i));
        any |= orphaned;
        if (!orphaned || !read_rest(nvml, watch.share.device[i].uuid, &rest))
            continue;
        still = readable && stood_still(ledger, &before, i);
        end_account(ledger, i, rest, still);
        if (has_card_account(i))
            end_account(ledger, ledger_card_account(i), rest, still);
    }
    return any;
}

static void *run(void *arg) {
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    struct ledger *ledger = NULL;
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool failed = !nvml;
    struct err err;

    (void) arg;
    if (nvml && ledger_open(watch.path, &ledger, &err) == 0) {
        LOOK_UP(nvml, nvmlInit_v2);
        LOOK_UP(nvml, nvmlShutdown);

        if (nvmlInit_v2 && nvmlShutdown && nvmlInit_v2() == NVML_SUCCESS) {
            while (look(ledger, nvml))
                (void) nanosleep(&pause, NULL);
            (void) nvmlShutdown();
        } else {
            failed = true;
        }
    }
    (void) ledger_free(ledger);
    if (failed)
        (void) sleep(RETRY_S);
    __atomic_store_n(&watch.running, 0, __ATOMIC_RELEASE);
    return NULL;
}

void orphans_look(struct ledger *ledger, const char *path, const struct share_limits *share) {
    sigset_t all, before;
    pthread_t thread;

    if (__atomic_load_n(&watch.running, __ATOMIC_ACQUIRE) || !any_orphaned(ledger, share))
        return;
    (void) snprintf(watch.path, sizeof(watch.path), "%s", path);
    watch.share = *share;
    __atomic_store_n(&watch.running, 1, __ATOMIC_RELEASE);
    (void) sigfillset(&all);
    (void) sigdelset(&all, SIGBUS); /* a truncated ledger */
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    if (pthread_create(&thread, NULL, run, NULL) == 0)
        (void) pthread_detach(thread);
    else
        __atomic_store_n(&watch.running, 0, __ATOMIC_RELEASE);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
}
