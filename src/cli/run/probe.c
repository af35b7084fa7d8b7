/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "cli/run/card_use.h"
#include "cli/run/driver_calls.h"

#define DEADLINE_MS 60000

struct answer {
    int count; /* negative errno */
    struct err err;
    struct probe_gpu gpu[PROBE_GPUS_MAX];
};

typedef nvmlReturn_t list_fn(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *);

static uint64_t memory_in(list_fn *get, nvmlDevice_t device) {
    nvmlProcessInfo_t list[256];
    unsigned int n = sizeof(list) / sizeof(list[0]);

    if (!get || get(device, &n, list) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < n; i++)
        if (list[i].pid == (unsigned int) getpid() &&
            list[i].usedGpuMemory != NVML_VALUE_NOT_AVAILABLE_ULL)
            return list[i].usedGpuMemory;
    return 0;
}

/* By the environment it can be a client of MPS. */
static uint64_t memory_of_this_process(void *nvml, nvmlDevice_t device) {
    LOOK_UP(nvml, nvmlDeviceGetComputeRunningProcesses_v3);
    LOOK_UP(nvml, nvmlDeviceGetMPSComputeRunningProcesses_v3);
    uint64_t bytes = memory_in(nvmlDeviceGetComputeRunningProcesses_v3, device);

    return bytes > 0 ? bytes : memory_in(nvmlDeviceGetMPSComputeRunningProcesses_v3, device);
}

