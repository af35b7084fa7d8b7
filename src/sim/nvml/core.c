/* SPDX-License-Identifier: Apache-2.0 */

/* Start and stop, the devices of this process, requests, versions. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/nvml/nvml.h"

static struct client client = CLIENT_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int references;
static bool reconnect; /* in a forked child: the connection is the parent's */
static bool registered;
static _Atomic uint64_t opened; /* devices, by index */
static struct nvmlDevice_st devices[SIM_MAX_GPUS];
static unsigned int ndevices;
static struct nvmlDevice_st parts[SIM_MAX_UNITS]; /* MIG devices, by unit */

/* The child must not speak on its parent's connection, nor keep it open after the parent's end. */
static void after_fork(void) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = fresh;
    client.lock = fresh;
    client_close(&client);
    reconnect = references > 0;
}

static nvmlReturn_t connect_driver(void) {
    int r = client_open(&client);
    if (r < 0)
        return r == -EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
    if (atomic_load(client_faults) > 0) {
        nvmlReturn_t fault = (nvmlReturn_t) client_fault(&client, "nvmlInit_v2", CLIENT_NO_CARD);
        if (fault != NVML_SUCCESS) {
            client_close(&client);
            return fault;
        }
    }
    ndevices = client.ndevices;
    memset(parts, 0, sizeof(parts));
    opened = 0;
    for (unsigned int i = 0; i < ndevices; i++)
        devices[i] = (struct nvmlDevice_st){i, client.device[i].page};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void) flags;
    (void) pthread_mutex_lock(&lock);
    nvmlReturn_t r = NVML_SUCCESS;
    if (references == 0)
        r = connect_driver();
    if (r == NVML_SUCCESS) {
        references++;
        if (!registered)
            registered = pthread_atfork(NULL, NULL, after_fork) == 0;
    }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void) {
    (void) pthread_mutex_lock(&lock);
    if (references > 0 && --references == 0)
        client_close(&client);
    (void) pthread_mutex_unlock(&lock);
    return NVML_SUCCESS; /* once too often too: so does the real one of 535 */
}

nvmlReturn_t nvml_ready(void) {
    if (references == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (!reconnect)
        return NVML_SUCCESS;
    (void) pthread_mutex_lock(&lock);
    nvmlReturn_t r = reconnect ? connect_driver() : NVML_SUCCESS;
    if (r == NVML_SUCCESS)
        reconnect = false;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

uint32_t nvml_card_of(nvmlDevice_t device) {
    bool is_card = device >= devices && device < devices + ndevices;
    return is_card || nvml_is_part(device) ? device->page->parent : CLIENT_NO_CARD;
}

uint32_t nvml_card_at(unsigned int index) {
    return index < ndevices ? devices[index].page->parent : CLIENT_NO_CARD;
}

bool nvml_is_part(nvmlDevice_t device) {
    return device >= parts && device < parts + SIM_MAX_UNITS && device->page;
}

nvmlReturn_t nvml_enter(nvmlDevice_t device) {
    NVML_TRY(nvml_ready());
    if ((device < devices || device >= devices + ndevices) && !nvml_is_part(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (client_is_lost(&client) || atomic_load(&device->page->state) == SIM_LOST)
        return NVML_ERROR_GPU_IS_LOST;
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_enter_working(nvmlDevice_t device) {
    nvmlReturn_t r = nvml_enter(device);
    if (r == NVML_SUCCESS && atomic_load(&device->page->state) == SIM_NEEDS_RESET)
        return NVML_ERROR_RESET_REQUIRED;
    return r;
}

nvmlReturn_t nvml_refuse(void) {
    nvmlReturn_t r = nvml_ready();
    return r == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : r;
}

struct client *nvml_client(void) {
    return &client;
}

unsigned int nvml_device_count(void) {
    return ndevices;
}

nvmlDevice_t nvml_device_at(unsigned int index) {
    return index < ndevices ? &devices[index] : NULL;
}

void nvml_open(nvmlDevice_t device) {
    if (!(atomic_fetch_or(&opened, 1ull << device->index) >> device->index & 1))
        (void) client_do(&client, SIM_OPEN, device->page->minor, 0);
}

nvmlReturn_t nvml_part(nvmlDevice_t card, unsigned int unit, nvmlDevice_t *ret) {
    if (unit >= SIM_MAX_UNITS)
        return NVML_ERROR_UNKNOWN;
    struct nvmlDevice_st *part = &parts[unit];
    if (!part->page || atomic_load(&part->page->state) == SIM_LOST)
        part->page = client_attach_part(&client, card->page->minor, unit, 0);
    if (!part->page)
        part->page = client_attach_part(&client, card->page->minor, unit, SIM_CAP_MONITOR);
    part->index = card->index;
    *ret = part;
    return part->page ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvml_request(nvmlDevice_t device, uint32_t op, uint64_t a,
                          struct client_answer *answer) {
    int r = client_call(&client, op, device->page->minor, a, answer);
    if (r == -EPIPE || r == -ENODEV)
        return NVML_ERROR_GPU_IS_LOST;
    if (r == -EPERM || r == -EACCES)
        return NVML_ERROR_NO_PERMISSION;
    return r < 0 ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

nvmlReturn_t nvml_request_list(nvmlDevice_t device, uint32_t op, uint64_t a, size_t entry_size,
                               unsigned int most, struct nvml_list *ret) {
    struct client_answer answer = {.list = malloc(most * entry_size),
                                   .list_max = most * entry_size};
    if (!answer.list)
        return NVML_ERROR_MEMORY;
    nvmlReturn_t r = nvml_request(device, op, a, &answer);
    if (r != NVML_SUCCESS) {
        free(answer.list);
        return r;
    }
    *ret = (struct nvml_list){answer.list, answer.reply.count < most ? answer.reply.count : most};
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_put_string(char *out, unsigned int length, const char *text) {
    size_t n = strlen(text);
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (n >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, n + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    nvmlReturn_t r = nvml_ready();
    return r == NVML_SUCCESS ? nvml_put_string(version, length, client.host->driver) : r;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    /* Of the library itself, and so without nvmlInit() too; the machine's version takes precedence.
     */
    char text[64];
    (void) snprintf(text, sizeof(text), "%u.%s",
                    (client.host ? client.host->cuda : SIM_CUDA_VERSION) / 1000,
                    client.host ? client.host->driver : SIM_DRIVER_VERSION);
    return nvml_put_string(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cuda_driver_version) {
    NVML_TRY(nvml_ready());
    NVML_RETURN_VALUE(cuda_driver_version, (int) client.host->cuda);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cuda_driver_version) {
    return nvmlSystemGetCudaDriverVersion(cuda_driver_version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    NVML_TRY(nvml_ready());
    if (!name || length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NVML_ERROR_NOT_FOUND;
    ssize_t n = read(fd, name, length - 1);
    (void) close(fd);
    if (n <= 0)
        return NVML_ERROR_NOT_FOUND;
    name[n] = '\0'; /* the arguments follow behind a NUL: only the program's name is seen */
    return NVML_SUCCESS;
}
