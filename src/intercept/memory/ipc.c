/* SPDX-License-Identifier: Apache-2.0 */

/* Memory by interprocess handles, pools by shareable handles, and external memory. Memory that
 * another API of this container made (Vulkan, OpenGL, EGL) is not in the ledger, imported or not:
 * the
 * driver's figures for the container include it. */

#include "intercept/memory/export.h"
#include "intercept/memory/pool.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr) {
    CUresult r = driver.cuIpcGetMemHandle(handle, dptr);
    CUdeviceptr base = dptr;
    size_t size;

    if (r == CUDA_SUCCESS && share_claim() &&
        driver.cuMemGetAddressRange_v2(&base, &size, dptr) == CUDA_SUCCESS)
        export_pointer(base);
    return r;
}

/* Counts another import of what is open at this address. An entry that is ending may be of other
 * memory, which was open there before. */
static bool open_again(struct share *share, uint64_t key) {
    struct entry *found;
    bool again;

    books_lock(share);
    found = allocations_find(books_allocations(share), ENTRY_IMPORT, key);
    again = found && !found->ending;
    if (again)
        found->refs++;
    books_unlock(share);
    return again;
}

/* Enters what has been opened; false: it is of another container and does not fit. */
static bool enter_import(struct import *import, uint64_t key, uint64_t bytes) {
    struct charge charge;

    if (!import->share)
        return true;
    /* Memory that is open already counts as one import, however often it is opened. */
    if (open_again(import->share, key)) {
        import_ended(import->share);
        return true;
    }
    charge_on_current(&charge);
    if (!charge.share || !charge_reserve(&charge, import->foreign ? bytes : 0)) {
        import_ended(import->share);
        return !charge.share;
    }
    (void) charge_settle(&charge, CUDA_SUCCESS, ENTRY_IMPORT, key, charge.context);
    return true;
}

static CUresult opened(struct import *import, CUresult r, CUdeviceptr *dptr) {
    CUdeviceptr base;
    size_t size = 0;

    if (import_settle(import, r) != CUDA_SUCCESS)
        return r;
    if (driver.cuMemGetAddressRange_v2(&base, &size, *dptr) != CUDA_SUCCESS)
        size = 0;
    if (enter_import(import, *dptr, size))
        return CUDA_SUCCESS;
    (void) driver.cuIpcCloseMemHandle(*dptr);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags) {
    struct import import;

    if (!import_begin(&import))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return opened(&import, driver.cuIpcOpenMemHandle(pdptr, handle, flags), pdptr);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags) {
    struct import import;

    if (!import_begin(&import))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return opened(&import, driver.cuIpcOpenMemHandle_v2(pdptr, handle, flags), pdptr);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    struct share *share = share_claim();
    struct refund refund;
    CUresult r;

    if (!share || books_unref(share, ENTRY_IMPORT, dptr) <= 1) {
        refund_begin(&refund, ENTRY_IMPORT, dptr);
        return refund_settle(&refund, driver.cuIpcCloseMemHandle(dptr));
    }
    r = driver.cuIpcCloseMemHandle(dptr);
    if (r != CUDA_SUCCESS)
        (void) books_ref(share, ENTRY_IMPORT, dptr);
    return r;
}

CUresult cuImportExternalMemory(CUexternalMemory *ext_mem_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *mem_handle_desc) {
    struct import import;
    CUresult r;

    if (!import_begin(&import))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = import_settle(&import, driver.cuImportExternalMemory(ext_mem_out, mem_handle_desc));
    if (r != CUDA_SUCCESS || enter_import(&import, (uint64_t) (uintptr_t) *ext_mem_out, 0))
        return r;
    (void) driver.cuDestroyExternalMemory(*ext_mem_out);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDestroyExternalMemory(CUexternalMemory ext_mem) {
    struct refund refund;

    refund_begin(&refund, ENTRY_IMPORT, (uint64_t) (uintptr_t) ext_mem);
    return refund_settle(&refund, driver.cuDestroyExternalMemory(ext_mem));
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handle_type,
                                          unsigned long long flags) {
    if (!pool_export_begin(pool))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return driver.cuMemPoolExportToShareableHandle(handle_out, pool, handle_type, flags);
}

/* The process that made it has booked it. The close of the last of its memory is not reported, so
 * the import counts as open until this process ends. */
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handle_type,
                                            unsigned long long flags) {
    struct import import;
    CUresult r;

    if (!import_begin(&import))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = import_settle(
        &import, driver.cuMemPoolImportFromShareableHandle(pool_out, handle, handle_type, flags));
    if (r == CUDA_SUCCESS)
        pool_imported(*pool_out);
    return r;
}
