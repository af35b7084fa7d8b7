/* SPDX-License-Identifier: Apache-2.0 */

/* Enumeration and attributes of devices. */

#include <stdio.h>
#include <string.h>

#include "sim/cuda/cuda.h"

CUresult cuDeviceGetCount(int *count) {
    CUDA_TRY(cuda_enter());
    CUDA_RETURN_VALUE(count, cuda_ndevices);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUDA_TRY(cuda_enter_device(ordinal));
    CUDA_RETURN_VALUE(device, ordinal);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) snprintf(name, (size_t) len, "%s", cuda_device[dev].page->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(uuid->bytes, cuda_device[dev].page->uuid_bytes, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

/* The first version gives the card's UUID for a MIG device, too. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
    CUDA_TRY(cuDeviceGetUuid_v2(uuid, dev));
    for (uint32_t i = 0; i < cuda_client.ndevices; i++)
        if (cuda_client.device[i].minor == cuda_device[dev].page->parent)
            memcpy(uuid->bytes, cuda_client.device[i].page->uuid_bytes, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    CUDA_RETURN_VALUE(bytes,
                      cuda_device[dev].page->memory_total - cuda_device[dev].page->memory_reserved);
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    size_t wide;
    CUDA_TRY(cuDeviceTotalMem_v2(&wide, dev));
    CUDA_RETURN_VALUE(bytes, wide > UINT32_MAX ? UINT32_MAX : (unsigned int) wide);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = (int) cuda_device[dev].page->cc_major;
    *minor = (int) cuda_device[dev].page->cc_minor;
    return CUDA_SUCCESS;
}

/* Attributes common to all simulated devices. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} common[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, INT32_MAX},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    /* the programming guide's, the same from 7.0 to 9.0 */
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046},
};

/* Attributes that are figures of the device's page. */
#define FIGURE(name, field, factor)                                                                \
    { CU_DEVICE_ATTRIBUTE_##name, offsetof(struct sim_page, field), factor }

static const struct {
    CUdevice_attribute attribute;
    size_t offset; /* of a uint32_t in struct sim_page */
    uint32_t factor;
} figures[] = {
    FIGURE(CLOCK_RATE, sm_clock_mhz, 1000), /* in kHz */
    FIGURE(MEMORY_CLOCK_RATE, memory_clock_mhz, 1000),
    FIGURE(MULTIPROCESSOR_COUNT, sm_count, 1),
    FIGURE(ECC_ENABLED, ecc, 1),
    FIGURE(PCI_BUS_ID, pci_bus, 1),
    FIGURE(PCI_DEVICE_ID, pci_device, 1),
    FIGURE(PCI_DOMAIN_ID, pci_domain, 1),
    FIGURE(GLOBAL_MEMORY_BUS_WIDTH, bus_bits, 1),
    FIGURE(L2_CACHE_SIZE, l2_bytes, 1),
    FIGURE(COMPUTE_CAPABILITY_MAJOR, cc_major, 1),
    FIGURE(COMPUTE_CAPABILITY_MINOR, cc_minor, 1),
    FIGURE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, shared_per_sm, 1),
    FIGURE(MULTI_GPU_BOARD_GROUP_ID, minor, 1),
    FIGURE(GPU_PCI_DEVICE_ID, pci_id, 1),
    FIGURE(GPU_PCI_SUBSYSTEM_ID, pci_subsystem, 1),
};

/* Of the L2 cache, what programs may set aside; nothing before 8.0. */
static int persisting_l2(const struct sim_page *p) {
    if (p->cc_major < 8)
        return 0;
    if (p->cc_major > 8)
        return (int) (p->l2_bytes / 8 * 5);
    return p->cc_minor == 0 ? (int) (p->l2_bytes / 4 * 3) : (int) (p->l2_bytes / 16 * 11);
}

static int attribute_of(const struct sim_page *p, CUdevice_attribute attribute) {
    if (attribute == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)
        return p->cc_major == 7 && p->cc_minor == 5    ? 1024
               : p->cc_minor == 0 && p->cc_major != 12 ? 2048
                                                       : 1536;
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)
        return p->cc_major >= 9 && p->cc_major < 12; /* the others have no instructions for it */
    if (attribute == CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE)
        return persisting_l2(p);
    if (attribute == CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE)
        return p->cc_major < 8 ? 0 : (128 << 20) - 4096;
    if (attribute == CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT)
        return p->cc_major >= 9 ? 4 : 1;
    if (attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED ||
        attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED ||
        attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)
        return p->passive != 0; /* cards for games have none; 1 of the options: from the host */
    if (attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)
        return p->passive ? 100 : 0; /* the owner's reads see them in order */
    if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        return (int) p->shared_per_sm - 1024;
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        uint32_t value;
        if (figures[i].attribute != attribute)
            continue;
        memcpy(&value, (const char *) p + figures[i].offset, sizeof(value));
        return (int) (value * figures[i].factor);
    }
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
        if (common[i].attribute == attribute)
            return common[i].value;
    return 0;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!pi || (int) attrib < 1 || attrib > 200)
        return CUDA_ERROR_INVALID_VALUE;
    *pi = attribute_of(cuda_device[dev].page, attrib);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {INT32_MAX, 65535, 65535},
        .sharedMemPerBlock = 49152,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = INT32_MAX,
        .regsPerBlock = 65536,
        .clockRate = (int) cuda_device[dev].page->sm_clock_mhz * 1000,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pci_bus_id, int len, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!pci_bus_id || len < 13)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_page *p = cuda_device[dev].page;
    (void) snprintf(pci_bus_id, (size_t) len, "%04X:%02X:%02X.0", p->pci_domain & 0xffff,
                    p->pci_bus & 0xff, p->pci_device & 0x1f);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pci_bus_id) {
    CUDA_TRY(cuda_enter());
    unsigned int domain = 0, bus, device;
    if (!dev || !pci_bus_id ||
        (sscanf(pci_bus_id, "%x:%x:%x", &domain, &bus, &device) != 3 &&
         sscanf(pci_bus_id, "%x:%x", &bus, &device) != 2))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < cuda_ndevices; i++)
        if (cuda_device[i].page->pci_bus == bus && cuda_device[i].page->pci_device == device) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *can_access_peer, CUdevice dev, CUdevice peer_dev) {
    CUDA_TRY(cuda_enter_device(dev));
    CUDA_TRY(cuda_enter_device(peer_dev));
    if (!can_access_peer)
        return CUDA_ERROR_INVALID_VALUE;
    *can_access_peer = dev != peer_dev; /* all device memory is memory of this process */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice src,
                                 CUdevice dst) {
    int peer;
    CUDA_TRY(cuDeviceCanAccessPeer(&peer, src, dst));
    if (!value || !peer)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
             attrib == CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}
