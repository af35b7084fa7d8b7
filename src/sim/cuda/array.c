/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays and mipmapped arrays: rows of elements without padding. */

#include "sim/cuda/array.h"

#include <stdlib.h>
#include <string.h>

#include "abi/array_format.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"
#include "sim/list.h"

#define LEVELS_MAX 32u
#define ALIGNMENT 65536u

struct CUmipmappedArray_st {
    enum cuda_tag tag;
    struct CUmipmappedArray_st *next;
    CUcontext context;
    unsigned int nlevels;
    size_t bytes;
    char *data;
    struct CUarray_st level[LEVELS_MAX];
};

static CUarray arrays, free_arrays;
static CUmipmappedArray mipmaps, free_mipmaps;

/* Fills in shape and size. False for what cannot be. */
static bool lay_out(CUarray a, const CUDA_ARRAY3D_DESCRIPTOR *d) {
    size_t element = array_channel_bytes(d->Format);
    bool channels = d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 4;
    if (element == 0 || !channels || d->Width == 0)
        return false;
    if ((d->Flags & CUDA_ARRAY3D_CUBEMAP) && (d->Depth == 0 || d->Depth % 6 != 0))
        return false;
    a->desc = *d;
    a->height = d->Height ? d->Height : 1;
    a->depth = d->Depth ? d->Depth : 1;
    return !__builtin_mul_overflow(d->Width, element * d->NumChannels, &a->row) &&
           !__builtin_mul_overflow(a->row, a->height, &a->bytes) &&
           !__builtin_mul_overflow(a->bytes, a->depth, &a->bytes);
}

