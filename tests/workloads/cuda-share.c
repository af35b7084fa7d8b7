/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant: looks at the GPU it was given, takes memory, computes, and holds what it took.
 *
 *     cuda-share [--bytes SIZE] [--over SIZE] [--hold]
 *
 * --bytes: allocate so much (4Gi, 512Mi, a number) and hold it. --over: then ask for so much more,
 * report the driver's answer, and compute once more. --hold: stay until SIGTERM.
 * One key=value a line; the exit status says whether it could compute.
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "driver.h"
#include "saxpy_module.h"

#define CUDA(name, params) CALL("libcuda.so.1", name, CUresult, params)
#define ELEMENTS 65536
#define BLOCK 256

struct options {
    size_t bytes, over;
    int hold;
};

static const char *name_of(CUresult result) {
    const char *name = NULL;

    (void) CUDA(cuGetErrorName, (CUresult, const char **) )(result, &name);
    return name ? name : "unknown";
}

static int check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS)
        return 0;
    (void) printf("error=%s answered %d %s\n", what, (int) result, name_of(result));
    return -1;
}

static void print_uuid(const CUuuid *uuid) {
    (void) printf("uuid=GPU-");
    for (size_t i = 0; i < sizeof(uuid->bytes); i++)
        (void) printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                      (unsigned char) uuid->bytes[i]);
    (void) printf("\n");
}

static int open_device(void) {
    CUdevice device;
    CUcontext context;
    CUuuid uuid;
    char name[96];
    int count = 0;

    if (check(CUDA(cuInit, (unsigned) )(0), "cuInit") < 0 ||
        check(CUDA(cuDeviceGetCount, (int *) )(&count), "cuDeviceGetCount") < 0)
        return -1;
    (void) printf("pid=%d\ndevices=%d\n", (int) getpid(), count);
    if (check(CUDA(cuDeviceGet, (CUdevice *, int) )(&device, 0), "cuDeviceGet") < 0 ||
        check(CUDA(cuDeviceGetName, (char *, int, CUdevice))(name, (int) sizeof(name), device),
              "cuDeviceGetName") < 0 ||
        check(CUDA(cuDeviceGetUuid, (CUuuid *, CUdevice))(&uuid, device), "cuDeviceGetUuid") < 0)
        return -1;
    (void) printf("name=%s\n", name);
    print_uuid(&uuid);
    size_t total = 0;
    if (check(CUDA(cuDeviceTotalMem_v2, (size_t *, CUdevice))(&total, device), "cuDeviceTotalMem") <
        0)
        return -1;
    (void) printf("device_total=%zu\n", total);
    return check(CUDA(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))(&context, 0, device),
                 "cuCtxCreate");
}

static int print_memory(const char *when) {
    size_t free_bytes = 0, total = 0;

    if (check(CUDA(cuMemGetInfo_v2, (size_t *, size_t *) )(&free_bytes, &total), "cuMemGetInfo") <
        0)
        return -1;
    (void) printf("%stotal=%zu\n%sfree=%zu\n", when, total, when, free_bytes);
    return 0;
}

static CUresult allocate(CUdeviceptr *ret, size_t size) {
    return CUDA(cuMemAlloc_v2, (CUdeviceptr *, size_t))(ret, size);
}

/* y = a x + y on the GPU, and the same here. */
static int launch_saxpy(CUfunction function, CUdeviceptr x, CUdeviceptr y) {
    int n = ELEMENTS;
    float a = 2.5F;
    void *arguments[] = SAXPY_ARGUMENTS(n, a, x, y);

    if (check(CUDA(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    unsigned, unsigned, CUstream, void **, void **) )(
                  function, ELEMENTS / BLOCK, 1, 1, BLOCK, 1, 1, 0, NULL, arguments, NULL),
              "cuLaunchKernel") < 0)
        return -1;
    return check(CUDA(cuCtxSynchronize, (void) )(), "cuCtxSynchronize");
}

static int copy_in(CUdeviceptr to, const float *from) {
    return check(CUDA(cuMemcpyHtoD_v2,
                      (CUdeviceptr, const void *, size_t))(to, from, ELEMENTS * sizeof(*from)),
                 "cuMemcpyHtoD");
}

