/* SPDX-License-Identifier: Apache-2.0 */

/* External memory. The one kind of it that there is here is what another process of the simulated
 * driver has exported as a POSIX file descriptor. */

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/cuda/memory.h"
#include "sim/cuda/shared.h"
#include "sim/list.h"

struct CUextMemory_st {
    enum cuda_tag tag;
    struct CUextMemory_st *next_free;
    struct shared shared;
    size_t size;
};

static CUexternalMemory free_memories;

static CUresult enter_external(CUexternalMemory e) {
    CUDA_TRY(cuda_enter());
    return e && e->tag == TAG_EXTERNAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The descriptor is the driver's once this has succeeded. */
CUresult cuImportExternalMemory(CUexternalMemory *ext_mem_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *mem_handle_desc) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    struct shared s;
    if (!ext_mem_out || !mem_handle_desc || mem_handle_desc->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (mem_handle_desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_TRY(shared_import(mem_handle_desc->handle.fd, &s));
    (void) pthread_mutex_lock(&cuda_lock);
    CUexternalMemory e;
    CUDA_REUSE_OBJECT(e, free_memories, next_free);
    if (e && mem_handle_desc->size <= s.bytes)
        *e = (struct CUextMemory_st){
            .tag = TAG_EXTERNAL, .shared = s, .size = mem_handle_desc->size};
    (void) pthread_mutex_unlock(&cuda_lock);
    if (!e || mem_handle_desc->size > s.bytes) {
        shared_close(&s);
        free(e);
        return e ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    (void) close(mem_handle_desc->handle.fd);
    *ext_mem_out = e;
    return CUDA_SUCCESS;
}

/* Each buffer holds the share for itself, and the memory ends with the last of them. */
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *dev_ptr, CUexternalMemory ext_mem,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer_desc) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    CUDA_TRY(enter_external(ext_mem));
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *b = buffer_desc;
    if (!dev_ptr || !b || b->flags != 0 || b->size == 0 || b->size > ext_mem->size ||
        b->offset % 4096 != 0 || b->offset > ext_mem->size - b->size)
        return CUDA_ERROR_INVALID_VALUE;
    struct shared s;
    struct memory *m;
    CUresult r = shared_open(ext_mem->shared.id, &s);
    if (r == CUDA_SUCCESS)
        r = memory_adopt(MEMORY_IMPORTED, ctx, &s, b->offset, b->size, &m);
    if (r == CUDA_SUCCESS)
        *dev_ptr = m->base;
    return r;
}

CUresult cuDestroyExternalMemory(CUexternalMemory ext_mem) {
    CUDA_TRY(enter_external(ext_mem));
    shared_close(&ext_mem->shared);
    (void) pthread_mutex_lock(&cuda_lock);
    ext_mem->tag = TAG_FREE;
    LIST_PUSH(free_memories, ext_mem, next_free);
    (void) pthread_mutex_unlock(&cuda_lock);
    return CUDA_SUCCESS;
}
