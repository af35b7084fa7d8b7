/* SPDX-License-Identifier: Apache-2.0 */

/* cuInit, and what every call asks first. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/cuda/cuda.h"

pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
struct client cuda_client = CLIENT_INIT;
struct cuda_device cuda_device[SIM_MAX_GPUS];
int cuda_ndevices;

static enum { FRESH, READY, FORKED } state;

/* As with the real driver, a child of fork cannot use what its parent opened. Closing it here
 * lets the memory go when the parent ends, however long the child lives. */
static void after_fork(void) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    cuda_lock = fresh;
    cuda_client.lock = fresh;
    client_close(&cuda_client);
    state = FORKED;
}

static bool add_device(uint32_t i) {
    const struct sim_page *page = cuda_client.device[i].page;
    for (int k = 0; k < cuda_ndevices; k++)
        if (cuda_device[k].page == page)
            return false;
    cuda_device[cuda_ndevices++] = (struct cuda_device){.page = page, .minor = page->minor};
    return true;
}

/* An index, or the beginning of a UUID that fits one device only. -1 when it names none. */
static int find_device(const char *name, size_t len) {
    if (len == 0)
        return -1;
    if (*name >= '0' && *name <= '9') {
        uint32_t index = 0;
        for (size_t i = 0; i < len; i++) {
            if (name[i] < '0' || name[i] > '9' || index > SIM_MAX_GPUS)
                return -1;
            index = index * 10 + (uint32_t) (name[i] - '0');
        }
        return index < cuda_client.ndevices ? (int) index : -1;
    }
    int found = -1;
    for (uint32_t i = 0; len >= 5 && i < cuda_client.ndevices; i++) {
        if (strncasecmp(cuda_client.device[i].page->uuid, name, len) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int) i;
    }
    return found;
}

/* CUDA_VISIBLE_DEVICES: the devices up to the first that is not one; naming one twice hides all. */
static void choose_devices(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    cuda_ndevices = 0;
    if (!list) {
        for (uint32_t i = 0; i < cuda_client.ndevices; i++)
            (void) add_device(i);
        return;
    }
    while (*list) {
        size_t len = strcspn(list, ",");
        const char *name = list + strspn(list, " ");
        size_t name_len = len - (size_t) (name - list);
        while (name_len > 0 && name[name_len - 1] == ' ')
            name_len--;
        int i = find_device(name, name_len);
        if (i < 0)
            return;
        if (!add_device((uint32_t) i)) {
            cuda_ndevices = 0;
            return;
        }
        list += len + (list[len] == ',');
    }
}

static CUresult start(void) {
    if (state == FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (state == READY)
        return CUDA_SUCCESS;
    if (client_open(&cuda_client) < 0)
        return CUDA_ERROR_NO_DEVICE;
    choose_devices();
    if (cuda_ndevices == 0) {
        client_close(&cuda_client);
        return CUDA_ERROR_NO_DEVICE;
    }
    (void) pthread_atfork(NULL, NULL, after_fork);
    state = READY;
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&cuda_lock);
    CUresult r = start();
    (void) pthread_mutex_unlock(&cuda_lock);
    return r;
}

CUresult cuDriverGetVersion(int *driver_version) {
    if (!driver_version)
        return CUDA_ERROR_INVALID_VALUE;
    *driver_version = SIM_CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuda_enter(void) {
    if (state != READY)
        return CUDA_ERROR_NOT_INITIALIZED;
    return cuda_client.lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

CUresult cuda_invalid(void) {
    CUresult r = cuda_enter();
    return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult cuda_enter_device(CUdevice dev) {
    CUresult r = cuda_enter();
    if (r != CUDA_SUCCESS)
        return r;
    return dev >= 0 && dev < cuda_ndevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuda_enter_context(CUcontext *ret) {
    CUresult r = cuda_enter();
    if (r != CUDA_SUCCESS)
        return r;
    CUcontext ctx = cuda_current();
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!cuda_context_alive(ctx))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret = ctx;
    return ctx->error;
}

CUresult cuda_from_errno(int r) {
    switch (r) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -EPIPE:
    case -ENODEV:
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

CUresult cuda_take(int device, size_t bytes) {
    return cuda_from_errno(client_do(&cuda_client, SIM_ALLOC, cuda_device[device].minor, bytes));
}

void cuda_give(int device, size_t bytes) {
    (void) client_do(&cuda_client, SIM_FREE, cuda_device[device].minor, bytes);
}
