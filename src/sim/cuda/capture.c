/* SPDX-License-Identifier: Apache-2.0 */

/* Stream capture. A capture is a graph that grows; each stream that takes part knows the nodes that
 * its next one will depend on. Streams join by waiting for an event that was recorded in the
 * capture, and have to be joined back in the same way before it ends. What cannot be captured ends
 * in an error and invalidates the captures concerned, of which their streams learn at the next
 * call. The errors are those that the driver's documentation names. */

#include "sim/cuda/capture.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/graph.h"
#include "sim/cuda/stream.h"
#include "sim/list.h"

/* The dependencies of a stream's next node. */
struct set {
    CUgraphNode *node;
    CUgraphEdgeData *data; /* of the edge to the next node */
    size_t n, room;
};

struct capture {
    struct capture *next;
    CUgraph graph;
    bool given; /* the graph is the program's own */
    CUstream origin;
    CUstreamCaptureMode mode;
    const void *thread;
    unsigned long long id;
    bool invalid;
    struct capture_stream *streams;
};

struct capture_stream {
    struct capture_stream *next;
    struct capture *capture;
    CUstream stream;
    struct set set;
};

/* The position of an event in a capture, which may have ended. */
struct capture_point {
    unsigned long long id; /* of the capture */
    struct set set;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all here; taken before cuda_lock */
static struct capture *captures;
static _Atomic unsigned int active; /* captures that are not relaxed */

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* An address that no other living thread has. */
static const void *this_thread(void) {
    return &thread_mode;
}

/* -- sets ------------------------------------------------------------------------------------ */

static void set_drop(struct set *s) {
    free(s->node);
    free(s->data);
    *s = (struct set){0};
}

static bool set_add(struct set *s, CUgraphNode node, const CUgraphEdgeData *data) {
    for (size_t i = 0; i < s->n; i++)
        if (s->node[i] == node)
            return true;
    if (s->n == s->room) {
        size_t room = s->room ? s->room * 2 : 4;
        CUgraphNode *nodes = realloc(s->node, room * sizeof(CUgraphNode));
        if (!nodes)
            return false;
        s->node = nodes;
        CUgraphEdgeData *edges = realloc(s->data, room * sizeof(*edges));
        if (!edges)
            return false;
        s->data = edges;
        s->room = room;
    }
    s->node[s->n] = node;
    s->data[s->n] = data ? *data : (CUgraphEdgeData){0};
    s->n++;
    return true;
}

static bool set_join(struct set *to, const struct set *from) {
    bool ok = true;
    for (size_t i = 0; i < from->n && ok; i++)
        ok = set_add(to, from->node[i], &from->data[i]);
    return ok;
}

/* -- captures and their streams; with the lock ----------------------------------------------- */

static struct capture *find_capture(unsigned long long id) {
    struct capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static struct capture_stream *capture_join(struct capture *c, CUstream s) {
    struct capture_stream *cs = calloc(1, sizeof(*cs));
    if (!cs)
        return NULL;
    *cs = (struct capture_stream){.capture = c, .stream = s};
    LIST_PUSH(c->streams, cs, next);
    s->capture = cs;
    if (s->blocking)
        s->context->capturing++;
    return cs;
}

static void capture_leave(struct capture_stream *cs) {
    struct capture_stream **p = &cs->capture->streams;
    while (*p != cs)
        p = &(*p)->next;
    *p = cs->next;
    cs->stream->capture = NULL;
    if (cs->stream->blocking)
        cs->stream->context->capturing--;
    set_drop(&cs->set);
    free(cs);
}

/* Ends it; the graph is the caller's, or gone. */
static CUgraph capture_end(struct capture *c, bool keep_graph) {
    while (c->streams)
        capture_leave(c->streams);
    struct capture **p = &captures;
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        active--;
    CUgraph g = c->graph;
    if (!keep_graph && !c->given)
        graph_free(g);
    free(c);
    return keep_graph ? g : NULL;
}

/* -- refusals -------------------------------------------------------------------------------- */

CUresult capture_refuse(CUstream s) {
    (void) pthread_mutex_lock(&lock);
    bool again = s->capture && s->capture->capture->invalid;
    if (s->capture)
        s->capture->capture->invalid = true;
    (void) pthread_mutex_unlock(&lock);
    return again ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Invalidates all captures with a stream of the context; were there any? */
static bool invalidate_context(CUcontext ctx, bool blocking_only) {
    bool found = false;
    (void) pthread_mutex_lock(&lock);
    for (struct capture *c = captures; c; c = c->next)
        for (struct capture_stream *cs = c->streams; cs; cs = cs->next)
            if (cs->stream->context == ctx && (cs->stream->blocking || !blocking_only))
                found = c->invalid = true;
    (void) pthread_mutex_unlock(&lock);
    return found;
}

CUresult capture_refuse_legacy(CUcontext ctx) {
    (void) invalidate_context(ctx, true);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult capture_refuse_context(CUcontext ctx) {
    return invalidate_context(ctx, false) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                          : capture_unsafe();
}

CUresult capture_refuse_event(CUevent event) {
    (void) pthread_mutex_lock(&lock);
    struct capture *c = event->captured ? find_capture(event->captured->id) : NULL;
    if (c)
        c->invalid = true;
    (void) pthread_mutex_unlock(&lock);
    return CUDA_ERROR_CAPTURED_EVENT;
}

static bool forbids_unsafe_call(const struct capture *c) {
    if (c->thread == this_thread())
        return c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_unsafe(void) {
    CUresult r = CUDA_SUCCESS;
    if (active == 0 || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return r;
    (void) pthread_mutex_lock(&lock);
    for (struct capture *c = captures; c; c = c->next)
        if (forbids_unsafe_call(c)) {
            c->invalid = true;
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult capture_enter_context(CUcontext *ret) {
    CUresult r = cuda_enter_context(ret);
    return r == CUDA_SUCCESS ? capture_unsafe() : r;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    CUDA_TRY(cuda_enter());
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* -- captured operations --------------------------------------------------------------------- */

/* With the lock. */
static CUresult add_captured_node(struct capture_stream *cs, CUgraphNodeParams *params) {
    if (cs->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUgraphNode node;
    CUresult r =
        graph_add(cs->capture->graph, cs->set.node, cs->set.data, cs->set.n, params, &node);
    if (r != CUDA_SUCCESS)
        return r;
    cs->set.n = 0;
    return set_add(&cs->set, node, NULL) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_add(CUstream s, CUgraphNodeParams *params) {
    (void) pthread_mutex_lock(&lock);
    CUresult r = s->capture ? add_captured_node(s->capture, params) : CUDA_ERROR_ILLEGAL_STATE;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult capture_kernel(CUstream s, CUfunction f, const unsigned int grid[3],
                        const unsigned int block[3], void **params, void **extra) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                           .kernel = {.func = f,
                                      .gridDimX = grid[0],
                                      .gridDimY = grid[1],
                                      .gridDimZ = grid[2],
                                      .blockDimX = block[0],
                                      .blockDimY = block[1],
                                      .blockDimZ = block[2],
                                      .kernelParams = params,
                                      .extra = extra}};
    return capture_add(s, &p);
}

CUresult capture_copy(CUstream s, const CUDA_MEMCPY3D *copy) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                           .memcpy = {.copyCtx = s->context, .copyParams = *copy}};
    return capture_add(s, &p);
}

CUresult capture_fill(CUstream s, const struct fill *f) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
                           .memset = {.dst = f->base,
                                      .pitch = f->pitch,
                                      .value = f->value,
                                      .elementSize = f->element,
                                      .width = f->width / f->element,
                                      .height = f->height,
                                      .ctx = s->context}};
    return capture_add(s, &p);
}

CUresult capture_host(CUstream s, CUhostFn fn, void *user_data) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {fn, user_data}};
    return capture_add(s, &p);
}

/* With the lock. */
static CUresult mark_event(struct capture_stream *cs, CUevent event) {
    if (cs->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct capture_point *p = event->captured ? event->captured : calloc(1, sizeof(*p));
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->captured = p;
    p->id = cs->capture->id;
    p->set.n = 0;
    return set_join(&p->set, &cs->set) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_record(CUstream s, CUevent event, bool external) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}};
    (void) pthread_mutex_lock(&lock);
    CUresult r = !s->capture ? CUDA_ERROR_ILLEGAL_STATE
                 : external  ? add_captured_node(s->capture, &p)
                             : mark_event(s->capture, event);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

/* With the lock: the stream continues after the event, as a part of its capture. */
static CUresult wait_in(struct capture *c, CUstream s, const struct capture_point *point) {
    struct capture_stream *cs = s->capture;
    if (cs && cs->capture != c) {
        cs->capture->invalid = c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (s == s->context->legacy) {
        c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!cs)
        cs = capture_join(c, s);
    return cs && set_join(&cs->set, &point->set) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_wait(CUstream s, CUevent event, bool external) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}};
    CUresult r = CUDA_SUCCESS;
    (void) pthread_mutex_lock(&lock);
    struct capture *c = event->captured ? find_capture(event->captured->id) : NULL;
    if (s->capture && external) {
        r = add_captured_node(s->capture, &p);
    } else if (event->captured) {
        r = c && !external ? wait_in(c, s, event->captured) : CUDA_ERROR_CAPTURED_EVENT;
    } else if (event->recorded && s->capture) {
        s->capture->capture->invalid = true;
        r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

/* -- ends ------------------------------------------------------------------------------------ */

void capture_forget_event(CUevent event) {
    (void) pthread_mutex_lock(&lock);
    struct capture_point *p = event->captured;
    event->captured = NULL;
    (void) pthread_mutex_unlock(&lock);
    if (p)
        set_drop(&p->set);
    free(p);
}

/* With the lock. */
static void abandon_stream(struct capture_stream *cs) {
    struct capture *c = cs->capture;
    if (c->origin == cs->stream) {
        (void) capture_end(c, false);
        return;
    }
    c->invalid = true;
    capture_leave(cs);
}

void capture_abandon(CUstream s) {
    (void) pthread_mutex_lock(&lock);
    if (s->capture)
        abandon_stream(s->capture);
    (void) pthread_mutex_unlock(&lock);
}

void capture_release_context(CUcontext ctx) {
    (void) pthread_mutex_lock(&lock);
    bool again = true;
    while (again) {
        again = false;
        for (struct capture *c = captures; c && !again; c = c->next)
            for (struct capture_stream *cs = c->streams; cs && !again; cs = cs->next)
                if (cs->stream->context == ctx) {
                    abandon_stream(cs);
                    again = true;
                }
    }
    (void) pthread_mutex_unlock(&lock);
}

/* -- the functions --------------------------------------------------------------------------- */

/* With the lock. */
static CUresult capture_begin(CUstream s, CUgraph graph, const CUgraphNode *dependencies,
                              const CUgraphEdgeData *data, size_t n, CUstreamCaptureMode mode) {
    static unsigned long long ids;
    struct capture *c = calloc(1, sizeof(*c));
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *c = (struct capture){.graph = graph ? graph : graph_new(),
                          .given = graph != NULL,
                          .origin = s,
                          .mode = mode,
                          .thread = this_thread(),
                          .id = ++ids};
    struct capture_stream *cs = c->graph ? capture_join(c, s) : NULL;
    bool ok = cs != NULL;
    LIST_PUSH(captures, c, next);
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        active++;
    for (size_t i = 0; i < n && ok; i++)
        ok = set_add(&cs->set, dependencies[i], data ? &data[i] : NULL);
    if (!ok)
        (void) capture_end(c, false);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult begin_capture(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                              const CUgraphEdgeData *data, size_t n, CUstreamCaptureMode mode) {
    CUstream s;
    CUDA_TRY(stream_enter(stream, &s));
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (s == s->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    (void) pthread_mutex_lock(&lock);
    CUresult r = s->capture ? CUDA_ERROR_ILLEGAL_STATE
                            : capture_begin(s, graph, dependencies, data, n, mode);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return begin_capture(stream, NULL, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream stream) {
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Are they all nodes of the graph? */
static bool are_nodes(CUgraph graph, const CUgraphNode *node, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!node || !node[i] || node[i]->tag != TAG_NODE || node[i]->graph != graph)
            return false;
    return true;
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependency_data,
                                     size_t num_dependencies, CUstreamCaptureMode mode) {
    CUDA_TRY(cuda_enter());
    if (!graph_is(graph) || !are_nodes(graph, dependencies, num_dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    return begin_capture(stream, graph, dependencies, dependency_data, num_dependencies, mode);
}

/* Marks the nodes and all that they depend on. */
static void mark_reached(CUgraphNode *todo, size_t n, bool *reached) {
    for (size_t i = 0; i < n; i++)
        reached[todo[i]->index] = true;
    for (size_t at = 0; at < n; at++)
        for (size_t k = 0; k < todo[at]->ndependencies; k++) {
            CUgraphNode from = todo[at]->dependency[k].from;
            if (!reached[from->index])
                todo[n++] = from;
            reached[from->index] = true;
        }
}

/* With the lock: true when the origin depends on all work of the other streams. */
static CUresult check_joined(const struct capture *c) {
    const struct capture_stream *origin = c->origin->capture;
    size_t n = c->graph->nnodes;
    bool *reached = calloc(n + 1, sizeof(*reached));
    CUgraphNode *todo = calloc(n + 1, sizeof(CUgraphNode));
    CUresult r = reached && todo ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS) {
        for (size_t i = 0; i < origin->set.n; i++)
            todo[i] = origin->set.node[i];
        mark_reached(todo, origin->set.n, reached);
    }
    for (const struct capture_stream *cs = c->streams; cs && r == CUDA_SUCCESS; cs = cs->next)
        for (size_t i = 0; i < cs->set.n; i++)
            if (!reached[cs->set.node[i]->index])
                r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    free(reached);
    free(todo);
    return r;
}

/* With the lock. */
static CUresult end_capture(CUstream s, CUgraph *graph) {
    if (!s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *c = s->capture->capture;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (c->origin != s) {
        c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    CUresult r = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : check_joined(c);
    *graph = capture_end(c, r == CUDA_SUCCESS);
    return r;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    CUstream s;
    CUDA_TRY(stream_enter(stream, &s));
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    CUresult r = end_capture(s, graph);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static CUresult enter_to_ask(CUstream stream, CUstream *ret) {
    CUresult r = stream_enter(stream, ret);
    if (r == CUDA_SUCCESS && *ret == (*ret)->context->legacy && (*ret)->context->capturing > 0)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return r;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *capture_status_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edge_data_out,
                                   size_t *num_dependencies_out) {
    CUstream s;
    CUresult r = enter_to_ask(stream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (!capture_status_out)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    const struct capture_stream *cs = s->capture;
    *capture_status_out = !cs                    ? CU_STREAM_CAPTURE_STATUS_NONE
                          : cs->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    static const CUgraphEdgeData plain;
    for (size_t i = 0; cs && dependencies_out && !edge_data_out && i < cs->set.n; i++)
        if (memcmp(&cs->set.data[i], &plain, sizeof(plain)) != 0)
            r = CUDA_ERROR_LOSSY_QUERY;
    if (cs && id_out)
        *id_out = cs->capture->id;
    if (cs && graph_out)
        *graph_out = cs->capture->graph;
    if (cs && dependencies_out)
        *dependencies_out = cs->set.node;
    if (cs && edge_data_out)
        *edge_data_out = cs->set.data;
    if (cs && num_dependencies_out)
        *num_dependencies_out = cs->set.n;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *capture_status_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   size_t *num_dependencies_out) {
    return cuStreamGetCaptureInfo_v3(stream, capture_status_out, id_out, graph_out,
                                     dependencies_out, NULL, num_dependencies_out);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *capture_status_out,
                                cuuint64_t *id_out) {
    return cuStreamGetCaptureInfo_v2(stream, capture_status_out, id_out, NULL, NULL, NULL);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *capture_status) {
    return cuStreamGetCaptureInfo(stream, capture_status, NULL);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependency_data,
                                              size_t num_dependencies, unsigned int flags) {
    CUstream s;
    CUresult r = stream_enter(stream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    struct capture_stream *cs = s->capture;
    if (!cs)
        r = CUDA_ERROR_ILLEGAL_STATE;
    else if (cs->capture->invalid)
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!are_nodes(cs->capture->graph, dependencies, num_dependencies))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        cs->set.n = 0;
    for (size_t i = 0; i < num_dependencies && r == CUDA_SUCCESS; i++)
        if (!set_add(&cs->set, dependencies[i], dependency_data ? &dependency_data[i] : NULL))
            r = CUDA_ERROR_OUT_OF_MEMORY;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies,
                                           size_t num_dependencies, unsigned int flags) {
    return cuStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, num_dependencies,
                                                flags);
}
