/* SPDX-License-Identifier: Apache-2.0 */

/* The begin and end of captures, with which no measurement may interfere; and calls that destroy
 * streams or change graphs, which the throttle has to know besides launches. */

#include "intercept/compute/throttle.h"
#include "intercept/memory/pool.h"
#include "intercept/resolve/driver.h"

static CUresult began(CUresult r) {
    if (r != CUDA_SUCCESS)
        throttle_capture(false);
    return r;
}

/* Counted before, so that no launch of another thread comes between. */
#define BEGINS(symbol, params, args)                                                               \
    CUresult symbol params {                                                                       \
        pools_note_capture();                                                                      \
        throttle_capture(true);                                                                    \
        return began(driver.symbol args);                                                          \
    }

/* A capture is over after it, also when it fails; but not when there was none. */
#define ENDS(symbol, params, args)                                                                 \
    CUresult symbol params {                                                                       \
        CUresult r = driver.symbol args;                                                           \
                                                                                                   \
        if (r != CUDA_ERROR_ILLEGAL_STATE && r != CUDA_ERROR_INVALID_VALUE &&                      \
            r != CUDA_ERROR_INVALID_HANDLE && r != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&       \
            r != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED && r != CUDA_ERROR_NOT_SUPPORTED)             \
            throttle_capture(false);                                                               \
        return r;                                                                                  \
    }

BEGINS(cuStreamBeginCapture, (CUstream stream), (stream))
BEGINS(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
BEGINS(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGINS(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGINS(cuStreamBeginCaptureToGraph,
       (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
        const CUgraphEdgeData *dependency_data, size_t num_dependencies, CUstreamCaptureMode mode),
       (stream, graph, dependencies, dependency_data, num_dependencies, mode))
BEGINS(cuStreamBeginCaptureToGraph_ptsz,
       (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
        const CUgraphEdgeData *dependency_data, size_t num_dependencies, CUstreamCaptureMode mode),
       (stream, graph, dependencies, dependency_data, num_dependencies, mode))
BEGINS(cuStreamBeginRecaptureToGraph,
       (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback,
        void *user_data),
       (stream, mode, graph, callback, user_data))
BEGINS(cuStreamBeginRecaptureToGraph_ptsz,
       (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback,
        void *user_data),
       (stream, mode, graph, callback, user_data))
BEGINS(cuStreamBeginCaptureToCig, (CUstream stream, CUstreamCigCaptureParams *params),
       (stream, params))
BEGINS(cuStreamBeginCaptureToCig_ptsz, (CUstream stream, CUstreamCigCaptureParams *params),
       (stream, params))
ENDS(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))
ENDS(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph), (stream, graph))
ENDS(cuStreamEndCaptureToCig, (CUstream stream), (stream))
ENDS(cuStreamEndCaptureToCig_ptsz, (CUstream stream), (stream))

/* A stream that is destroyed takes its capture along. */
static CUresult destroy(CUresult (*real)(CUstream), CUstream stream) {
    throttle_stream_ends(stream);
    return real(stream);
}

CUresult cuStreamDestroy(CUstream stream) {
    return destroy(driver.cuStreamDestroy, stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    return destroy(driver.cuStreamDestroy_v2, stream);
}

/* The cost of a graph changes with its nodes. */
#define CHANGES(symbol, params, args)                                                              \
    CUresult symbol params {                                                                       \
        throttle_graph_changed(exec);                                                              \
        return driver.symbol args;                                                                 \
    }

CHANGES(cuGraphExecKernelNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *node_params),
        (exec, node, node_params))
CHANGES(cuGraphExecKernelNodeSetParams_v2,
        (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *node_params),
        (exec, node, node_params))
CHANGES(cuGraphExecMemcpyNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy_params, CUcontext ctx),
        (exec, node, copy_params, ctx))
CHANGES(cuGraphExecMemsetNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *memset_params,
         CUcontext ctx),
        (exec, node, memset_params, ctx))
CHANGES(cuGraphExecChildGraphNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, CUgraph child_graph), (exec, node, child_graph))
CHANGES(cuGraphExecNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *node_params),
        (exec, node, node_params))
CHANGES(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned int is_enabled),
        (exec, node, is_enabled))
