/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs: their launches are charged as those of kernels, and their memory is booked. A node that
 * allocates takes nothing when it is made or captured: the driver takes memory for it when the
 * graph is instantiated, uploaded or launched, and keeps it in a pool of the device. So what that
 * pool holds is booked, and before the driver may make it larger, as much is reserved as the graph
 * could need. */

#include <stdlib.h>
#include <string.h>

#include "intercept/compute/throttle.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/pool.h"

/* Child graphs below this depth are not traversed: the pool's own figure includes them. */
#define DEPTH_MAX 8

/* -- what a graph needs ---------------------------------------------------------------------- */

static void add_graph(struct share *share, CUgraph graph, int depth, uint64_t *need);

static void add_node(struct share *share, CUgraphNode node, int depth, uint64_t *need) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {0};
    CUgraphNodeType type;
    CUgraph child;
    int device;

    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MAX &&
        driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        add_graph(share, child, depth + 1, need);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        driver.cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS)
        return;
    device = share_device(share, location_device(&params.poolProps.location));
    if (device >= 0 && __builtin_add_overflow(need[device], params.bytesize, &need[device]))
        need[device] = UINT64_MAX;
}

/* At most the sum of all allocations: the driver may let some follow others in the same place. */
static void add_graph(struct share *share, CUgraph graph, int depth, uint64_t *need) {
    CUgraphNode *node;
    size_t n = 0;

    if (driver.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS || n == 0)
        return;
    node = calloc(n, sizeof(CUgraphNode));
    if (!node)
        return;
    if (driver.cuGraphGetNodes(graph, node, &n) == CUDA_SUCCESS)
        for (size_t i = 0; i < n; i++)
            add_node(share, node[i], depth, need);
    free(node);
}

static bool needs_any(const struct share *share, const uint64_t *need) {
    for (uint32_t d = 0; d < share->ndevices; d++)
        if (need[d] > 0)
            return true;
    return false;
}

/* An executable graph has an entry for each device on which it allocates. */
static uint64_t key_of(CUgraphExec exec, uint32_t device) {
    return (uint64_t) (uintptr_t) exec ^ (uint64_t) device << 57;
}

static void exec_forget(struct share *share, CUgraphExec exec) {
    struct entry entry;

    books_lock(share);
    for (uint32_t d = 0; d < share->ndevices; d++)
        if (allocations_take(books_allocations(share), ENTRY_GRAPH, key_of(exec, d), &entry))
            allocations_unreserve(books_allocations(share));
    books_unlock(share);
}

static void exec_note(struct share *share, CUgraphExec exec, const uint64_t *need) {
    exec_forget(share, exec);
    books_lock(share);
    for (uint32_t d = 0; d < share->ndevices; d++) {
        struct entry entry = {.key = key_of(exec, d),
                              .bytes = need[d],
                              .refs = 1,
                              .kind = ENTRY_GRAPH,
                              .device = (int16_t) d};

        if (need[d] > 0 && allocations_reserve(books_allocations(share)))
            allocations_put(books_allocations(share), &entry);
    }
    books_unlock(share);
}

static void exec_need(struct share *share, CUgraphExec exec, uint64_t *ret) {
    books_lock(share);
    for (uint32_t d = 0; d < share->ndevices; d++) {
        const struct entry *found =
            allocations_find(books_allocations(share), ENTRY_GRAPH, key_of(exec, d));

        ret[d] = found ? found->bytes : 0;
    }
    books_unlock(share);
}

/* -- admission ------------------------------------------------------------------------------- */

/* In which the pool grows. */
#define GRANULE ((uint64_t) 2 << 20)

struct graph_use {
    struct share *share; /* NULL: no memory in it */
    uint64_t need[LIMITS_DEVICES_MAX];
};

/* With the pool lock. Leaves in `need` what it has reserved: all of it, for what the pool has
 * without use may be that of a graph that is running. */
static bool admit_one(struct share *share, int device, uint64_t *need) {
    struct pool_book *book = graph_book(share, device);
    uint64_t whole =
        *need > UINT64_MAX - GRANULE ? UINT64_MAX : (*need + GRANULE - 1) / GRANULE * GRANULE;

    if (!book)
        return false;
    (void) book_refresh(share, book);
    if (!books_reserve(share, device, whole, BOOKED))
        return false;
    *need = whole;
    return true;
}

