/* SPDX-License-Identifier: Apache-2.0 */

/* The kinds of nodes: the copies each makes of its parameters, and its execution. */

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/copy.h"
#include "sim/cuda/event.h"
#include "sim/cuda/fill.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_exec.h"
#include "sim/cuda/graph_memory.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"
#include "sim/list.h"

/* Work for memory that is not there: as with a kernel, the next call learns of it. */
static CUresult break_context(struct graph_run *run) {
    run->stream->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
    return CUDA_SUCCESS;
}

static CUresult collect_kernel(struct graph_run *run, int device, uint64_t ns) {
    CUresult r = CUDA_SUCCESS;
    if (run->nkernels == sizeof(run->ns) / sizeof(run->ns[0]) || run->device != device)
        r = graph_flush(run);
    run->device = device;
    run->ns[run->nkernels++] = ns;
    return r;
}

/* -- kernels --------------------------------------------------------------------------------- */

static void point_at_arguments(CUgraphNode n) {
    for (size_t i = 0; i < sizeof(n->argument) / sizeof(n->argument[0]); i++)
        n->argument[i] = &n->call.arg[i];
    n->params.kernel.kernelParams = n->argument;
    n->params.kernel.extra = NULL;
}

static CUresult take_kernel(CUgraphNode n) {
    const CUDA_KERNEL_NODE_PARAMS *p = &n->params.kernel;
    const unsigned int grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
    const unsigned int block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    struct launch_call call;
    CUresult r = launch_prepare(p->func, grid, block, p->kernelParams, p->extra, &call);
    if (r != CUDA_SUCCESS)
        return r == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : r;
    n->call = call;
    point_at_arguments(n);
    return CUDA_SUCCESS;
}

static CUresult copy_kernel(CUgraphNode n, const struct CUgraphNode_st *from) {
    n->call = from->call;
    point_at_arguments(n);
    return CUDA_SUCCESS;
}

static CUresult run_kernel(struct graph_run *run, CUgraphNode n) {
    if (!launch_may_run(&n->call))
        return break_context(run);
    CUresult r = collect_kernel(run, n->call.device, launch_duration(&n->call));
    return r == CUDA_SUCCESS ? launch_compute(run->stream, &n->call) : r;
}

/* -- copies and fills ------------------------------------------------------------------------ */

