/* SPDX-License-Identifier: Apache-2.0 */

/* Values in memory that streams wait for and write. The worker thread does both in stream order,
 * after all earlier work of the stream. */

#include "sim/cuda/capture.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"

struct value {
    CUdeviceptr address;
    uint64_t value;
    bool wide;
    unsigned int condition;
};

static uint64_t load(const struct value *v) {
    void *p = (void *) (uintptr_t) v->address;
    return v->wide ? __atomic_load_n((uint64_t *) p, __ATOMIC_ACQUIRE)
                   : __atomic_load_n((uint32_t *) p, __ATOMIC_ACQUIRE);
}

static bool has_come(void *arg) {
    const struct value *v = arg;
    uint64_t now = load(v);
    switch (v->condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* around the end of the numbers, too */
        return v->wide ? (int64_t) (now - v->value) >= 0
                       : (int32_t) ((uint32_t) now - (uint32_t) v->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == v->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & v->value) != 0;
    default:
        return v->wide ? ~(now | v->value) != 0 : (uint32_t) ~(now | v->value) != 0;
    }
}

static void no_operation(void *arg) {
    (void) arg;
}

static void store_value(void *arg) {
    const struct value *v = arg;
    void *p = (void *) (uintptr_t) v->address;
    if (v->wide)
        __atomic_store_n((uint64_t *) p, v->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *) p, (uint32_t) v->value, __ATOMIC_RELEASE);
}

static CUresult enter_value(CUstream stream, const struct value *v, CUstream *ret) {
    CUDA_TRY(stream_enter_work(stream, ret));
    size_t size = v->wide ? 8 : 4;
    if (v->address % size != 0 || !memory_covers(v->address, size))
        return CUDA_ERROR_INVALID_VALUE;
    return (*ret)->capture ? capture_refuse(*ret) : CUDA_SUCCESS;
}

static CUresult wait_value(CUstream stream, CUdeviceptr addr, uint64_t value, bool wide,
                           unsigned int flags) {
    CUstream s;
    struct value v = {.address = addr, .value = value, .wide = wide, .condition = flags};
    CUDA_TRY(enter_value(stream, &v, &s));
    if (flags > CU_STREAM_WAIT_VALUE_NOR) /* flushing remote writes is for other platforms */
        return CUDA_ERROR_INVALID_VALUE;
    return worker_wait_until(s, has_come, no_operation, &v, sizeof(v));
}

static CUresult write_value(CUstream stream, CUdeviceptr addr, uint64_t value, bool wide,
                            unsigned int flags) {
    CUstream s;
    struct value v = {.address = addr, .value = value, .wide = wide};
    CUDA_TRY(enter_value(stream, &v, &s));
    if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
        return CUDA_ERROR_INVALID_VALUE;
    return worker_call(s, store_value, &v, sizeof(v));
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
    return wait_value(stream, addr, value, false, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
    return wait_value(stream, addr, value, true, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
    return write_value(stream, addr, value, false, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
    return write_value(stream, addr, value, true, flags);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags) {
    return wait_value(stream, addr, value, false, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags) {
    return wait_value(stream, addr, value, true, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags) {
    return write_value(stream, addr, value, false, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags) {
    return write_value(stream, addr, value, true, flags);
}