/* Whether a UUID of NVML's, behind its "GPU-" or "MIG-", is this one. */
static bool is_uuid(const char *text, const CUuuid *uuid) {
    const unsigned char *b = (const unsigned char *) uuid->bytes;
    char plain[40];

    (void) snprintf(plain, sizeof(plain),
                    "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                    b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                    b[13], b[14], b[15]);
    return strlen(text) == strlen(plain) + 4 && strcmp(text + 4, plain) == 0;
}

/* Makes a context on every GPU that CUDA shows, and looks what that took. */
static void measure_contexts(struct answer *a, void *nvml, const nvmlDevice_t *device) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int count = 0;

    if (!cuda)
        return;
    LOOK_UP(cuda, cuInit);
    LOOK_UP(cuda, cuDeviceGetCount);
    LOOK_UP(cuda,
            cuDeviceGetUuid_v2); /* of an instance its own, where the first gives the card's */
    LOOK_UP(cuda, cuDevicePrimaryCtxRetain);
    if (!cuInit || !cuDeviceGetCount || !cuDeviceGetUuid_v2 || !cuDevicePrimaryCtxRetain ||
        cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return;
    for (int d = 0; d < count; d++) {
        CUcontext context;
        CUuuid uuid;

        if (cuDeviceGetUuid_v2(&uuid, d) != CUDA_SUCCESS)
            continue;
        for (int i = 0; i < a->count; i++)
            if (is_uuid(a->gpu[i].uuid, &uuid) &&
                cuDevicePrimaryCtxRetain(&context, d) == CUDA_SUCCESS)
                a->gpu[i].context_bytes = memory_of_this_process(nvml, device[i]);
    }
}

/* Takes a card or an instance in, unless it is lost: then it has an index but cannot be used. */
static void add_gpu(struct answer *a, void *nvml, nvmlDevice_t handle, bool instance,
                    nvmlDevice_t *device) {
    LOOK_UP(nvml, nvmlDeviceGetUUID);
    LOOK_UP(nvml, nvmlDeviceGetMemoryInfo);
    struct probe_gpu *gpu = &a->gpu[a->count];
    nvmlMemory_t memory = {0};
    struct card_use use;

    if (a->count >= PROBE_GPUS_MAX || !nvmlDeviceGetUUID || !nvmlDeviceGetMemoryInfo ||
        nvmlDeviceGetUUID(handle, gpu->uuid, sizeof(gpu->uuid)) != NVML_SUCCESS)
        return;
    (void) nvmlDeviceGetMemoryInfo(handle, &memory);
    gpu->memory_bytes = memory.total;
    gpu->unlisted_bytes = card_use_read(nvml, handle, &use) ? use.least : 0;
    gpu->instance = instance;
    device[a->count++] = handle;
}

static void add_instances(struct answer *a, void *nvml, nvmlDevice_t card, nvmlDevice_t *device) {
    LOOK_UP(nvml, nvmlDeviceGetMaxMigDeviceCount);
    LOOK_UP(nvml, nvmlDeviceGetMigDeviceHandleByIndex);
    unsigned int count = 0;

    if (!nvmlDeviceGetMaxMigDeviceCount || !nvmlDeviceGetMigDeviceHandleByIndex ||
        nvmlDeviceGetMaxMigDeviceCount(card, &count) != NVML_SUCCESS)
        return;
    for (unsigned int i = 0; i < count; i++) {
        nvmlDevice_t instance;

        if (nvmlDeviceGetMigDeviceHandleByIndex(card, i, &instance) == NVML_SUCCESS)
            add_gpu(a, nvml, instance, true, device);
    }
}

static void list_gpus(struct answer *a) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvmlDevice_t device[PROBE_GPUS_MAX] = {NULL}, card;
    unsigned int count = 0;
    int cards;

    a->count = err_set(&a->err, ENODEV, "no NVIDIA driver: %s",
                       nvml ? "libnvidia-ml.so.1 does not work" : dlerror());
    if (!nvml)
        return;
    LOOK_UP(nvml, nvmlInit_v2);
    LOOK_UP(nvml, nvmlDeviceGetCount_v2);
    LOOK_UP(nvml, nvmlDeviceGetHandleByIndex_v2);
    if (!nvmlInit_v2 || !nvmlDeviceGetCount_v2 || !nvmlDeviceGetHandleByIndex_v2 ||
        nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
        return;
    a->count = 0;
    for (unsigned int i = 0; i < count; i++)
        if (nvmlDeviceGetHandleByIndex_v2(i, &card) == NVML_SUCCESS)
            add_gpu(a, nvml, card, false, device);
    cards = a->count;
    for (int i = 0; i < cards; i++)
        add_instances(a, nvml, device[i], device);
    measure_contexts(a, nvml, device);
    if (a->count == 0)
        a->count = err_set(&a->err, ENODEV, "the NVIDIA driver has no usable GPU");
}

static void send_answer(int fd) {
    static struct answer a;
    const char *at = (const char *) &a;
    size_t left = sizeof(a);

    list_gpus(&a);
    while (left > 0) {
        ssize_t n = write(fd, at, left);

        if (n <= 0)
            _exit(1);
        at += n;
        left -= (size_t) n;
    }
    _exit(0);
}

static int receive_answer(int fd, struct answer *ret) {
    char *at = (char *) ret;
    size_t left = sizeof(*ret);

    while (left > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int r = poll(&p, 1, DEADLINE_MS);
        ssize_t n;

        if (r < 0 && errno == EINTR)
            continue;
        n = r > 0 ? read(fd, at, left) : 0;
        if (n <= 0)
            return r == 0 ? -ETIMEDOUT : -EPIPE;
        at += n;
        left -= (size_t) n;
    }
    return 0;
}

int probe_gpus(struct probe_gpu ret[static PROBE_GPUS_MAX], struct err *err) {
    _cleanup_close_ int in = -1, out = -1;
    static struct answer a;
    int ends[2], r;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    in = ends[0];
    out = ends[1];
    pid = fork();
    if (pid < 0)
        return err_errno(err, errno, "cannot fork");
    if (pid == 0)
        send_answer(out);
    (void) close(take_fd(&out));
    r = receive_answer(in, &a);
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
    if (r == -ETIMEDOUT)
        return err_set(err, ETIMEDOUT, "the NVIDIA driver did not answer within a minute");
    if (r < 0)
        return err_set(err, EIO, "the NVIDIA driver crashed while its GPUs were listed");
    if (a.count < 0)
        return err_set(err, -a.count, "%s", a.err.text);
    memcpy(ret, a.gpu, sizeof(a.gpu));
    return a.count;
}
