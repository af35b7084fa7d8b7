/* SPDX-License-Identifier: Apache-2.0 */

/* Fills, and copies within the memory of cards, in all their variants: work of the card as launches
 * are, and charged by the same throttle. Their cost is learned for each kind and size. Copies from
 * and to the host use the bus and copy engines, not the time that is shared: they are not charged,
 * and functions that only do such copies are not hooked here. */

#include "intercept/compute/throttle.h"
#include "intercept/resolve/driver.h"

/* In the place of a function's address in the keys of costs. */
enum kind { FILL = 1, FILL_ROWS, COPY, COPY_ARRAY, COPY_BOX, COPY_PEER };

/* Sizes less than an eighth apart share an estimate. */
static uint64_t size_class(uint64_t n) {
    int shift = n < 16 ? 0 : 60 - __builtin_clzll(n);

    return (uint64_t) shift << 4 | n >> shift;
}

static void enter_sized(struct passage *p, enum kind kind, uint64_t bytes, uint64_t rows,
                        CUstream stream, bool per_thread) {
    if (bytes)
        throttle_enter_metered(p, cost_key(kind, size_class(bytes), size_class(rows)), stream,
                               per_thread);
}

/* Memory that the driver does not know is the program's own. */
static bool on_card(CUdeviceptr p) {
    unsigned int type = CU_MEMORYTYPE_HOST;

    return driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

static bool end_on_card(CUmemorytype type, CUdeviceptr p) {
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY ||
           (type == CU_MEMORYTYPE_UNIFIED && on_card(p));
}

/* A hook whose work is `enter`, which is evaluated only where there is a limit of compute. */
#define THROUGH(symbol, params, args, enter)                                                       \
    CUresult symbol params {                                                                       \
        struct passage p;                                                                          \
                                                                                                   \
        p.card = NULL;                                                                             \
        if (__builtin_expect(!throttle_open(), 0))                                                 \
            enter;                                                                                 \
        return throttle_leave(&p, driver.symbol args);                                             \
    }

/* -- fills --------------------------------------------------------------------------------------
 */

#define LINE FILL, (uint64_t) n * sizeof(value), 1
#define ROWS FILL_ROWS, (uint64_t) width *height * sizeof(value), height

#define FILLS(bits, type)                                                                          \
    THROUGH(cuMemsetD##bits, (CUdeviceptr_v1 dst, type value, unsigned int n), (dst, value, n),    \
            enter_sized(&p, LINE, NULL, false))                                                    \
    THROUGH(cuMemsetD##bits##_v2, (CUdeviceptr dst, type value, size_t n), (dst, value, n),        \
            enter_sized(&p, LINE, NULL, false))                                                    \
    THROUGH(cuMemsetD##bits##_v2_ptds, (CUdeviceptr dst, type value, size_t n), (dst, value, n),   \
            enter_sized(&p, LINE, NULL, true))                                                     \
    THROUGH(cuMemsetD##bits##Async, (CUdeviceptr dst, type value, size_t n, CUstream stream),      \
            (dst, value, n, stream), enter_sized(&p, LINE, stream, false))                         \
    THROUGH(cuMemsetD##bits##Async_ptsz, (CUdeviceptr dst, type value, size_t n, CUstream stream), \
            (dst, value, n, stream), enter_sized(&p, LINE, stream, true))                          \
    THROUGH(cuMemsetD2D##bits,                                                                     \
            (CUdeviceptr_v1 dst, unsigned int pitch, type value, unsigned int width,               \
             unsigned int height),                                                                 \
            (dst, pitch, value, width, height), enter_sized(&p, ROWS, NULL, false))                \
    THROUGH(cuMemsetD2D##bits##_v2,                                                                \
            (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),              \
            (dst, pitch, value, width, height), enter_sized(&p, ROWS, NULL, false))                \
    THROUGH(cuMemsetD2D##bits##_v2_ptds,                                                           \
            (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),              \
            (dst, pitch, value, width, height), enter_sized(&p, ROWS, NULL, true))                 \
    THROUGH(                                                                                       \
        cuMemsetD2D##bits##Async,                                                                  \
        (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream), \
        (dst, pitch, value, width, height, stream), enter_sized(&p, ROWS, stream, false))          \
    THROUGH(                                                                                       \
        cuMemsetD2D##bits##Async_ptsz,                                                             \
        (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream), \
        (dst, pitch, value, width, height, stream), enter_sized(&p, ROWS, stream, true))

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

/* -- copies along a line ------------------------------------------------------------------------
 */

static void enter_unified(struct passage *p, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                          CUstream stream, bool per_thread) {
    if (on_card(dst) && on_card(src))
        enter_sized(p, COPY, bytes, 1, stream, per_thread);
}

THROUGH(cuMemcpyDtoD, (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int bytes),
        (dst, src, bytes), enter_sized(&p, COPY, bytes, 1, NULL, false))
THROUGH(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes),
        enter_sized(&p, COPY, bytes, 1, NULL, false))
THROUGH(cuMemcpyDtoD_v2_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes),
        enter_sized(&p, COPY, bytes, 1, NULL, true))
THROUGH(cuMemcpyDtoDAsync,
        (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int bytes, CUstream stream),
        (dst, src, bytes, stream), enter_sized(&p, COPY, bytes, 1, stream, false))
