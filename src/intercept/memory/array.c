/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays and mipmapped arrays. Only the driver knows the size of an array, and reports it only for
 * an existing one. So a sparse array, which takes no memory, is created to read its requirements.
 */

#include "abi/array_format.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/vmm.h"

/* Block and video formats take no more than 4 bytes for an element. */
static uint64_t bytes_per_channel(CUarray_format format) {
    unsigned int bytes = array_channel_bytes(format);

    return bytes > 0 ? bytes : 4;
}

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* For drivers that do not answer: the elements themselves, over all levels. */
static uint64_t estimate(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels) {
    uint64_t width = desc->Width, height = desc->Height ? desc->Height : 1,
             depth = desc->Depth ? desc->Depth : 1;
    bool layered = desc->Flags & CUDA_ARRAY3D_LAYERED;
    uint64_t sum = 0;

    for (unsigned int level = 0; level < levels && level < 32; level++) {
        uint64_t elements = times(times(width, height), depth);
        uint64_t bytes = times(times(elements, desc->NumChannels), bytes_per_channel(desc->Format));

        if (__builtin_add_overflow(sum, bytes, &sum))
            return UINT64_MAX;
        width = width > 1 ? width / 2 : 1;
        height = height > 1 ? height / 2 : 1;
        depth = depth > 1 && !layered ? depth / 2 : depth;
    }
    return sum;
}

static bool takes_no_memory(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    return desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

/* `probe` is the descriptor without memory behind it: the driver says what it would need. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc,
                            const CUDA_ARRAY3D_DESCRIPTOR *probe, CUdevice device) {
    CUDA_ARRAY_MEMORY_REQUIREMENTS required = {0};
    CUarray array;
    CUresult r;

    if (driver.cuArray3DCreate_v2(&array, probe) != CUDA_SUCCESS)
        return estimate(desc, 1);
    r = driver.cuArrayGetMemoryRequirements(&required, array, device);
    (void) driver.cuArrayDestroy(array);
    return r == CUDA_SUCCESS && required.size ? required.size : estimate(desc, 1);
}

static uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc,
                             const CUDA_ARRAY3D_DESCRIPTOR *probe, unsigned int levels,
                             CUdevice device) {
    CUDA_ARRAY_MEMORY_REQUIREMENTS required = {0};
    CUmipmappedArray mipmap;
    CUresult r;

    if (driver.cuMipmappedArrayCreate(&mipmap, probe, levels) != CUDA_SUCCESS)
        return estimate(desc, levels);
    r = driver.cuMipmappedArrayGetMemoryRequirements(&required, mipmap, device);
    (void) driver.cuMipmappedArrayDestroy(mipmap);
    return r == CUDA_SUCCESS && required.size ? required.size : estimate(desc, levels);
}

static uint64_t needed_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels,
                             CUdevice device) {
    CUDA_ARRAY3D_DESCRIPTOR probe = *desc;

    if (takes_no_memory(desc))
        return 0;
    probe.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    return levels > 0 ? mipmap_bytes(desc, &probe, levels, device)
                      : array_bytes(desc, &probe, device);
}

/* Reserves for an array, or for a mipmapped one where levels > 0; false: refuse. */
static bool reserve_array(struct charge *charge, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                          unsigned int levels) {
    CUdevice device = 0;

    charge_on_current(charge);
    if (!charge->share || !desc || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        charge->share = NULL; /* the driver refuses it */
        return true;
    }
    return charge_reserve(charge, needed_bytes(desc, levels, device));
}

static CUresult settle_array(struct charge *charge, CUresult r, CUarray *handle) {
    return charge_settle(charge, r, ENTRY_ARRAY,
                         r == CUDA_SUCCESS ? (uint64_t) (uintptr_t) *handle : 0, charge->context);
}

/* The older descriptors have fewer members. */
static const CUDA_ARRAY3D_DESCRIPTOR *widen_3d(CUDA_ARRAY3D_DESCRIPTOR *wide,
                                               const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc) {
    if (!desc)
        return NULL;
    *wide = (CUDA_ARRAY3D_DESCRIPTOR){desc->Width,  desc->Height,      desc->Depth,
                                      desc->Format, desc->NumChannels, desc->Flags};
    return wide;
}

#define WIDEN_2D(wide, desc)                                                                       \
    ((desc) ? (*(wide) = (CUDA_ARRAY3D_DESCRIPTOR){.Width = (desc)->Width,                         \
                                                   .Height = (desc)->Height,                       \
                                                   .Format = (desc)->Format,                       \
                                                   .NumChannels = (desc)->NumChannels},            \
               (const CUDA_ARRAY3D_DESCRIPTOR *) (wide))                                           \
            : NULL)

/* Creates an array by `call`, booked by `desc`. */
#define CREATE(handle, desc, call)                                                                 \
    do {                                                                                           \
        struct charge charge;                                                                      \
                                                                                                   \
        if (!reserve_array(&charge, desc, 0))                                                      \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        return settle_array(&charge, call, handle);                                                \
    } while (0)

CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    CREATE(handle, desc, driver.cuArray3DCreate_v2(handle, desc));
}

CUresult cuArray3DCreate(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc) {
    CUDA_ARRAY3D_DESCRIPTOR wide;

    CREATE(handle, widen_3d(&wide, desc), driver.cuArray3DCreate(handle, desc));
}

CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *desc) {
    CUDA_ARRAY3D_DESCRIPTOR wide;

    CREATE(handle, WIDEN_2D(&wide, desc), driver.cuArrayCreate_v2(handle, desc));
}

CUresult cuArrayCreate(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR_v1 *desc) {
    CUDA_ARRAY3D_DESCRIPTOR wide;

    CREATE(handle, WIDEN_2D(&wide, desc), driver.cuArrayCreate(handle, desc));
}

/* With an array go the bindings of memory to it, if it is a sparse one. */
#define DESTROY(array, call)                                                                       \
    do {                                                                                           \
        uint64_t key = (uint64_t) (uintptr_t) (array);                                             \
        struct refund refund;                                                                      \
        uint32_t mark = 0;                                                                         \
        CUresult r;                                                                                \
                                                                                                   \
        refund_begin(&refund, ENTRY_ARRAY, key);                                                   \
        if (refund.share)                                                                          \
            mark = bindings_mark(refund.share, key, 0, UINT64_MAX, -1);                            \
        r = refund_settle(&refund, call);                                                          \
        return refund.share ? bindings_settle(refund.share, r, mark) : r;                          \
    } while (0)

CUresult cuArrayDestroy(CUarray array) {
    DESTROY(array, driver.cuArrayDestroy(array));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int levels) {
    struct charge charge;
    CUresult r;

    if (!reserve_array(&charge, desc, levels ? levels : 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMipmappedArrayCreate(handle, desc, levels);
    return charge_settle(&charge, r, ENTRY_ARRAY,
                         r == CUDA_SUCCESS ? (uint64_t) (uintptr_t) *handle : 0, charge.context);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap) {
    DESTROY(mipmap, driver.cuMipmappedArrayDestroy(mipmap));
}
