/* SPDX-License-Identifier: Apache-2.0 */

/* A program that computes: launches work of a known length over and over and says how much of the
 * card's time it got.
 *
 *   tenant WAY NS SECONDS [sync] [DELAY]
 *
 * WAY: kernel, ptsz, ex, cooperative, multi-device, legacy, legacy-async, graph (of 1,000 nodes,
 * together NS), two-streams, capture (kernels, while another stream is captured all the time),
 * one-capture (kernels, while another stream is captured once, from the beginning to the end),
 * fill, fill-rows, copy (of a few bytes within the card, 2,000 ns each: NS must be that), fork
 * (kernels, and after some of them a child that does the same for two seconds), stop (a kernel,
 * after which the process stops itself). Prints "SHARE LAUNCHES": the part of the time between its
 * first launch and the end of the last in which it had the card. */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"

#define CUDA_FN(base, symbol, since, until, stream, params, args) CUresult symbol params;
#include "abi/hooks.def"

#define NODES 1000
#define MODULE "ALIQUOT SIMULATED MODULE 1\nkernel wait spin\n"

static CUfunction function;
static CUgraphExec graph;
static CUdeviceptr memory;
static CUstream streams[2];
static unsigned long long ns;
static unsigned long launches;

static void check(CUresult r, const char *what) {
    if (r == CUDA_SUCCESS)
        return;
    (void) fprintf(stderr, "tenant: %s: error %d\n", what, (int) r);
    exit(1);
}

static double now(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static void by_kernel(void **args) {
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL), "cuLaunchKernel");
}

static void by_ptsz(void **args) {
    check(cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL), "_ptsz");
}

static void by_ex(void **args) {
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1};

    check(cuLaunchKernelEx(&config, function, args, NULL), "cuLaunchKernelEx");
}

static void by_cooperative(void **args) {
    check(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args), "cooperative");
}

static void by_multi_device(void **args) {
    CUDA_LAUNCH_PARAMS params = {.function = function,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .hStream = streams[0],
                                 .kernelParams = args};

    check(cuLaunchCooperativeKernelMultiDevice(&params, 1, 0), "multi-device");
}

static void set_legacy(void **args) {
    check(cuFuncSetBlockShape(function, 1, 1, 1), "cuFuncSetBlockShape");
    check(cuParamSetSize(function, sizeof(ns)), "cuParamSetSize");
    check(cuParamSetv(function, 0, args[0], sizeof(ns)), "cuParamSetv");
}

static void by_legacy(void **args) {
    set_legacy(args);
    check(launches % 2 ? cuLaunch(function) : cuLaunchGrid(function, 1, 1), "cuLaunchGrid");
}

static void by_legacy_async(void **args) {
    set_legacy(args);
    check(cuLaunchGridAsync(function, 1, 1, streams[0]), "cuLaunchGridAsync");
}

static void by_fill(void **args) {
    (void) args;
    check(cuMemsetD32Async(memory, 1, 16, streams[0]), "cuMemsetD32Async");
}

static void by_fill_rows(void **args) {
    (void) args;
    check(cuMemsetD2D8_v2(memory, 64, 1, 16, 4), "cuMemsetD2D8");
}

static void by_copy(void **args) {
    (void) args;
    check(cuMemcpyDtoDAsync_v2(memory + 64, memory, 64, streams[0]), "cuMemcpyDtoDAsync");
}

/* The child has a copy of the throttle, and a driver that answers nothing; then it begins anew. */
static void become_child(void **args) {
    char length[32];

    if (cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL) == CUDA_SUCCESS ||
        cuMemsetD32Async(memory, 1, 16, streams[0]) == CUDA_SUCCESS)
        _exit(1);
    (void) snprintf(length, sizeof(length), "%llu", ns);
    (void) execl("/proc/self/exe", "tenant", "kernel", length, "2", (char *) NULL);
    _exit(1);
}

static void by_fork(void **args) {
    pid_t child = launches == 20 ? fork() : 1;

    if (child == 0)
        become_child(args);
    if (child < 0)
        exit(1);
    by_kernel(args);
}

static void by_stop(void **args) {
    by_kernel(args);
    (void) raise(SIGSTOP);
}

static void wait_for_children(void) {
    int status;

    while (wait(&status) > 0)
        if (status != 0)
            exit(1);
}

static void by_graph(void **args) {
    (void) args;
    check(cuGraphLaunch(graph, streams[0]), "cuGraphLaunch");
}

static void by_stream(void **args) {
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[0], args, NULL), "cuLaunchKernel");
}

static void by_two_streams(void **args) {
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[launches % 2], args, NULL),
          "cuLaunchKernel");
}

