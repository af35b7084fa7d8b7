/* SPDX-License-Identifier: Apache-2.0 */

/* Texture and surface objects, as far as a program can see them without sampling: what they were
 * made of. */

#include <stdlib.h>

#include "sim/cuda/array.h"
#include "sim/cuda/memory.h"
#include "sim/list.h"

struct object {
    struct object *next;
    bool surface;
    bool has_view;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
};

static struct object *objects; /* with cuda_lock */

static bool resource_ok(const CUDA_RESOURCE_DESC *d, bool surface) {
    if (d->flags != 0 || (surface && d->resType != CU_RESOURCE_TYPE_ARRAY))
        return false;
    switch (d->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return d->res.array.hArray && d->res.array.hArray->tag == TAG_ARRAY;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return array_is_mipmap(d->res.mipmap.hMipmappedArray);
    case CU_RESOURCE_TYPE_LINEAR:
        return d->res.linear.sizeInBytes > 0 &&
               memory_covers(d->res.linear.devPtr, d->res.linear.sizeInBytes);
    case CU_RESOURCE_TYPE_PITCH2D:
        return d->res.pitch2D.width > 0 && d->res.pitch2D.height > 0 &&
               d->res.pitch2D.pitchInBytes <= SIZE_MAX / d->res.pitch2D.height &&
               memory_covers(d->res.pitch2D.devPtr,
                             d->res.pitch2D.pitchInBytes * d->res.pitch2D.height);
    default:
        return false;
    }
}

static CUresult create_object(const struct object *from, unsigned long long *ret) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!ret || !resource_ok(&from->resource, from->surface))
        return CUDA_ERROR_INVALID_VALUE;
    struct object *o = malloc(sizeof(*o));
    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o = *from;
    (void) pthread_mutex_lock(&cuda_lock);
    LIST_PUSH(objects, o, next);
    (void) pthread_mutex_unlock(&cuda_lock);
    *ret = (uintptr_t) o;
    return CUDA_SUCCESS;
}

static struct object **find_object(unsigned long long object, bool surface) {
    struct object **p = &objects;
    while (*p && ((uintptr_t) *p != object || (*p)->surface != surface))
        p = &(*p)->next;
    return p;
}

static CUresult destroy_object(unsigned long long object, bool surface) {
    CUDA_TRY(cuda_enter());
    (void) pthread_mutex_lock(&cuda_lock);
    struct object **p = find_object(object, surface), *o = *p;
    if (o)
        *p = o->next;
    (void) pthread_mutex_unlock(&cuda_lock);
    free(o);
    return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult look_up(unsigned long long object, bool surface, struct object *ret) {
    CUDA_TRY(cuda_enter());
    (void) pthread_mutex_lock(&cuda_lock);
    const struct object *o = *find_object(object, surface);
    if (o)
        *ret = *o;
    (void) pthread_mutex_unlock(&cuda_lock);
    return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_resource(unsigned long long object, bool surface, CUDA_RESOURCE_DESC *ret) {
    struct object o;
    CUDA_TRY(look_up(object, surface, &o));
    CUDA_RETURN_VALUE(ret, o.resource);
}

CUresult cuTexObjectCreate(CUtexObject *tex_object, const CUDA_RESOURCE_DESC *res_desc,
                           const CUDA_TEXTURE_DESC *tex_desc,
                           const CUDA_RESOURCE_VIEW_DESC *res_view_desc) {
    if (!res_desc || !tex_desc)
        return cuda_invalid();
    struct object o = {.resource = *res_desc, .texture = *tex_desc, .has_view = res_view_desc};
    if (res_view_desc)
        o.view = *res_view_desc;
    return create_object(&o, tex_object);
}

CUresult cuTexObjectDestroy(CUtexObject tex_object) {
    return destroy_object(tex_object, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *res_desc, CUtexObject tex_object) {
    return get_resource(tex_object, false, res_desc);
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *tex_desc, CUtexObject tex_object) {
    struct object o;
    CUDA_TRY(look_up(tex_object, false, &o));
    CUDA_RETURN_VALUE(tex_desc, o.texture);
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *res_view_desc,
                                        CUtexObject tex_object) {
    struct object o;
    CUDA_TRY(look_up(tex_object, false, &o));
    if (!res_view_desc || !o.has_view)
        return CUDA_ERROR_INVALID_VALUE;
    *res_view_desc = o.view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *surf_object, const CUDA_RESOURCE_DESC *res_desc) {
    if (!res_desc)
        return cuda_invalid();
    struct object o = {.surface = true, .resource = *res_desc};
    return create_object(&o, surf_object);
}

CUresult cuSurfObjectDestroy(CUsurfObject surf_object) {
    return destroy_object(surf_object, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *res_desc, CUsurfObject surf_object) {
    return get_resource(surf_object, true, res_desc);
}
