/* SPDX-License-Identifier: Apache-2.0 */

/* A tenant under remote control. `probe serve PORT` listens; every connection is a process of its
 * own (forked and executed anew, as any program that a container starts), which obeys one command a
 * line and answers each with one line of JSON. Closing the connection ends the process in good
 * order. `probe report` prints what a program finds here, and ends: for init containers, which
 * no client can connect to in time.
 *
 *     pid                     this process in its container
 *     started                 CLOCK_REALTIME in nanoseconds when main() of `serve` began
 *     visible LIST            CUDA_VISIBLE_DEVICES of this process, before the driver is used
 *     driver                  the CUDA driver's devices
 *     nvml                    NVML's devices and the processes on them
 *     info DEVICE             cuMemGetInfo
 *     alloc DEVICE BYTES      cuMemAlloc, with a context first when there is none
 *     free POINTER            cuMemFree
 *     context DEVICE          cuCtxCreate, one more
 *     module DEVICE           cuModuleLoadData of a small module
 *     heap DEVICE BYTES       cuCtxSetLimit of the heap that kernels allocate from
 *     blocks DEVICE BYTES     a thousand cuMemAlloc of so many bytes
 *     churn DEVICE BYTES      a thousand cuMemAlloc, each freed at once
 *     kill PID                SIGKILL to another process of the container; answers when it is dead
 *     write PATH              tries to open for writing
 *     read PATH               the file's bytes in hex (64 KiB at most)
 *     fill PATH BYTE          overwrites the whole file with one byte
 *     truncate PATH SIZE      makes the file as long as that
 */

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "abi/nvml.h"

#define DEVICES_MAX 64
#define NO_DRIVER (-1)

static FILE *out;
static CUcontext contexts[DEVICES_MAX];

/* Looked up anew at each use, as a program that was written without Aliquot in mind would do. */
static void *symbol(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);

    return handle ? dlsym(handle, name) : NULL;
}

#define CUDA(name, ...)                                                                            \
    ({                                                                                             \
        int (*call_)() = (int (*)()) symbol("libcuda.so.1", #name);                                \
        call_ ? call_(__VA_ARGS__) : NO_DRIVER;                                                    \
    })

#define NVML(name, ...)                                                                            \
    ({                                                                                             \
        int (*call_)() = (int (*)()) symbol("libnvidia-ml.so.1", #name);                           \
        call_ ? call_(__VA_ARGS__) : NO_DRIVER;                                                    \
    })

static uint64_t now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t) t.tv_sec * 1000000000U + (uint64_t) t.tv_nsec;
}

static void print_uuid(const CUuuid *uuid) {
    fputs("\"GPU-", out);
    for (size_t i = 0; i < sizeof uuid->bytes; i++)
        fprintf(out, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                (unsigned char) uuid->bytes[i]);
    fputc('"', out);
}

static void print_driver_device(int index) {
    CUdevice device = -1;
    CUuuid uuid = {{0}};
    size_t total = 0;
    char name[128] = "";

    CUDA(cuDeviceGet, &device, index);
    CUDA(cuDeviceGetUuid, &uuid, device);
    CUDA(cuDeviceGetName, name, (int) sizeof name, device);
    CUDA(cuDeviceTotalMem_v2, &total, device);
    fprintf(out, "%s{\"uuid\":", index > 0 ? "," : "");
    print_uuid(&uuid);
    fprintf(out, ",\"name\":\"%s\",\"total\":%zu}", name, total);
}

static void print_driver(void) {
    int count = 0;
    int result = CUDA(cuInit, 0U);

    if (result == CUDA_SUCCESS)
        result = CUDA(cuDeviceGetCount, &count);
    fprintf(out, "{\"result\":%d,\"devices\":[", result);
    for (int i = 0; i < count; i++)
        print_driver_device(i);
    fputs("]}", out);
}

static void print_nvml_processes(nvmlDevice_t device) {
    nvmlProcessInfo_t processes[256];
    unsigned int count = 256;
    int result = NVML(nvmlDeviceGetComputeRunningProcesses_v3, device, &count, processes);

    fprintf(out, ",\"processes_result\":%d,\"processes\":[", result);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < count; i++)
        fprintf(out, "%s{\"pid\":%u,\"used\":%llu}", i > 0 ? "," : "", processes[i].pid,
                processes[i].usedGpuMemory);
    fputs("]", out);
}

