/* SPDX-License-Identifier: Apache-2.0 */

/* NVML's process lists: of the container's own processes only.
 *
 * From 545 on the driver speaks of processes in the caller's PID namespace and leaves out those
 * that it does not hold, so its list is right but for processes of others that share the namespace:
 * those that have no slot in the ledger are taken out. An older driver gives PIDs of the host,
 * which mean nothing here: there the list is made from the ledger. */

#include <stdlib.h>
#include <string.h>

#include "intercept/driver.h"
#include "intercept/nvml.h"

#define DRIVER_THAT_TRANSLATES 545
#define PROCESSES_MAX LEDGER_SLOTS

struct members {
    int device;
    size_t n;
    uint32_t slot[PROCESSES_MAX];
    uint32_t pid[PROCESSES_MAX];
};

static bool driver_translates(void) {
    char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = "";
    int major = 0;

    if (driver.nvmlSystemGetDriverVersion(version, sizeof(version)) != NVML_SUCCESS)
        return true;
    for (const char *c = version; *c >= '0' && *c <= '9' && major < 100000; c++)
        major = 10 * major + (*c - '0');
    return major >= DRIVER_THAT_TRANSLATES;
}

/* The container's processes on this device; false: there is no share, or not on this device. */
static bool members_get(nvmlDevice_t device, struct members *ret) {
    struct share *share = share_view();
    const struct ledger_file *ledger;

    if (!share)
        return false;
    ret->n = 0;
    ret->device = nvml_device(share, device);
    if (ret->device < 0)
        return false;
    ledger = share_ledger(share);
    if (!ledger)
        return true;
    ret->n = ledger_living(ledger, share_ledger_path(), ret->slot, PROCESSES_MAX);
    for (size_t i = 0; i < ret->n; i++)
        ret->pid[i] = __atomic_load_n(&ledger->slot[ret->slot[i]].pid, __ATOMIC_RELAXED);
    return true;
}

static bool is_member(const struct members *members, unsigned int pid) {
    for (size_t i = 0; i < members->n; i++)
        if (members->pid[i] == pid)
            return true;
    return false;
}