/* Waits until what was launched before in the stream has ended, so that its memory is free. In
 * relaxed mode, for a thread elsewhere may be capturing. */
static void wait_for_stream(CUstream stream, bool per_thread) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool exchanged = driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;

    (void) (per_thread ? driver.cuStreamSynchronize_ptsz(stream)
                       : driver.cuStreamSynchronize(stream));
    if (exchanged)
        (void) driver.cuThreadExchangeStreamCaptureMode(&mode);
}

static bool capturing(CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = per_thread ? driver.cuStreamIsCapturing_ptsz(stream, &status)
                            : driver.cuStreamIsCapturing(stream, &status);

    return r != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct where {
    CUstream stream;
    bool per_thread;
    bool known; /* there is a stream to wait for */
};

/* With the pool lock. Where it does not fit, the pool gives back what it has without use first, at
 * last also what the graphs before in the stream have. While that is waited for the lock is free:
 * the stream may wait in turn, in a host function, for a thread that allocates. */
static bool admit(struct share *share, int device, uint64_t *need, const struct where *where) {
    if (*need == 0 || admit_one(share, device, need))
        return true;
    if (pools_give_back_locked(share) && admit_one(share, device, need))
        return true;
    if (!where->known || capturing(where->stream, where->per_thread))
        return false;
    pools_unlock(share);
    wait_for_stream(where->stream, where->per_thread);
    pools_lock(share);
    (void) pools_give_back_locked(share);
    return admit_one(share, device, need);
}

/* Reserves use->need and keeps the pool lock, so that any growth is due to this use; use->share is
 * NULL if nothing is needed. */
static bool reserve_all(struct graph_use *use, struct share *share, const struct where *where) {
    use->share = NULL;
    if (!needs_any(share, use->need))
        return true;
    pools_lock(share);
    for (uint32_t d = 0; d < share->ndevices; d++) {
        if (admit(share, (int) d, &use->need[d], where))
            continue;
        while (d-- > 0)
            books_refund(share, (int) d, use->need[d], BOOKED);
        pools_unlock(share);
        return false;
    }
    use->share = share;
    return true;
}

static CUresult use_end(struct graph_use *use, CUresult result) {
    if (!use->share)
        return result;
    for (uint32_t d = 0; d < use->share->ndevices; d++) {
        struct pool_book *book = use->need[d] ? graph_book(use->share, (int) d) : NULL;

        if (!book)
            continue;
        book->booked += use->need[d];
        (void) book_refresh(use->share, book);
    }
    pools_unlock(use->share);
    pools_note_use(use->share);
    return result;
}

/* Before a graph is launched or uploaded; false: answer CUDA_ERROR_OUT_OF_MEMORY. */
static bool use_begin(struct graph_use *use, CUgraphExec exec, CUstream stream, bool per_thread) {
    struct where where = {stream, per_thread, true};
    struct share *share = graphs_allocate() ? share_claim() : NULL;

    use->share = NULL;
    if (__builtin_expect(!share, 1))
        return true;
    exec_need(share, exec, use->need);
    return reserve_all(use, share, &where);
}

/* -- hooks ----------------------------------------------------------------------------------- */

/* The cost of a graph is learned as a whole: no launch can wait within it, and only the card knows
 * which way its conditional nodes go. `grid` tells uploads from launches: either has a cost of its
 * own. A launch in a capturing stream becomes a node, whose graph is read when it is instantiated.
 */
static inline CUresult launch(CUresult (*fn)(CUgraphExec, CUstream), CUgraphExec exec,
                              CUstream stream, bool per_thread, uint64_t grid) {
    struct graph_use use;
    struct passage p;

    throttle_enter(&p, exec, grid, 0, stream, per_thread);
    if (!use_begin(&use, exec, stream, per_thread))
        return throttle_leave(&p, CUDA_ERROR_OUT_OF_MEMORY);
    return throttle_leave(&p, use_end(&use, fn(exec, stream)));
}

#define GRID_LAUNCH 0
#define GRID_UPLOAD 1

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return launch(driver.cuGraphLaunch, exec, stream, false, GRID_LAUNCH);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return launch(driver.cuGraphLaunch_ptsz, exec, stream, true, GRID_LAUNCH);
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
    return launch(driver.cuGraphUpload, graph, stream, false, GRID_UPLOAD);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return launch(driver.cuGraphUpload_ptsz, exec, stream, true, GRID_UPLOAD);
}

