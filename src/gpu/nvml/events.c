/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/events.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "gpu/device.h"

#define WAIT_MS 5000
#define STACK_BYTES ((size_t) 64 * 1024)

struct listener {
    struct gpu_events_options options;
    nvmlEventSet_t set;
    nvmlDevice_t devices[GPU_CARDS_MAX]; /* NULL: its events cannot be had */
    unsigned int count;
};

/* Omits cards that do not support events. Handles are kept, because the index of a lost card cannot
 * be queried. */
static void register_all(struct listener *l) {
    const struct gpu_events_options *o = &l->options;

    if (o->nvml->nvmlDeviceGetCount_v2(&l->count) != NVML_SUCCESS)
        l->count = 0;
    if (l->count > GPU_CARDS_MAX)
        l->count = GPU_CARDS_MAX;
    for (unsigned int i = 0; i < l->count; i++) {
        if (o->left_out >> i & 1)
            continue;
        o->reading(i, o->userdata);
        if (o->nvml->nvmlDeviceGetHandleByIndex_v2(i, &l->devices[i]) == NVML_SUCCESS)
            (void) o->nvml->nvmlDeviceRegisterEvents(l->devices[i], nvmlEventTypeXidCriticalError,
                                                     l->set);
    }
}

static void report(const struct listener *l, const nvmlEventData_t *event) {
    if (!(event->eventType & nvmlEventTypeXidCriticalError) || event->eventData > UINT32_MAX)
        return;
    for (unsigned int i = 0; i < l->count; i++)
        if (l->devices[i] == event->device)
            l->options.on_xid(i, event, l->options.userdata);
}

static void *listen_to_events(void *arg) {
    struct listener *l = arg;

    for (;;) {
        nvmlEventData_t event = {0};
        nvmlReturn_t r = l->options.nvml->nvmlEventSetWait_v2(l->set, &event, WAIT_MS);

        if (r == NVML_SUCCESS) {
            report(l, &event);
        } else if (r != NVML_ERROR_TIMEOUT) {
            /* An error that comes at once must not spin. A driver that is gone is found by polls.
             */
            const struct timespec pause = {.tv_sec = 1};

            (void) nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

/* The listener lives as long as the process: its thread may still use it. */
static int start_thread(struct listener *l) {
    pthread_attr_t attributes;
    pthread_t thread;
    int r;

    (void) pthread_attr_init(&attributes);
    (void) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void) pthread_attr_setstacksize(&attributes, STACK_BYTES > (size_t) PTHREAD_STACK_MIN
                                                      ? STACK_BYTES
                                                      : (size_t) PTHREAD_STACK_MIN);
    r = pthread_create(&thread, &attributes, listen_to_events, l);
    (void) pthread_attr_destroy(&attributes);
    return -r;
}

int gpu_events_start(const struct gpu_events_options *options) {
    const struct nvml *n = options->nvml;
    struct listener *l;
    int r;

    if (!n->nvmlEventSetCreate || !n->nvmlDeviceRegisterEvents || !n->nvmlEventSetWait_v2)
        return 0;
    l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->options = *options;
    if (n->nvmlEventSetCreate(&l->set) != NVML_SUCCESS) {
        free(l);
        return 0;
    }
    register_all(l);
    r = start_thread(l);
    if (r < 0)
        free(l);
    return r;
}