/* The list as the ledger has it; one process may have several slots. */
static unsigned int list_from_ledger(const struct members *members, nvmlProcessInfo_v2_t *list) {
    const struct ledger_file *ledger = share_ledger(share_view());
    unsigned int n = 0;

    for (size_t i = 0; ledger && i < members->n; i++) {
        uint64_t booked = __atomic_load_n(
            &ledger->slot[members->slot[i]].cell[members->device].booked.lo, __ATOMIC_RELAXED);
        unsigned int at = 0;

        if (booked == 0)
            continue;
        while (at < n && list[at].pid != members->pid[i])
            at++;
        if (at == n)
            list[n++] =
                (nvmlProcessInfo_v2_t){members->pid[i], 0, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
        list[at].usedGpuMemory += booked;
    }
    return n;
}

/* The lists of the first version have entries of another size. */
typedef nvmlReturn_t list_v1_fn(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v1_t *);
typedef nvmlReturn_t list_v2_fn(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);

struct list {
    list_v1_fn *v1; /* or */
    list_v2_fn *v2;
    bool compute; /* what the ledger knows about; the other lists are empty on drivers that do not
                     translate */
};

static void widen(nvmlProcessInfo_v2_t *list, unsigned int n) {
    const nvmlProcessInfo_v1_t *narrow = (const nvmlProcessInfo_v1_t *) (const void *) list;

    for (unsigned int i = n; i-- > 0;) { /* backwards: the wide entries overwrite the narrow ones */
        nvmlProcessInfo_v1_t one = narrow[i];
        list[i] =
            (nvmlProcessInfo_v2_t){one.pid, one.usedGpuMemory, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    }
}

static nvmlReturn_t list_from_driver(const struct list *which, nvmlDevice_t device,
                                     const struct members *members, nvmlProcessInfo_v2_t *list,
                                     unsigned int *ret_n) {
    unsigned int n = PROCESSES_MAX, kept = 0;
    nvmlReturn_t r;

    if (which->v1)
        r = which->v1(device, &n, (nvmlProcessInfo_v1_t *) (void *) list);
    else
        r = which->v2(device, &n, list);
    if (r != NVML_SUCCESS)
        return r;
    if (which->v1)
        widen(list, n);
    for (unsigned int i = 0; i < n; i++)
        if (is_member(members, list[i].pid))
            list[kept++] = list[i];
    *ret_n = kept;
    return r;
}

/* Answers as NVML does: the count alone and INSUFFICIENT_SIZE where the caller's room is too small.
 */
static nvmlReturn_t hand_out(const struct list *which, const nvmlProcessInfo_v2_t *list,
                             unsigned int n, unsigned int *count, void *infos) {
    unsigned int room = *count;

    *count = n;
    if (n > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (n > 0 && !infos)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < n; i++) {
        if (which->v1)
            ((nvmlProcessInfo_v1_t *) infos)[i] =
                (nvmlProcessInfo_v1_t){list[i].pid, list[i].usedGpuMemory};
        else
            ((nvmlProcessInfo_v2_t *) infos)[i] = list[i];
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t processes(const struct list *which, nvmlDevice_t device, unsigned int *count,
                              void *infos) {
    struct members members;
    nvmlProcessInfo_v2_t *list;
    nvmlReturn_t r = NVML_SUCCESS;
    unsigned int n = 0;

    if (!count || !members_get(device, &members))
        return which->v1 ? which->v1(device, count, infos) : which->v2(device, count, infos);
    list = calloc(PROCESSES_MAX, sizeof(*list));
    if (!list)
        return NVML_ERROR_MEMORY;
    if (driver_translates())
        r = list_from_driver(which, device, &members, list, &n);
    else if (which->compute)
        n = list_from_ledger(&members, list);
    if (r == NVML_SUCCESS)
        r = hand_out(which, list, n, count, infos);
    free(list);
    return r;
}

#define PROCESS_LIST(symbol, info, member, is_compute)                                             \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *info_count, info *infos) {              \
        const struct list which = {.member = driver.symbol, .compute = is_compute};                \
        return processes(&which, device, info_count, infos);                                       \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, v1, true)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, v2, true)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, v2, true)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, v1, false)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, v2, false)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, v2, false)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, v1, false)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, v2, false)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, v2, false)

/* The lists below are taken as the driver gives them, less the processes of others. */

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *plist) {
    nvmlReturn_t r = driver.nvmlDeviceGetRunningProcessDetailList(device, plist);
    struct members members;
    unsigned int kept = 0;

    if (r != NVML_SUCCESS || !plist || !plist->procArray || !members_get(device, &members))
        return r;
    for (unsigned int i = 0; i < plist->numProcArrayEntries; i++)
        if (is_member(&members, plist->procArray[i].pid))
            plist->procArray[kept++] = plist->procArray[i];
    plist->numProcArrayEntries = kept;
    return r;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *process_samples_count,
                                             unsigned long long last_seen_time_stamp) {
    nvmlReturn_t r = driver.nvmlDeviceGetProcessUtilization(
        device, utilization, process_samples_count, last_seen_time_stamp);
    struct members members;
    unsigned int kept = 0;

    if (r != NVML_SUCCESS || !utilization || !process_samples_count ||
        !members_get(device, &members))
        return r;
    for (unsigned int i = 0; i < *process_samples_count; i++)
        if (is_member(&members, utilization[i].pid))
            utilization[kept++] = utilization[i];
    *process_samples_count = kept;
    return r;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info) {
    nvmlReturn_t r = driver.nvmlDeviceGetProcessesUtilizationInfo(device, info);
    struct members members;
    unsigned int kept = 0;

    if (r != NVML_SUCCESS || !info || !info->procUtilArray || !members_get(device, &members))
        return r;
    for (unsigned int i = 0; i < info->processSamplesCount; i++)
        if (is_member(&members, info->procUtilArray[i].pid))
            info->procUtilArray[kept++] = info->procUtilArray[i];
    info->processSamplesCount = kept;
    return r;
}
