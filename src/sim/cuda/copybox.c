/* SPDX-License-Identifier: Apache-2.0 */

/* Copies of boxes, and to and from arrays. */

#include <assert.h>
#include <string.h>

#include "sim/cuda/array.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/copy.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"

/* One end of a copy, before it is known to make sense. */
struct end {
    CUmemorytype type;
    uintptr_t base; /* of host or device memory */
    CUarray array;
    size_t x, y, z; /* bytes, rows, slices */
    size_t pitch, height;
};

/* Where the box begins and how it is laid out; false when it does not fit. */
static bool box_address(const struct end *e, size_t width, size_t height, size_t depth, char **ret,
                        size_t *ret_pitch, size_t *ret_slice) {
    size_t pitch = e->pitch ? e->pitch : width;
    size_t rows = e->height ? e->height : height;
    uintptr_t base = e->base;
    if (e->type == CU_MEMORYTYPE_ARRAY) {
        CUarray a = e->array;
        if (!a || a->tag != TAG_ARRAY || e->x > a->row || width > a->row - e->x ||
            e->y > a->height || height > a->height - e->y || e->z > a->depth ||
            depth > a->depth - e->z)
            return false;
        pitch = a->row;
        rows = a->height;
        base = (uintptr_t) a->data;
    } else if (pitch < width || (depth > 1 && rows < height)) {
        return false;
    }
    size_t slice, begin, span;
    if (__builtin_mul_overflow(pitch, rows, &slice) ||
        __builtin_mul_overflow(slice, e->z + depth, &span) ||
        __builtin_mul_overflow(pitch, e->y, &begin))
        return false;
    begin += e->z * slice + e->x;
    span = (depth - 1) * slice + (height - 1) * pitch + width;
    bool ours = e->type == CU_MEMORYTYPE_DEVICE ||
                (e->type == CU_MEMORYTYPE_UNIFIED && memory_find(base + begin));
    if (base == 0 || (ours && !memory_covers(base + begin, span)))
        return false;
    *ret = (char *) (base + begin);
    *ret_pitch = pitch;
    *ret_slice = slice;
    return true;
}

static uintptr_t base_of(CUmemorytype type, const void *host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? (uintptr_t) host : (uintptr_t) device;
}

