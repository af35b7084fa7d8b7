/* SPDX-License-Identifier: Apache-2.0 */

/* NVML's process lists: of the container's own processes only.
 *
 * The driver gives the processes and their instances; the memory of each is what it has booked, or
 * the driver's figure if that is more, as far as the overhead in the device's own figure covers it.
 * So the processes together never have more than the used memory of the device. Where the driver
 * gives PIDs without a meaning here (nvml_pids_are_ours), the list is made from the ledger alone.
 */

#include <stdlib.h>

#include "intercept/nvml/nvml.h"
#include "intercept/resolve/driver.h"

#define ENTRIES_MAX (2 * MEMBERS_MAX)

typedef nvmlReturn_t list_v1_fn(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v1_t *);
typedef nvmlReturn_t list_v2_fn(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);

/* One of the driver's lists; those of the first version have entries of another size. */
struct list {
    list_v1_fn *v1; /* or */
    list_v2_fn *v2;
    bool compute; /* compute processes are in the ledger; the other lists are empty if the driver's
                     PIDs are of another namespace */
};

struct entries {
    unsigned int n;
    nvmlProcessInfo_v2_t one[ENTRIES_MAX];
};

static void widen(struct entries *entries) {
    const nvmlProcessInfo_v1_t *narrow = (const nvmlProcessInfo_v1_t *) (const void *) entries->one;

    /* Backwards: the wide entries overwrite the narrow ones. */
    for (unsigned int i = entries->n; i-- > 0;) {
        nvmlProcessInfo_v1_t one = narrow[i];
        entries->one[i] =
            (nvmlProcessInfo_v2_t){one.pid, one.usedGpuMemory, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    }
}

static nvmlReturn_t list_from_driver(const struct list *list, nvmlDevice_t device,
                                     struct entries *ret) {
    nvmlReturn_t r;

    ret->n = ENTRIES_MAX;
    if (list->v1)
        r = list->v1(device, &ret->n, (nvmlProcessInfo_v1_t *) (void *) ret->one);
    else
        r = list->v2(device, &ret->n, ret->one);
    if (r != NVML_SUCCESS)
        return r;
    if (ret->n > ENTRIES_MAX)
        ret->n = ENTRIES_MAX;
    if (list->v1)
        widen(ret);
    return r;
}

static bool listed(const struct entries *entries, uint32_t pid) {
    for (unsigned int i = 0; i < entries->n; i++)
        if (entries->one[i].pid == pid)
            return true;
    return false;
}

/* Used memory that is not booked: modules, heaps, and memory of dead processes not yet released. */
static uint64_t unbooked(const struct part *part, const struct members *members) {
    struct figures figures = {.total = UINT64_MAX};
    uint64_t booked = 0;

    part_figures(part, &figures);
    if (figures.total == UINT64_MAX)
        return UINT64_MAX; /* memory has no limit: the driver's figures are not changed */
    for (unsigned int i = 0; i < members->n; i++)
        booked += members->one[i].booked;
    return figures.used > booked ? figures.used - booked : 0;
}

/* Keeps the members of the driver's list, with what they have. */
static void keep_members(const struct part *part, const struct members *members,
                         struct entries *entries) {
    uint64_t spare = unbooked(part, members);
    unsigned int kept = 0;

    for (unsigned int i = 0; i < entries->n; i++) {
        nvmlProcessInfo_v2_t one = entries->one[i];
        const struct member *member = members_find(members, one.pid);
        uint64_t more;

        if (!member)
            continue;
        if (one.usedGpuMemory != NVML_VALUE_NOT_AVAILABLE_ULL) {
            more = one.usedGpuMemory > member->booked ? one.usedGpuMemory - member->booked : 0;
            if (more > spare)
                more = spare;
            spare -= more;
            one.usedGpuMemory = member->booked + more;
        }
        entries->one[kept++] = one;
    }
    entries->n = kept;
}

/* Adds processes that have booked memory and are not on the list yet: an allocation is booked
 * before the driver makes it. Clients of MPS are on a list of their own. */
static void add_missing(nvmlDevice_t device, const struct members *members,
                        struct entries *entries) {
    static const struct entries none;
    struct entries *others = NULL;

    for (unsigned int i = 0; i < members->n; i++) {
        const struct member *member = &members->one[i];

        if (member->booked == 0 || entries->n == ENTRIES_MAX || listed(entries, member->pid))
            continue;
        if (!others) {
            const struct list mps = {.v2 = driver.nvmlDeviceGetMPSComputeRunningProcesses_v3};

            others = calloc(1, sizeof(*others));
            if (others && (!nvml_pids_are_ours(PIDS_OF_LISTS) ||
                           list_from_driver(&mps, device, others) != NVML_SUCCESS))
                others->n = 0;
        }
        if (!listed(others ? others : &none, member->pid))
            entries->one[entries->n++] = (nvmlProcessInfo_v2_t){member->pid, member->booked,
                                                                NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    }
    free(others);
}

static nvmlReturn_t entries_fill(const struct list *list, nvmlDevice_t device,
                                 const struct part *part, struct entries *ret) {
    struct members *members = members_new(part);
    nvmlReturn_t r = NVML_SUCCESS;

    if (!members)
        return NVML_ERROR_MEMORY;
    ret->n = 0;
    if (nvml_pids_are_ours(PIDS_OF_LISTS)) {
        r = list_from_driver(list, device, ret);
        if (r == NVML_SUCCESS)
            keep_members(part, members, ret);
    }
    if (r == NVML_SUCCESS && list->compute)
        add_missing(device, members, ret);
    free(members);
    return r;
}

/* Answers as NVML does: the count alone and INSUFFICIENT_SIZE where the caller's room is too small.
 */
static nvmlReturn_t hand_out(const struct list *list, const struct entries *entries,
                             unsigned int *count, void *infos) {
    unsigned int room = *count;

    *count = entries->n;
    if (entries->n > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < entries->n; i++) {
        const nvmlProcessInfo_v2_t *one = &entries->one[i];

        if (list->v1)
            ((nvmlProcessInfo_v1_t *) infos)[i] =
                (nvmlProcessInfo_v1_t){one->pid, one->usedGpuMemory};
        else
            ((nvmlProcessInfo_v2_t *) infos)[i] = *one;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t processes(const struct list *list, nvmlDevice_t device, unsigned int *count,
                              void *infos) {
    struct entries *entries;
    struct part part;
    nvmlReturn_t r;

    NVML_TRY(nvml_part_of(device, &part));
    if (!part.share)
        return list->v1 ? list->v1(device, count, infos) : list->v2(device, count, infos);
    if (!count || (*count > 0 && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    entries = malloc(sizeof(*entries));
    if (!entries)
        return NVML_ERROR_MEMORY;
    r = entries_fill(list, device, &part, entries);
    if (r == NVML_SUCCESS)
        r = hand_out(list, entries, count, infos);
    free(entries);
    return r;
}

#define PROCESS_LIST(symbol, info, member, is_compute)                                             \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *info_count, info *infos) {              \
        const struct list list = {.member = driver.symbol, .compute = is_compute};                 \
                                                                                                   \
        return processes(&list, device, info_count, infos);                                        \
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

/* The newest list has a number for the kind of processes. */
static bool list_of_mode(unsigned int mode, struct list *ret) {
    const struct list lists[] = {
        {.v2 = driver.nvmlDeviceGetComputeRunningProcesses_v3, .compute = true},
        {.v2 = driver.nvmlDeviceGetGraphicsRunningProcesses_v3},
        {.v2 = driver.nvmlDeviceGetMPSComputeRunningProcesses_v3},
    };

    if (mode >= sizeof(lists) / sizeof(lists[0]))
        return false;
    *ret = lists[mode];
    return true;
}

struct details {
    struct entries entries;
    nvmlProcessDetailList_t list;
    nvmlProcessDetail_v1_t one[ENTRIES_MAX];
};

/* The figure of a process that only this list has. */
static unsigned long long protected_memory(const struct details *details, unsigned int pid) {
    for (unsigned int i = 0; i < details->list.numProcArrayEntries && i < ENTRIES_MAX; i++)
        if (details->one[i].pid == pid)
            return details->one[i].usedGpuCcProtectedMemory;
    return 0;
}

static nvmlReturn_t hand_out_details(const struct details *details,
                                     nvmlProcessDetailList_t *plist) {
    unsigned int room = plist->numProcArrayEntries, n = details->entries.n;

    plist->numProcArrayEntries = n;
    if (n > room || (n > 0 && !plist->procArray))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < n; i++) {
        const nvmlProcessInfo_v2_t *one = &details->entries.one[i];

        plist->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = one->pid,
            .usedGpuMemory = one->usedGpuMemory,
            .gpuInstanceId = one->gpuInstanceId,
            .computeInstanceId = one->computeInstanceId,
            .usedGpuCcProtectedMemory = protected_memory(details, one->pid),
        };
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t details_fill(nvmlDevice_t device, const struct part *part, unsigned int version,
                                 unsigned int mode, struct details *ret) {
    struct list list;
    nvmlReturn_t r;

    ret->list = (nvmlProcessDetailList_t){version, mode, ENTRIES_MAX, ret->one};
    r = driver.nvmlDeviceGetRunningProcessDetailList(device, &ret->list);
    if (r != NVML_SUCCESS)
        return r;
    if (!nvml_pids_are_ours(PIDS_OF_LISTS))
        ret->list.numProcArrayEntries = 0;
    if (!list_of_mode(mode, &list))
        return NVML_ERROR_INVALID_ARGUMENT;
    return entries_fill(&list, device, part, &ret->entries);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *plist) {
    struct details *details;
    struct part part;
    nvmlReturn_t r;

    NVML_TRY(nvml_part_of(device, &part));
    if (!plist || !part.share)
        return driver.nvmlDeviceGetRunningProcessDetailList(device, plist);
    details = calloc(1, sizeof(*details));
    if (!details)
        return NVML_ERROR_MEMORY;
    r = details_fill(device, &part, plist->version, plist->mode, details);
    if (r == NVML_SUCCESS)
        r = hand_out_details(details, plist);
    free(details);
    return r;
}
