/* SPDX-License-Identifier: Apache-2.0 */

/* A program that calls the driver and says how much CPU time it took. It is run as it is, with
 * libaliquot.so and with other libraries in front of the same driver; the differences are what they
 * add (tests/bench/intercept.py).
 *
 *     driver_calls calls BATCH ROUNDS   `name<TAB>best<TAB>median` ns of a call, thread's CPU time;
 *                                       the work is waited for after each BATCH, outside the time;
 *                                       and the bytes of memory that the card is said to have
 *     driver_calls crowd N              N programs call cuInit at once: `name<TAB>least<TAB>median
 *                                       <TAB>most` of their CPU ns since exec, then the wall time
 *     driver_calls begin FD             one of them
 *     driver_calls share DIR MEMORY CORE   puts a share of card 0 into DIR and prints its UUID */

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "share/compute.h"
#include "share/ledger.h"
#include "share/limits.h"

/* Found by dlsym, as NVIDIA's runtime does; not every library can be reached by linking. */
#define FUNCTIONS(X)                                                                               \
    X(cuInit, (unsigned int) )                                                                     \
    X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                    \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    X(cuCtxSetCurrent, (CUcontext))                                                                \
    X(cuCtxSynchronize, (void) )                                                                   \
    X(cuModuleLoadData, (CUmodule *, const void *) )                                               \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *) )                                \
    X(cuMemGetInfo_v2, (size_t *, size_t *) )                                                      \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    X(cuMemFree_v2, (CUdeviceptr))                                                                 \
    X(cuLaunchKernel, (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,         \
                       unsigned int, unsigned int, unsigned int, CUstream, void **, void **) )

static struct {
#define MEMBER(name, params) CUresult(*name) params;
    FUNCTIONS(MEMBER)
} cuda;

static int find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