static CUresult take_memcpy(CUgraphNode n) {
    const CUDA_MEMCPY3D *p = &n->params.memcpy.copyParams;
    bool types =
        p->srcMemoryType >= CU_MEMORYTYPE_HOST && p->srcMemoryType <= CU_MEMORYTYPE_UNIFIED &&
        p->dstMemoryType >= CU_MEMORYTYPE_HOST && p->dstMemoryType <= CU_MEMORYTYPE_UNIFIED;
    return types && p->WidthInBytes > 0 && p->Height > 0 && p->Depth > 0 ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

static CUresult run_memcpy(struct graph_run *run, CUgraphNode n) {
    struct copy c;
    if (copy_prepare(&n->params.memcpy.copyParams, &c) != CUDA_SUCCESS)
        return break_context(run);
    return copy_submit(&c, run->stream, false);
}

static CUresult take_memset(CUgraphNode n) {
    const CUDA_MEMSET_NODE_PARAMS_v2 *p = &n->params.memset;
    bool element = p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4;
    return element && p->width > 0 && p->height > 0 && p->width <= SIZE_MAX / 4
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult run_memset(struct graph_run *run, CUgraphNode n) {
    const CUDA_MEMSET_NODE_PARAMS_v2 *p = &n->params.memset;
    struct fill f = {.base = p->dst,
                     .pitch = p->pitch,
                     .width = p->width * p->elementSize,
                     .height = p->height,
                     .value = p->value,
                     .element = p->elementSize};
    if (fill_prepare(&f) != CUDA_SUCCESS)
        return break_context(run);
    int device = run->stream->context->device;
    CUresult r = collect_kernel(run, device, launch_busy_ns(device, f.width * f.height));
    return r == CUDA_SUCCESS ? worker_do(run->stream, fill_do, &f, sizeof(f)) : r;
}

/* -- host functions, events, nothing --------------------------------------------------------- */

static CUresult take_host(CUgraphNode n) {
    return n->params.host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult run_host(struct graph_run *run, CUgraphNode n) {
    CUresult r = graph_flush(run);
    return r == CUDA_SUCCESS ? stream_call(run->stream, n->params.host.fn, n->params.host.userData)
                             : r;
}

static CUresult take_event(CUgraphNode n) {
    CUevent e = n->params.eventRecord.event; /* that of a wait is in the same place */
    return e && e->tag == TAG_EVENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult run_record(struct graph_run *run, CUgraphNode n) {
    CUresult r = graph_flush(run);
    return r == CUDA_SUCCESS ? event_record(run->stream, n->params.eventRecord.event) : r;
}

static CUresult run_wait(struct graph_run *run, CUgraphNode n) {
    CUresult r = graph_flush(run);
    return r == CUDA_SUCCESS ? event_wait(run->stream, n->params.eventWait.event) : r;
}

static CUresult take_empty(CUgraphNode n) {
    (void) n;
    return CUDA_SUCCESS;
}

static CUresult run_empty(struct graph_run *run, CUgraphNode n) {
    (void) run;
    (void) n;
    return CUDA_SUCCESS;
}

/* -- child graphs ---------------------------------------------------------------------------- */

static CUresult take_child(CUgraphNode n) {
    CUDA_CHILD_GRAPH_NODE_PARAMS *p = &n->params.graph;
    if (!graph_is(p->graph) || p->graph == n->graph ||
        graph_has_kind(p->graph, CU_GRAPH_NODE_TYPE_CONDITIONAL))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph child = p->graph;
    if (p->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
        CUDA_TRY(graph_copy(p->graph, false, &child));
    } else if (child->owner || child->exec) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    child->owner = n;
    p->graph = child;
    return CUDA_SUCCESS;
}

static CUresult copy_child(CUgraphNode n, const struct CUgraphNode_st *from) {
    CUresult r = graph_copy(from->params.graph.graph, true, &n->params.graph.graph);
    if (r == CUDA_SUCCESS)
        n->params.graph.graph->owner = n;
    return r;
}

static void drop_child(CUgraphNode n) {
    graph_free(n->params.graph.graph);
}

static CUresult run_child(struct graph_run *run, CUgraphNode n) {
    return graph_run(run, n->params.graph.graph);
}

/* -- memory ---------------------------------------------------------------------------------- */

static CUresult copy_access(CUDA_MEM_ALLOC_NODE_PARAMS *p, const CUmemAccessDesc *from) {
    p->accessDescs = NULL;
    if (p->accessDescCount == 0)
        return CUDA_SUCCESS;
    CUmemAccessDesc *own = calloc(p->accessDescCount, sizeof(*own));
    if (!own)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(own, from, p->accessDescCount * sizeof(*own));
    p->accessDescs = own;
    return CUDA_SUCCESS;
}

static CUresult take_alloc(CUgraphNode n) {
    CUDA_MEM_ALLOC_NODE_PARAMS *p = &n->params.alloc;
    const CUmemPoolProps *props = &p->poolProps;
    if (p->bytesize == 0 || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        p->accessDescCount > (size_t) cuda_ndevices || (p->accessDescCount > 0 && !p->accessDescs))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = cuda_enter_device(props->location.id);
    if (r == CUDA_SUCCESS)
        r = copy_access(p, p->accessDescs);
    if (r == CUDA_SUCCESS)
        r = graph_alloc_new(cuda_current(), props->location.id, p->bytesize, &n->alloc);
    if (r != CUDA_SUCCESS) {
        free((void *) (uintptr_t) p->accessDescs);
        return r;
    }
    p->dptr = n->alloc->memory->base;
    return CUDA_SUCCESS;
}

static CUresult copy_alloc(CUgraphNode n, const struct CUgraphNode_st *from) {
    CUDA_TRY(copy_access(&n->params.alloc, from->params.alloc.accessDescs));
    n->alloc = from->alloc;
    graph_alloc_retain(n->alloc);
    return CUDA_SUCCESS;
}

static void drop_alloc(CUgraphNode n) {
    free((void *) (uintptr_t) n->params.alloc.accessDescs);
    graph_alloc_release(n->alloc);
}

static CUresult run_alloc(struct graph_run *run, CUgraphNode n) {
    return graph_alloc_take(n->alloc, graph_exec_use(run->exec));
}

static CUresult take_free(CUgraphNode n) {
    const struct memory *m = memory_at(n->params.free.dptr, MEMORY_GRAPH);
    if (!m)
        return CUDA_ERROR_INVALID_VALUE;
    n->alloc = m->graph;
    graph_alloc_retain(n->alloc);
    return CUDA_SUCCESS;
}

static CUresult copy_free(CUgraphNode n, const struct CUgraphNode_st *from) {
    n->alloc = from->alloc;
    graph_alloc_retain(n->alloc);
    return CUDA_SUCCESS;
}

static void drop_free(CUgraphNode n) {
    graph_alloc_release(n->alloc);
}

static CUresult run_free(struct graph_run *run, CUgraphNode n) {
    (void) run;
    return graph_alloc_give(n->alloc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- conditions ------------------------------------------------------------------------------ */

/* Never freed: kernels may use their handles at any time. With cuda_lock. */
static struct graph_condition *conditions;

struct graph_condition *graph_condition_find(CUgraphConditionalHandle handle) {
    (void) pthread_mutex_lock(&cuda_lock);
    struct graph_condition *c = conditions;
    while (c && (uintptr_t) c != handle)
        c = c->next;
    (void) pthread_mutex_unlock(&cuda_lock);
    return c;
}

void graph_condition_set(CUgraphConditionalHandle handle, unsigned int value) {
    struct graph_condition *c = graph_condition_find(handle);
    if (c)
        c->value = value;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle_out, CUgraph graph,
                                        CUcontext ctx, unsigned int default_launch_value,
                                        unsigned int flags) {
    CUDA_TRY(cuda_enter());
    if (!handle_out || !graph_is(graph) || (ctx && !cuda_context_alive(ctx)) ||
        flags > CU_GRAPH_COND_ASSIGN_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_condition *c = calloc(1, sizeof(*c));
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->default_value = default_launch_value;
    c->assign = flags == CU_GRAPH_COND_ASSIGN_DEFAULT;
    (void) pthread_mutex_lock(&cuda_lock);
    LIST_PUSH(conditions, c, next);
    (void) pthread_mutex_unlock(&cuda_lock);
    *handle_out = (uintptr_t) c;
    return CUDA_SUCCESS;
}

static bool size_fits(const CUDA_CONDITIONAL_NODE_PARAMS *p) {
    switch (p->type) {
    case CU_GRAPH_COND_TYPE_IF:
        return p->size == 1 || p->size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return p->size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return p->size > 0 && p->size <= 4096;
    default:
        return false;
    }
}

static void drop_conditional(CUgraphNode n) {
    for (unsigned int i = 0; n->body && i < n->params.conditional.size; i++)
        graph_free(n->body[i]);
    free(n->body);
    n->body = NULL;
}

/* Bodies: copies of those of `from`, or empty ones. */
static CUresult make_bodies(CUgraphNode n, const struct CUgraphNode_st *from) {
    CUDA_CONDITIONAL_NODE_PARAMS *p = &n->params.conditional;
    n->body = calloc(p->size, sizeof(CUgraph));
    CUresult r = n->body ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned int i = 0; i < p->size && r == CUDA_SUCCESS; i++) {
        if (from)
            r = graph_copy(from->body[i], false, &n->body[i]);
        else if (!(n->body[i] = graph_new()))
            r = CUDA_ERROR_OUT_OF_MEMORY;
        if (r == CUDA_SUCCESS) {
            n->body[i]->owner = n;
            n->body[i]->conditional_body = true;
        }
    }
    if (r != CUDA_SUCCESS)
        drop_conditional(n);
    p->phGraph_out = n->body;
    return r;
}

static CUresult take_conditional(CUgraphNode n) {
    struct graph_condition *c = graph_condition_find(n->params.conditional.handle);
    if (!c || c->used || !size_fits(&n->params.conditional))
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_TRY(make_bodies(n, NULL));
    c->used = true;
    n->condition = c;
    return CUDA_SUCCESS;
}

static CUresult copy_conditional(CUgraphNode n, const struct CUgraphNode_st *from) {
    n->condition = from->condition;
    return make_bodies(n, from);
}

/* What kernels set is there when all before has been done: host functions too. */
static CUresult value_of(struct graph_run *run, CUgraphNode n, unsigned int *ret) {
    CUresult r = graph_flush(run);
    worker_wait_all();
    *ret = n->condition->value;
    return r;
}

static CUresult run_conditional(struct graph_run *run, CUgraphNode n) {
    const CUDA_CONDITIONAL_NODE_PARAMS *p = &n->params.conditional;
    unsigned int value;
    CUresult r = value_of(run, n, &value);
    if (p->type == CU_GRAPH_COND_TYPE_WHILE) {
        while (r == CUDA_SUCCESS && value != 0) {
            r = graph_run(run, n->body[0]);
            if (r == CUDA_SUCCESS)
                r = value_of(run, n, &value);
            if (r == CUDA_SUCCESS)
                r = run->stream->context->error; /* or it might never end */
        }
        return r;
    }
    unsigned int which = p->type == CU_GRAPH_COND_TYPE_IF ? (value != 0 ? 0 : 1) : value;
    return r == CUDA_SUCCESS && which < p->size ? graph_run(run, n->body[which]) : r;
}

/* -- the table ------------------------------------------------------------------------------- */

const struct graph_kind graph_kinds[GRAPH_KINDS] = {
    [CU_GRAPH_NODE_TYPE_KERNEL] = {"kernel", take_kernel, copy_kernel, NULL, run_kernel, true,
                                   true},
    [CU_GRAPH_NODE_TYPE_MEMCPY] = {"memcpy", take_memcpy, NULL, NULL, run_memcpy, true, true},
    [CU_GRAPH_NODE_TYPE_MEMSET] = {"memset", take_memset, NULL, NULL, run_memset, true, true},
    [CU_GRAPH_NODE_TYPE_HOST] = {"host", take_host, NULL, NULL, run_host, false, false},
    [CU_GRAPH_NODE_TYPE_GRAPH] = {"graph", take_child, copy_child, drop_child, run_child, false,
                                  true},
    [CU_GRAPH_NODE_TYPE_EMPTY] = {"empty", take_empty, NULL, NULL, run_empty, false, true},
    [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = {"wait", take_event, NULL, NULL, run_wait, false, false},
    [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = {"record", take_event, NULL, NULL, run_record, false,
                                         false},
    [CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL] = {.name = "signal"},
    [CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT] = {.name = "wait for semaphore"},
    [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = {"alloc", take_alloc, copy_alloc, drop_alloc, run_alloc, false,
                                      false},
    [CU_GRAPH_NODE_TYPE_MEM_FREE] = {"free", take_free, copy_free, drop_free, run_free, false,
                                     false},
    [CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = {.name = "memory operations"},
    [CU_GRAPH_NODE_TYPE_CONDITIONAL] = {"conditional", take_conditional, copy_conditional,
                                        drop_conditional, run_conditional, false, true},
};
