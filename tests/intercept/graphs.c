/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of graphs: what is free after each step, and what is refused. Ends with "ok", or with the
 * step that went wrong. */

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "books.h"

static CUstream stream;

/* What the device keeps for graphs. */
static size_t held(void) {
    cuuint64_t bytes = 0;

    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

static CUDA_MEM_ALLOC_NODE_PARAMS params_for(size_t bytes) {
    return (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                        .bytesize = bytes};
}

/* A graph that allocates and frees. */
static CUgraph make(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = params_for(bytes);
    CUgraphNode alloc, release;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    OK(cuGraphAddMemFreeNode(&release, graph, &alloc, 1, params.dptr));
    return graph;
}

static void trim(void) {
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    CHECK(held() == 0);
}

static void nodes(void) {
    size_t before = free_now();
    CUgraph graph = make(PIECE);
    CUgraphExec exec;

    CHECK(free_now() == before); /* a description takes nothing */
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(free_now() == before - held());
    OK(cuGraphLaunch(exec, stream));
    CHECK(held() == PIECE && free_now() == before - PIECE);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(free_now() == before - held());
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    trim();
    CHECK(free_now() == before);
}

static void uploaded(void) {
    size_t before = free_now();
    CUgraph graph = make(3 * PIECE);
    CUgraphExec exec;

    OK(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
    OK(cuGraphUpload(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(free_now() == before - held());
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    trim();
    CHECK(free_now() == before);
}

/* Whichever call would let the driver take the memory is refused, and only that. */
static void too_large(void) {
    size_t before = free_now();
    CUDA_GRAPH_INSTANTIATE_PARAMS with = {.flags = 0};
    CUgraph graph = make(total), parent;
    CUgraphExec exec;
    CUgraphNode node;

    REFUSED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    REFUSED(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
    REFUSED(cuGraphInstantiateWithParams(&exec, graph, &with));
    REFUSED(cuGraphInstantiateWithParams_ptsz(&exec, graph, &with));
    OK(cuGraphCreate(&parent, 0));
    if (cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph) == CUDA_SUCCESS)
        REFUSED(cuGraphInstantiateWithFlags(&exec, parent, 0));
    OK(cuGraphDestroy(parent));
    OK(cuGraphDestroy(graph));
    CHECK(free_now() == before);
}

/* When others took the room between instantiation and launch. */
static void no_room_at_the_launch(void) {
    size_t before = free_now();
    CUgraph graph = make(PIECE);
    CUgraphExec exec;
    CUdeviceptr p;

    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    trim();
    OK(cuMemAlloc_v2(&p, free_now() - PIECE + 1));
    REFUSED(cuGraphLaunch(exec, stream));
    REFUSED(cuGraphLaunch_ptsz(exec, stream));
    REFUSED(cuGraphUpload(exec, stream));
    REFUSED(cuGraphUpload_ptsz(exec, stream));
    CHECK(free_now() == PIECE - 1);
    OK(cuMemFree_v2(p));

    /* With just enough, as often as one likes, one after the other. */
    OK(cuMemAlloc_v2(&p, free_now() - PIECE));
    for (int i = 0; i < 5; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree_v2(p));

    /* What graphs keep without use, others get. */
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemAlloc_v2(&p, before));
    CHECK(free_now() == 0);
    OK(cuMemFree_v2(p));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    trim();
    CHECK(free_now() == before);
}

/* Allocations that a capture turns into nodes. */
static void captured(void) {
    size_t before = free_now();
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr p;

    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&p, PIECE, stream));
    CHECK(free_now() == before);
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(free_now() == before);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    CHECK(free_now() == before - PIECE);
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    trim();
    CHECK(free_now() == before);

    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&p, total, stream));
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamEndCapture(stream, &graph));
    REFUSED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    CHECK(free_now() == before);
}

/* Memory that outlives the launch. */
static void kept(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = params_for(PIECE);
    size_t before = free_now();
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    CHECK(free_now() == before - PIECE);
    OK(cuMemFree_v2(params.dptr));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    trim();
    CHECK(free_now() == before);
}

static CUcontext primary;
static int launching, done;

/* Uses pools for a while from when the graph is launched, and only then lets the stream go on. */
static void *other_thread(void *unused) {
    struct timespec tick = {.tv_nsec = 1000000};
    CUmemoryPool pool;

    OK(cuCtxSetCurrent(primary));
    while (!__atomic_load_n(&launching, __ATOMIC_ACQUIRE))
        (void) nanosleep(&tick, NULL);
    for (int i = 0; i < 200; i++) {
        OK(cuDeviceGetDefaultMemPool(&pool, 0));
        (void) nanosleep(&tick, NULL);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    return unused;
}

static void wait_for_other_thread(void *unused) {
    struct timespec tick = {.tv_nsec = 1000000};

    (void) unused;
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
        (void) nanosleep(&tick, NULL);
}

/* A launch waits for the stream, and the stream for a thread that uses pools. */
static void stream_that_waits_for_a_thread(void) {
    size_t before = free_now();
    CUgraph graph = make(PIECE);
    CUgraphExec exec;
    pthread_t thread;
    CUdeviceptr p;

    (void) alarm(60);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    trim();
    OK(cuMemAlloc_v2(&p, free_now() - PIECE));
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    OK(cuLaunchHostFunc(stream, wait_for_other_thread, NULL));
    OK(cuGraphLaunch(exec, stream));
    CHECK(free_now() == 0);
    __atomic_store_n(&launching, 1, __ATOMIC_RELEASE);
    OK(cuGraphLaunch(exec, stream));
    CHECK(__atomic_load_n(&done, __ATOMIC_ACQUIRE));
    (void) pthread_join(thread, NULL);
    OK(cuMemFree_v2(p));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    trim();
    CHECK(free_now() == before);
}

int main(void) {
    primary = begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    nodes();
    uploaded();
    too_large();
    no_room_at_the_launch();
    captured();
    kept();
    stream_that_waits_for_a_thread();
    (void) printf("ok\n");
    return 0;
}