/* The source or the destination of a copy. */
#define END_OF(p, side)                                                                            \
    {                                                                                              \
        .type = (p)->side##MemoryType, .array = (p)->side##Array, .x = (p)->side##XInBytes,        \
        .y = (p)->side##Y, .z = (p)->side##Z, .pitch = (p)->side##Pitch,                           \
        .height = (p)->side##Height,                                                               \
        .base = base_of((p)->side##MemoryType, (p)->side##Host, (p)->side##Device)                 \
    }

CUresult copy_prepare(const CUDA_MEMCPY3D *p, struct copy *ret) {
    struct end src = END_OF(p, src), dst = END_OF(p, dst);
    struct copy c = {.width = p->WidthInBytes, .height = p->Height, .depth = p->Depth};
    char *from;
    if (!box_address(&src, c.width, c.height, c.depth, &from, &c.src_pitch, &c.src_slice) ||
        !box_address(&dst, c.width, c.height, c.depth, &c.dst, &c.dst_pitch, &c.dst_slice))
        return CUDA_ERROR_INVALID_VALUE;
    c.src = from;
    *ret = c;
    return CUDA_SUCCESS;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool async) {
    CUstream s;
    struct copy c;
    if (!p)
        return cuda_invalid();
    CUDA_TRY(stream_enter_work(stream, &s));
    if (s->capture && !async)
        return capture_refuse(s);
    if (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0)
        return CUDA_SUCCESS;
    if (s->capture)
        return capture_copy(s, p);
    CUresult r = copy_prepare(p, &c);
    return r == CUDA_SUCCESS ? copy_submit(&c, s, !async) : r;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool async) {
    if (!p)
        return cuda_invalid();
    const CUDA_MEMCPY3D p3 = {.srcMemoryType = p->srcMemoryType,
                              .srcArray = p->srcArray,
                              .srcXInBytes = p->srcXInBytes,
                              .srcY = p->srcY,
                              .srcPitch = p->srcPitch,
                              .srcHost = p->srcHost,
                              .srcDevice = p->srcDevice,
                              .dstMemoryType = p->dstMemoryType,
                              .dstArray = p->dstArray,
                              .dstXInBytes = p->dstXInBytes,
                              .dstY = p->dstY,
                              .dstPitch = p->dstPitch,
                              .dstHost = p->dstHost,
                              .dstDevice = p->dstDevice,
                              .WidthInBytes = p->WidthInBytes,
                              .Height = p->Height,
                              .Depth = 1};
    return copy_3d(&p3, stream, async);
}

/* The same fields in the same places, but for the two contexts in place of reserved ones. */
static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool async) {
    CUDA_MEMCPY3D p3;
    static_assert(sizeof(p3) == sizeof(*p), "as the header of the driver has it");
    if (!p)
        return cuda_invalid();
    memcpy(&p3, p, sizeof(p3));
    return copy_3d(&p3, stream, async);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy) {
    return copy_2d(copy, NULL, false);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy) {
    return copy_2d(copy, NULL, false);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) {
    return copy_2d(copy, stream, true);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy) {
    return copy_3d(copy, NULL, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream) {
    return copy_3d(copy, stream, true);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy) {
    return copy_peer(copy, NULL, false);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
    return copy_peer(copy, stream, true);
}

/* -- bytes of an array, counted along its rows ----------------------------------------------- */

static CUresult copy_array(CUarray dst_array, uintptr_t dst, CUarray src_array, uintptr_t src,
                           size_t bytes, CUstream stream, bool async) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    if (s->capture && !async)
        return capture_refuse(s);
    if ((dst_array && dst_array->tag != TAG_ARRAY) || (src_array && src_array->tag != TAG_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    if ((dst_array && (dst > dst_array->bytes || bytes > dst_array->bytes - dst)) ||
        (src_array && (src > src_array->bytes || bytes > src_array->bytes - src)))
        return CUDA_ERROR_INVALID_VALUE;
    struct copy c = {.dst = dst_array ? dst_array->data + dst : (char *) dst,
                     .src = src_array ? src_array->data + src : (const char *) src,
                     .width = bytes,
                     .height = 1,
                     .depth = 1};
    if (!c.dst || !c.src)
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture) {
        CUDA_MEMCPY3D p = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = (uintptr_t) c.src,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = (uintptr_t) c.dst,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
        return capture_copy(s, &p);
    }
    return copy_submit(&c, s, !async);
}

CUresult cuMemcpyDtoA_v2(CUarray dst_array, size_t dst_offset, CUdeviceptr src, size_t bytes) {
    if (!dst_array || !memory_covers(src, bytes))
        return cuda_invalid();
    return copy_array(dst_array, dst_offset, NULL, src, bytes, NULL, false);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src_array, size_t src_offset, size_t bytes) {
    if (!src_array || !memory_covers(dst, bytes))
        return cuda_invalid();
    return copy_array(NULL, dst, src_array, src_offset, bytes, NULL, false);
}

CUresult cuMemcpyHtoA_v2(CUarray dst_array, size_t dst_offset, const void *src, size_t bytes) {
    if (!dst_array)
        return cuda_invalid();
    return copy_array(dst_array, dst_offset, NULL, (uintptr_t) src, bytes, NULL, false);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dst_array, size_t dst_offset, const void *src, size_t bytes,
                              CUstream stream) {
    if (!dst_array)
        return cuda_invalid();
    return copy_array(dst_array, dst_offset, NULL, (uintptr_t) src, bytes, stream, true);
}

CUresult cuMemcpyAtoH_v2(void *dst, CUarray src_array, size_t src_offset, size_t bytes) {
    if (!src_array)
        return cuda_invalid();
    return copy_array(NULL, (uintptr_t) dst, src_array, src_offset, bytes, NULL, false);
}

CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray src_array, size_t src_offset, size_t bytes,
                              CUstream stream) {
    if (!src_array)
        return cuda_invalid();
    return copy_array(NULL, (uintptr_t) dst, src_array, src_offset, bytes, stream, true);
}

CUresult cuMemcpyAtoA_v2(CUarray dst_array, size_t dst_offset, CUarray src_array, size_t src_offset,
                         size_t bytes) {
    if (!dst_array || !src_array)
        return cuda_invalid();
    return copy_array(dst_array, dst_offset, src_array, src_offset, bytes, NULL, false);
}
