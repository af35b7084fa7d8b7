/* SPDX-License-Identifier: Apache-2.0 */

/* Multicast objects on two H100s; with an argument, on cards that have none. */

#include "check.h"

#define MIB ((size_t) 1 << 20)

static void refused(void) {
    CUmulticastObjectProp prop = {.numDevices = 1, .size = 2 * MIB};
    CUmemGenericAllocationHandle mc;
    EXPECT(cuMulticastCreate(&mc, &prop), CUDA_ERROR_NOT_SUPPORTED);
}

static void bound(void) {
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 8 * MIB};
    CUmemAllocationProp memory = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle mc, h;
    CUdeviceptr p;
    size_t grain, before = check_free();
    OK(cuMulticastGetGranularity(&grain, &prop, 0));
    OK(cuMulticastCreate(&mc, &prop));
    REQUIRE(grain == 2 * MIB && check_free() == before);
    OK(cuMemCreate(&h, 4 * MIB, &memory, 0));
    OK(cuMulticastAddDevice(mc, 0));
    EXPECT(cuMulticastAddDevice(mc, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 0, h, 0, 4 * MIB, 0), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuMulticastAddDevice(mc, 1));
    EXPECT(cuMulticastBindMem(mc, 0, h, 0, 6 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 6 * MIB, h, 0, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem_v2(mc, 1, 2 * MIB, h, 0, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindMem_v2(mc, 0, 2 * MIB, h, 0, 4 * MIB, 0));
    EXPECT(cuMulticastBindMem(mc, 4 * MIB, h, 0, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(h));
    REQUIRE(check_free() == before - 4 * MIB); /* the object holds it */
    OK(cuMemAddressReserve(&p, 8 * MIB, 0, 0, 0));
    EXPECT(cuMemMap(p, 8 * MIB, 0, mc, 0), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuMulticastUnbind(mc, 1, 2 * MIB, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(mc, 0, 2 * MIB, 4 * MIB));
    REQUIRE(check_free() == before);
    /* By address; and released with what is bound. */
    OK(cuMemCreate(&h, 2 * MIB, &memory, 0));
    OK(cuMemMap(p, 2 * MIB, 0, h, 0));
    OK(cuMulticastBindAddr(mc, 0, p, 2 * MIB, 0));
    OK(cuMemUnmap(p, 2 * MIB));
    OK(cuMemRelease(h));
    REQUIRE(check_free() == before - 2 * MIB);
    OK(cuMemRelease(mc));
    EXPECT(cuMemRelease(mc), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(check_free() == before);
    OK(cuMemAddressFree(p, 8 * MIB));
}

int main(int argc, char **argv) {
    (void) argv;
    (void) check_start(0);
    if (argc > 1)
        refused();
    else
        bound();
    OK(cuDevicePrimaryCtxRelease_v2(0));
    (void) puts("ok");
    return 0;
}