static void print_nvml_device(unsigned int index) {
    nvmlDevice_t device = NULL;
    nvmlMemory_t memory = {0};
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "", name[NVML_DEVICE_NAME_V2_BUFFER_SIZE] = "";

    NVML(nvmlDeviceGetHandleByIndex_v2, index, &device);
    NVML(nvmlDeviceGetUUID, device, uuid, (unsigned int) sizeof uuid);
    NVML(nvmlDeviceGetName, device, name, (unsigned int) sizeof name);
    NVML(nvmlDeviceGetMemoryInfo, device, &memory);
    fprintf(out, "%s{\"uuid\":\"%s\",\"name\":\"%s\",\"total\":%llu,\"free\":%llu,\"used\":%llu",
            index > 0 ? "," : "", uuid, name, memory.total, memory.free, memory.used);
    print_nvml_processes(device);
    fputs("}", out);
}

static void print_nvml(void) {
    unsigned int count = 0;
    int result = NVML(nvmlInit_v2);

    if (result == NVML_SUCCESS)
        result = NVML(nvmlDeviceGetCount_v2, &count);
    fprintf(out, "{\"result\":%d,\"devices\":[", result);
    for (unsigned int i = 0; i < count; i++)
        print_nvml_device(i);
    fputs("]}", out);
}

static int use_device(int index) {
    CUdevice device = -1;
    int result;

    if (index < 0 || index >= DEVICES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    result = CUDA(cuInit, 0U);
    if (result == CUDA_SUCCESS)
        result = CUDA(cuDeviceGet, &device, index);
    if (result == CUDA_SUCCESS && !contexts[index])
        result = CUDA(cuDevicePrimaryCtxRetain, &contexts[index], device);
    return result == CUDA_SUCCESS ? CUDA(cuCtxSetCurrent, contexts[index]) : result;
}

static void print_info(int index) {
    size_t free_bytes = 0, total = 0;
    int result = use_device(index);

    if (result == CUDA_SUCCESS)
        result = CUDA(cuMemGetInfo_v2, &free_bytes, &total);
    fprintf(out, "{\"result\":%d,\"free\":%zu,\"total\":%zu}", result, free_bytes, total);
}

static void print_alloc(int index, uint64_t bytes) {
    CUdeviceptr pointer = 0;
    int result = use_device(index);

    if (result == CUDA_SUCCESS)
        result = CUDA(cuMemAlloc_v2, &pointer, (size_t) bytes);
    fprintf(out, "{\"result\":%d,\"pointer\":%llu}", result, pointer);
}

static int new_context(int index, uint64_t unused) {
    CUcontext context = NULL;

    (void) unused;
    return CUDA(cuCtxCreate_v2, &context, 0U, index);
}

static int load_module(int index, uint64_t unused) {
    static const char text[] = "ALIQUOT SIMULATED MODULE 1\nkernel wait spin\ndevice 5000000\n";
    CUmodule module = NULL;

    (void) index;
    (void) unused;
    return CUDA(cuModuleLoadData, &module, text);
}

static int set_heap(int index, uint64_t bytes) {
    (void) index;
    return CUDA(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, (size_t) bytes);
}

static int take_blocks(int index, uint64_t bytes) {
    CUdeviceptr pointer = 0;
    int result = CUDA_SUCCESS;

    (void) index;
    for (int i = 0; i < 1000 && result == CUDA_SUCCESS; i++)
        result = CUDA(cuMemAlloc_v2, &pointer, (size_t) bytes);
    return result;
}

static int churn(int index, uint64_t bytes) {
    CUdeviceptr pointer = 0;
    int result = CUDA_SUCCESS;

    (void) index;
    for (int i = 0; i < 1000 && result == CUDA_SUCCESS; i++) {
        result = CUDA(cuMemAlloc_v2, &pointer, (size_t) bytes);
        if (result == CUDA_SUCCESS)
            result = CUDA(cuMemFree_v2, pointer);
    }
    return result;
}

/* Commands on a device that say nothing but the driver's result. */
static const struct {
    const char *name;
    int (*run)(int index, uint64_t bytes);
} on_device[] = {
    {"context", new_context}, {"module", load_module}, {"heap", set_heap},
    {"blocks", take_blocks},  {"churn", churn},
};

static bool obey_device(const char *word, int index, uint64_t bytes) {
    for (size_t i = 0; i < sizeof on_device / sizeof *on_device; i++) {
        int result;

        if (strcmp(word, on_device[i].name) != 0)
            continue;
        result = use_device(index);
        if (result == CUDA_SUCCESS)
            result = on_device[i].run(index, bytes);
        fprintf(out, "{\"result\":%d}", result);
        return true;
    }
    return false;
}

static void print_write(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    fprintf(out, "{\"errno\":%d}", fd < 0 ? errno : 0);
    if (fd >= 0)
        close(fd);
}

static void print_read(const char *path) {
    static unsigned char bytes[64 << 10];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);

    fprintf(out, "{\"errno\":%d,\"hex\":\"", n < 0 ? errno : 0);
    for (ssize_t i = 0; i < n; i++)
        fprintf(out, "%02x", bytes[i]);
    fputs("\"}", out);
    if (fd >= 0)
        close(fd);
}