#define FIND(name, params)                                                                         \
    cuda.name = library ? (CUresult(*) params) dlsym(library, #name) : NULL;                       \
    if (!cuda.name) {                                                                              \
        (void) fprintf(stderr, "driver_calls: no %s\n", #name);                                    \
        return -1;                                                                                 \
    }
    FUNCTIONS(FIND)
    return 0;
}

#define ROUNDS_MAX 10000
#define CROWD_MAX 4096

/* A kernel that is over at once, for the simulated driver and for a real one. */
static const char *const module_images[] = {
    "ALIQUOT SIMULATED MODULE 1\nkernel spin spin\n",
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns) {\n    ret;\n}\n"};

static CUfunction spin;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;

    (void) clock_gettime(clock, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static int complain(const char *what, CUresult r) {
    (void) fprintf(stderr, "driver_calls: %s answered %d\n", what, (int) r);
    return 1;
}

static CUresult launch(void) {
    uint64_t ns = 0;
    void *params[] = {&ns};

    return cuda.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

static CUresult take_and_give(void) {
    CUdeviceptr pointer;
    CUresult r = cuda.cuMemAlloc_v2(&pointer, 1 << 20);

    return r == CUDA_SUCCESS ? cuda.cuMemFree_v2(pointer) : r;
}

static CUresult ask(void) {
    size_t free_bytes, total;

    return cuda.cuMemGetInfo_v2(&free_bytes, &total);
}

static const struct {
    const char *name;
    CUresult (*call)(void);
} kinds[] = {
    {"cuLaunchKernel", launch}, {"cuMemAlloc+cuMemFree", take_and_give}, {"cuMemGetInfo", ask}};

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

static int measure(size_t kind, long batch, long rounds) {
    static uint64_t taken[ROUNDS_MAX];
    CUresult r = CUDA_SUCCESS;

    for (long round = 0; round < rounds; round++) {
        uint64_t start = clock_ns(CLOCK_THREAD_CPUTIME_ID);

        for (long i = 0; i < batch && r == CUDA_SUCCESS; i++)
            r = kinds[kind].call();
        taken[round] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
        if (r == CUDA_SUCCESS)
            r = cuda.cuCtxSynchronize();
        if (r != CUDA_SUCCESS)
            return complain(kinds[kind].name, r);
    }
    qsort(taken, (size_t) rounds, sizeof(taken[0]), compare);
    (void) printf("%s\t%.1f\t%.1f\n", kinds[kind].name, (double) taken[0] / (double) batch,
                  (double) taken[rounds / 2] / (double) batch);
    return 0;
}

static CUresult load(CUmodule *ret) {
    CUresult r = cuda.cuModuleLoadData(ret, module_images[0]);

    return r == CUDA_SUCCESS ? r : cuda.cuModuleLoadData(ret, module_images[1]);
}

static int calls(long batch, long rounds) {
    size_t free_bytes = 0, total = 0;
    CUmodule module;
    CUcontext ctx;
    CUresult r = cuda.cuInit(0);

    if (r == CUDA_SUCCESS)
        r = cuda.cuDevicePrimaryCtxRetain(&ctx, 0);
    if (r == CUDA_SUCCESS)
        r = cuda.cuCtxSetCurrent(ctx);
    if (r == CUDA_SUCCESS)
        r = load(&module);
    if (r == CUDA_SUCCESS)
        r = cuda.cuModuleGetFunction(&spin, module, "spin");
    if (r == CUDA_SUCCESS)
        r = cuda.cuMemGetInfo_v2(&free_bytes, &total);
    if (r != CUDA_SUCCESS)
        return complain("beginning", r);
    (void) printf("shows\t%zu\n", total);
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++)
        if (measure(kind, batch, rounds) != 0)
            return 1;
    return 0;
}

/* Waits until its standard input ends, so that all of a crowd go on together. */
static int begin(int fd) {
    uint64_t taken;
    char byte;
    CUresult r;

    (void) !read(STDIN_FILENO, &byte, 1);
    r = cuda.cuInit(0);
    taken = r == CUDA_SUCCESS ? clock_ns(CLOCK_PROCESS_CPUTIME_ID) : 0;
    return write(fd, &taken, sizeof(taken)) == (ssize_t) sizeof(taken) ? 0 : 1;
}

static int start_crowd(long n, const int gate[2], const int results[2]) {
    char fd[16];

    (void) snprintf(fd, sizeof(fd), "%d", results[1]);
    for (long i = 0; i < n; i++) {
        pid_t pid = fork();

        if (pid < 0)
            return -errno;
        if (pid == 0) {
            (void) dup2(gate[0], STDIN_FILENO);
            (void) close(gate[1]);
            (void) execl("/proc/self/exe", "driver_calls", "begin", fd, (char *) NULL);
            _exit(127);
        }
    }
    return 0;
}

static int crowd(long n) {
    static uint64_t taken[CROWD_MAX];
    int gate[2], results[2], failed = 0;
    uint64_t start;
    long got = 0;

    if (n < 1 || n > CROWD_MAX || pipe(gate) < 0 || pipe(results) < 0 ||
        start_crowd(n, gate, results) < 0) {
        (void) fprintf(stderr, "driver_calls: cannot start %ld processes\n", n);
        return 1;
    }
    (void) close(results[1]);
    (void) close(gate[0]);
    start = clock_ns(CLOCK_MONOTONIC);
    (void) close(gate[1]);
    while (got < n && read(results[0], &taken[got], sizeof(taken[0])) == (ssize_t) sizeof(taken[0]))
        failed += taken[got++] == 0;
    start = clock_ns(CLOCK_MONOTONIC) - start;
    while (wait(NULL) > 0)
        ;
    if (got < n || failed) {
        (void) fprintf(stderr, "driver_calls: %ld of %ld did not get through cuInit\n",
                       n - got + failed, n);
        return 1;
    }
    qsort(taken, (size_t) n, sizeof(taken[0]), compare);
    (void) printf("cuInit\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\nwall\t%" PRIu64 "\n", taken[0],
                  taken[n / 2], taken[n - 1], start);
    return 0;
}

static int uuid_of(CUdevice device, char *ret, size_t size) {
    CUuuid uuid;
    const unsigned char *b = (const unsigned char *) uuid.bytes;
    CUresult r = cuda.cuInit(0);

    if (r == CUDA_SUCCESS)
        r = cuda.cuDeviceGetUuid_v2(&uuid, device);
    if (r != CUDA_SUCCESS)
        return complain("cuDeviceGetUuid", r);
    (void) snprintf(ret, size,
                    "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                    b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                    b[13], b[14], b[15]);
    return 0;
}

static int share(const char *dir, const char *memory, const char *core) {
    struct share_limits limits = {.ndevices = 1};
    char path[4][PATH_MAX];
    static const char *const names[4] = {"limits", "ledger", "grants", "compute"};
    struct err err = {0};

    if (uuid_of(0, limits.device[0].uuid, sizeof(limits.device[0].uuid)) != 0)
        return 1;
    limits.device[0].memory_bytes = strtoull(memory, NULL, 10);
    limits.device[0].core_percent = (uint32_t) strtoul(core, NULL, 10);
    for (size_t i = 0; i < 4; i++)
        (void) snprintf(path[i], sizeof(path[i]), "%s/%s", dir, names[i]);
    if (limits_create(path[0], &limits, &err) < 0 || ledger_create(path[1], &err) < 0 ||
        compute_create(path[2], path[3], &err) < 0) {
        (void) fprintf(stderr, "driver_calls: %s\n", err.text);
        return 1;
    }
    (void) printf("%s\n", limits.device[0].uuid);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";

    if (argc == 3 && strcmp(what, "crowd") == 0)
        return crowd(strtol(argv[2], NULL, 10));
    if (find_driver() < 0)
        return 1;
    if (argc == 4 && strcmp(what, "calls") == 0) {
        long rounds = strtol(argv[3], NULL, 10);

        return calls(strtol(argv[2], NULL, 10), rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX);
    }
    if (argc == 3 && strcmp(what, "begin") == 0)
        return begin((int) strtol(argv[2], NULL, 10));
    if (argc == 5 && strcmp(what, "share") == 0)
        return share(argv[2], argv[3], argv[4]);
    (void) fprintf(stderr,
                   "usage: driver_calls calls BATCH ROUNDS | crowd N | share DIR MEMORY CORE\n");
    return 2;
}