struct instantiation {
    struct share *share; /* NULL: there is no memory in any graph */
    uint64_t need[LIMITS_DEVICES_MAX];
    struct graph_use use;
};

/* The driver may take the memory at once. */
static bool instantiate_begin(struct instantiation *i, CUgraph graph) {
    struct where nowhere = {0};

    i->use.share = NULL;
    i->share = graphs_allocate() ? share_claim() : NULL;
    if (!i->share)
        return true;
    memset(i->need, 0, sizeof(i->need));
    add_graph(i->share, graph, 0, i->need);
    memcpy(i->use.need, i->need, sizeof(i->need));
    return reserve_all(&i->use, i->share, &nowhere);
}

static CUresult instantiate_end(struct instantiation *i, CUresult r, const CUgraphExec *exec) {
    r = use_end(&i->use, r);
    if (r == CUDA_SUCCESS && i->share)
        exec_note(i->share, *exec, i->need);
    return r;
}

/* Instantiates by `call`. */
#define INSTANTIATE(exec, graph, call)                                                             \
    do {                                                                                           \
        struct instantiation i;                                                                    \
                                                                                                   \
        if (!instantiate_begin(&i, graph))                                                         \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        return instantiate_end(&i, call, exec);                                                    \
    } while (0)

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                            char *log_buffer, size_t buffer_size) {
    INSTANTIATE(exec, graph,
                driver.cuGraphInstantiate(exec, graph, error_node, log_buffer, buffer_size));
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                               char *log_buffer, size_t buffer_size) {
    INSTANTIATE(exec, graph,
                driver.cuGraphInstantiate_v2(exec, graph, error_node, log_buffer, buffer_size));
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    INSTANTIATE(exec, graph, driver.cuGraphInstantiateWithFlags(exec, graph, flags));
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params) {
    INSTANTIATE(exec, graph, driver.cuGraphInstantiateWithParams(exec, graph, instantiate_params));
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params) {
    INSTANTIATE(exec, graph,
                driver.cuGraphInstantiateWithParams_ptsz(exec, graph, instantiate_params));
}

static struct share *share_with_graphs(CUresult r) {
    return r == CUDA_SUCCESS && graphs_allocate() ? share_claim() : NULL;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    CUresult r = driver.cuGraphExecDestroy(exec);
    struct share *share = share_with_graphs(r);

    throttle_graph_changed(exec);
    if (!share)
        return r;
    exec_forget(share, exec);
    pools_refresh(share);
    return r;
}

static CUresult updated(CUresult r, CUgraphExec exec, CUgraph graph) {
    uint64_t need[LIMITS_DEVICES_MAX] = {0};
    struct share *share = share_with_graphs(r);

    throttle_graph_changed(exec);
    if (!share)
        return r;
    add_graph(share, graph, 0, need);
    exec_note(share, exec, need);
    return r;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node_out,
                           CUgraphExecUpdateResult *update_result_out) {
    return updated(driver.cuGraphExecUpdate(exec, graph, error_node_out, update_result_out), exec,
                   graph);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *result_info) {
    return updated(driver.cuGraphExecUpdate_v2(exec, graph, result_info), exec, graph);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t num_dependencies, CUDA_MEM_ALLOC_NODE_PARAMS *node_params) {
    graphs_note_allocation();
    return driver.cuGraphAddMemAllocNode(node, graph, dependencies, num_dependencies, node_params);
}

static void see_node(const CUgraphNodeParams *params) {
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        graphs_note_allocation();
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t num_dependencies, CUgraphNodeParams *node_params) {
    see_node(node_params);
    return driver.cuGraphAddNode(node, graph, dependencies, num_dependencies, node_params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependency_data, size_t num_dependencies,
                           CUgraphNodeParams *node_params) {
    see_node(node_params);
    return driver.cuGraphAddNode_v2(node, graph, dependencies, dependency_data, num_dependencies,
                                    node_params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependency_data, size_t num_dependencies,
                           CUgraphNodeParams *node_params) {
    see_node(node_params);
    return driver.cuGraphAddNode_v3(node, graph, dependencies, dependency_data, num_dependencies,
                                    node_params);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult r = driver.cuDeviceGraphMemTrim(device);
    struct share *share = share_with_graphs(r);

    if (share)
        pools_refresh(share);
    return r;
}
