/* SPDX-License-Identifier: Apache-2.0 */

/* User objects: something of the program's that lives as long as graphs need it. */

#include <stdlib.h>

#include "sim/cuda/graph.h"
#include "sim/list.h"

#define NO_DESTRUCTOR_SYNC 1u
#define MOVE 1u

struct CUuserObject_st {
    enum cuda_tag tag;
    struct CUuserObject_st *next_free;
    void *ptr;
    CUhostFn destroy;
    unsigned int references;
};

static CUuserObject free_objects;

static CUresult enter_object(CUuserObject o, unsigned int count) {
    CUDA_TRY(cuda_enter());
    return o && o->tag == TAG_USER_OBJECT && count > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult retain_object(CUuserObject o, unsigned int count) {
    (void) pthread_mutex_lock(&cuda_lock);
    bool fits = !__builtin_add_overflow(o->references, count, &o->references);
    (void) pthread_mutex_unlock(&cuda_lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The release of the last reference calls the destructor. */
static CUresult release_object(CUuserObject o, unsigned int count) {
    (void) pthread_mutex_lock(&cuda_lock);
    bool enough = o->references >= count;
    if (enough)
        o->references -= count;
    bool last = enough && o->references == 0;
    if (last) {
        o->tag = TAG_FREE;
        LIST_PUSH(free_objects, o, next_free);
    }
    void *ptr = o->ptr;
    CUhostFn destroy = o->destroy;
    (void) pthread_mutex_unlock(&cuda_lock);
    if (last)
        destroy(ptr);
    return enough ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned int initial_refcount, unsigned int flags) {
    CUDA_TRY(cuda_enter());
    if (!object_out || !destroy || initial_refcount == 0 || flags != NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject o;
    CUDA_NEW_OBJECT(o, free_objects, next_free,
                    (struct CUuserObject_st){.tag = TAG_USER_OBJECT,
                                             .ptr = ptr,
                                             .destroy = destroy,
                                             .references = initial_refcount});
    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *object_out = o;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
    CUresult r = enter_object(object, count);
    return r == CUDA_SUCCESS ? retain_object(object, count) : r;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
    CUresult r = enter_object(object, count);
    return r == CUDA_SUCCESS ? release_object(object, count) : r;
}

/* -- held by graphs -------------------------------------------------------------------------- */

static CUresult add_graph_reference(CUgraph g, CUuserObject o, unsigned int count) {
    struct graph_user_reference *i = g->references;
    while (i && i->object != o)
        i = i->next;
    if (!i) {
        i = calloc(1, sizeof(*i));
        if (!i)
            return CUDA_ERROR_OUT_OF_MEMORY;
        i->object = o;
        LIST_PUSH(g->references, i, next);
    }
    i->count += count;
    return CUDA_SUCCESS;
}

CUresult graph_copy_references(CUgraph to, CUgraph from) {
    CUresult r = CUDA_SUCCESS;
    for (struct graph_user_reference *i = from->references; i && r == CUDA_SUCCESS; i = i->next) {
        r = add_graph_reference(to, i->object, i->count);
        if (r == CUDA_SUCCESS)
            r = retain_object(i->object, i->count);
    }
    return r;
}

void graph_drop_references(CUgraph g) {
    while (g->references) {
        struct graph_user_reference *i = g->references;
        g->references = i->next;
        (void) release_object(i->object, i->count);
        free(i);
    }
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
    CUDA_TRY(enter_object(object, count));
    if (!graph_is(graph) || flags > MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = add_graph_reference(graph, object, count);
    return r == CUDA_SUCCESS && flags != MOVE ? retain_object(object, count) : r;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
    CUDA_TRY(enter_object(object, count));
    if (!graph_is(graph))
        return CUDA_ERROR_INVALID_VALUE;
    for (struct graph_user_reference **p = &graph->references; *p; p = &(*p)->next) {
        struct graph_user_reference *i = *p;
        if (i->object != object || i->count < count)
            continue;
        i->count -= count;
        if (i->count == 0) {
            *p = i->next;
            free(i);
        }
        return release_object(object, count);
    }
    return CUDA_ERROR_INVALID_VALUE;
}
