/* SPDX-License-Identifier: Apache-2.0 */

/* Every way to launch, one after the other: some launches of 20 ms each, and how long they took.
 * Prints "WAY RATIO" for each, the ratio that of the time that went by to the time that the card
 * had to do. WAY is the exported symbol, or what is special about a graph. */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "abi/cuda.h"

#define CUDA_FN(base, symbol, since, until, stream, params, args) CUresult symbol params;
#include "abi/hooks.def"

#define LAUNCHES 6
#define MS 1000000ull
#define ROUNDS 4
#define MODULE "ALIQUOT SIMULATED MODULE 1\nkernel wait spin\nkernel countdown countdown\n"

static CUfunction wait, countdown;
static CUstream stream;
static CUdeviceptr counter;
static CUgraphExec graph, loop, updated;
static unsigned long long ns = 20 * MS, piece = 20 * MS / ROUNDS, nothing = 1000;
static void *args[] = {&ns}, *piece_args[] = {&piece}, *nothing_args[] = {&nothing};

#define OK(call) check(call, #call)

static void check(CUresult r, const char *what) {
    if (r == CUDA_SUCCESS)
        return;
    (void) fprintf(stderr, "launches: %s: error %d\n", what, (int) r);
    exit(1);
}

#define CONFIG                                                                                     \
    {                                                                                              \
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,               \
        .blockDimZ = 1, .hStream = stream                                                          \
    }
#define SHAPE 1, 1, 1, 1, 1, 1, 0, stream, args

static void kernel(void) {
    OK(cuLaunchKernel(wait, SHAPE, NULL));
}

static void kernel_ptsz(void) {
    OK(cuLaunchKernel_ptsz(wait, SHAPE, NULL));
}

static void ex(void) {
    CUlaunchConfig config = CONFIG;

    OK(cuLaunchKernelEx(&config, wait, args, NULL));
}

static void ex_ptsz(void) {
    CUlaunchConfig config = CONFIG;

    OK(cuLaunchKernelEx_ptsz(&config, wait, args, NULL));
}

static void cooperative(void) {
    OK(cuLaunchCooperativeKernel(wait, SHAPE));
}

static void cooperative_ptsz(void) {
    OK(cuLaunchCooperativeKernel_ptsz(wait, SHAPE));
}

static void multi_device(void) {
    CUDA_LAUNCH_PARAMS params = {.function = wait,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .hStream = stream,
                                 .kernelParams = args};

    OK(cuLaunchCooperativeKernelMultiDevice(&params, 1, 0));
}

static void legacy(void) {
    OK(cuLaunch(wait));
}

static void legacy_grid(void) {
    OK(cuLaunchGrid(wait, 1, 1));
}

static void legacy_grid_async(void) {
    OK(cuLaunchGridAsync(wait, 1, 1, stream));
}

static void graph_launch(void) {
    OK(cuGraphLaunch(graph, stream));
}

static void graph_launch_ptsz(void) {
    OK(cuGraphLaunch_ptsz(graph, stream));
}

/* An upload makes ready, and is not a launch: the launch after it is charged all the same. */
static void graph_upload(void) {
    OK(cuGraphUpload(graph, stream));
    OK(cuGraphLaunch(graph, stream));
}

/* At its old price until it has been measured; what that was too little is paid afterwards. */
static void graph_update(void) {
    OK(cuGraphLaunch(updated, stream));
    OK(cuStreamSynchronize(stream));
}

/* Its time is in the body, which only the card knows how often it runs. */
static void graph_conditional(void) {
    OK(cuMemsetD32Async(counter, ROUNDS, 1, stream));
    OK(cuGraphLaunch(loop, stream));
}

static const struct {
    const char *name;
    void (*launch)(void);
} ways[] = {
    {"cuLaunchKernel", kernel},
    {"cuLaunchKernel_ptsz", kernel_ptsz},
    {"cuLaunchKernelEx", ex},
    {"cuLaunchKernelEx_ptsz", ex_ptsz},
    {"cuLaunchCooperativeKernel", cooperative},
    {"cuLaunchCooperativeKernel_ptsz", cooperative_ptsz},
    {"cuLaunchCooperativeKernelMultiDevice", multi_device},
    {"cuLaunch", legacy},
    {"cuLaunchGrid", legacy_grid},
    {"cuLaunchGridAsync", legacy_grid_async},
    {"cuGraphLaunch", graph_launch},
    {"cuGraphLaunch_ptsz", graph_launch_ptsz},
    {"uploaded", graph_upload},
    {"updated", graph_update},
    {"conditional", graph_conditional},
};

static CUgraphNode add(CUgraph to, CUgraphNode behind, CUfunction function, void **params) {
    CUDA_KERNEL_NODE_PARAMS node = {.func = function,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
    CUgraphNode added;

    OK(cuGraphAddKernelNode_v2(&added, to, behind ? &behind : NULL, behind ? 1 : 0, &node));
    return added;
}

static CUgraph with_kernel(void **params) {
    CUgraph made;

    OK(cuGraphCreate(&made, 0));
    (void) add(made, NULL, wait, params);
    return made;
}

static void make_loop(void) {
    CUgraphConditionalHandle handle;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    void *down[] = {&handle, &counter};
    CUgraphNode node;
    CUgraph made;

    OK(cuGraphCreate(&made, 0));
    OK(cuGraphConditionalHandleCreate(&handle, made, NULL, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
    params.conditional.size = 1;
    OK(cuGraphAddNode(&node, made, NULL, 0, &params));
    node = add(params.conditional.phGraph_out[0], NULL, countdown, down);
    (void) add(params.conditional.phGraph_out[0], node, wait, piece_args);
    OK(cuGraphInstantiateWithFlags(&loop, made, 0));
}

/* Known as one that costs nothing before it becomes what it is. */
static void make_updated(void) {
    CUgraphExecUpdateResultInfo info;

    OK(cuGraphInstantiateWithFlags(&updated, with_kernel(nothing_args), 0));
    for (int i = 0; i < 100; i++)
        OK(cuGraphLaunch(updated, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecUpdate_v2(updated, with_kernel(args), &info));
}

static void prepare(void) {
    CUcontext context;
    CUmodule module;

    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, MODULE));
    OK(cuModuleGetFunction(&wait, module, "wait"));
    OK(cuModuleGetFunction(&countdown, module, "countdown"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&counter, sizeof(unsigned int)));
    OK(cuFuncSetBlockShape(wait, 1, 1, 1));
    OK(cuParamSetv(wait, 0, &ns, sizeof(ns)));
    OK(cuParamSetSize(wait, sizeof(ns)));
    OK(cuGraphInstantiateWithFlags(&graph, with_kernel(args), 0));
    make_loop();
    make_updated();
}

static unsigned long long now(void) {
    struct timespec t;

    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long) t.tv_sec * 1000000000ull + (unsigned long long) t.tv_nsec;
}

int main(void) {
    prepare();
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        unsigned long long began = now();

        for (int n = 0; n < LAUNCHES; n++)
            ways[i].launch();
        OK(cuCtxSynchronize());
        (void) printf("%s %.2f\n", ways[i].name,
                      (double) (now() - began) / (double) (LAUNCHES * ns));
    }
    return 0;
}
