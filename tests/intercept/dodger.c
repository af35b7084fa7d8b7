/* SPDX-License-Identifier: Apache-2.0 */

/* Launches kernels of a known length in ways that could keep them from being measured, and says how
 * much of the card's time they took.
 *
 *   dodger WAY NS SECONDS
 *
 * WAY: release (after each launch the primary context is retained and released), refused (after
 * each launch the primary context is destroyed, which the driver refuses), contexts (each launch in
 * a context of its own, which is destroyed at once), elsewhere (into a stream of a context that is
 * not the current one), killed (each launch by a process of its own, which is killed while it
 * destroys the context, before the kernel ends). Prints "SHARE LAUNCHES". */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"

#define CUDA_FN(base, symbol, since, until, stream, params, args) CUresult symbol params;
#include "abi/hooks.def"

#define MODULE "ALIQUOT SIMULATED MODULE 1\nkernel wait spin\n"

static CUcontext primary;
static CUstream stream;
static CUfunction function;
static unsigned long long ns;
static unsigned long launches;

static void check(CUresult r, const char *what) {
    if (r == CUDA_SUCCESS)
        return;
    (void) fprintf(stderr, "dodger: %s: error %d\n", what, (int) r);
    exit(1);
}

static double now(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static void load(void) {
    CUmodule module;

    check(cuModuleLoadData(&module, MODULE), "cuModuleLoadData");
    check(cuModuleGetFunction(&function, module, "wait"), "cuModuleGetFunction");
}

static void launch(void) {
    void *args[] = {&ns};

    launches++;
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL), "cuLaunchKernel");
}

static void by_release(void) {
    CUcontext same;

    launch();
    check(cuDevicePrimaryCtxRetain(&same, 0), "cuDevicePrimaryCtxRetain");
    check(cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void by_refused(void) {
    launch();
    if (cuCtxDestroy_v2(primary) == CUDA_SUCCESS)
        exit(1);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void by_contexts(void) {
    CUcontext context;

    check(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    load();
    launch();
    check(cuCtxDestroy_v2(context), "cuCtxDestroy");
}

static void by_elsewhere(void) {
    CUcontext current = NULL;

    /* The first launch: everything is made in another context, and the primary one is current. */
    if (launches == 0) {
        check(cuCtxCreate_v2(&current, 0, 0), "cuCtxCreate");
        load();
        check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        check(cuCtxPopCurrent_v2(&current), "cuCtxPopCurrent");
    }
    launch();
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
}

/* Ends by SIGALRM when most of the kernel has run. */
static void by_dying(void) {
    struct itimerval timer = {.it_value = {.tv_usec = (suseconds_t) (ns / 1000 * 9 / 10)}};
    CUcontext context;

    check(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    load();
    launch();
    if (setitimer(ITIMER_REAL, &timer, NULL) < 0)
        exit(1);
    check(cuCtxDestroy_v2(context), "cuCtxDestroy");
    exit(1);
}

static void by_killed(void) {
    char length[24];
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        (void) snprintf(length, sizeof(length), "%llu", ns);
        (void) execl("/proc/self/exe", "dodger", "dying", length, "1", (char *) NULL);
        _exit(1);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
        exit(1);
    launches++;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*launch)(void);
    } ways[] = {{"release", by_release},     {"refused", by_refused}, {"contexts", by_contexts},
                {"elsewhere", by_elsewhere}, {"killed", by_killed},   {"dying", by_dying}};
    void (*way)(void) = NULL;
    double began, seconds;

    if (argc < 4)
        return 2;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, argv[1]) == 0)
            way = ways[i].launch;
    if (!way)
        return 2;
    ns = strtoull(argv[2], NULL, 10);
    seconds = strtod(argv[3], NULL);
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&primary, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    load();
    began = now();
    while (now() - began < seconds)
        way();
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    (void) printf("%.4f %lu\n", (double) launches * (double) ns * 1e-9 / (now() - began), launches);
    return 0;
}
