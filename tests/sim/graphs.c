/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs on a simulated machine of two A100s. Exits with 0 if all is as it should be. */

#include <string.h>

#include "check.h"

#define MIB ((size_t) 1 << 20)

static CUfunction spin, fill;

/* Waits for a stream and says how many milliseconds of the GPU the launch took. */
static float time_launch(CUgraphExec exec, CUstream s) {
    CUevent begin, end;
    float ms;
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(begin, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuEventRecord(end, s));
    OK(cuStreamSynchronize(s));
    OK(cuEventElapsedTime(&ms, begin, end));
    OK(cuEventDestroy_v2(begin));
    OK(cuEventDestroy_v2(end));
    return ms;
}

static CUgraphNode add_spin(CUgraph g, CUgraphNode behind, unsigned long long ns) {
    CUgraphNode n;
    void *params[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS p = {.func = spin,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = params};
    OK(cuGraphAddKernelNode_v2(&n, g, behind ? &behind : NULL, behind ? 1 : 0, &p));
    return n;
}

static CUgraphNode add_byte(CUgraph g, CUgraphNode behind, CUdeviceptr dst, unsigned int value) {
    CUgraphNode n;
    CUDA_MEMSET_NODE_PARAMS p = {
        .dst = dst, .value = value, .elementSize = 1, .width = 1, .height = 1};
    OK(cuGraphAddMemsetNode(&n, g, behind ? &behind : NULL, behind ? 1 : 0, &p, NULL));
    return n;
}

static unsigned char byte_at(CUdeviceptr p) {
    unsigned char byte;
    OK(cuMemcpyDtoH_v2(&byte, p, 1));
    return byte;
}

static void order_and_time(CUstream s) {
    CUgraph g, clone;
    CUgraphExec exec;
    CUgraphNode list[4], from[4], to[4];
    CUdeviceptr p;
    size_t n;
    OK(cuMemAlloc_v2(&p, 1));
    OK(cuGraphCreate(&g, 0));
    /* Made in the wrong order: the last writer decides, and it is `first`'s successor. */
    CUgraphNode last = add_byte(g, NULL, p, 3);
    CUgraphNode first = add_byte(g, NULL, p, 2);
    CUgraphNode wait = add_spin(g, first, 20000000);
    OK(cuGraphAddDependencies(g, &wait, &last, 1));
    EXPECT(cuGraphAddDependencies(g, &wait, &last, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuGraphAddDependencies(g, &wait, &wait, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphGetNodes(g, NULL, &n));
    REQUIRE(n == 3);
    n = 4;
    OK(cuGraphGetRootNodes(g, list, &n));
    REQUIRE(n == 1 && list[0] == first && list[1] == NULL);
    n = 4;
    OK(cuGraphGetEdges(g, from, to, &n));
    REQUIRE(n == 2);
    n = 1;
    OK(cuGraphNodeGetDependencies(last, list, &n));
    REQUIRE(n == 1 && list[0] == wait);
    OK(cuGraphNodeGetDependentNodes(first, list, &n));
    REQUIRE(n == 1 && list[0] == wait);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    float ms = time_launch(exec, s);
    REQUIRE(byte_at(p) == 3 && ms >= 20 && ms < 40);
    OK(cuGraphClone(&clone, g));
    OK(cuGraphNodeFindInClone(&list[0], last, clone));
    REQUIRE(list[0] != last);
    EXPECT(cuGraphNodeFindInClone(&list[0], last, g), CUDA_ERROR_INVALID_VALUE);
    /* A circle has no order. */
    OK(cuGraphAddDependencies(g, &last, &first, 1));
    CUgraphExec none;
    EXPECT(cuGraphInstantiateWithFlags(&none, g, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphRemoveDependencies(g, &last, &first, 1));
    OK(cuGraphDestroyNode(wait));
    EXPECT(cuGraphDestroyNode(wait), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(g));
    EXPECT(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, s)); /* lives on without its graph */
    OK(cuStreamSynchronize(s));
    OK(cuGraphExecDestroy(exec));
    EXPECT(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(clone));
    OK(cuMemFree_v2(p));
}

/* The sum of its nodes on the card, and little of the host. */
static void thousand_nodes(CUstream s) {
    CUgraph g;
    CUgraphExec exec;
    CUgraphNode n = NULL;
    OK(cuGraphCreate(&g, 0));
    for (int i = 0; i < 1000; i++)
        n = add_spin(g, i % 10 ? n : NULL, 100000);
    OK(cuGraphInstantiate_v2(&exec, g, NULL, NULL, 0));
    OK(cuGraphUpload(exec, s));
    unsigned long long host = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        unsigned long long before = check_now_ns();
        OK(cuGraphLaunch(exec, s));
        unsigned long long took = check_now_ns() - before;
        host = took < host ? took : host;
        OK(cuStreamSynchronize(s));
    }
    REQUIRE(host < 5000000); /* it takes 20,000 ns alone; others share this machine */
    float ms = time_launch(exec, s);
    REQUIRE(ms >= 100 && ms < 150);
    (void) printf("launch of 1,000 nodes: %llu ns\n", host);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
}

static int calls[8];
static int ncalls;

static void note(void *user) {
    calls[ncalls++] = (int) (intptr_t) user;
}

static unsigned char kinds_out[64];

/* A fill, a child graph, a copy, a host function, an event recorded and waited for. */
static CUgraph make_kinds(CUdeviceptr p, CUevent event, CUgraphNode node[4]) {
    CUgraph g, child;
    CUgraphNode n;
    CUgraphNodeType type;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphCreate(&child, 0));
    (void) add_byte(child, NULL, p, 9);
    CUDA_MEMSET_NODE_PARAMS set = {
        .dst = p, .value = 0x0605, .elementSize = 2, .width = 32, .height = 1};
    OK(cuGraphAddMemsetNode(&node[0], g, NULL, 0, &set, NULL));
    OK(cuGraphAddChildGraphNode(&node[1], g, &node[0], 1, child));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = p,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = kinds_out,
                          .WidthInBytes = 64,
                          .Height = 1,
                          .Depth = 1};
    OK(cuGraphAddMemcpyNode(&node[2], g, &node[1], 1, &copy, NULL));
    CUDA_HOST_NODE_PARAMS host = {note, (void *) 1};
    OK(cuGraphAddHostNode(&node[3], g, &node[2], 1, &host));
    OK(cuGraphAddEventRecordNode(&n, g, &node[3], 1, event));
    OK(cuGraphAddEmptyNode(&n, g, &n, 1));
    OK(cuGraphAddEventWaitNode(&n, g, &n, 1, event));
    EXPECT(cuGraphAddBatchMemOpNode(&n, g, NULL, 0, NULL), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphNodeGetType(node[1], &type));
    REQUIRE(type == CU_GRAPH_NODE_TYPE_GRAPH);
    OK(cuGraphDestroy(child)); /* the node has a copy */
    OK(cuGraphChildGraphNodeGetGraph(node[1], &child));
    EXPECT(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
    return g;
}

static void kinds(CUstream s) {
    CUgraphExec exec;
    CUgraphNode node[4];
    CUdeviceptr p;
    CUevent event;
    const unsigned char *out = kinds_out;
    OK(cuMemAlloc_v2(&p, 64));
    OK(cuEventCreate(&event, 0));
    CUgraph g = make_kinds(p, event, node);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    REQUIRE(ncalls == 1 && out[0] == 9 && out[1] == 6 && out[2] == 5 && out[63] == 6);
    OK(cuEventQuery(event));
    /* Changes reach the next launch, not the graph. */
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_HOST_NODE_PARAMS host = {note, (void *) 2};
    OK(cuGraphMemsetNodeGetParams(node[0], &set));
    set.value = 0x0807;
    OK(cuGraphExecMemsetNodeSetParams(exec, node[0], &set, NULL));
    OK(cuGraphExecHostNodeSetParams(exec, node[3], &host));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    REQUIRE(ncalls == 2 && calls[1] == 2 && out[2] == 7);
    OK(cuGraphMemsetNodeGetParams(node[0], &set));
    REQUIRE(set.value == 0x0605);
    /* Nodes can be switched off. */
    unsigned int on = 1;
    OK(cuGraphNodeSetEnabled(exec, node[2], 0));
    OK(cuGraphNodeGetEnabled(exec, node[2], &on));
    REQUIRE(on == 0);
    EXPECT(cuGraphNodeSetEnabled(exec, node[3], 0), CUDA_ERROR_INVALID_VALUE);
    kinds_out[0] = 77;
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    REQUIRE(out[0] == 77 && ncalls == 3);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
    OK(cuEventDestroy_v2(event));
    OK(cuMemFree_v2(p));
}

static void update(CUstream s) {
    CUgraph a, b, other;
    CUgraphExec exec;
    CUgraphNode first, again;
    CUgraphExecUpdateResultInfo info;
    CUDA_KERNEL_NODE_PARAMS params;
    OK(cuGraphCreate(&a, 0));
    OK(cuGraphCreate(&b, 0));
    OK(cuGraphCreate(&other, 0));
    first = add_spin(a, NULL, 1000000);
    again = add_spin(b, NULL, 30000000);
    (void) add_spin(other, add_spin(other, NULL, 1), 1);
    OK(cuGraphInstantiateWithFlags(&exec, a, 0));
    REQUIRE(time_launch(exec, s) < 20);
    OK(cuGraphExecUpdate_v2(exec, b, &info));
    REQUIRE(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    REQUIRE(time_launch(exec, s) >= 30);
    EXPECT(cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    REQUIRE(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    REQUIRE(time_launch(exec, s) >= 30); /* as it was */
    OK(cuGraphKernelNodeGetParams_v2(first, &params));
    REQUIRE(params.func == spin && *(unsigned long long *) params.kernelParams[0] == 1000000);
    OK(cuGraphExecKernelNodeSetParams_v2(exec, again, &params));
    REQUIRE(time_launch(exec, s) < 20);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(a));
    OK(cuGraphDestroy(b));
    OK(cuGraphDestroy(other));
}

static uint64_t graph_memory(CUgraphMem_attribute attr) {
    uint64_t value;
    OK(cuDeviceGetGraphMemAttribute(0, attr, &value));
    return value;
}

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(size_t bytes) {
    return (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                        .bytesize = bytes};
}

static void memory_nodes(CUstream s) {
    size_t before = check_free();
    CUgraph g, clone;
    CUgraphExec exec, second;
    CUgraphNode a, b, c;
    OK(cuGraphCreate(&g, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS p = alloc_params(100 * MIB), q = alloc_params(50 * MIB);
    OK(cuGraphAddMemAllocNode(&a, g, NULL, 0, &p));
    REQUIRE(p.dptr != 0 && check_free() == before); /* an address costs nothing */
    EXPECT(cuMemsetD8_v2(p.dptr, 1, 1), CUDA_ERROR_INVALID_VALUE);
    b = add_byte(g, a, p.dptr, 42);
    OK(cuGraphAddMemFreeNode(&c, g, &b, 1, p.dptr));
    OK(cuGraphAddMemAllocNode(&c, g, &c, 1, &q)); /* can have the same bytes */
    OK(cuGraphAddMemFreeNode(&c, g, &c, 1, q.dptr));
    EXPECT(cuGraphClone(&clone, g), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuGraphDestroyNode(c), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    EXPECT(cuGraphInstantiateWithFlags(&second, g, 0), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(check_free() == before);
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    REQUIRE(check_free() == before - 100 * MIB); /* kept for the next launch */
    REQUIRE(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 100 * MIB);
    REQUIRE(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    REQUIRE(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 100 * MIB);
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphExecDestroy(exec));
    OK(cuStreamSynchronize(s));
    REQUIRE(check_free() == before - 100 * MIB);
    OK(cuDeviceGraphMemTrim(0));
    REQUIRE(check_free() == before);
    OK(cuGraphDestroy(g));
}

/* An allocation that the graph leaves to the program. */
static void memory_that_stays(CUstream s) {
    size_t before = check_free();
    CUgraph g;
    CUgraphExec exec;
    CUgraphNode a;
    CUDA_MEM_ALLOC_NODE_PARAMS p = alloc_params(64 * MIB);
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddMemAllocNode(&a, g, NULL, 0, &p));
    (void) add_byte(g, a, p.dptr, 42);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    OK(cuGraphLaunch(exec, s));
    EXPECT(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE); /* allocated already */
    REQUIRE(byte_at(p.dptr) == 42);
    OK(cuDeviceGraphMemTrim(0));
    REQUIRE(check_free() == before - 64 * MIB);
    OK(cuMemFreeAsync(p.dptr, s));
    EXPECT(cuMemFreeAsync(p.dptr, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, s));
    OK(cuMemFree_v2(p.dptr));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&exec, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    REQUIRE(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 64 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
    REQUIRE(byte_at(p.dptr) == 42); /* the program's, whatever became of the graph */
    OK(cuMemFree_v2(p.dptr));
    OK(cuDeviceGraphMemTrim(0));
    REQUIRE(check_free() == before);
    /* More than there is: found at launch. */
    p = alloc_params(before + 2 * MIB);
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddMemAllocNode(&a, g, NULL, 0, &p));
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    EXPECT(cuGraphLaunch(exec, s), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
    REQUIRE(check_free() == before);
}

/* Two graphs that may run at the same time do not share. */
static void memory_side_by_side(CUstream s, CUstream other) {
    size_t before = check_free();
    CUgraph g[2];
    CUgraphExec exec[2];
    for (int i = 0; i < 2; i++) {
        CUgraphNode a;
        CUDA_MEM_ALLOC_NODE_PARAMS p = alloc_params(32 * MIB);
        OK(cuGraphCreate(&g[i], 0));
        OK(cuGraphAddMemAllocNode(&a, g[i], NULL, 0, &p));
        a = add_spin(g[i], a, 100000000);
        OK(cuGraphAddMemFreeNode(&a, g[i], &a, 1, p.dptr));
        OK(cuGraphInstantiateWithFlags(&exec[i], g[i], 0));
    }
    OK(cuGraphLaunch(exec[0], s));
    OK(cuGraphLaunch(exec[1], s));
    REQUIRE(check_free() == before - 32 * MIB);
    OK(cuGraphLaunch(exec[1], other));
    REQUIRE(check_free() == before - 64 * MIB);
    OK(cuStreamSynchronize(s));
    OK(cuStreamSynchronize(other));
    for (int i = 0; i < 2; i++) {
        OK(cuGraphExecDestroy(exec[i]));
        OK(cuGraphDestroy(g[i]));
    }
    OK(cuDeviceGraphMemTrim(0));
    REQUIRE(check_free() == before);
}

static CUgraphNodeParams conditional(CUgraphConditionalHandle h, unsigned int type,
                                     unsigned int size) {
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                               .conditional = {.handle = h, .type = type, .size = size}};
}

static CUgraphNode add_kernel(CUgraph g, CUgraphNode behind, const char *name, void **params) {
    CUgraphNode n;
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                           .kernel = {.func = check_function(name),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = params}};
    OK(cuGraphAddNode(&n, g, behind ? &behind : NULL, behind ? 1 : 0, &p));
    return n;
}

static void conditions(CUstream s) {
    CUgraph g;
    CUgraphExec exec;
    CUgraphNode n, set;
    CUgraphConditionalHandle choice, loop;
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 8));
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphConditionalHandleCreate(&choice, g, NULL, 0, CU_GRAPH_COND_ASSIGN_DEFAULT));
    OK(cuGraphConditionalHandleCreate(&loop, g, NULL, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    unsigned int which = 1;
    void *params[] = {&choice, &which};
    set = add_kernel(g, NULL, "condition", params);
    CUgraphNodeParams bad = conditional(choice, CU_GRAPH_COND_TYPE_WHILE, 2);
    EXPECT(cuGraphAddNode(&n, g, &set, 1, &bad), CUDA_ERROR_INVALID_VALUE);
    CUgraphNodeParams either = conditional(choice, CU_GRAPH_COND_TYPE_SWITCH, 3);
    OK(cuGraphAddNode(&n, g, &set, 1, &either));
    for (unsigned int i = 0; i < 3; i++)
        (void) add_byte(either.conditional.phGraph_out[i], NULL, p, 10 + i);
    CUDA_HOST_NODE_PARAMS host = {note, NULL};
    EXPECT(cuGraphAddHostNode(&n, either.conditional.phGraph_out[0], NULL, 0, &host),
           CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNodeParams many = conditional(loop, CU_GRAPH_COND_TYPE_WHILE, 1);
    OK(cuGraphAddNode(&n, g, &n, 1, &many));
    CUdeviceptr counter = p + 4;
    void *down[] = {&loop, &counter};
    (void) add_spin(many.conditional.phGraph_out[0],
                    add_kernel(many.conditional.phGraph_out[0], NULL, "countdown", down), 10000000);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuMemsetD32_v2(counter, 5, 1));
        float ms = time_launch(exec, s);
        REQUIRE(byte_at(p) == 11 && byte_at(counter) == 0);
        REQUIRE(ms >= 50 && ms < 80); /* five rounds */
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
    OK(cuMemFree_v2(p));
}

static int destroyed;

static void destroy(void *user) {
    destroyed += (int) (intptr_t) user;
}

static void user_objects(void) {
    CUgraph g;
    CUgraphExec exec;
    CUuserObject o;
    OK(cuGraphCreate(&g, 0));
    OK(cuUserObjectCreate(&o, (void *) 1, destroy, 1, 1));
    OK(cuGraphRetainUserObject(g, o, 1, 0));
    OK(cuUserObjectRelease(o, 1));
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    OK(cuGraphDestroy(g));
    REQUIRE(destroyed == 0);
    OK(cuGraphExecDestroy(exec));
    REQUIRE(destroyed == 1);
    EXPECT(cuUserObjectRelease(o, 1), CUDA_ERROR_INVALID_VALUE);
}

static void nowhere(CUcontext primary) {
    CUcontext made;
    CUgraph g;
    CUgraphExec exec;
    OK(cuCtxCreate_v2(&made, 0, 0));
    OK(cuGraphCreate(&g, 0));
    (void) add_byte(g, NULL, 4096, 1);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    OK(cuGraphLaunch(exec, NULL));
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
    OK(cuCtxDestroy_v2(made));
    OK(cuCtxSetCurrent(primary));
}

int main(void) {
    CUcontext primary = check_start(0);
    CUstream s, other;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    spin = check_function("spin");
    fill = check_function("fill");
    order_and_time(s);
    thousand_nodes(s);
    kinds(s);
    update(s);
    memory_nodes(s);
    memory_that_stays(s);
    memory_side_by_side(s, other);
    conditions(s);
    user_objects();
    nowhere(primary);
    OK(cuStreamDestroy_v2(s));
    OK(cuStreamDestroy_v2(other));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    (void) puts("ok");
    return 0;
}
