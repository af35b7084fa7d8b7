/* SPDX-License-Identifier: Apache-2.0 */

/* Copies along a line. Copy engines are not simulated: a copy takes the time that this process
 * takes for it, and none of the GPU's, unless both ends are on a card: then its memory is read and
 * written by the GPU. */

#include "sim/cuda/copy.h"

#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/launch.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"

void copy_do(void *arg) {
    const struct copy *c = arg;
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memmove(c->dst + z * c->dst_slice + y * c->dst_pitch,
                    c->src + z * c->src_slice + y * c->src_pitch, c->width);
}

CUresult copy_submit(const struct copy *c, CUstream stream, bool wait) {
    if (!wait)
        return worker_do(stream, copy_do, c, sizeof(*c));
    CUresult r = stream_synchronize(stream);
    if (r == CUDA_SUCCESS)
        copy_do((void *) (uintptr_t) c);
    return r;
}

enum side { HOST, DEVICE, EITHER };

/* Device addresses must be of this driver; host addresses may be any of the program's. */
static bool side_ok(uintptr_t p, size_t bytes, enum side side) {
    if (side == DEVICE)
        return memory_covers(p, bytes);
    const struct memory *m = side == EITHER ? memory_find(p) : NULL;
    return p != 0 && (!m || memory_covers(p, bytes));
}

static CUmemorytype memory_type(enum side side) {
    return side == HOST     ? CU_MEMORYTYPE_HOST
           : side == DEVICE ? CU_MEMORYTYPE_DEVICE
                            : CU_MEMORYTYPE_UNIFIED;
}

static CUresult capture_line(CUstream s, uintptr_t dst, enum side dst_side, uintptr_t src,
                             enum side src_side, size_t bytes) {
    CUDA_MEMCPY3D p = {.srcMemoryType = memory_type(src_side),
                       .srcHost = src_side == HOST ? (const void *) src : NULL,
                       .srcDevice = src_side == HOST ? 0 : src,
                       .srcPitch = bytes,
                       .dstMemoryType = memory_type(dst_side),
                       .dstHost = dst_side == HOST ? (void *) dst : NULL,
                       .dstDevice = dst_side == HOST ? 0 : dst,
                       .dstPitch = bytes,
                       .WidthInBytes = bytes,
                       .Height = 1,
                       .Depth = 1};
    return capture_copy(s, &p);
}

static CUresult copy_line(uintptr_t dst, enum side dst_side, uintptr_t src, enum side src_side,
                          size_t bytes, CUstream stream, bool wait) {
    CUstream s;
    CUresult r = stream_enter_work(stream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (s->capture && wait)
        return capture_refuse(s);
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (s->capture)
        return capture_line(s, dst, dst_side, src, src_side, bytes);
    if (!side_ok(dst, bytes, dst_side) || !side_ok(src, bytes, src_side))
        return CUDA_ERROR_INVALID_VALUE;
    struct copy c = {
        .src = (const char *) src, .dst = (char *) dst, .width = bytes, .height = 1, .depth = 1};
    if (dst_side == DEVICE && src_side == DEVICE)
        r = launch_busy(s, 2 * bytes);
    return r == CUDA_SUCCESS ? copy_submit(&c, s, wait) : r;
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    return copy_line(dst, EITHER, src, EITHER, bytes, NULL, true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    return copy_line(dst, EITHER, src, EITHER, bytes, stream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes) {
    return copy_line(dst, DEVICE, (uintptr_t) src, HOST, bytes, NULL, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream) {
    return copy_line(dst, DEVICE, (uintptr_t) src, HOST, bytes, stream, false);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes) {
    return copy_line((uintptr_t) dst, HOST, src, DEVICE, bytes, NULL, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    return copy_line((uintptr_t) dst, HOST, src, DEVICE, bytes, stream, false);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    return copy_line(dst, DEVICE, src, DEVICE, bytes, NULL, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    return copy_line(dst, DEVICE, src, DEVICE, bytes, stream, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                           CUcontext src_context, size_t bytes, CUstream stream) {
    CUDA_TRY(cuda_enter());
    if (!cuda_context_alive(dst_context) || !cuda_context_alive(src_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy_line(dst, DEVICE, src, DEVICE, bytes, stream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                      CUcontext src_context, size_t bytes) {
    return cuMemcpyPeerAsync(dst, dst_context, src, src_context, bytes, NULL);
}
