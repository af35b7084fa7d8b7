/* SPDX-License-Identifier: Apache-2.0 */

/* Fills. Filling all of a big card must not take as much memory of the host: zeros are pages that
 * have not been touched, and a long run of anything else is one stretch of memory, mapped as often
 * as it takes and copied by the page where it is written to. */

#include "sim/cuda/fill.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/launch.h"
#include "sim/cuda/managed.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"

#define PATTERN_BYTES ((size_t) 64 << 20)
#define PAGE 4096u

static void fill_plain(char *p, size_t bytes, uint32_t value, unsigned int element) {
    if (element == 1 || value == 0) {
        memset(p, (int) (value & 0xff), bytes);
        return;
    }
    if (element == 2) {
        uint16_t v = (uint16_t) value;
        for (size_t i = 0; i + 2 <= bytes; i += 2)
            memcpy(p + i, &v, 2);
        return;
    }
    for (size_t i = 0; i + 4 <= bytes; i += 4)
        memcpy(p + i, &value, 4);
}

static void keep_out_of_children(char *p, size_t bytes) {
    (void) madvise(p, bytes, MADV_DONTFORK);
    (void) madvise(p, bytes, MADV_NOHUGEPAGE);
}

/* Whole pages become untouched ones. */
static bool map_zeros(char *p, size_t bytes) {
    if (mmap(p, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return false;
    keep_out_of_children(p, bytes);
    return true;
}

/* Whole pages become copies of one stretch. */
static bool map_pattern(char *p, size_t bytes, uint32_t value, unsigned int element) {
    int fd = (int) syscall(SYS_memfd_create, "aliquot-sim-fill", 1u);
    if (fd < 0)
        return false;
    char *pattern = MAP_FAILED;
    if (ftruncate(fd, (off_t) PATTERN_BYTES) == 0)
        pattern = mmap(NULL, PATTERN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    bool ok = pattern != MAP_FAILED;
    if (ok) {
        fill_plain(pattern, PATTERN_BYTES, value, element);
        (void) munmap(pattern, PATTERN_BYTES);
    }
    for (size_t at = 0; ok && at < bytes; at += PATTERN_BYTES) {
        size_t n = bytes - at < PATTERN_BYTES ? bytes - at : PATTERN_BYTES;
        ok = mmap(p + at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, fd,
                  0) != MAP_FAILED;
        if (ok)
            keep_out_of_children(p + at, n);
    }
    (void) close(fd);
    return ok;
}

static void fill_row(char *p, size_t bytes, const struct fill *f) {
    size_t before = (PAGE - (uintptr_t) p % PAGE) % PAGE;
    size_t middle = bytes > before ? (bytes - before) / PAGE * PAGE : 0;
    bool zero = f->value == 0;
    if (!f->pages || middle < (zero ? PATTERN_BYTES / 64 : PATTERN_BYTES)) {
        fill_plain(p, bytes, f->value, f->element);
        return;
    }
    fill_plain(p, before, f->value, f->element);
    char *m = p + before;
    if (!(zero ? map_zeros(m, middle) : map_pattern(m, middle, f->value, f->element)))
        fill_plain(m, middle, f->value, f->element);
    fill_plain(m + middle, bytes - before - middle, f->value, f->element);
}

void fill_do(void *arg) {
    const struct fill *f = arg;
    char *p = (char *) (uintptr_t) f->base;
    if (f->pitch == f->width || f->height == 1)
        fill_row(p, f->width * f->height, f);
    else
        for (size_t y = 0; y < f->height; y++)
            fill_row(p + y * f->pitch, f->width, f);
}

CUresult fill_prepare(struct fill *f) {
    size_t span;
    if (f->height == 1)
        f->pitch = f->width;
    if (f->base % f->element || f->pitch < f->width ||
        __builtin_mul_overflow(f->pitch, f->height - 1, &span) ||
        __builtin_add_overflow(span, f->width, &span) || !memory_covers(f->base, span))
        return CUDA_ERROR_INVALID_VALUE;
    const struct memory *m = memory_find(f->base);
    managed_touch(f->base, span, m ? m->device : 0);
    f->pages = m && memory_is_private(m) && m->size >= PATTERN_BYTES / 64;
    return CUDA_SUCCESS;
}

static CUresult fill_submit(struct fill *f, CUstream stream) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    if (f->width == 0 || f->height == 0)
        return CUDA_SUCCESS;
    if (s->capture)
        return capture_fill(s, f);
    CUresult r = fill_prepare(f);
    if (r == CUDA_SUCCESS)
        r = launch_busy(s, f->width * f->height);
    return r == CUDA_SUCCESS ? worker_do(s, fill_do, f, sizeof(*f)) : r;
}

static CUresult fill_linear(CUdeviceptr dst, uint32_t value, unsigned int element, size_t n,
                            CUstream stream) {
    struct fill f = {.base = dst, .height = 1, .value = value, .element = element};
    if (__builtin_mul_overflow(n, element, &f.width))
        return CUDA_ERROR_INVALID_VALUE;
    return fill_submit(&f, stream);
}

static CUresult fill_rows(CUdeviceptr dst, size_t pitch, uint32_t value, unsigned int element,
                          size_t width, size_t height, CUstream stream) {
    struct fill f = {
        .base = dst, .pitch = pitch, .height = height, .value = value, .element = element};
    if (__builtin_mul_overflow(width, element, &f.width))
        return CUDA_ERROR_INVALID_VALUE;
    return fill_submit(&f, stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char uc, size_t n) {
    return fill_linear(dst, uc, 1, n, NULL);
}

CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short us, size_t n) {
    return fill_linear(dst, us, 2, n, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int ui, size_t n) {
    return fill_linear(dst, ui, 4, n, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char uc, size_t n, CUstream stream) {
    return fill_linear(dst, uc, 1, n, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short us, size_t n, CUstream stream) {
    return fill_linear(dst, us, 2, n, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int ui, size_t n, CUstream stream) {
    return fill_linear(dst, ui, 4, n, stream);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t dst_pitch, unsigned char uc, size_t width,
                         size_t height) {
    return fill_rows(dst, dst_pitch, uc, 1, width, height, NULL);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t dst_pitch, unsigned short us, size_t width,
                          size_t height) {
    return fill_rows(dst, dst_pitch, us, 2, width, height, NULL);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t dst_pitch, unsigned int ui, size_t width,
                          size_t height) {
    return fill_rows(dst, dst_pitch, ui, 4, width, height, NULL);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t dst_pitch, unsigned char uc, size_t width,
                           size_t height, CUstream stream) {
    return fill_rows(dst, dst_pitch, uc, 1, width, height, stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t dst_pitch, unsigned short us, size_t width,
                            size_t height, CUstream stream) {
    return fill_rows(dst, dst_pitch, us, 2, width, height, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t dst_pitch, unsigned int ui, size_t width,
                            size_t height, CUstream stream) {
    return fill_rows(dst, dst_pitch, ui, 4, width, height, stream);
}
