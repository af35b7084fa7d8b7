/* SPDX-License-Identifier: Apache-2.0 */

/* Event sets: what happened to the cards since a set was made, out of the machine's page. */

#include <stdlib.h>
#include <time.h>

#include "sim/nvml/nvml.h"

/* How long a sleeper goes without looking whether the driver is still there. */
#define PATIENCE_NS 250000000ull

#define SUPPORTED                                                                                  \
    (nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError | nvmlEventTypePState |       \
     nvmlEventTypeXidCriticalError | nvmlEventTypeClock)

struct nvmlEventSet_st {
    unsigned long long types[SIM_MAX_GPUS]; /* by the device's index */
    uint32_t next;                          /* number of the first event that it has not seen */
};

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                              unsigned long long *event_types) {
    NVML_TRY(nvml_enter(device));
    if (!event_types)
        return NVML_ERROR_INVALID_ARGUMENT;
    *event_types = SUPPORTED;
    if (!device->page->ecc)
        *event_types &=
            ~(unsigned long long) (nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    NVML_TRY(nvml_ready());
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlEventSet_t s = calloc(1, sizeof(*s));
    if (!s)
        return NVML_ERROR_MEMORY;
    s->next = atomic_load(&nvml_client()->host->events);
    *set = s;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    NVML_TRY(nvml_ready());
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long event_types,
                                      nvmlEventSet_t set) {
    unsigned long long supported;
    NVML_TRY(nvmlDeviceGetSupportedEventTypes(device, &supported));
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (event_types & ~supported)
        return NVML_ERROR_NOT_SUPPORTED;
    set->types[device->index] |= event_types;
    return NVML_SUCCESS;
}

static nvmlDevice_t device_of(uint32_t minor) {
    for (unsigned int i = 0; i < nvml_device_count(); i++)
        if (nvml_device_at(i)->page->minor == minor)
            return nvml_device_at(i);
    return NULL;
}

/* The next event for the set. Skips events that were overwritten before they were read. */
static bool take_event(nvmlEventSet_t set, nvmlEventData_t *ret) {
    const struct sim_host *host = nvml_client()->host;
    for (uint32_t end; (end = atomic_load(&host->events)) != set->next;) {
        if (end - set->next >= SIM_EVENTS)
            set->next = end - (SIM_EVENTS - 1);
        struct sim_event e = host->event[set->next % SIM_EVENTS];
        if (atomic_load(&host->events) - set->next >= SIM_EVENTS)
            continue;
        set->next++;
        nvmlDevice_t device = device_of(e.minor);
        if (!device || !(set->types[device->index] & e.type))
            continue;
        *ret = (nvmlEventData_t){.device = device,
                                 .eventType = e.type,
                                 .eventData = e.data,
                                 .gpuInstanceId = e.gpu_instance,
                                 .computeInstanceId = e.compute_instance};
        return true;
    }
    return false;
}

static uint64_t now_ns(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t) ts.tv_sec * 1000000000u + (uint64_t) ts.tv_nsec;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                 unsigned int timeoutms) {
    NVML_TRY(nvml_ready());
    if (!set || !data)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct sim_host *host = nvml_client()->host;
    uint64_t deadline = now_ns() + timeoutms * 1000000ull;
    for (;;) {
        uint32_t seen = atomic_load(&host->events);
        if (take_event(set, data))
            return NVML_SUCCESS;
        if (client_is_lost(nvml_client()))
            return NVML_ERROR_GPU_IS_LOST;
        uint64_t now = now_ns();
        if (now >= deadline)
            return NVML_ERROR_TIMEOUT;
        client_wait(&host->events, seen,
                    deadline - now < PATIENCE_NS ? deadline - now : PATIENCE_NS);
    }
}

/* The first version ends before the instances. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms) {
    nvmlEventData_t all;
    nvmlReturn_t r = nvmlEventSetWait_v2(set, data ? &all : NULL, timeoutms);
    if (r == NVML_SUCCESS) {
        data->device = all.device;
        data->eventType = all.eventType;
        data->eventData = all.eventData;
    }
    return r;
}
