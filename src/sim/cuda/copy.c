/* SPDX-License-Identifier: Apache-2.0 */

/* Copies along a line. Copy engines are not simulated: a copy takes the time that this process
 * takes for it, and none of the GPU's. */

#include "sim/cuda/copy.h"

#include <string.h>

#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"

static void copy_box(void *arg) {
    const struct copy *c = arg;
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memmove(c->dst + z * c->dst_slice + y * c->dst_pitch,
                    c->src + z * c->src_slice + y * c->src_pitch, c->width);
}

CUresult copy_submit(const struct copy *c, CUstream stream, bool wait) {
    if (!wait)
        return worker_do(stream, copy_box, c, sizeof(*c));
    CUresult r = stream_synchronize(stream);
    if (r == CUDA_SUCCESS)
        copy_box((void *) (uintptr_t) c);
    return r;
}

enum side { HOST, DEVICE, EITHER };

/* Device addresses must be ours; what is not ours is the program's, where it may be. */
static bool side_ok(uintptr_t p, size_t bytes, enum side side) {
    if (side == DEVICE)
        return memory_covers(p, bytes);
    const struct memory *m = side == EITHER ? memory_find(p) : NULL;
    return p != 0 && (!m || memory_covers(p, bytes));
}

static CUresult copy_line(uintptr_t dst, enum side dst_side, uintptr_t src, enum side src_side,
                          size_t bytes, CUstream stream, bool wait) {
    CUstream s;
    CUresult r = stream_enter(stream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (!side_ok(dst, bytes, dst_side) || !side_ok(src, bytes, src_side))
        return CUDA_ERROR_INVALID_VALUE;
    struct copy c = {
        .src = (const char *) src, .dst = (char *) dst, .width = bytes, .height = 1, .depth = 1};
    return copy_submit(&c, s, wait);
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
    CUresult r = cuda_enter();
    if (r != CUDA_SUCCESS)
        return r;
    if (!cuda_context_alive(dst_context) || !cuda_context_alive(src_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy_line(dst, DEVICE, src, DEVICE, bytes, stream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                      CUcontext src_context, size_t bytes) {
    return cuMemcpyPeerAsync(dst, dst_context, src, src_context, bytes, NULL);
}