static const struct {
    const char *name;
    void (*launch)(void **args);
} ways[] = {
    {"kernel", by_kernel},
    {"ptsz", by_ptsz},
    {"ex", by_ex},
    {"cooperative", by_cooperative},
    {"graph", by_graph},
    {"two-streams", by_two_streams},
    {"capture", by_stream},
    {"one-capture", by_stream},
    {"multi-device", by_multi_device},
    {"legacy", by_legacy},
    {"legacy-async", by_legacy_async},
    {"fill", by_fill},
    {"fill-rows", by_fill_rows},
    {"copy", by_copy},
    {"fork", by_fork},
    {"stop", by_stop},
};

static void make_graph(void) {
    unsigned long long part = ns / NODES;
    void *args[] = {&part};
    CUDA_KERNEL_NODE_PARAMS node = {.func = function,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = args};
    CUgraphNode last = NULL, added;
    CUgraph built;

    check(cuGraphCreate(&built, 0), "cuGraphCreate");
    for (int i = 0; i < NODES; i++) {
        check(cuGraphAddKernelNode_v2(&added, built, last ? &last : NULL, last ? 1 : 0, &node),
              "cuGraphAddKernelNode");
        last = added;
    }
    check(cuGraphInstantiateWithFlags(&graph, built, 0), "cuGraphInstantiate");
}

/* Captures launches all the time in a thread of its own; each captured graph must have exactly what
 * was launched. */
static void *keep_capturing(void *context) {
    void *args[] = {&ns};

    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (;;) {
        CUgraph captured;
        size_t nodes = 0;

        check(cuStreamBeginCapture_v2(streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
        for (int i = 0; i < 100; i++)
            check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[1], args, NULL),
                  "captured launch");
        check(cuStreamEndCapture(streams[1], &captured), "end capture");
        check(cuGraphGetNodes(captured, NULL, &nodes), "cuGraphGetNodes");
        if (nodes != 100) {
            (void) fprintf(stderr, "tenant: %zu nodes captured, not 100\n", nodes);
            exit(1);
        }
        check(cuGraphDestroy(captured), "cuGraphDestroy");
    }
    return NULL;
}

static void begin_capture(void) {
    check(cuStreamBeginCapture_v2(streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
}

/* No events have come into it or invalidated it. */
static void end_capture(void) {
    CUgraph captured;
    size_t nodes = 0;

    check(cuStreamEndCapture(streams[1], &captured), "end capture");
    check(cuGraphGetNodes(captured, NULL, &nodes), "cuGraphGetNodes");
    if (nodes != 0) {
        (void) fprintf(stderr, "tenant: %zu nodes captured, not 0\n", nodes);
        exit(1);
    }
}

static void prepare(const char *way) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext context;
    CUmodule module;
    pthread_t thread;

    check(cuInit(0), "cuInit");
    check(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    check(cuModuleLoadData(&module, MODULE), "cuModuleLoadData");
    check(cuModuleGetFunction(&function, module, "wait"), "cuModuleGetFunction");
    for (int i = 0; i < 2; i++)
        check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuMemAlloc_v2(&memory, 4096), "cuMemAlloc");
    if (strcmp(way, "graph") == 0)
        make_graph();
    if (strcmp(way, "one-capture") == 0) {
        begin_capture();
        return;
    }
    /* Another thread's capture forbids us to wait, else. */
    check(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
    if (strcmp(way, "capture") == 0 && pthread_create(&thread, NULL, keep_capturing, context) != 0)
        exit(1);
}

/* Never for the stream that is being captured. */
static void wait_for_all(const char *way) {
    if (strcmp(way, "capture") == 0)
        check(cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
    else
        check(cuCtxSynchronize(), "cuCtxSynchronize");
}

int main(int argc, char **argv) {
    void (*launch)(void **args) = NULL;
    void *args[] = {&ns};
    double began, seconds, delay;
    int sync;

    if (argc < 4)
        return 2;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, argv[1]) == 0)
            launch = ways[i].launch;
    if (!launch)
        return 2;
    ns = strtoull(argv[2], NULL, 10);
    seconds = strtod(argv[3], NULL);
    sync = argc > 4 && strcmp(argv[4], "sync") == 0;
    delay = argc > 4 + sync ? strtod(argv[4 + sync], NULL) : 0;
    prepare(argv[1]);
    for (began = now(); now() - began < delay;)
        (void) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    began = now();
    while (now() - began < seconds) {
        launch(args);
        launches++;
        if (sync)
            wait_for_all(argv[1]);
    }
    if (strcmp(argv[1], "one-capture") == 0)
        end_capture();
    wait_for_all(argv[1]);
    (void) printf("%.4f %lu\n", (double) launches * (double) ns * 1e-9 / (now() - began), launches);
    (void) fflush(stdout);
    wait_for_children();
    /* Threads may still be capturing. */
    _Exit(0);
}
