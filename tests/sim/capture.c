/* SPDX-License-Identifier: Apache-2.0 */

/* Stream capture on the simulated driver: what it makes, and the errors of what it cannot take. */

#include <pthread.h>
#include <string.h>

#include "check.h"

#define MIB ((size_t) 1 << 20)

static CUfunction spin;

static CUstreamCaptureStatus status_of(CUstream s) {
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(s, &status));
    return status;
}

static void begin(CUstream s) {
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    REQUIRE(status_of(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

/* The capture has been invalidated, and is over. */
static void end_invalid(CUstream s) {
    CUgraph g = (CUgraph) 1;
    REQUIRE(status_of(s) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REQUIRE(g == NULL && status_of(s) == CU_STREAM_CAPTURE_STATUS_NONE);
}

static size_t nodes_of(CUgraph g) {
    size_t n;
    OK(cuGraphGetNodes(g, NULL, &n));
    return n;
}

static void launch_and_destroy(CUgraph g, CUstream s) {
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
}

static int called;

static void call(void *user) {
    called += (int) (intptr_t) user;
}

static void everything(CUstream s) {
    CUgraph g;
    CUdeviceptr p, q;
    unsigned char in[16], out[16] = {0};
    size_t before = check_free();
    memset(in, 7, sizeof(in));
    OK(cuMemAlloc_v2(&p, 16));
    begin(s);
    OK(cuMemcpyHtoDAsync_v2(p, in, 16, s));
    OK(cuMemsetD8Async(p + 8, 3, 8, s));
    check_spin(spin, 1000, s);
    OK(cuMemAllocAsync(&q, MIB, s));
    OK(cuMemcpyDtoDAsync_v2(q, p, 16, s));
    OK(cuMemcpyDtoHAsync_v2(out, q, 16, s));
    OK(cuMemFreeAsync(q, s));
    OK(cuLaunchHostFunc(s, call, (void *) 1));
    REQUIRE(out[0] == 0 && called == 0); /* nothing has run */
    OK(cuStreamEndCapture(s, &g));
    REQUIRE(nodes_of(g) == 8);
    launch_and_destroy(g, s);
    REQUIRE(out[0] == 7 && out[8] == 3 && called == 1);
    OK(cuMemFree_v2(p));
    OK(cuDeviceGraphMemTrim(0));
    REQUIRE(check_free() == before);
}

static void fork_and_join(CUstream s, CUstream other) {
    CUgraph g, seen;
    CUevent forked, joined;
    const CUgraphNode *dependencies;
    cuuint64_t id;
    size_t n;
    CUstreamCaptureStatus status;
    OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    begin(s);
    check_spin(spin, 1000, s);
    OK(cuEventRecord(forked, s));
    OK(cuStreamWaitEvent(other, forked, 0));
    REQUIRE(status_of(other) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    check_spin(spin, 1000, other);
    check_spin(spin, 1000, s);
    OK(cuEventRecord(joined, other));
    OK(cuStreamWaitEvent(s, joined, 0));
    OK(cuStreamGetCaptureInfo_v2(s, &status, &id, &seen, &dependencies, &n));
    REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 2 && id > 0);
    check_spin(spin, 1000, s);
    OK(cuStreamEndCapture(s, &g));
    REQUIRE(g == seen && nodes_of(g) == 4);
    OK(cuGraphGetEdges(g, NULL, NULL, &n));
    REQUIRE(n == 4 && status_of(other) == CU_STREAM_CAPTURE_STATUS_NONE);
    launch_and_destroy(g, s);
    /* The events stay captured until they are recorded anew. */
    EXPECT(cuEventQuery(forked), CUDA_ERROR_CAPTURED_EVENT);
    OK(cuEventRecord(forked, s));
    OK(cuEventSynchronize(forked));
    /* Not joined back. */
    begin(s);
    OK(cuEventRecord(joined, s));
    OK(cuStreamWaitEvent(other, joined, 0));
    check_spin(spin, 1000, other);
    EXPECT(cuStreamEndCapture(other, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    end_invalid(s);
    begin(s);
    OK(cuEventRecord(joined, s));
    OK(cuStreamWaitEvent(other, joined, 0));
    check_spin(spin, 1000, other);
    EXPECT(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    REQUIRE(status_of(other) == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuEventDestroy_v2(forked));
    OK(cuEventDestroy_v2(joined));
}

static void refusals(CUstream s, CUstream other) {
    CUgraph g;
    CUevent event;
    CUdeviceptr p;
    char byte;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, other));
    EXPECT(cuStreamBeginCapture_v2(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuStreamEndCapture(s, &g), CUDA_ERROR_ILLEGAL_STATE);
    begin(s);
    EXPECT(cuStreamBeginCapture_v2(s, 0), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuMemsetD8Async(4096, 0, 1, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_invalid(s);
    begin(s);
    EXPECT(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(s);
    begin(s);
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(s);
    begin(s);
    EXPECT(cuMemAlloc_v2(&p, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(s);
    begin(s);
    EXPECT(cuStreamWaitEvent(s, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    end_invalid(s);
    begin(s);
    EXPECT(cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(s);
    begin(s);
    OK(cuEventRecord(event, s));
    EXPECT(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    end_invalid(s);
    /* The two captures cannot become one. */
    begin(s);
    OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, s));
    EXPECT(cuStreamWaitEvent(other, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    end_invalid(s);
    end_invalid(other);
    OK(cuMemAlloc_v2(&p, 1));
    begin(s);
    EXPECT(cuMemcpyDtoH_v2(&byte, p, 1), CUDA_SUCCESS); /* `s` does not wait for the legacy one */
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphDestroy(g));
    OK(cuMemFree_v2(p));
    OK(cuEventDestroy_v2(event));
}

static void legacy(void) {
    CUstream s;
    CUstreamCaptureStatus status;
    CUdeviceptr p;
    char byte = 0;
    OK(cuMemAlloc_v2(&p, 1));
    OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
    begin(s);
    EXPECT(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    REQUIRE(status_of(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(cuMemcpyDtoH_v2(&byte, p, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end_invalid(s);
    begin(s);
    void *params[] = {&byte};
    EXPECT(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
           CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end_invalid(s);
    begin(s);
    OK(cuStreamDestroy_v2(s)); /* ends it */
    OK(cuMemFree_v2(p));
}

static CUresult in_thread_result;
static CUgraph in_thread_graph;

static void *alloc_in_thread(void *arg) {
    CUdeviceptr p;
    CUstreamCaptureMode mode = *(CUstreamCaptureMode *) arg;
    CUcontext ctx;
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    REQUIRE(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    in_thread_result = cuMemAlloc_v2(&p, 1);
    if (in_thread_result == CUDA_SUCCESS)
        OK(cuMemFree_v2(p));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    return NULL;
}

static void *end_in_thread(void *arg) {
    CUcontext ctx;
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    in_thread_result = cuStreamEndCapture(arg, &in_thread_graph);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    return NULL;
}

static CUresult run_thread(void *(*fn)(void *), void *arg) {
    pthread_t t;
    REQUIRE(pthread_create(&t, NULL, fn, arg) == 0);
    REQUIRE(pthread_join(t, NULL) == 0);
    return in_thread_result;
}

static void threads(CUstream s) {
    static const struct {
        CUstreamCaptureMode capture, thread;
        CUresult result;
    } cases[] = {
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
         CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS},
        {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS},
    };
    CUgraph g;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CUstreamCaptureMode mode = cases[i].thread;
        OK(cuStreamBeginCapture_v2(s, cases[i].capture));
        EXPECT(run_thread(alloc_in_thread, &mode), cases[i].result);
        if (cases[i].result == CUDA_SUCCESS) {
            OK(cuStreamEndCapture(s, &g));
            OK(cuGraphDestroy(g));
        } else {
            end_invalid(s);
        }
    }
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT(run_thread(end_in_thread, s), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphDestroy(g));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(run_thread(end_in_thread, s), CUDA_SUCCESS);
    OK(cuGraphDestroy(in_thread_graph));
}

static void into_a_graph(CUstream s) {
    CUgraph g, same, child;
    CUgraphExec exec;
    CUgraphNode root, list[2];
    CUgraphNodeType type;
    size_t n = 2;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddEmptyNode(&root, g, NULL, 0));
    OK(cuStreamBeginCaptureToGraph(s, g, &root, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_spin(spin, 1000, s);
    OK(cuStreamUpdateCaptureDependencies(s, &root, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    check_spin(spin, 1000, s);
    OK(cuStreamUpdateCaptureDependencies(s, NULL, 0, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    OK(cuStreamEndCapture(s, &same));
    REQUIRE(same == g && nodes_of(g) == 3);
    OK(cuGraphNodeGetDependentNodes(root, list, &n));
    REQUIRE(n == 2);
    /* An executable graph in a capture becomes a child. */
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    begin(s);
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamEndCapture(s, &child));
    n = 1;
    OK(cuGraphGetNodes(child, list, &n));
    OK(cuGraphNodeGetType(list[0], &type));
    REQUIRE(type == CU_GRAPH_NODE_TYPE_GRAPH);
    OK(cuGraphExecDestroy(exec));
    launch_and_destroy(child, s);
    OK(cuGraphDestroy(g));
}

static void per_thread_stream(void) {
    CUgraph g;
    CUstreamCaptureStatus status;
    OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamIsCapturing_ptsz(NULL, &status));
    REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    unsigned long long ns = 1000;
    void *params[] = {&ns};
    OK(cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuStreamEndCapture_ptsz(NULL, &g));
    REQUIRE(nodes_of(g) == 1);
    launch_and_destroy(g, CU_STREAM_PER_THREAD);
}

int main(void) {
    (void) check_start(0);
    CUstream s, other;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    spin = check_function("spin");
    everything(s);
    fork_and_join(s, other);
    refusals(s, other);
    legacy();
    threads(s);
    into_a_graph(s);
    per_thread_stream();
    OK(cuStreamDestroy_v2(s));
    OK(cuStreamDestroy_v2(other));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    (void) puts("ok");
    return 0;
}