/* What waitpid() tells a parent: the process is gone with everything that it held. */
static void print_kill(pid_t pid) {
    struct pollfd life = {.fd = (int) syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    bool dead = life.fd >= 0 && kill(pid, SIGKILL) == 0 && poll(&life, 1, 10000) == 1;

    fprintf(out, "{\"dead\":%s}", dead ? "true" : "false");
    if (life.fd >= 0)
        close(life.fd);
}

static void print_fill(const char *path, int byte) {
    unsigned char block[4096];
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    off_t left = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = 0;

    memset(block, byte, sizeof block);
    for (off_t at = 0; n >= 0 && at < left; at += n)
        n = pwrite(fd, block,
                   left - at < (off_t) sizeof block ? (size_t) (left - at) : sizeof block, at);
    fprintf(out, "{\"errno\":%d,\"size\":%lld}", fd < 0 || n < 0 ? errno : 0, (long long) left);
    if (fd >= 0)
        close(fd);
}

static void obey(char *line, const char *started) {
    char *word = strtok(line, " \n");
    char *first = strtok(NULL, " \n");
    char *second = strtok(NULL, " \n");
    uint64_t a = first ? strtoull(first, NULL, 0) : 0;
    uint64_t b = second ? strtoull(second, NULL, 0) : 0;

    if (!word)
        fputs("{}", out);
    else if (!strcmp(word, "pid"))
        fprintf(out, "{\"pid\":%d}", getpid());
    else if (!strcmp(word, "started"))
        fprintf(out, "{\"ns\":%s}", started);
    else if (first && !strcmp(word, "visible"))
        fprintf(out, "{\"result\":%d}", setenv("CUDA_VISIBLE_DEVICES", first, 1));
    else if (!strcmp(word, "driver"))
        print_driver();
    else if (!strcmp(word, "nvml"))
        print_nvml();
    else if (!strcmp(word, "info"))
        print_info((int) a);
    else if (!strcmp(word, "alloc"))
        print_alloc((int) a, b);
    else if (!strcmp(word, "free"))
        fprintf(out, "{\"result\":%d}", CUDA(cuMemFree_v2, (CUdeviceptr) a));
    else if (!strcmp(word, "kill"))
        print_kill((pid_t) a);
    else if (first && !strcmp(word, "write"))
        print_write(first);
    else if (first && !strcmp(word, "read"))
        print_read(first);
    else if (first && !strcmp(word, "fill"))
        print_fill(first, (int) b);
    else if (first && !strcmp(word, "truncate"))
        fprintf(out, "{\"errno\":%d}", truncate(first, (off_t) b) < 0 ? errno : 0);
    else if (obey_device(word, (int) a, b))
        ;
    else
        fputs("{\"error\":\"unknown command\"}", out);
    fputc('\n', out);
    fflush(out);
}

static int session(int fd, const char *started) {
    FILE *in = fdopen(fd, "r");
    char line[4096];

    out = fdopen(dup(fd), "w");
    if (!in || !out)
        return 1;
    while (fgets(line, sizeof line, in))
        obey(line, started);
    return 0;
}

static void start_session(int fd, const char *started) {
    char number[16];

    if (fork() != 0)
        return;
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", "probe", "session", number, started, (char *) NULL);
    _exit(127);
}

static int serve(uint16_t port, const char *started) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    signal(SIGCHLD, SIG_IGN);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *) &address, sizeof address) < 0 ||
        listen(listener, 64) < 0) {
        perror("probe: listen");
        return 1;
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);

        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        start_session(fd, started);
        close(fd);
    }
}

static int report(void) {
    out = stdout;
    fputs("{\"driver\":", out);
    print_driver();
    fputs(",\"nvml\":", out);
    print_nvml();
    fputs("}\n", out);
    return fflush(out) ? 1 : 0;
}

/* PID 1 of a container is not killed by a SIGTERM that it has no handler for. */
static void end(int number) {
    _exit(128 + number);
}

int main(int argc, char **argv) {
    char started[32];

    snprintf(started, sizeof started, "%" PRIu64, now_ns());
    if (argc == 2 && !strcmp(argv[1], "report"))
        return report();
    if (argc == 4 && !strcmp(argv[1], "session"))
        return session((int) strtol(argv[2], NULL, 10), argv[3]);
    if (argc == 3 && !strcmp(argv[1], "serve")) {
        signal(SIGTERM, end);
        return serve((uint16_t) strtoul(argv[2], NULL, 10), started);
    }
    if (argc == 3 && !strcmp(argv[1], "stubborn")) {
        signal(SIGTERM, SIG_IGN);
        return serve((uint16_t) strtoul(argv[2], NULL, 10), started);
    }
    fputs("usage: probe serve PORT | stubborn PORT | report\n", stderr);
    return 2;
}