static CUresult array_memory_take(CUcontext ctx, size_t bytes, char **ret) {
    CUDA_TRY(cuda_take(ctx->device, bytes));
    *ret = memory_reserve(bytes);
    if (*ret)
        return CUDA_SUCCESS;
    cuda_give(ctx->device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void array_memory_give(CUcontext ctx, char *data, size_t bytes) {
    worker_wait_all();
    memory_unreserve(data, bytes);
    cuda_give(ctx->device, bytes);
}

CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    struct CUarray_st a = {.tag = TAG_ARRAY, .context = ctx};
    if (!handle || !desc || !lay_out(&a, desc))
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_TRY(array_memory_take(ctx, a.bytes, &a.data));
    (void) pthread_mutex_lock(&cuda_lock);
    CUarray made;
    CUDA_REUSE_OBJECT(made, free_arrays, next);
    if (made) {
        *made = a;
        LIST_PUSH(arrays, made, next);
    }
    (void) pthread_mutex_unlock(&cuda_lock);
    if (!made) {
        array_memory_give(ctx, a.data, a.bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = made;
    return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *desc) {
    if (!desc)
        return cuArray3DCreate_v2(handle, NULL);
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = desc->Width,
                                 .Height = desc->Height,
                                 .Format = desc->Format,
                                 .NumChannels = desc->NumChannels};
    return cuArray3DCreate_v2(handle, &d);
}

static CUresult enter_array(CUarray array) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    return array && array->tag == TAG_ARRAY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* With cuda_lock: unlinks; the handle's memory is kept for the next. */
static void forget_array(CUarray a) {
    for (CUarray *p = &arrays; *p; p = &(*p)->next)
        if (*p == a) {
            *p = a->next;
            break;
        }
    a->tag = TAG_FREE;
    LIST_PUSH(free_arrays, a, next);
}

static void forget_mipmap(CUmipmappedArray m) {
    for (CUmipmappedArray *p = &mipmaps; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            break;
        }
    m->tag = TAG_FREE;
    for (unsigned int i = 0; i < m->nlevels; i++)
        m->level[i].tag = TAG_FREE;
    LIST_PUSH(free_mipmaps, m, next);
}

CUresult cuArrayDestroy(CUarray array) {
    CUDA_TRY(enter_array(array));
    if (array->parent)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = stream_synchronize_context(array->context);
    (void) pthread_mutex_lock(&cuda_lock);
    struct CUarray_st was = *array;
    forget_array(array);
    (void) pthread_mutex_unlock(&cuda_lock);
    array_memory_give(was.context, was.data, was.bytes);
    return r;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *array_descriptor, CUarray array) {
    CUDA_TRY(enter_array(array));
    CUDA_RETURN_VALUE(array_descriptor, array->desc);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *array_descriptor, CUarray array) {
    CUDA_TRY(enter_array(array));
    if (!array_descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    *array_descriptor = (CUDA_ARRAY_DESCRIPTOR){array->desc.Width, array->desc.Height,
                                                array->desc.Format, array->desc.NumChannels};
    return CUDA_SUCCESS;
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *req, size_t bytes) {
    if (!req)
        return CUDA_ERROR_INVALID_VALUE;
    *req = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = bytes, .alignment = ALIGNMENT};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *req, CUarray array,
                                      CUdevice device) {
    CUresult r = enter_array(array);
    if (r == CUDA_SUCCESS)
        r = cuda_enter_device(device);
    return r == CUDA_SUCCESS ? requirements(req, array->bytes) : r;
}

/* -- mipmapped arrays ------------------------------------------------------------------------ */

static size_t level_extent(size_t n, unsigned int level) {
    size_t m = n >> level;
    return n == 0 ? 0 : m ? m : 1;
}

/* Shapes all levels and adds up their sizes. */
static bool lay_out_levels(CUmipmappedArray m, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                           unsigned int levels) {
    bool layered = desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    for (unsigned int i = 0; i < levels; i++) {
        CUDA_ARRAY3D_DESCRIPTOR d = *desc;
        d.Width = level_extent(desc->Width, i);
        d.Height = level_extent(desc->Height, i);
        d.Depth = layered ? desc->Depth : level_extent(desc->Depth, i);
        CUarray a = &m->level[i];
        *a = (struct CUarray_st){.tag = TAG_ARRAY, .context = m->context, .parent = m};
        if (!lay_out(a, &d) || __builtin_add_overflow(m->bytes, a->bytes, &m->bytes))
            return false;
    }
    m->nlevels = levels;
    return true;
}

static CUmipmappedArray mipmap_new(CUcontext ctx) {
    CUmipmappedArray m;
    CUDA_NEW_OBJECT(m, free_mipmaps, next, (struct CUmipmappedArray_st){.context = ctx});
    return m;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int levels) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    if (!handle || !desc || levels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUmipmappedArray m = mipmap_new(ctx);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = lay_out_levels(m, desc, levels < LEVELS_MAX ? levels : LEVELS_MAX)
                     ? array_memory_take(ctx, m->bytes, &m->data)
                     : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS) {
        (void) pthread_mutex_lock(&cuda_lock);
        forget_mipmap(m);
        (void) pthread_mutex_unlock(&cuda_lock);
        return r;
    }
    size_t at = 0;
    for (unsigned int i = 0; i < m->nlevels; at += m->level[i++].bytes)
        m->level[i].data = m->data + at;
    m->tag = TAG_MIPMAP;
    (void) pthread_mutex_lock(&cuda_lock);
    LIST_PUSH(mipmaps, m, next);
    (void) pthread_mutex_unlock(&cuda_lock);
    *handle = m;
    return CUDA_SUCCESS;
}

bool array_is_mipmap(CUmipmappedArray mipmap) {
    return mipmap && mipmap->tag == TAG_MIPMAP;
}

static CUresult enter_mipmap(CUmipmappedArray mipmap) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    return array_is_mipmap(mipmap) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap) {
    CUDA_TRY(enter_mipmap(mipmap));
    CUresult r = stream_synchronize_context(mipmap->context);
    (void) pthread_mutex_lock(&cuda_lock);
    CUcontext ctx = mipmap->context;
    char *data = mipmap->data;
    size_t bytes = mipmap->bytes;
    forget_mipmap(mipmap);
    (void) pthread_mutex_unlock(&cuda_lock);
    array_memory_give(ctx, data, bytes);
    return r;
}

CUresult cuMipmappedArrayGetLevel(CUarray *level_array, CUmipmappedArray mipmap,
                                  unsigned int level) {
    CUDA_TRY(enter_mipmap(mipmap));
    if (!level_array || level >= mipmap->nlevels)
        return CUDA_ERROR_INVALID_VALUE;
    *level_array = &mipmap->level[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *req,
                                               CUmipmappedArray mipmap, CUdevice device) {
    CUresult r = enter_mipmap(mipmap);
    if (r == CUDA_SUCCESS)
        r = cuda_enter_device(device);
    return r == CUDA_SUCCESS ? requirements(req, mipmap->bytes) : r;
}

void array_release_context(CUcontext ctx) {
    for (;;) {
        (void) pthread_mutex_lock(&cuda_lock);
        CUarray a = arrays;
        while (a && a->context != ctx)
            a = a->next;
        CUmipmappedArray m = mipmaps;
        while (m && m->context != ctx)
            m = m->next;
        char *data = a ? a->data : m ? m->data : NULL;
        size_t bytes = a ? a->bytes : m ? m->bytes : 0;
        if (a)
            forget_array(a);
        else if (m)
            forget_mipmap(m);
        (void) pthread_mutex_unlock(&cuda_lock);
        if (!data)
            return;
        array_memory_give(ctx, data, bytes);
    }
}
