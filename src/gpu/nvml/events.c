/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/events.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "gpu/device.h"

#define WAIT_MS 5000 /* no longer than that without looking whether NVML still is there */
#define STACK_BYTES (64 * 1024)

bool gpu_xid_needs_reset(uint32_t xid) {
    static const uint16_t list[] = {48,  62,  64,  74,  79,  95,  109, 110,
                                    119, 120, 136, 140, 143, 155, 156, 158};

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        if (list[i] == xid)
            return true;
    return false;
}

/* A card that cannot be asked for events is left out: the others still are. Handles are kept, for a
 * card that is gone does not tell its index any more. */
static unsigned int register_all(const struct nvml *n, nvmlEventSet_t set,
                                 nvmlDevice_t ret_devices[GPU_MAX]) {
    unsigned int count = 0;

    if (n->nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
        return 0;
    if (count > GPU_MAX)
        count = GPU_MAX;
    for (unsigned int i = 0; i < count; i++) {
        ret_devices[i] = NULL;
        if (n->nvmlDeviceGetHandleByIndex_v2(i, &ret_devices[i]) == NVML_SUCCESS)
            (void) n->nvmlDeviceRegisterEvents(ret_devices[i], nvmlEventTypeXidCriticalError, set);
    }
    return count;
}

static void tell(const struct gpu_events_options *o, const nvmlEventData_t *event,
                 const nvmlDevice_t *devices, unsigned int count) {
    if (!(event->eventType & nvmlEventTypeXidCriticalError) || event->eventData > UINT32_MAX)
        return;
    for (unsigned int i = 0; i < count; i++)
        if (devices[i] == event->device)
            o->on_xid(i, (uint32_t) event->eventData, o->userdata);
}

static void *listen_to_events(void *arg) {
    const struct gpu_events_options *o = arg;
    const struct nvml *n = o->nvml;
    nvmlDevice_t devices[GPU_MAX];
    nvmlEventSet_t set;
    unsigned int count;

    if (n->nvmlEventSetCreate(&set) != NVML_SUCCESS)
        return NULL;
    count = register_all(n, set, devices);
    for (;;) {
        nvmlEventData_t event = {0};
        nvmlReturn_t r = n->nvmlEventSetWait_v2(set, &event, WAIT_MS);

        if (r == NVML_SUCCESS) {
            tell(o, &event, devices, count);
        } else if (r != NVML_ERROR_TIMEOUT) {
            /* What fails at once must not spin; that the driver is gone, the polls find out. */
            const struct timespec pause = {.tv_sec = 1};

            (void) nanosleep(&pause, NULL);
        }
    }
}

int gpu_events_start(const struct gpu_events_options *options) {
    const struct nvml *n = options->nvml;
    pthread_attr_t attributes;
    pthread_t thread;
    int r;

    if (!n->nvmlEventSetCreate || !n->nvmlDeviceRegisterEvents || !n->nvmlEventSetWait_v2)
        return 0;
    (void) pthread_attr_init(&attributes);
    (void) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void) pthread_attr_setstacksize(&attributes, STACK_BYTES > (size_t) PTHREAD_STACK_MIN
                                                      ? STACK_BYTES
                                                      : (size_t) PTHREAD_STACK_MIN);
    /* The options are only read. */
    r = pthread_create(&thread, &attributes, listen_to_events, (void *) (uintptr_t) options);
    (void) pthread_attr_destroy(&attributes);
    return -r;
}