static int run_saxpy(CUfunction function, CUdeviceptr x, CUdeviceptr y) {
    static float hx[ELEMENTS], hy[ELEMENTS], result[ELEMENTS];

    for (int i = 0; i < ELEMENTS; i++) {
        hx[i] = (float) i;
        hy[i] = (float) (ELEMENTS - i);
    }
    if (copy_in(x, hx) < 0 || copy_in(y, hy) < 0 || launch_saxpy(function, x, y) < 0 ||
        check(CUDA(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))(result, y, sizeof(result)),
              "cuMemcpyDtoH") < 0)
        return -1;
    for (int i = 0; i < ELEMENTS; i++)
        if (fabsf(result[i] - (2.5F * hx[i] + hy[i])) > 0.5F) {
            (void) printf("error=element %d is %f\n", i, (double) result[i]);
            return -1;
        }
    return 0;
}

static int compute(const char *key) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr x, y;

    if (check(CUDA(cuModuleLoadData, (CUmodule *, const void *) )(&module, saxpy_module),
              "cuModuleLoadData") < 0 ||
        check(CUDA(cuModuleGetFunction, (CUfunction *, CUmodule, const char *) )(&function, module,
                                                                                 "saxpy"),
              "cuModuleGetFunction") < 0 ||
        check(allocate(&x, ELEMENTS * sizeof(float)), "cuMemAlloc") < 0 ||
        check(allocate(&y, ELEMENTS * sizeof(float)), "cuMemAlloc") < 0)
        return -1;
    int r = run_saxpy(function, x, y);
    (void) CUDA(cuMemFree_v2, (CUdeviceptr))(x);
    (void) CUDA(cuMemFree_v2, (CUdeviceptr))(y);
    (void) CUDA(cuModuleUnload, (CUmodule))(module);
    (void) printf("%s=%s\n", key, r < 0 ? "wrong" : "ok");
    return r;
}

static int work(const struct options *options) {
    CUdeviceptr held = 0, more = 0;

    if (open_device() < 0 || print_memory("") < 0)
        return -1;
    if (options->bytes) {
        CUresult result = allocate(&held, options->bytes);
        (void) printf("alloc=%zu\nalloc_result=%d\n", options->bytes, (int) result);
    }
    if (compute("saxpy") < 0)
        return -1;
    if (options->over) {
        CUresult result = allocate(&more, options->over);
        (void) printf("over=%zu\nover_result=%d\nover_name=%s\n", options->over, (int) result,
                      name_of(result));
        if (compute("saxpy_after_over") < 0)
            return -1;
    }
    return print_memory("now_");
}

static int parse_size(const char *text, size_t *ret) {
    char *end = NULL;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = strcmp(end, "Ki") == 0   ? 10
                     : strcmp(end, "Mi") == 0 ? 20
                     : strcmp(end, "Gi") == 0 ? 30
                                              : 0;
    if (errno || end == text || (*end && !shift) || value > (SIZE_MAX >> shift))
        return -EINVAL;
    *ret = (size_t) value << shift;
    return 0;
}

static int parse(int argc, char **argv, struct options *ret) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--hold") == 0)
            ret->hold = 1;
        else if (strcmp(argv[i], "--bytes") == 0 && i + 1 < argc &&
                 parse_size(argv[i + 1], &ret->bytes) == 0)
            i++;
        else if (strcmp(argv[i], "--over") == 0 && i + 1 < argc &&
                 parse_size(argv[i + 1], &ret->over) == 0)
            i++;
        else
            return -EINVAL;
    }
    return 0;
}

int main(int argc, char **argv) {
    struct options options = {0};
    sigset_t term;

    if (parse(argc, argv, &options) < 0) {
        (void) fprintf(stderr, "usage: cuda-share [--bytes SIZE] [--over SIZE] [--hold]\n");
        return 2;
    }
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    /* Blocked before the first thread of the driver, so that SIGTERM waits for us. */
    (void) sigemptyset(&term);
    (void) sigaddset(&term, SIGTERM);
    (void) sigprocmask(SIG_BLOCK, &term, NULL);

    int r = work(&options);
    (void) printf("ready=%s\n", r < 0 ? "no" : "yes");
    if (options.hold && r == 0) {
        int signo;
        (void) sigwait(&term, &signo);
        (void) printf("end=ok\n");
    }
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