THROUGH(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
        (dst, src, bytes, stream), enter_sized(&p, COPY, bytes, 1, stream, false))
THROUGH(cuMemcpyDtoDAsync_v2_ptsz,
        (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
        (dst, src, bytes, stream), enter_sized(&p, COPY, bytes, 1, stream, true))
THROUGH(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes),
        enter_unified(&p, dst, src, bytes, NULL, false))
THROUGH(cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes),
        enter_unified(&p, dst, src, bytes, NULL, true))
THROUGH(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
        (dst, src, bytes, stream), enter_unified(&p, dst, src, bytes, stream, false))
THROUGH(cuMemcpyAsync_ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
        (dst, src, bytes, stream), enter_unified(&p, dst, src, bytes, stream, true))

/* A copy between cards is charged to the card of the current context. */
#define PEER(symbol, stream_param, stream_arg, stream, per_thread)                                 \
    THROUGH(symbol,                                                                                \
            (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,       \
             size_t bytes stream_param),                                                           \
            (dst, dst_context, src, src_context, bytes stream_arg),                                \
            enter_sized(&p, COPY_PEER, bytes, 1, stream, per_thread))
#define AND_STREAM , CUstream stream
#define AND , stream

PEER(cuMemcpyPeer, , , NULL, false)
PEER(cuMemcpyPeer_ptds, , , NULL, true)
PEER(cuMemcpyPeerAsync, AND_STREAM, AND, stream, false)
PEER(cuMemcpyPeerAsync_ptsz, AND_STREAM, AND, stream, true)

/* -- arrays -------------------------------------------------------------------------------------
 */

#define ARRAYS(suffix, pointer, number, per_thread)                                                \
    THROUGH(cuMemcpyDtoA##suffix,                                                                  \
            (CUarray dst_array, number dst_offset, pointer src, number bytes),                     \
            (dst_array, dst_offset, src, bytes),                                                   \
            enter_sized(&p, COPY_ARRAY, bytes, 1, NULL, per_thread))                               \
    THROUGH(cuMemcpyAtoD##suffix,                                                                  \
            (pointer dst, CUarray src_array, number src_offset, number bytes),                     \
            (dst, src_array, src_offset, bytes),                                                   \
            enter_sized(&p, COPY_ARRAY, bytes, 1, NULL, per_thread))                               \
    THROUGH(cuMemcpyAtoA##suffix,                                                                  \
            (CUarray dst_array, number dst_offset, CUarray src_array, number src_offset,           \
             number bytes),                                                                        \
            (dst_array, dst_offset, src_array, src_offset, bytes),                                 \
            enter_sized(&p, COPY_ARRAY, bytes, 1, NULL, per_thread))

ARRAYS(, CUdeviceptr_v1, unsigned int, false)
ARRAYS(_v2, CUdeviceptr, size_t, false)
ARRAYS(_v2_ptds, CUdeviceptr, size_t, true)

/* -- boxes --------------------------------------------------------------------------------------
 */

/* The forms of the description differ only in the width of its fields. */
#define ENTER_BOX(kind, depth, stream, per_thread)                                                 \
    do {                                                                                           \
        if (copy && end_on_card(copy->dstMemoryType, copy->dstDevice) &&                           \
            end_on_card(copy->srcMemoryType, copy->srcDevice))                                     \
            enter_sized(&p, kind, (uint64_t) copy->WidthInBytes * copy->Height * (depth),          \
                        (uint64_t) copy->Height * (depth), stream, per_thread);                    \
    } while (0)

#define BOX(symbol, type, kind, depth, per_thread)                                                 \
    THROUGH(symbol, (const type *copy), (copy), ENTER_BOX(kind, depth, NULL, per_thread))
#define BOX_ASYNC(symbol, type, kind, depth, per_thread)                                           \
    THROUGH(symbol, (const type *copy, CUstream stream), (copy, stream),                           \
            ENTER_BOX(kind, depth, stream, per_thread))

BOX(cuMemcpy2D, CUDA_MEMCPY2D_v1, COPY_BOX, 1, false)
BOX(cuMemcpy2D_v2, CUDA_MEMCPY2D, COPY_BOX, 1, false)
BOX(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, COPY_BOX, 1, true)
BOX(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, COPY_BOX, 1, false)
BOX(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, COPY_BOX, 1, false)
BOX(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, COPY_BOX, 1, true)
BOX_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, COPY_BOX, 1, false)
BOX_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, COPY_BOX, 1, false)
BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, COPY_BOX, 1, true)
BOX(cuMemcpy3D, CUDA_MEMCPY3D_v1, COPY_BOX, copy->Depth, false)
BOX(cuMemcpy3D_v2, CUDA_MEMCPY3D, COPY_BOX, copy->Depth, false)
BOX(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, COPY_BOX, copy->Depth, true)
BOX_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, COPY_BOX, copy->Depth, false)
BOX_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, COPY_BOX, copy->Depth, false)
BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, COPY_BOX, copy->Depth, true)
BOX(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, COPY_PEER, copy->Depth, false)
BOX(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, COPY_PEER, copy->Depth, true)
BOX_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, COPY_PEER, copy->Depth, false)
BOX_ASYNC(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, COPY_PEER, copy->Depth, true)
