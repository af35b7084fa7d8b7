/* SPDX-License-Identifier: Apache-2.0 */

/* What an address is. */

#include <string.h>

#include "sim/cuda/memory.h"

static bool is_host(const struct memory *m) {
    return m->kind == MEMORY_HOST || m->kind == MEMORY_REGISTERED;
}

/* Writes the attribute's value. Its type depends on the attribute. */
static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
                                  const struct memory *m) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *) data = m->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *) data = is_host(m) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *) data = ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host(m) && m->kind != MEMORY_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **) data = (void *) (uintptr_t) ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *) data = m->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *) data = m->kind == MEMORY_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *) data = m->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *) data = m->kind == MEMORY_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned int *) data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *) data = m->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *) data = m->size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *) data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *) data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *) data = m->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attrib, CUdeviceptr ptr) {
    CUDA_TRY(cuda_enter());
    const struct memory *m = memory_find(ptr);
    return data && m ? pointer_attribute(data, attrib, ptr, m) : CUDA_ERROR_INVALID_VALUE;
}

/* For an address that is not the driver's, every answer is empty, and that is no error. */
CUresult cuPointerGetAttributes(unsigned int num_attributes, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr ptr) {
    CUDA_TRY(cuda_enter());
    if (num_attributes > 0 && (!attributes || !data))
        return CUDA_ERROR_INVALID_VALUE;
    const struct memory *m = memory_find(ptr);
    for (unsigned int i = 0; i < num_attributes; i++) {
        if (!data[i])
            return CUDA_ERROR_INVALID_VALUE;
        if (m && pointer_attribute(data[i], attributes[i], ptr, m) == CUDA_SUCCESS)
            continue;
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *) data[i] = -2;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                 attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                 attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                 attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED)
            *(unsigned int *) data[i] = 0;
        else
            *(void **) data[i] = NULL;
    }
    return CUDA_SUCCESS;
}
