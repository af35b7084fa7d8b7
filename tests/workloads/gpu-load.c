/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a GPU busy for a part of the time, which a file says: gpu-load FILE. Each 20 ms one kernel
 * of so many percent of them; what the file says is read each time, and is 0 where it says nothing.
 */

#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "driver.h"

#define PERIOD_NS UINT64_C(20000000)

#define CUDA(name, params) CALL("libcuda.so.1", name, CUresult, params)

#define OK(call)                                                                                   \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            (void) printf("error=%d line=%d\n", (int) result_, __LINE__);                          \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static CUfunction load(void) {
    static const char module_text[] = "ALIQUOT SIMULATED MODULE 1\nkernel wait spin\n";
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdevice device;

    OK(CUDA(cuInit, (unsigned int) )(0));
    OK(CUDA(cuDeviceGet, (CUdevice *, int) )(&device, 0));
    OK(CUDA(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))(&context, device));
    OK(CUDA(cuCtxSetCurrent, (CUcontext))(context));
    OK(CUDA(cuModuleLoadData, (CUmodule *, const void *) )(&module, module_text));
    OK(CUDA(cuModuleGetFunction, (CUfunction *, CUmodule, const char *) )(&function, module,
                                                                          "wait"));
    return function;
}

/* Of a card; at most 100. */
static uint64_t read_percent(const char *path) {
    FILE *file = fopen(path, "re");
    char text[16] = "";

    if (!file)
        return 0;
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    (void) fclose(file);
    uint64_t percent = strtoull(text, NULL, 10);
    return percent < 100 ? percent : 100;
}

int main(int argc, char **argv) {
    CUfunction wait = load();
    struct timespec next;

    if (argc != 2)
        return EXIT_FAILURE;
    end_on_sigterm();
    (void) clock_gettime(CLOCK_MONOTONIC, &next);
    for (;;) {
        uint64_t ns = PERIOD_NS / 100 * read_percent(argv[1]);
        void *arguments[] = {&ns};

        if (ns > 0)
            OK(CUDA(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, CUstream, void **,
                                     void **) )(wait, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
        OK(CUDA(cuCtxSynchronize, (void) )());
        next.tv_nsec += (long) PERIOD_NS;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
}
